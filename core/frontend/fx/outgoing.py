"""A trace as a torch.fx graph: what it computes, in PyTorch's own functions, for whoever takes such graphs."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch import fx
from torch.overrides import TorchFunctionMode

from dovetail import prims
from dovetail.errors import Unsupported
from dovetail.executors import OperatorExecutor, resolve_executors
from dovetail.frontend.fx.rows import ROWS
from dovetail.langs.torch import OpaqueSymbol, TorchSymbol
from dovetail.prims import SYMBOLS, Tag
from dovetail.torch_internals import tree_leaves
from dovetail.trace import BoundSymbol, Proxy, Trace, proxies, tree_map


def to_fx(trace: Trace) -> fx.GraphModule:
    """Return `trace` as a torch.fx.GraphModule with the same inputs and outputs.

    A torch operation is one node, a prim one or a few.  Fused regions are opened, and constants are attributes.  Each placeholder has its
    spec as `meta["spec"]`, which `from_fx` reads, and each other node the user's file:line, where it is known, as `meta["where"]`.
    """
    return _Graph(trace).module()


class _Tracer(fx.proxy.GraphAppendingTracer):
    """Writes the user's line into the nodes that it makes."""

    where: str | None = None

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        node = super().create_node(*args, **kwargs)
        if self.where is not None:
            node.meta["where"] = self.where
        return node


class _Graph:
    """The graph while it is written."""

    def __init__(self, trace: Trace):
        self.trace, self.graph, self.root = trace, fx.Graph(), torch.nn.Module()
        self.tracer = _Tracer(self.graph)
        self.named: set[fx.Node] = set()  # nodes that bear the name of a result
        self.values: dict[Proxy, Any] = {}

    def module(self) -> fx.GraphModule:
        """Return the whole trace as a module."""
        for p in self.trace.inputs:
            self.values[p] = made = self._proxy(self.graph.placeholder(p.name), p)
            made.node.meta["spec"] = p.spec
        for p, value in self.trace.constants.items():
            setattr(self.root, p.name, value)
            self.values[p] = self._proxy(self.graph.get_attr(p.name), p)
        for line in self.trace.lines:
            self.line(line)
        self.graph.output(tree_map(lambda x: self._now(x).node if isinstance(x, Proxy) else x, self.trace.outputs))
        return fx.GraphModule(self.root, self.graph, self.trace.name)

    def _proxy(self, node: fx.Node, p: Proxy) -> fx.Proxy:
        made = fx.Proxy(node, self.tracer)
        made.spec = p.spec
        return made

    def _now(self, x: Any) -> Any:
        return self.values[x] if isinstance(x, Proxy) else x

    def line(self, line: BoundSymbol, where: str | None = None) -> None:
        """Add what `line` computes; `where` is the user's line of the one that it is a part of."""
        if line.symbol is prims.delete:
            return
        if Tag.GUARD in line.symbol.tags:
            raise Unsupported(f"{line.symbol} is part of a prologue, which guards inputs; only a computation has a graph")
        self.tracer.where = where = line.where or where
        if line.body and line.symbol.id not in SYMBOLS:  # a fused region
            made = NotImplemented
        elif (row := ROWS.get(line.symbol)) is not None:
            made = self._row(row, *tree_map(self._now, (line.args, line.kwargs)))
        else:
            made = self._whole(line)
        if made is NotImplemented and line.body:
            for inner in line.body:
                self.line(inner, where)
            return
        self._bind(line.out, self._by_executor(line) if made is NotImplemented else made)

    def call(self, fn: Callable, args: tuple = (), kwargs: dict | None = None) -> fx.Proxy:
        """Record one node."""
        return self.tracer.create_proxy("call_function", fn, args, kwargs or {})

    def _row(self, row: Callable, args: tuple, kwargs: dict) -> Any:
        if not isinstance(row, FunctionType) or not row.__module__.startswith("dovetail."):
            return self.call(row, args, kwargs)
        with _Factories(self):
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
            if isinstance(ex, OperatorExecutor) and (found := ex.implementation(line.symbol)) is not None and found.fn is not None:
                return self._bound(line, found.fn)
        raise Unsupported(f"{line.symbol} has no meaning in PyTorch's functions, and no executor runs it by a function; leave it out of the graph")

    def _bound(self, line: BoundSymbol, fn: Callable) -> Any:
        """Record a node that calls `fn` as `line` does; the arguments that a graph cannot hold are bound to it."""
        given = proxies((line.args, line.kwargs))

        def call(*tensors: Any) -> Any:
            values = iter(tensors)
            args, kwargs = tree_map(lambda x: next(values) if isinstance(x, Proxy) else x, (line.args, line.kwargs))
            return fn(*args, **kwargs)

        call.__name__ = call.__qualname__ = line.symbol.id.replace(".", "_").replace(":", "_")
        return self.call(call, tuple(map(self._now, given)))

    def _bind(self, out: Any, made: Any) -> None:
        """Bind the results of a line, a proxy or a nest of them, to the results of its node."""
        if isinstance(out, Proxy):
            if isinstance(made, fx.Proxy):
                if made.node not in self.named and made.node.op in ("call_function", "call_method"):
                    self.named.add(made.node)
                    made.node._rename(out.name)
                made = self._proxy(made.node, out)
            self.values[out] = made
        elif isinstance(out, dict):
            for key, item in out.items():
                self._bind(item, made[key])
        elif isinstance(out, (tuple, list)):
            for i, item in enumerate(out):
                if proxies(item):
                    self._bind(item, made[i])


class _Factories(TorchFunctionMode):
    """Makes nodes of the calls in a row that no proxy takes part in, such as torch.full."""

    def __init__(self, graph: _Graph):
        super().__init__()
        self.graph = graph

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func is torch.device or any([isinstance(x, fx.Proxy) for x in tree_leaves((args, kwargs))]):
            return func(*args, **(kwargs or {}))
        return self.graph.call(func, args, kwargs)
