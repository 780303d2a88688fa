"""Elementwise prims on operands of any shapes that broadcast and any dtypes that promote."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail import dtypes, prims
from dovetail.devices import cpu
from dovetail.dtypes import DType
from dovetail.errors import require
from dovetail.langs.core.broadcasting import broadcast_shapes, convert, fit
from dovetail.langs.core.promotion import inexact_of, promote
from dovetail.prims import Symbol
from dovetail.trace import TensorProxy


def alike(*operands: Any, dtype: DType) -> list[Any]:
    """Broadcast `operands` to one shape and convert them to `dtype`; numbers become numbers of its kind."""
    tensors = [x.spec for x in operands if isinstance(x, TensorProxy)]
    require(bool(tensors), "expected a tensor among its operands, got {}", operands, error=TypeError)
    shape = broadcast_shapes(*[spec.shape for spec in tensors]) if len(tensors) > 1 else tensors[0].shape
    device = next((spec.device for spec in tensors if spec.device is not cpu), cpu)
    return [fit(x, shape, dtype, device) for x in operands]


def pointwise(prim: Symbol, *, inexact: bool = False) -> Callable[..., TensorProxy]:
    """Return an operation that broadcasts and promotes the operands of `prim`; `inexact` computes integers in the default float."""

    def operation(*operands: Any) -> TensorProxy:
        dtype = promote(*operands)
        return prim(*alike(*operands, dtype=inexact_of(dtype) if inexact else dtype))

    operation.__name__, operation.__doc__ = prim.name, prim.doc
    return operation


def unary(prim: Symbol, *, inexact: bool = False) -> Callable[[TensorProxy], TensorProxy]:
    """Return `prim` as an operation on one tensor; `inexact` computes integers in the default float."""

    def operation(x: TensorProxy) -> TensorProxy:
        return prim(convert(x, inexact_of(x.spec.dtype)) if inexact else x)

    operation.__name__, operation.__doc__ = prim.name, prim.doc
    return operation


_BINARY = ("add", "sub", "mul", "maximum", "minimum", "remainder", "fmod", "floordiv", "pow", "eq", "ne", "lt", "le", "gt", "ge")
_BINARY_BITS = ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift")
_BINARY_INEXACT = ("div", "atan2", "nextafter", "copysign", "zeta")
_UNARY = ("neg", "abs", "sign", "signbit", "ceil", "floor", "round", "trunc", "isnan", "isinf", "isfinite", "bitwise_not", "conj")
_UNARY_INEXACT = (
    *("reciprocal", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
    *("sigmoid", "erf", "erfc", "erfinv", "ndtri", "lgamma", "digamma"),
)

OPERATIONS: dict[str, Callable[..., TensorProxy]] = {
    **{name: pointwise(getattr(prims, name)) for name in (*_BINARY, *_BINARY_BITS)},
    **{name: pointwise(getattr(prims, name), inexact=True) for name in _BINARY_INEXACT},
    **{name: unary(getattr(prims, name)) for name in _UNARY},
    **{name: unary(getattr(prims, name), inexact=True) for name in _UNARY_INEXACT},
}


def where(condition: TensorProxy, a: Any, b: Any) -> TensorProxy:
    """Return a where `condition` holds, else b; all three broadcast, a and b promote."""
    dtype = promote(a, b)
    if not isinstance(a, TensorProxy) and not isinstance(b, TensorProxy):
        a = prims.full(shape=(), value=fit(a, (), dtype), dtype=dtype, device=condition.spec.device)
    tensors = [x.spec.shape for x in (condition, a, b) if isinstance(x, TensorProxy)]
    shape = broadcast_shapes(*tensors)
    return prims.where(fit(condition, shape, dtypes.bool_), fit(a, shape, dtype, condition.spec.device), fit(b, shape, dtype, condition.spec.device))


globals().update(OPERATIONS)  # so that languages write core.add(a, b)
__all__ = [*OPERATIONS, "OPERATIONS", "alike", "pointwise", "unary", "where"]
