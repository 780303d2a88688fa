"""Type promotion as PyTorch documents it (torch.result_type)."""

from __future__ import annotations

from typing import Any

from dovetail import dtypes
from dovetail.dtypes import DType
from dovetail.errors import require, require_traced
from dovetail.prims import recorder
from dovetail.prims.sizes import Size
from dovetail.trace import NumberProxy, TensorProxy

_NUMBER_KINDS = {"bool": dtypes.bool_, "int": dtypes.int64}


def default_float() -> DType:
    """Return the dtype of a Python float: float32, or the one set by torch.set_default_dtype."""
    return recorder.get().environment.default_float()


def number_dtype(number: Any) -> DType:
    """Return the dtype a Python number has among tensors."""
    kind = kind_of(number)
    if kind in _NUMBER_KINDS:
        return _NUMBER_KINDS[kind]
    return default_float() if kind == "float" else dtypes.COMPLEX_OF[default_float()]


def kind_of(number: Any) -> str:
    """Return the kind of a number: bool, int, float or complex."""
    if isinstance(number, NumberProxy):
        return number.spec.kind
    for kind, type_ in (("bool", bool), ("int", int), ("float", float), ("complex", complex)):
        if isinstance(number, type_):
            return kind
    if type(number) is Size:
        return "int"
    require(False, "expected a tensor or a number, got {}", type(number).__name__, error=TypeError)


def promote(*operands: TensorProxy | NumberProxy | complex) -> DType:
    """Return the dtype that `operands` promote to.

    Tensors with dimensions come before 0-d tensors, and those before numbers; a weaker operand counts only where its kind is higher.
    """
    ranks: list[DType | None] = [None, None, None]
    for x in operands:
        rank, dtype = (0 if x.spec.shape else 1, x.spec.dtype) if isinstance(x, TensorProxy) else (2, number_dtype(x))
        previous = ranks[rank]
        ranks[rank] = dtype if previous is None else dtypes.wider(previous, dtype)
    result = ranks[2]
    for stronger in (ranks[1], ranks[0]):
        result = result if stronger is None else stronger if result is None else _combined(stronger, result)
    return result


def _combined(strong: DType, weak: DType) -> DType:
    if dtypes.rank(weak.kind) <= dtypes.rank(strong.kind):
        return strong
    if strong.kind == "float":
        complex_ = recorder.get().environment.complex_of(strong)
        refusal = "{} with a complex operand gives a complex dtype of half precision, which is not traced; convert to float32 first"
        require_traced(complex_ is not None, refusal, strong.name)
        return complex_
    return dtypes.wider(strong, weak) if weak.inexact or strong is dtypes.bool_ else strong


def inexact_of(dtype: DType) -> DType:
    """Return `dtype`, or the default float where it is an integer or bool."""
    return dtype if dtype.inexact else default_float()


def wide(dtype: DType) -> DType:
    """Return the dtype that a composite operation accumulates in: float32 for float16 and bfloat16, else `dtype`."""
    return dtypes.float32 if dtype in _NARROW else dtype


_NARROW = frozenset({dtypes.float16, dtypes.bfloat16})
