"""Programs from torch.fx graphs: nodes are called one by one on proxies."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from dovetail.errors import TracedValueError, Unsupported, require
from dovetail.frontend import aten
from dovetail.frontend.environment import AUTOCAST
from dovetail.frontend.native import acquire
from dovetail.langs.torch import spec_of
from dovetail.prims import TensorSpec, recorder
from dovetail.torch_internals import NN_PAD, HigherOrderOperator, OpOverload, OpOverloadPacket
from dovetail.trace import NumberProxy, Trace, leaves

_INLINED = {"tag_activation_checkpoint", "wrap", "wrap_activation_checkpoint"}  # higher-order operators that call their first argument
_SUBSTITUTES: dict[Callable, Callable] = {  # functions that Dynamo writes into graphs -> the functions they stand for
    NN_PAD.value: torch.nn.functional.pad,
    torch.sym_int: int,
    torch.sym_float: float,
    torch.sym_max: max,
    torch.sym_min: min,
    torch.sym_sum: sum,
    torch.sym_not: operator.not_,
}
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def from_fx(gm: fx.GraphModule, *examples: Any) -> Trace:
    """Return the program of `gm` for arguments like `examples`, as `dovetail.make_trace` would.

    Without examples the placeholders need metadata: `meta["spec"]` as in graphs of `to_fx`, or as fake tensors in
    `meta["val"]` (torch.export, AOTAutograd) or `meta["example_value"]` (Dynamo).  The module's own parameters and buffers are inputs, before
    the others.
    """
    require(
        isinstance(gm, fx.GraphModule),
        "from_fx takes a torch.fx.GraphModule, as torch.fx.symbolic_trace(fn) returns it; got {!r}",
        gm,
        error=TypeError,
    )
    places = gm.graph.find_nodes(op="placeholder")
    require(len(examples) <= len(places), "the graph takes {} arguments, got {} examples", len(places), len(examples), error=TypeError)
    arguments = [*examples, *map(_default if examples else _example, places[len(examples) :])]
    return acquire(Interpreted(gm, arguments), (), {}).trace


def _example(node: fx.Node) -> Any:
    """Return the value that a placeholder stands for, by its metadata."""
    for key in ("spec", "val", "example_value"):
        if (example := node.meta.get(key)) is not None:
            return example
    return _default(node)


def _default(node: fx.Node) -> Any:
    """Return the default value of a placeholder."""
    if node.args:
        return node.args[0]
    raise Unsupported(f"the placeholder {node.name} has no metadata about its value; pass examples: from_fx(gm, *examples)")


def _spec(name: str, x: torch.Tensor) -> TensorSpec:
    """Return the spec of an example; its sizes have to be numbers."""
    if any([not isinstance(n, int) for n in (*x.shape, *x.stride())]):
        raise Unsupported(f"the placeholder {name} has symbolic sizes, {list(x.shape)}; pass examples: from_fx(gm, *examples)")
    return spec_of(x)


class Interpreted(torch.nn.Module):
    """A graph module as a module without arguments, so that its tensors are inputs of the trace, and then its placeholders."""

    def __init__(self, gm: fx.GraphModule, examples: list[Any]):
        super().__init__()
        self.gm, self._examples = gm, examples

    def forward(self) -> Any:
        """Run on new inputs of the trace that is recorded."""
        new, seen, args = recorder.get(), {}, []
        for node, x in zip(self.gm.graph.find_nodes(op="placeholder"), self._examples, strict=True):
            if isinstance(x, (torch.Tensor, TensorSpec)):
                if id(x) not in seen:
                    seen[id(x)] = new.tensor(x if isinstance(x, TensorSpec) else _spec(node.name, x))
                    new.inputs.append(seen[id(x)])
                x = seen[id(x)]
            args.append(x)
        return run_graph(self.gm, *args)


def run_graph(gm: fx.GraphModule, *args: Any) -> Any:
    """Run `gm` on `args`, node by node; under a recorder, each line that a node records knows the user's file:line."""
    refuse(gm.graph)
    values, inputs, lines = {}, iter(args), getattr(recorder.get(), "lines", [])
    for node in gm.graph.nodes:
        now_args, now_kwargs = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
        before = len(lines)
        if node.op == "placeholder":
            values[node] = next(inputs, *now_args)
        elif node.op == "get_attr":
            values[node] = _attribute(gm, node.target)
        elif node.op == "call_function":
            values[node] = _call(_called(node.target), now_args, now_kwargs)
        elif node.op == "call_method":
            values[node] = getattr(now_args[0], node.target)(*now_args[1:], **now_kwargs)
        elif node.op == "call_module":
            values[node] = gm.get_submodule(node.target)(*now_args, **now_kwargs)
        else:
            return now_args[0]
        if len(lines) > before and (where := user_line_of(node)) is not None:
            for line in lines[before:]:
                line.where = where
    raise Unsupported("the graph has no output node")


def _attribute(gm: torch.nn.Module, target: str) -> Any:
    for name in target.split("."):
        gm = getattr(gm, name)
    return gm


def _call(function: Callable, args: tuple, kwargs: dict) -> Any:
    """Call a function of a graph.  Raises TracedValueError where it does not take a number of the program."""
    if getattr(function, "__module__", None) == "_operator" or not any([type(x) is NumberProxy for x in leaves((args, kwargs))]):
        return function(*args, **kwargs)
    try:
        return recorder.get().environment.call(function, args, kwargs)
    except TypeError as error:
        raise TracedValueError(f"the value of a number that the program computes is needed: {error}") from error


def _called(target: Callable) -> Callable:
    """Return the function that calls of `target` stand for."""
    if isinstance(target, OpOverloadPacket):
        return target
    if isinstance(target, OpOverload):
        return aten.torch_call(target)
    if isinstance(target, HigherOrderOperator):
        return lambda body, *args, **_: run_graph(body, *args)
    return _SUBSTITUTES.get(target, target)


def refuse(graph: fx.Graph) -> None:
    """Raise Unsupported for a node that would change the process while it is traced, or that calls what is not traced."""
    for node in graph.nodes:
        name = getattr(node.target, "__name__", "")
        if node.op != "call_function":
            continue
        if name in ("_enter_autocast", "_exit_autocast"):
            raise Unsupported(AUTOCAST)
        if isinstance(node.target, HigherOrderOperator) and node.target.name() not in _INLINED:
            raise Unsupported(f"the higher-order operator {node.target.name()} is not traced")
        if "functorch" in (getattr(node.target, "__module__", "") or ""):
            raise Unsupported(
                f"{name}, a part of torch.func, is not traced; use dovetail.grad or dovetail.vjp in a function that dovetail.jit compiles"
            )


def user_line_of(node: fx.Node) -> str | None:
    """Return file:line of the user's call that a node stands for: the innermost frame of its stack trace that is not torch's."""
    if (where := node.meta.get("where")) is not None:
        return where
    frames = [(file, line) for file, line in _FRAME.findall(node.meta.get("stack_trace") or "") if "-packages/torch/" not in file]
    return ":".join(frames[-1]) if frames else None
