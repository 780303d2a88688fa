"""torch.autograd.Function: how a call of one is noticed, and which backward it has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import torch

from dovetail.torch_internals.internal import Internal


def _bound(apply: Any) -> bool:
    class Identity(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            return g

    return function_applied(Identity.apply) is Identity and Identity.apply(torch.ones(1)).item() == 1.0


def function_applied(function: Any) -> type[torch.autograd.Function] | None:
    """Return the class C where `function` is `C.apply` of a torch.autograd.Function that keeps torch's own `apply`, else None.

    Up to torch 2.14 `apply` is a class method in Python, from 2.15 on one in C.
    """
    kind = type(function)
    if kind is MethodType:
        same = function.__func__ is _APPLY_IN_PYTHON
    elif kind is BuiltinFunctionType:
        same = _APPLY_IN_PYTHON is None and function.__name__ == "apply"
    else:
        return None
    cls = function.__self__
    return cls if same and isinstance(cls, type) and issubclass(cls, torch.autograd.Function) else None


FUNCTION_APPLY = Internal(
    "torch.autograd.Function.apply",
    purpose="trace the forward and the backward of a torch.autograd.Function",
    fallback="a torch.autograd.Function inside a compiled function is refused",
    probe=_bound,
)
_APPLY = vars(torch.autograd.Function)["apply"]
_APPLY_IN_PYTHON: FunctionType | None = getattr(torch.autograd.Function.apply, "__func__", None)


def apply_function() -> FunctionType | None:
    """Return the Python function behind `torch.autograd.Function.apply`, None where it is written in C."""
    return _APPLY_IN_PYTHON


def direct_apply(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """Return `function.apply` without what it asks in Python, about transforms of torch.func: the caller knows that there are none.

    From torch 2.15 on it is written in C, and asks in no time.
    """
    return super(torch.autograd.Function, function).apply if _APPLY_IN_PYTHON is not None else lambda *args: function.apply(*args)


def backward_of(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """Return what differentiates a torch.autograd.Function: its `vjp` where it defines one, else its `backward`."""
    vjp = getattr(function, "vjp", None)
    return function.backward if vjp is None or vjp is torch.autograd.Function.vjp else vjp


def once_differentiable_body(backward: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return the function that torch.autograd.function.once_differentiable wraps; None for other functions."""
    code, marked = getattr(backward, "__code__", None), torch.autograd.function.once_differentiable(_unwrapped).__code__
    return getattr(backward, "__wrapped__", None) if code is marked else None


def _unwrapped(ctx: Any) -> None:
    """Stand for the backward of a function."""


def detour_apply(detour: Callable[..., Any] | None, unseen: Callable[[], None] | None = None) -> None:
    """Make `C.apply(...)` call `detour(C, apply, ...)`, where `apply` is torch's own bound to C; None takes that back.

    A name that `C.apply` was bound to before still reaches torch's own: `unseen()` is then called, and may raise.
    """
    function, context = torch.autograd.Function, torch.autograd.function.BackwardCFunction
    if detour is None:
        function.apply = _APPLY
        if "__init__" in vars(context):
            del context.__init__
        return

    def apply(cls: type[torch.autograd.Function], *args: Any, **kwargs: Any) -> Any:
        return detour(cls, _APPLY.__get__(None, cls), *args, **kwargs)

    def init(self: Any) -> None:
        unseen()

    function.apply, context.__init__ = classmethod(apply), init


_FREED = "Trying to backward through the graph a second time: a compiled function has run backward() through it; specify retain_graph=True there"


class _Freed(torch.autograd.Function):
    """A tensor as it is, with a backward that raises."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        raise RuntimeError(_FREED)


def _raises(error: Any) -> bool:
    x = error(_FREED, 1)(torch.ones(1).requires_grad_())
    try:
        x.sum().backward()
    except RuntimeError as raised:
        return _FREED in str(raised) and x.item() == 1.0
    return False


DELAYED_ERROR = Internal(
    "torch._C._functions.DelayedError",
    purpose="give a result the history of a graph that backward() has freed, in one microsecond",
    fallback="a torch.autograd.Function does so, in ten",
    probe=_raises,
)


def freed_graph(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor with a history that raises RuntimeError when it is differentiated."""
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        return _Freed.apply(leaf) if (error := DELAYED_ERROR.usable) is None else error(_FREED, 1)(leaf)


class _Unreached(torch.autograd.Function):
    """A tensor as it is, computed from a leaf that nothing else refers to."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> None:
        return None


def unreached_leaf(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor that requires a gradient, which ends at a leaf that nothing refers to."""
    with torch.enable_grad():
        return _Unreached.apply(x.detach().requires_grad_())


def _differentiates(node: Any) -> bool:
    x, z = torch.ones(2).requires_grad_(), torch.ones(2).requires_grad_()
    with torch.enable_grad():
        y = x * z + 0.0
    ((product, number), (nothing, _)) = y.grad_fn.next_functions
    leaf, count = product.next_functions[1]
    if not (number == count == 0 and nothing is None and leaf.variable is z and len(product._input_metadata) == 1):
        return False
    return product(torch.ones(2) * 3)[1].tolist() == [3.0, 3.0]


GRAPH_NODES = Internal(
    "torch.autograd.graph.Node",
    purpose="differentiate an operation by its node of autograd's graph, in a tenth of the time of torch.autograd.grad",
    fallback="autograd's engine differentiates it",
    probe=_differentiates,
)


def _runs_backward(engine: Any) -> bool:
    x, z = torch.ones(2).requires_grad_(), torch.ones(2).requires_grad_()
    with torch.enable_grad():
        y = x.exp().sin()
    first, second = engine().run_backward((y,), (torch.zeros(2),), True, False, (x, z), True, accumulate_grad=False)
    return first.tolist() == [0.0, 0.0] and second is None and x.grad is None


ENGINE = Internal(
    "torch._C._ImperativeEngine",
    purpose="run autograd's engine in half of the time of torch.autograd.grad",
    fallback="torch.autograd.grad checks its arguments first",
    probe=_runs_backward,
)


def gradients(results: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], gs: Sequence[torch.Tensor]) -> Sequence[torch.Tensor | None]:
    """Return the gradients of leaves from those of results, as torch.autograd.grad with `retain_graph` does; None where one is zero.

    The cotangents have the shapes and dtypes of the results.
    """
    if GRAPH_NODES.problem is None and (grads := _of_one_node(results, inputs, gs)) is not None:
        return grads
    if (engine := ENGINE.usable) is None:
        return torch.autograd.grad(results, inputs, gs, retain_graph=True, allow_unused=True)
    return engine().run_backward(tuple(results), tuple(gs), True, False, tuple(inputs), True, accumulate_grad=False)


def _of_one_node(results: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], gs: Sequence[torch.Tensor]) -> list[torch.Tensor | None] | None:
    """Return the gradients where the graph is one node of C++'s between leaves and results on the CPU, else None.

    On other devices, and where anomalies are looked for, autograd's engine does more than to call the nodes.  A node may return a gradient
    of another shape or dtype than the leaf has, which the engine converts; and none where the backward around it is for some tensors only,
    of which no leaf here is one.
    """
    node = results[0].grad_fn
    if isinstance(node, torch.autograd.function.BackwardCFunction) or torch.is_anomaly_enabled():
        return None
    incoming: list[torch.Tensor | None] = [None] * len(node._input_metadata)
    for y, g in zip(results, gs, strict=True):
        if y.grad_fn is not node or incoming[y.output_nr] is not None or y.device.type != "cpu":
            return None
        incoming[y.output_nr] = g
    leaves = [None if leaf is None else getattr(leaf, "variable", node) for leaf, _ in node.next_functions]
    places = {id(leaf): place for place, leaf in enumerate(leaves) if leaf is not None}
    if id(node) in places or len(places) < sum([leaf is not None for leaf in leaves]):
        return None
    outgoing = node(*incoming)
    outgoing = outgoing if isinstance(outgoing, tuple) else (outgoing,)
    grads = [None if (place := places.get(id(x))) is None else outgoing[place] for x in inputs]
    for x, g in zip(inputs, grads, strict=True):
        if (g is None and id(x) in places) or (g is not None and (g.shape != x.shape or g.dtype is not x.dtype or g.layout is not x.layout)):
            return None
    return grads
