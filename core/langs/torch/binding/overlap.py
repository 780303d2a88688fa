"""Writes to memory that the operation reads through another view: PyTorch refuses them where the result would depend on the order of elements."""

from __future__ import annotations

from typing import Any

from dovetail import prims
from dovetail.errors import require
from dovetail.prims import recorder
from dovetail.prims.spec import TensorSpec
from dovetail.trace import BoundSymbol, Proxy, TensorProxy, proxies

_FROM_THE_START = frozenset(
    {"bitcast", "broadcast_in_dim", "detach", "reshape", "squeeze", "transpose", "unfold", "view_as_complex", "view_as_real", "with_history"}
)  # views that begin where their base does
_UNCHECKED = frozenset(  # PyTorch writes whatever they read
    {"addbmm", "addmm", "addmv", "baddbmm", "diag", "ldexp", "masked_fill", "tril", "triu"}
)
WHOLE_TOO = frozenset(
    {"index_add", "index_copy", "index_put", "index_reduce", "put", "scatter", "scatter_add", "scatter_reduce"}
    | {"cat", "concat", "concatenate", "cross", "gather", "hstack", "index_select", "stack", "take", "take_along_dim", "vstack"}
)  # PyTorch refuses all memory in common
_MESSAGE = (
    "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location, so the result depends on "
    "which is written first; clone() the tensor before the operation"
)


def check_overlap(name: str, written: Any, operands: Any) -> None:
    """Raise where PyTorch's operation `name`, which writes to `written`, refuses the memory that it has in common with a tensor in `operands`.

    As PyTorch, it compares tensors with elements that fill their memory: views with gaps or repeated elements pass.
    """
    views = recorder.get().views
    if name in _UNCHECKED or not isinstance(written, TensorProxy):
        return
    for other in proxies(operands):
        if isinstance(other, TensorProxy):
            require(not _is_refused(written, other, views, name in WHOLE_TOO), _MESSAGE)


def _is_refused(x: TensorProxy, y: TensorProxy, views: dict[Proxy, BoundSymbol], whole: bool) -> bool:
    if x is y:
        return whole and bool(x.spec.numel)
    if x not in views and y not in views:
        return False
    (root, start), (other, other_start) = _place(x, views), _place(y, views)
    if root is not other or root is None or not all([p.spec.numel and p.spec.is_dense for p in (x, y)]):
        return False
    sizes = [p.spec.numel * p.spec.dtype.bytes for p in (x, y)]
    if start == other_start and sizes[0] == sizes[1]:
        return whole or x.spec.rank != y.spec.rank or _moving_steps(x.spec) != _moving_steps(y.spec)
    return bool(start < other_start + sizes[1] and other_start < start + sizes[0])


def _moving_steps(spec: TensorSpec) -> list[int]:
    return [step for n, step in zip(spec.shape, spec.steps, strict=True) if n != 1]


def _place(x: Proxy, views: dict[Proxy, BoundSymbol]) -> tuple[Proxy | None, int]:
    """Return the tensor that owns the memory of x and how many bytes behind its first element x begins; None where that is not known."""
    offset = 0
    while x in views:
        view = views[x]
        x = view.args[0]
        step = _step(view)
        if step is None:
            return None, 0
        offset += step * x.spec.dtype.bytes
    return x, offset


def _step(view: BoundSymbol) -> int | None:
    """Return how many elements behind its base a view begins."""
    steps = view.args[0].spec.steps
    if view.symbol.name in _FROM_THE_START:
        return 0
    if view.symbol is prims.strided_slice:
        return sum([start * step for start, step in zip(view.kwargs["starts"], steps, strict=True)])
    if view.symbol is prims.diagonal:
        offset = view.kwargs["offset"]
        return offset * steps[view.kwargs["dim2"]] if offset > 0 else -offset * steps[view.kwargs["dim1"]]
    return None
