"""Operations of PyTorch that raise an error for some values: a matrix without an inverse, an index out of range, a division by zero."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from dovetail import prims
from dovetail.prims import Symbol
from dovetail.trace.ir import BoundSymbol, prims_of
from dovetail.trace.proxies import NumberProxy, TensorProxy, leaves

ERRORS = (RuntimeError, IndexError)  # which they raise
_FACTORED = (
    "cholesky cholesky_solve cholesky_inverse inv inverse solve lu_solve solve_triangular ldl_solve lstsq eig eigh eigvals eigvalsh svd svdvals "
    "tensorinv tensorsolve matrix_power lu lu_factor ldl_factor qr cond pinv matrix_rank matrix_norm"
)
_CHECKED = "assert_async"
_DRAWN = "multinomial bernoulli normal poisson binomial binary_cross_entropy"
_INDEXED = (
    "getitem setitem gather index_select index_add index_copy index_fill index_put index_reduce scatter scatter_add scatter_reduce take "
    "take_along_dim take_along_axis put embedding embedding_bag one_hot "
    "nll_loss nll_loss2d cross_entropy multi_margin_loss multilabel_margin_loss ctc_loss bincount"
)
_DIVIDED = "floor_divide remainder fmod div true_divide divide floordiv mod pow"
_OF_FLOATS = frozenset(["int", "trunc", "floor", "ceil", "round", "rounded"])  # of Python's arithmetic: these raise where a float is not finite
_ALWAYS = frozenset(f"{_FACTORED} {_DRAWN} {_CHECKED}".split())
_WITH_INTEGERS = frozenset(f"{_INDEXED} {_DIVIDED}".split())


@cache
def _kind(symbol: Symbol) -> bool | None:
    """Return whether an operation raises for some values of any kind, None where it does so for integers alone."""
    name = _name(symbol)
    return None if name in _WITH_INTEGERS else name in _ALWAYS


def may_raise(symbol: Symbol, arguments: Any) -> bool:
    """Return whether a call of an operation raises an error for some values of the tensors in its arguments."""
    if symbol is prims.arithmetic:
        return _arithmetic_raises(*arguments)
    kind = _kind(symbol)
    if kind is not None:
        return kind
    return any([isinstance(x, TensorProxy) and x.spec.dtype.kind == "int" for x in leaves(arguments)])


def raises(line: BoundSymbol) -> bool:
    """Return whether a line raises an error for some values; those that draw random numbers do not count, which few values make raise."""
    inside = (line, *prims_of([line]))
    return any([_name(inner.symbol) not in _DRAWN.split() and may_raise(inner.symbol, (inner.args, inner.kwargs)) for inner in inside])


def fails_late(lines: Sequence[BoundSymbol]) -> list[bool]:
    """Return for each line of a program whether one after it raises an error for some values: the first that has these as indices of this size."""
    last, checked = -1, set[Any]()
    for i, line in enumerate(lines):
        if raises(line) and (key := _checked(line)) not in checked:
            last = i
            checked.add(key)
    return [i < last for i in range(len(lines))]


def _checked(line: BoundSymbol) -> Any:
    """Return a key that is equal for lines which raise for the same values: those that index tensors of one length in one way."""
    tensors = [p for p in line.args if isinstance(p, TensorProxy)]
    indices = tuple([p for p in line.reads if isinstance(p, TensorProxy) and p.spec.dtype.kind == "int"])
    if not indices or not tensors or tensors[0] in set(indices):
        return id(line)
    return line.symbol.path, indices, str(tensors[0].spec.shape[:1]), str([line.kwargs.get(name) for name in ("dim", "dims")])


def _name(symbol: Symbol) -> str:
    return symbol.path.rpartition(".")[2].strip("_")


def _arithmetic_raises(numbers: tuple, kwargs: dict) -> bool:
    """Return whether arithmetic of Python raises an error for some numbers."""
    op, last = kwargs["op"], numbers[-1]
    if op in ("truediv", "floordiv", "mod"):
        return isinstance(last, NumberProxy) or not last
    return op.startswith(("math.", "pow")) or (op in _OF_FLOATS and isinstance(numbers[0], NumberProxy) and numbers[0].spec.kind == "float")
