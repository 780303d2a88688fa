"""torch.fx graphs from traces: the same computation in PyTorch's own functions, for tools that take such graphs."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch import fx
from torch.overrides import TorchFunctionMode

from dovetail import prims
from dovetail.errors import Unsupported, require
from dovetail.executors import OperatorExecutor, resolve_executors
from dovetail.frontend.fx.rows import ROWS
from dovetail.langs.torch import OpaqueSymbol, TorchSymbol
from dovetail.prims import Tag
from dovetail.torch_internals import tree_leaves
from dovetail.trace import BoundSymbol, Proxy, Trace, proxies, tree_map
from dovetail.trace.printing import is_region


def to_fx(trace: Trace) -> fx.GraphModule:
    """Return `trace` as a torch.fx.GraphModule with the same inputs and outputs.

    A torch operation is one node, a prim one or a few.  Fused regions are opened, and constants are attributes.  Each placeholder has its
    spec as `meta["spec"]`, which `from_fx` reads, and each other node the user's file:line, where it is known, as `meta["where"]`.
    """
    require(isinstance(trace, Trace), "to_fx takes a program, as dovetail.last_traces(fn)[0]; got {!r}", trace, error=TypeError)
    if trace.relations is not None:
        raise Unsupported("a program with symbolic sizes is not written as a torch.fx graph yet; compile the function with dynamic=False")
    return _Graph(trace).module()


class _Tracer(fx.proxy.GraphAppendingTracer):
    """Writes the user's line into the nodes that it creates."""

    where: str | None = None

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        node = super().create_node(*args, **kwargs)
        if self.where is not None:
            node.meta["where"] = self.where
        return node


class _Graph:
    """A graph that is being written."""

    def __init__(self, trace: Trace):
        self.trace, self.graph, self.root = trace, fx.Graph(), torch.nn.Module()
        self.tracer = _Tracer(self.graph)
        self.named: set[fx.Node] = set()  # nodes that bear the name of a result
        self.values: dict[Proxy, Any] = {}

    def module(self) -> fx.GraphModule:
        """Return the whole trace as a module."""
        for p in self.trace.inputs:
            self.values[p] = placeholder = self._proxy(self.graph.placeholder(p.name), p)
            placeholder.node.meta["spec"] = p.spec
        for p, value in self.trace.constants.items():
            setattr(self.root, p.name, value)
            self.values[p] = self._proxy(self.graph.get_attr(p.name), p)
        for line in self.trace.lines:
            self.line(line)
        self.graph.output(tree_map(lambda x: self._now(x).node if isinstance(x, Proxy) else x, self.trace.outputs))
        return fx.GraphModule(self.root, self.graph, self.trace.name)

    def _proxy(self, node: fx.Node, p: Proxy) -> fx.Proxy:
        proxy = fx.Proxy(node, self.tracer)
        proxy.spec = p.spec
        return proxy

    def _now(self, x: Any) -> Any:
        return self.values[x] if isinstance(x, Proxy) else x

    def line(self, line: BoundSymbol, where: str | None = None) -> None:
        """Add the nodes of `line`; `where` is the user's line of the composite line that contains it."""
        if line.symbol is prims.delete:
            return
        if Tag.GUARD in line.symbol.tags:
            raise Unsupported(f"{line.symbol} is part of a prologue, which guards inputs; only a computation has a graph")
        self.tracer.where = where = line.where or where
        if is_region(line):
            result = NotImplemented
        elif (row := ROWS.get(line.symbol)) is not None:
            result = self._row(row, *tree_map(self._now, (line.args, line.kwargs)))
        else:
            result = self._whole(line)
        if result is NotImplemented and line.body:
            for inner in line.body:
                self.line(inner, where)
            return
        self._bind(line.out, self._by_executor(line) if result is NotImplemented else result)

    def call(self, fn: Callable, args: tuple = (), kwargs: dict | None = None) -> fx.Proxy:
        """Record one node."""
        return self.tracer.create_proxy("call_function", fn, args, kwargs or {})

    def _row(self, row: Callable, args: tuple, kwargs: dict) -> Any:
        if not isinstance(row, FunctionType) or not row.__module__.startswith("dovetail."):
            return self.call(row, args, kwargs)
        with _FactoryMode(self):
            return row(*args, **kwargs)

    def _whole(self, line: BoundSymbol) -> Any:
        """Record a torch operation as the call of torch that it stands for; decompose it where a graph cannot hold its arguments."""
        symbol = line.symbol
        if not isinstance(symbol, (TorchSymbol, OpaqueSymbol)) or symbol.callable is None:
            return NotImplemented
        if isinstance(symbol, OpaqueSymbol) and symbol.kind != "opaque":
            return self._bound(line, symbol.callable)
        args, kwargs = tree_map(self._now, (line.args, line.kwargs))
        try:
            if symbol.path.startswith("."):
                return self.tracer.create_proxy("call_method", symbol.path[1:], args, kwargs)
            return self.call(symbol.callable, args, kwargs)
        except NotImplementedError:  # torch.fx on an argument such as an array of NumPy's
            return NotImplemented if line.body else self._bound(line, symbol.callable)

    def _by_executor(self, line: BoundSymbol) -> Any:
        """Record an operation that only executors know as the function by which one runs it."""
        if line.implementation is not None:
            return self._bound(line, line.implementation.fn)
        for ex in resolve_executors():
            if isinstance(ex, OperatorExecutor) and (implementation := ex.implementation(line.symbol)) is not None and implementation.fn is not None:
                return self._bound(line, implementation.fn)
        raise Unsupported(f"{line.symbol} has no equivalent in PyTorch's functions, and no executor runs it by a function; leave it out of the graph")

    def _bound(self, line: BoundSymbol, fn: Callable) -> Any:
        """Record a node that calls `fn` as `line` does; the arguments that a graph cannot hold are bound to it."""
        inputs = proxies((line.args, line.kwargs))

        def call(*tensors: Any) -> Any:
            values = iter(tensors)
            args, kwargs = tree_map(lambda x: next(values) if isinstance(x, Proxy) else x, (line.args, line.kwargs))
            return fn(*args, **kwargs)

        call.__name__ = call.__qualname__ = line.symbol.id.replace(".", "_").replace(":", "_")
        return self.call(call, tuple(map(self._now, inputs)))

    def _bind(self, out: Any, result: Any) -> None:
        """Bind the results of a line, a proxy or a nest of them, to the results of its node."""
        if isinstance(out, Proxy):
            if isinstance(result, fx.Proxy):
                if result.node not in self.named and result.node.op in ("call_function", "call_method"):
                    self.named.add(result.node)
                    result.node._rename(out.name)
                result = self._proxy(result.node, out)
            self.values[out] = result
        elif isinstance(out, dict):
            for key, item in out.items():
                self._bind(item, result[key])
        elif isinstance(out, (tuple, list)):
            for i, item in enumerate(out):
                if proxies(item):
                    self._bind(item, result[i])


class _FactoryMode(TorchFunctionMode):
    """Records calls of a row that take no proxy, such as torch.full."""

    def __init__(self, graph: _Graph):
        super().__init__()
        self.graph = graph

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func is torch.device or any([isinstance(x, fx.Proxy) for x in tree_leaves((args, kwargs))]):
            return func(*args, **(kwargs or {}))
        return self.graph.call(func, args, kwargs)
