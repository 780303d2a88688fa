"""Comparison and choice of each element: order, logic, bits, predicates, bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import NoneType
from typing import Any

import torch

from dovetail import dtypes, prims
from dovetail.errors import Unsupported, require, require_dtype
from dovetail.langs import core
from dovetail.langs.torch.binding.bridge import TO_TORCH
from dovetail.langs.torch.binding.opaque import differentiate_by_autograd
from dovetail.langs.torch.binding.symbol import LANGUAGE, WRITTEN, Number, Tensor, operators, torchsymbol
from dovetail.langs.torch.elementwise import cotangent, in_joint_layout, require_float, row_major, without_slope
from dovetail.torch_internals import CLAMP_BY_NUMBERS, CLAMP_BY_TENSORS, FMAX, clamp_saturates

COMPARISONS = ("eq", "ne not_equal", "lt less", "le less_equal", "gt greater", "ge greater_equal")  # each followed by its aliases in torch
BITS = ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift")


def _binary(name: str, *, first_number: bool = False) -> Callable[[Any, Any], Any]:
    operation = core.OPERATIONS[name]

    def meta(input: Tensor, other: Tensor | Number):
        return operation(input, other)

    def either(input: Tensor | Number, other: Tensor | Number):
        return operation(input, other)

    chosen = either if first_number else meta
    chosen.__name__, chosen.__doc__ = name, operation.__doc__
    return chosen


for _row in (*COMPARISONS, *BITS):
    _names = _row.split()
    torchsymbol(*[f"torch.{n}" for n in _names], methods=_names)(_binary(_names[0], first_number=_row in BITS))


def _compared(value: Any, input: Any, other: Any) -> Any:
    """Return what a comparison writes into its input: numbers, with a history where `other` has one, by which gradients are 0."""
    if not (isinstance(other, Tensor) and other.spec.requires_grad and input.spec.dtype.inexact):
        return value
    return without_slope(core.convert(value, input.spec.dtype), other)


WRITTEN.update({name: _compared for row in COMPARISONS for name in row.split()})


@torchsymbol("torch.bitwise_not", methods=("bitwise_not",))
def bitwise_not(input: Tensor):
    """Each bit inverted; of booleans, not input."""
    return core.bitwise_not(input)


def truth(x: Any) -> Any:
    """x as booleans: whether each element differs from 0."""
    return core.convert(x, dtypes.bool_)


@torchsymbol("torch.logical_and", methods=("logical_and",))
def logical_and(input: Tensor, other: Tensor):
    """Whether neither is 0."""
    return in_joint_layout(core.bitwise_and(truth(input), truth(other)), input, other)


@torchsymbol("torch.logical_or", methods=("logical_or",))
def logical_or(input: Tensor, other: Tensor):
    """Whether one of them, or both, are not 0."""
    return in_joint_layout(core.bitwise_or(truth(input), truth(other)), input, other)


@torchsymbol("torch.logical_xor", methods=("logical_xor",))
def logical_xor(input: Tensor, other: Tensor):
    """Whether exactly one of them is not 0."""
    return in_joint_layout(core.bitwise_xor(truth(input), truth(other)), input, other)


@torchsymbol("torch.logical_not", methods=("logical_not",))
def logical_not(input: Tensor):
    """Whether input is 0."""
    return core.bitwise_not(truth(input))


@torchsymbol("torch.isnan", methods=("isnan",))
def isnan(input: Tensor):
    """Whether each element, or a part of it, is not a number."""
    return core.isnan(input)


@torchsymbol("torch.isinf", methods=("isinf",))
def isinf(input: Tensor):
    """Whether each element, or a part of it, is infinite."""
    return core.isinf(input)


@torchsymbol("torch.isfinite", methods=("isfinite",))
def isfinite(input: Tensor):
    """Whether each element is neither infinite nor NaN."""
    return core.isfinite(input)


@torchsymbol("torch.isposinf", methods=("isposinf",))
def isposinf(input: Tensor):
    """Whether each element is infinity."""
    return _is_infinity(input, math.inf)


@torchsymbol("torch.isneginf", methods=("isneginf",))
def isneginf(input: Tensor):
    """Whether each element is minus infinity."""
    return _is_infinity(input, -math.inf)


def _is_infinity(x: Any, infinity: float) -> Any:
    require_dtype(x.spec.dtype.kind != "complex", "expected a real tensor, got {}; test x.real and x.imag", x.spec)
    return core.eq(x, infinity) if x.spec.dtype.kind == "float" else core.isinf(x)


@torchsymbol("torch.isreal", methods=("isreal",))
def isreal(input: Tensor):
    """Whether each element has an imaginary part of 0."""
    if input.spec.dtype.kind == "complex":
        return core.eq(prims.imag(input), 0.0)
    return core.ge(truth(input), False)  # true of every boolean, and laid out like input


@torchsymbol("torch.signbit", methods=("signbit",))
def signbit(input: Tensor):
    """Whether the sign bit is set: input < 0, or input is -0.0."""
    return core.signbit(input)


@torchsymbol("torch.isclose", methods=("isclose",))
def isclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False):
    """Whether |input - other| <= atol + rtol * |other|, or both are equal."""
    dtype = input.spec.dtype
    require(dtype is other.spec.dtype, "expected tensors of one dtype, got {} and {}; convert one of them", input.spec, other.spec)
    require(rtol >= 0, "expected an rtol that is not negative, got {}", rtol)
    require(atol >= 0, "expected an atol that is not negative, got {}", atol)
    close = core.eq(input, other)
    if equal_nan and dtype.inexact:
        close = core.bitwise_or(close, core.bitwise_and(core.isnan(input), core.isnan(other)))
    if rtol == 0 and atol == 0:
        return close
    a, b = (core.convert(x, core.inexact_of(dtype)) for x in (input, other))
    allowed = core.add(core.abs(core.mul(b, rtol)), atol)
    distance = core.abs(core.sub(a, b))
    return core.bitwise_or(close, core.bitwise_and(core.isfinite(distance), core.le(distance, allowed)))


@torchsymbol("torch.where")
def where(condition: Tensor, input: Tensor | Number | None = None, other: Tensor | Number | None = None):
    """input where `condition` holds, else other; all three broadcast."""
    if input is None or other is None:
        raise Unsupported(
            "torch.where(condition) is not traced: the shape of its result depends on values; "
            "use torch.where(condition, a, b), or call it outside the compiled function"
        )
    return _where(condition, input, other)


@torchsymbol(methods=("where",))
def where_method(self: Tensor, condition: Tensor, other: Tensor | Number):
    """self where `condition` holds, else other."""
    return _where(condition, self, other)


def _where(condition: Any, a: Any, b: Any) -> Any:
    allowed = condition.spec.dtype in (dtypes.bool_, dtypes.uint8)
    require(allowed, "where expected condition to be a boolean tensor, got {}; write condition != 0", condition.spec)
    return core.where(condition, a, b)


@torchsymbol("torch.masked_fill", methods=("masked_fill",))
def masked_fill(input: Tensor, mask: Tensor, value: Tensor | Number):
    """`value` where `mask` is true, else input; in input's dtype."""
    dtype = input.spec.dtype
    require(mask.spec.dtype is dtypes.bool_, "masked_fill only supports boolean masks, got {}; write mask != 0", mask.spec)
    if isinstance(value, Tensor):
        require(not value.spec.shape, "masked_fill only supports a 0-dimensional value tensor, got {}; choose with torch.where", value.spec)
    require(core.promote(value).kind != "complex" or dtype.kind == "complex", "expected a real value for {}, got {}", dtype.short, value)
    value = core.convert(value, dtype) if isinstance(value, Tensor) else core.stored(value, dtype)
    return core.where(row_major(mask), value, row_major(input))


def _bound_clamp(input: Any, min: Any = None, max: Any = None) -> tuple[tuple, dict]:
    """Return the arguments of clamp; tensors are always positional, since only positional arguments have cotangents."""
    if min is None and isinstance(max, (bool, int, float, complex, NoneType)):
        return (input,), {} if max is None else {"max": max}
    return (input, min) if max is None else (input, min, max), {}


@torchsymbol("torch.clamp", "torch.clip", methods=("clamp", "clip"), bind=_bound_clamp)
def clamp(input: Tensor, min: Tensor | Number | None = None, max: Tensor | Number | None = None):
    """input, or the nearer of `min` and `max` where it lies outside them; `max` where they cross."""
    require(min is not None or max is not None, "At least one of 'min' or 'max' must not be None")
    bounds = [x for x in (min, max) if x is not None]
    mixed = any([isinstance(x, Tensor) and x.spec.rank > 0 for x in bounds]) and not all([isinstance(x, Tensor) for x in bounds])
    require(not mixed, "expected two tensors or two numbers for min and max, got {} and {}", min, max, error=TypeError)
    return _clamped(input, min, max)


@clamp.vjp
def clamp_vjp(g: Any, out: Any, input: Any, *rest: Any, min: Any = None, max: Any = None) -> tuple:
    """g where input lies within the bounds, and for a bound where input lies beyond it; at ties and NaN as the installed torch has it."""
    low, high = (*rest, *(min, max)[len(rest) :])
    return _clamp_cotangents(g, input, low, high)[: 1 + len(rest)]


@torchsymbol("torch.clamp_min", methods=("clamp_min",))
def clamp_min(input: Tensor, min: Tensor | Number):
    """input, or `min` where it lies below."""
    return _clamped(input, min, None)


@clamp_min.vjp
def clamp_min_vjp(g: Any, out: Any, input: Any, min: Any) -> tuple:
    """The gradient of clamp."""
    return _clamp_cotangents(g, input, min, None)[:2]


@torchsymbol("torch.clamp_max", methods=("clamp_max",))
def clamp_max(input: Tensor, max: Tensor | Number):
    """input, or `max` where it lies above."""
    return _clamped(input, None, max)


@clamp_max.vjp
def clamp_max_vjp(g: Any, out: Any, input: Any, max: Any) -> tuple:
    """The gradient of clamp."""
    gx, _, gmax = _clamp_cotangents(g, input, None, max)
    return gx, gmax


def _in_one_dtype(*operands: Any) -> list:
    """Return the operands in the dtype they promote to; None stays."""
    dtype = core.promote(*[v for v in operands if v is not None])
    return [v if v is None else core.convert(v, dtype) if isinstance(v, Tensor) else core.fit(v, (), dtype) for v in operands]


def stored_bounds(low: Any, high: Any, dtype: dtypes.DType) -> tuple[Any, Any]:
    """Return the bounds of a clamp as elements of `dtype`; beyond an integer dtype the nearest that it has, where this torch saturates them."""
    if dtype.kind == "int" and clamp_saturates():
        least, largest = dtypes.bounds(dtype)
        for name, bound, fits in (("min", low, lambda x: x <= largest), ("max", high, lambda x: x >= least)):
            known = isinstance(bound, (int, float))
            bound = core.stored(bound, dtypes.int64) if known else bound
            require(not known or fits(bound), "Clamp {} value {} is outside the representable range of {}", name, bound, dtype.short)
        low = max(low, least) if isinstance(low, (int, float)) else low
        high = min(high, largest) if isinstance(high, (int, float)) else high
    return tuple([bound if bound is None else core.stored(bound, dtype) for bound in (low, high)])


def _clamped(x: Any, low: Any, high: Any) -> Any:
    """Return x, `low` where x lies below it, then `high` where that lies above it; NaN where x or a bound is."""
    dtype = core.promote(*[v for v in (x, low, high) if v is not None])
    if not isinstance(low, Tensor) and not isinstance(high, Tensor):
        low, high = stored_bounds(low, high, dtype)
    x, low, high = _in_one_dtype(x, low, high)
    for bound, beyond in ((low, core.lt), (high, core.gt)):
        if bound is not None:
            x = core.where(_or_nan(beyond(x, bound), bound, x), bound, x)
    return x


def _clamp_cotangents(g: Any, input: Any, min: Any, max: Any) -> tuple:
    """Return the cotangents of the input and both bounds of clamp, None for what is no tensor."""
    x, low, high = _in_one_dtype(input, min, max)
    if any([not isinstance(bound, (Tensor, NoneType)) for bound in (min, max)]):
        grads = _grads_by_numbers(g, x, low, high)
    elif CLAMP_BY_TENSORS.convention == "shared":
        grads = _grads_with_shared_ties(g, x, low, high)
    else:
        grads = _grads_of_first_operand(g, x, low, high)
    return tuple([None if grad is None else cotangent(grad, operand) for grad, operand in zip(grads, (input, min, max), strict=True)])


def _grads_by_numbers(g: Any, x: Any, low: Any, high: Any) -> tuple:
    """Give g to x within the bounds: with the bounds themselves in some versions of torch, without them in others."""
    if CLAMP_BY_NUMBERS.convention == "closed":
        return _grads_of_first_operand(g, x, low, high)
    below, above = (None if b is None else beyond(b, x) for b, beyond in ((low, core.lt), (high, core.gt)))
    inside = below if above is None else above if below is None else core.bitwise_and(below, above)
    return core.where(inside, g, 0.0), None, None


def _grads_of_first_operand(g: Any, x: Any, low: Any, high: Any) -> tuple:
    """Give g to x within the bounds and at them, to a bound where x lies beyond it, to `high` where they cross, to none at NaN."""
    above, below = None if low is None else core.ge(x, low), None if high is None else core.le(x, high)
    inside = below if above is None else above if below is None else core.bitwise_and(above, below)
    under, over = (beyond(x, b) if isinstance(b, Tensor) else None for b, beyond in ((low, core.lt), (high, core.gt)))
    if under is not None and over is not None:
        under, over = core.bitwise_and(under, core.lt(low, high)), core.bitwise_or(over, core.lt(high, low))
    return tuple([None if mask is None else core.where(mask, g, 0.0) for mask in (inside, under, over)])


def _grads_with_shared_ties(g: Any, x: Any, low: Any, high: Any) -> tuple:
    """Share g at ties.  One bound: as maximum and minimum do, NaN to both operands.  Two: no bound has a share where they are equal or cross."""
    half = core.mul(g, 0.5)
    if high is None or low is None:
        bound, beyond = (low, core.lt) if high is None else (high, core.gt)
        shared = core.where(core.eq(x, bound), half, g)
        grads = core.where(beyond(x, bound), 0.0, shared), core.where(beyond(bound, x), 0.0, shared)
        return (*grads, None) if high is None else (grads[0], None, grads[1])
    apart, crossed = core.lt(low, high), core.lt(high, low)
    under, over, at_low, at_high = core.lt(x, low), core.gt(x, high), core.eq(x, low), core.eq(x, high)
    tied = core.bitwise_and(core.bitwise_or(at_low, at_high), apart)
    gx = core.where(core.bitwise_or(under, over), 0.0, core.where(tied, half, g))
    tie_low, tie_high = (core.where(core.bitwise_and(at, apart), half, 0.0) for at in (at_low, at_high))
    in_order = core.le(low, high)
    glow = core.where(core.bitwise_and(under, in_order), g, tie_low)
    ghigh = core.where(core.bitwise_or(crossed, core.bitwise_and(over, in_order)), g, tie_high)
    return gx, glow, ghigh


def _or_nan(condition: Any, bound: Any, x: Any) -> Any:
    """Return `condition`, or true where `bound` is NaN."""
    if isinstance(bound, Tensor):
        return core.bitwise_or(condition, core.isnan(bound)) if bound.spec.dtype.kind == "float" else condition
    return core.bitwise_or(condition, core.eq(x, x)) if bound != bound else condition


@torchsymbol("torch.maximum", methods=("maximum",))
def maximum(input: Tensor, other: Tensor):
    """The larger of the two, NaN where either is."""
    return core.maximum(input, other)


@torchsymbol("torch.minimum", methods=("minimum",))
def minimum(input: Tensor, other: Tensor):
    """The smaller of the two, NaN where either is."""
    return core.minimum(input, other)


@torchsymbol("torch.fmax", methods=("fmax",))
def fmax(input: Tensor, other: Tensor):
    """The larger of the two, the other one where one is NaN."""
    return _without_nan(core.ge, core.maximum, input, other)


@torchsymbol("torch.fmin", methods=("fmin",))
def fmin(input: Tensor, other: Tensor):
    """The smaller of the two, the other one where one is NaN."""
    return _without_nan(core.le, core.minimum, input, other)


def _without_nan(ahead: Callable, exact: Callable, a: Any, b: Any) -> Any:
    if core.promote(a, b).kind != "float":
        return exact(a, b)
    return core.where(core.bitwise_or(ahead(a, b), core.isnan(b)), a, b)


@fmax.vjp
def fmax_vjp(g: Any, out: Any, input: Any, other: Any) -> tuple:
    """g for the larger operand; at ties and NaN as the installed torch has it."""
    return _grads_without_nan(core.gt, g, input, other)


@fmin.vjp
def fmin_vjp(g: Any, out: Any, input: Any, other: Any) -> tuple:
    """g for the smaller operand; at ties and NaN as the installed torch has it."""
    return _grads_without_nan(core.lt, g, input, other)


def _grads_without_nan(ahead: Callable, g: Any, input: Any, other: Any) -> tuple:
    """Return the cotangents of fmax or fmin, whose result is the operand that is `ahead` of the other."""
    a, b = _in_one_dtype(input, other)
    tie, half = core.eq(a, b), core.mul(g, 0.5)
    if FMAX.convention == "shared, NaN to both":
        shared = core.where(tie, half, g)
        ga, gb = core.where(ahead(b, a), 0.0, shared), core.where(ahead(a, b), 0.0, shared)
    else:
        a_at_tie, b_at_tie = (half, half) if FMAX.convention == "shared" else (g, 0.0)
        first = core.bitwise_or(ahead(a, b), core.isnan(b))
        ga = core.where(tie, a_at_tie, core.where(first, g, 0.0))
        gb = core.where(tie, b_at_tie, core.where(first, 0.0, g))
    return cotangent(ga, input), cotangent(gb, other)


@torchsymbol("torch.copysign", methods=("copysign",))
def copysign(input: Tensor, other: Tensor | Number):
    """|input| with the sign of other."""
    return core.copysign(input, other)


@torchsymbol("torch.nextafter", methods=("nextafter",))
def nextafter(input: Tensor, other: Tensor):
    """The next representable number after input towards other."""
    dtype = core.promote(input, other)
    require_dtype(dtype.kind == "float", "expected floating tensors, got {} and {}; convert them first", input.spec, other.spec)
    return core.nextafter(input, other)


@torchsymbol("torch.heaviside", methods=("heaviside",))
def heaviside(input: Tensor, values: Tensor):
    """0 where input is negative, 1 where it is positive, `values` where it is 0."""
    same = input.spec.dtype is values.spec.dtype
    require(same, "heaviside is not implemented for tensors with different dtypes, got {} and {}; convert one", input.spec, values.spec)
    require_dtype(input.spec.dtype.kind != "complex", "heaviside is not implemented for complex tensors, got {}; pass their real parts", input.spec)
    zero = core.fit(0, (), input.spec.dtype)
    value = core.where(core.eq(input, zero), values, core.convert(core.gt(input, zero), input.spec.dtype))
    return in_joint_layout(without_slope(value, input, values) if input.spec.requires_grad else value, input, values)


differentiate_by_autograd(heaviside)  # which has no derivative for it


@torchsymbol("torch.nan_to_num", methods=("nan_to_num",))
def nan_to_num(input: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None):
    """input with NaN and the infinities replaced: by 0 and by the largest and smallest number of the dtype, unless given."""
    dtype = input.spec.dtype
    if not dtype.inexact:
        return prims.convert_element_type(input, dtype=dtype)
    if dtype.kind == "complex":
        return prims.complex(*[_finite(part, nan, posinf, neginf) for part in (prims.real(input), prims.imag(input))])
    return _finite(input, nan, posinf, neginf)


@nan_to_num.vjp
def nan_to_num_vjp(g: Any, out: Any, input: Any, *rest: Any, **options: Any) -> tuple:
    """g times 1 where the input is finite, else times 0, which is NaN where g is infinite."""
    return (core.mul(g, core.convert(core.isfinite(input), g.spec.dtype)), *(None for _ in rest))


def _finite(x: Any, nan: float | None, posinf: float | None, neginf: float | None) -> Any:
    limits = torch.finfo(TO_TORCH[x.spec.dtype])
    high = limits.max if posinf is None else core.as_float(posinf)
    low = limits.min if neginf is None else core.as_float(neginf)
    x = core.where(core.eq(x, math.inf), high, core.where(core.eq(x, -math.inf), low, x))
    return core.where(core.isnan(x), 0.0 if nan is None else core.as_float(nan), x)


@torchsymbol("torch.threshold")
def threshold(input: Tensor, threshold: Number, value: Number):
    """input where it lies above the threshold, else `value`."""
    return above(input, threshold, value)


def above(x: Any, threshold: Any, value: Any) -> Any:
    """x where it lies above the threshold, else `value` in x's dtype; the threshold is not rounded to it."""
    require_float(x, "int")
    dtype = x.spec.dtype
    wide = core.wide(dtype)
    return core.where(core.le(core.convert(x, wide), core.fit(threshold, (), wide)), core.stored(value, dtype), x)


def invert(input: Tensor):
    """~input: bitwise_not, which raises TypeError for other than integers and booleans."""
    fits = input.spec.dtype.kind in ("bool", "int")
    require_dtype(fits, "~ is only implemented on integer and Boolean-type tensors, got {}; use logical_not", input.spec)
    return bitwise_not(input)


operators(
    **{name: LANGUAGE[name] for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{"and_": LANGUAGE["bitwise_and"], "or_": LANGUAGE["bitwise_or"], "xor": LANGUAGE["bitwise_xor"], "invert": invert},
    **{"rand": LANGUAGE["bitwise_and"], "ror": LANGUAGE["bitwise_or"], "rxor": LANGUAGE["bitwise_xor"]},
    **{"iand": LANGUAGE["bitwise_and_"], "ior": LANGUAGE["bitwise_or_"], "ixor": LANGUAGE["bitwise_xor_"]},
    **{"lshift": LANGUAGE["bitwise_left_shift"], "rshift": LANGUAGE["bitwise_right_shift"]},
    **{"ilshift": LANGUAGE["bitwise_left_shift_"], "irshift": LANGUAGE["bitwise_right_shift_"]},
)
