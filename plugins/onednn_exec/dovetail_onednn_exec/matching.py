"""Fuse a linear layer and the function that follows it into one line.

>>> t3 = torch.nn.functional.linear(t0, t1, t2)
>>> t4 = torch.nn.functional.gelu(t3)

becomes

>>> t4 = onednn.linear_epilogue(t0, t1, t2, epilogue='gelu')

which decomposes into the two lines, so that they run as before where oneDNN is not faster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from dovetail.extend import BoundSymbol, TensorSpec, Trace
from dovetail.extend.advanced import symbol_for
from dovetail_onednn_exec.epilogues import linear_epilogue

LINEAR = symbol_for("torch.nn.functional.linear")
ADD = symbol_for("torch.add")
GELU = symbol_for("torch.nn.functional.gelu")
FUNCTIONS = {
    symbol_for("torch.nn.functional.relu"): "relu",
    symbol_for("torch.relu"): "relu",
    symbol_for("torch.nn.functional.silu"): "silu",
    symbol_for("torch.nn.functional.sigmoid"): "sigmoid",
    symbol_for("torch.sigmoid"): "sigmoid",
    symbol_for("torch.nn.functional.tanh"): "tanh",
    symbol_for("torch.tanh"): "tanh",
}


def fuse_epilogues(trace: Trace, wanted: Callable[[BoundSymbol], bool]) -> Trace:
    """Return the trace with each linear layer and the function after it as one line, in place of the second, where `wanted` accepts it."""
    readers = Counter(p for line in trace.lines for p in dict.fromkeys(line.reads))
    readers.update(_proxies(trace.outputs))
    free = {line.out: line for line in trace.lines if line.symbol is LINEAR and len(line.writes) == 1 and readers[line.out] == 1}
    lines, gone = [], set()
    for line in trace.lines:
        match = _match(line, free)
        if match is not None:
            first, epilogue, others = match
            fused = _fuse(first, line, epilogue, others)
            if wanted(fused):
                gone.add(id(first))
                line = fused
        lines.append(line)
    if not gone:
        return trace
    new = trace.derive("onednn epilogues")
    new.lines = [line for line in lines if id(line) not in gone]
    return new


def _match(line: BoundSymbol, free: dict[Any, BoundSymbol]) -> tuple[BoundSymbol, str, tuple] | None:
    """Return the linear layer that `line` follows, the name of its epilogue, and the other tensors that it reads."""
    if line.symbol is ADD:
        return _match_add(line, free)
    epilogue = FUNCTIONS.get(line.symbol)
    if epilogue is not None and len(line.args) == 1 and not line.kwargs and line.args[0] in free:
        return free[line.args[0]], epilogue, ()
    if line.symbol is GELU and len(line.args) == 1 and set(line.kwargs) <= {"approximate"} and line.args[0] in free:
        return free[line.args[0]], "gelu_tanh" if line.kwargs.get("approximate") == "tanh" else "gelu", ()
    return None


def _match_add(line: BoundSymbol, free: dict[Any, BoundSymbol]) -> tuple[BoundSymbol, str, tuple] | None:
    if len(line.args) != 2 or line.kwargs or not all([isinstance(getattr(x, "spec", None), TensorSpec) for x in line.args]):
        return None
    a, b = line.args
    for product, other in ((b, a), (a, b)):
        if product in free and product is not other and product.spec.dtype is other.spec.dtype and _same(product.spec.shape, other.spec.shape):
            return free[product], "add", (other,)
    return None


def _same(shape: tuple, other: tuple) -> bool:
    """Return whether two shapes are equal for all values of their symbols; record no condition."""
    return len(shape) == len(other) and all([a is b or (type(a) is int and type(b) is int and a == b) for a, b in zip(shape, other, strict=True)])


def _fuse(first: BoundSymbol, second: BoundSymbol, epilogue: str, others: tuple) -> BoundSymbol:
    """Return both lines as one, with them as its decomposition."""
    bound = dict(zip(("input", "weight", "bias"), first.args, strict=False)) | first.kwargs
    args = (bound["input"], bound["weight"], bound.get("bias"), *others)
    reads = [x for x in args if hasattr(x, "spec")]
    return BoundSymbol(linear_epilogue, args, {"epilogue": epilogue}, second.out, reads, body=(first, second), where=second.where or first.where)


def _proxies(tree: Any) -> list[Any]:
    """Return the proxies in nested outputs."""
    if hasattr(tree, "spec"):
        return [tree]
    values = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, (list, tuple)) else ()
    return [p for value in values for p in _proxies(value)]
