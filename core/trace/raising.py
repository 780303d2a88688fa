"""Operations of PyTorch that raise an error for some values: a matrix without an inverse, an index out of range, a division by zero."""

from __future__ import annotations

from functools import cache
from typing import Any

from dovetail import prims
from dovetail.prims import Symbol
from dovetail.trace.proxies import NumberProxy, TensorProxy, leaves

ERRORS = (RuntimeError, IndexError)  # which they raise
_FACTORED = (
    "cholesky cholesky_solve cholesky_inverse inv inverse solve lu_solve solve_triangular ldl_solve lstsq eig eigh eigvals eigvalsh svd svdvals "
    "tensorinv tensorsolve matrix_power lu lu_factor ldl_factor qr cond pinv matrix_rank matrix_norm"
)
_DRAWN = "multinomial bernoulli normal poisson binomial binary_cross_entropy"
_INDEXED = (
    "getitem setitem gather index_select index_add index_copy index_fill index_put index_reduce scatter scatter_add scatter_reduce take "
    "take_along_dim put embedding embedding_bag one_hot nll_loss nll_loss2d cross_entropy multi_margin_loss multilabel_margin_loss ctc_loss bincount"
)
_DIVIDED = "floor_divide remainder fmod div true_divide divide floordiv mod pow"
_OF_FLOATS = frozenset(["int", "trunc", "floor", "ceil", "round", "rounded"])  # of Python's arithmetic: these raise where a float is not finite
_ALWAYS = frozenset(f"{_FACTORED} {_DRAWN}".split())
_WITH_INTEGERS = frozenset(f"{_INDEXED} {_DIVIDED}".split())


@cache
def _kind(symbol: Symbol) -> bool | None:
    """Return whether an operation raises for some values of any kind, None where it does so for integers alone."""
    name = symbol.path.rpartition(".")[2].strip("_")
    return None if name in _WITH_INTEGERS else name in _ALWAYS


def may_raise(symbol: Symbol, arguments: Any) -> bool:
    """Return whether a call of an operation raises an error for some values of the tensors in its arguments."""
    if symbol is prims.arithmetic:
        return _arithmetic_raises(*arguments)
    kind = _kind(symbol)
    if kind is not None:
        return kind
    return any([isinstance(x, TensorProxy) and x.spec.dtype.kind == "int" for x in leaves(arguments)])


def _arithmetic_raises(numbers: tuple, kwargs: dict) -> bool:
    """Return whether arithmetic of Python raises an error for some numbers."""
    op, last = kwargs["op"], numbers[-1]
    if op in ("truediv", "floordiv", "mod"):
        return isinstance(last, NumberProxy) or not last
    return op.startswith(("math.", "pow")) or (op in _OF_FLOATS and isinstance(numbers[0], NumberProxy) and numbers[0].spec.kind == "float")
