"""Arithmetic of each element: sums, products, quotients, powers, roundings, exponentials, circles and hyperbolas, complex numbers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from ctypes import c_float
from typing import Any

import torch

from dovetail import dtypes, prims
from dovetail.errors import require, require_dtype, require_traced
from dovetail.langs import core
from dovetail.langs.core.promotion import kind_of
from dovetail.langs.torch.binding.opaque import differentiate_by_autograd
from dovetail.langs.torch.binding.symbol import LANGUAGE, Number, Tensor, operators, torchquery, torchsymbol
from dovetail.prims.memory import in_layout_of
from dovetail.prims.shape import flat_reshape
from dovetail.prims.unary import conjugated, converted
from dovetail.trace import NumberProxy

UNARY = (  # core operations, each followed by its aliases in torch; documented by the prim
    *("abs absolute", "ceil", "floor", "trunc fix", "reciprocal", "sqrt", "rsqrt"),
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p"),
    *("sin", "cos", "tan", "asin arcsin", "acos arccos", "atan arctan"),
    *("sinh", "cosh", "tanh", "asinh arcsinh", "acosh arccosh", "atanh arctanh"),
)


def symbols(table: tuple[str, ...]) -> dict[str, Callable]:
    """Register a unary symbol for each row of `table`: torch.name, torch.special.name and the method, with all aliases."""
    symbols_by_name = {}
    for row in table:
        names = row.split()
        spelled = [f"torch.{space}{n}" for n in names for space in ("", "special.")]
        symbols_by_name[names[0]] = torchsymbol(*spelled, methods=names)(_unary(names[0]))
    return symbols_by_name


def _unary(name: str) -> Callable[[Any], Any]:
    operation = core.OPERATIONS[name]

    def meta(input: Tensor):
        return operation(input)

    meta.__name__, meta.__doc__ = name, operation.__doc__
    return meta


def in_wide(compute: Callable[..., Any], *operands: Any, inexact: bool = True) -> Any:
    """Return compute(*operands) in the dtype that the operands promote to.

    `inexact` converts integers to floats.  float16 and bfloat16 are computed in float32 and rounded once, as in eager's kernels, which
    get operands of that dtype.
    """
    dtype = core.promote(*operands)
    dtype = core.inexact_of(dtype) if inexact else dtype
    wide = core.wide(dtype)
    return core.convert(compute(*[core.convert(core.convert(x, dtype), wide) if isinstance(x, Tensor) else x for x in operands]), dtype)


def by_one(compute: Callable[..., Any], a: Any, b: Any) -> Any:
    """Return compute(a, b), a product or quotient; a 0-d `b` of another dtype is not rounded to 16 bits, as in eager's kernels."""
    dtype = core.promote(a, b)
    wide = core.wide(dtype)
    if wide is dtype or not isinstance(b, Tensor) or b.spec.rank or b.spec.dtype is dtype:
        return compute(a, b)
    return core.convert(compute(core.convert(a, wide) if isinstance(a, Tensor) else a, core.convert(b, wide)), dtype)


def row_major(x: Any) -> Any:
    """Return x, or a row-major copy where it has another layout, as eager's result does."""
    return x if x.spec.strides is None else prims.clone(x)


def in_joint_layout(value: Any, a: Any, b: Any) -> Any:
    """Return `value`, computed of a and b in several steps, in the layout of an operation in one step, where one of them is expanded."""
    expanded = [x.spec.strides is not None and any([step == 0 for step in x.spec.strides]) for x in (a, b) if isinstance(x, Tensor)]
    return in_layout_of(core.eq(a, b), value) if any(expanded) else value


def nan_detached(x: Any) -> Any:
    """Return x with no gradient flowing to its NaNs, as for bounds in PyTorch."""
    return core.where(core.isnan(x), prims.detach(x), x) if x.spec.dtype.kind == "float" else x


def cotangent(g: Any, x: Any) -> Any:
    """Reduce `g`, computed for the broadcast operands, to the shape and dtype of the operand x; None for a number."""
    if not isinstance(x, Tensor):
        return None
    extra = g.spec.rank - x.spec.rank
    repeated = tuple([d for d, n in enumerate(g.spec.shape) if d < extra or x.spec.shape[d - extra] != n])
    g = flat_reshape(prims.sum(g, dims=repeated), x.spec.shape) if repeated else g
    return converted(g, x)


def is_bool(x: Any) -> bool:
    """Return whether a tensor or number is boolean."""
    return core.promote(x) is dtypes.bool_


def require_float(x: Any, *kinds: str) -> None:
    """Raise unless the dtype of x is floating, or of one of `kinds`."""
    allowed = ("float", *kinds)
    fits = x.spec.dtype.kind in allowed
    require_dtype(fits, "expected a tensor of kind {}, got {}; convert it first", " or ".join(allowed), x.spec)


def is_one(factor: Any) -> bool:
    """Return whether a factor is 1, as far as it is known: a float that the program computes is multiplied by."""
    return not (isinstance(factor, NumberProxy) and factor.spec.kind == "float") and factor == 1


def _scaled(x: Any, factor: Any, dtype: dtypes.DType) -> Any:
    """x * factor in `dtype`; the factor of a sum is not of a higher kind than the sum."""
    if isinstance(factor, Tensor):
        return core.mul(core.convert(x, dtype) if isinstance(x, Tensor) else x, core.convert(factor, dtype))
    kind = kind_of(factor)
    whole = dtype.kind not in ("bool", "int") or kind in ("bool", "int")
    require(whole, "For integral input tensors, argument alpha must not be a floating point number, got {!r}; pass an int", factor)
    if is_one(factor) and kind != "bool":
        return x
    allowed = dtype.kind == "bool" or dtypes.rank(kind) <= dtypes.rank(dtype.kind)
    require(allowed, "expected an alpha of kind {} for operands of that kind, got {!r}; convert an operand first", dtype.kind, factor)
    fits = kind != "bool" or dtype.kind == "bool"
    require(fits, "Boolean alpha only supported for Boolean results, got {!r} for {}; pass 1 or 0", factor, dtype.short)
    if isinstance(x, Tensor):
        return core.mul(core.convert(x, core.wide(dtype)), core.stored(factor, dtype))
    return x * factor


@torchsymbol("torch.add", methods=("add",), factors=("alpha",))
def add(input: Tensor | Number, other: Tensor | Number, *, alpha: Number | Tensor = 1):
    """input + alpha * other."""
    if type(alpha) is int and alpha == 1:
        return core.add(input, other)
    dtype = core.promote(input, other)
    return in_wide(lambda a, b: core.add(a, _scaled(b, alpha, dtype)), input, other, inexact=False)


@torchsymbol("torch.sub", "torch.subtract", methods=("sub", "subtract"), factors=("alpha",))
def sub(input: Tensor | Number, other: Tensor | Number, *, alpha: Number | Tensor = 1):
    """input - alpha * other."""
    return _difference(input, other, alpha)


@torchsymbol("torch.rsub")
def rsub(input: Tensor, other: Tensor | Number, *, alpha: Number = 1):
    """other - alpha * input."""
    return _difference(other, input, alpha)


def _difference(a: Any, b: Any, alpha: Any) -> Any:
    require_dtype(not (is_bool(a) or is_bool(b)), "the - operator of a boolean is not supported; use ^ or logical_xor, or ~ to invert a mask")
    if type(alpha) is int and alpha == 1:
        return core.sub(a, b)
    dtype = core.promote(a, b)
    return in_wide(lambda a, b: core.sub(a, _scaled(b, alpha, dtype)), a, b, inexact=False)


@torchsymbol("torch.mul", "torch.multiply", methods=("mul", "multiply"))
def mul(input: Tensor | Number, other: Tensor | Number):
    """input * other."""
    return by_one(core.mul, input, other)


@torchsymbol("torch.div", "torch.divide", methods=("div", "divide"))
def div(input: Tensor | Number, other: Tensor | Number, *, rounding_mode: str | None = None):
    """input / other, of integers in floating point; `rounding_mode` "trunc" or "floor" keeps their dtype and drops the fraction."""
    if rounding_mode is None:
        return by_one(core.div, input, other)
    if rounding_mode == "floor":
        return by_one(core.floordiv, input, other)
    require(rounding_mode == "trunc", "expected rounding_mode None, 'trunc' or 'floor', got {!r}", rounding_mode)
    kind = core.promote(input, other).kind
    require_dtype(kind in ("int", "float"), "expected integer or floating operands with rounding_mode, got {} and {}", input, other)
    if kind == "int":
        return _truncdiv(input, other)
    # Eager rounds the quotient of bfloat16, too, before it drops the fraction.
    return without_slope(by_one(lambda a, b: core.trunc(core.div(a, b)), input, other), input, other)


def without_slope(value: Any, *operands: Any) -> Any:
    """Return `value` with gradients of 0 for the operands, also where the slope of what it is computed from is infinite or NaN."""
    tensors = [x for x in operands if isinstance(x, Tensor)]
    always = prims.full(shape=(), value=True, dtype=dtypes.bool_, device=value.spec.device)
    return core.where(always, prims.detach(value), core.convert(functools.reduce(core.add, tensors), value.spec.dtype))


_truncdiv = core.pointwise(prims.truncdiv)


@torchsymbol("torch.true_divide", methods=("true_divide",))
def true_divide(input: Tensor | Number, other: Tensor | Number):
    """input / other, of integers in floating point."""
    return core.div(input, other)


@torchsymbol("torch.floor_divide", methods=("floor_divide",))
def floor_divide(input: Tensor | Number, other: Tensor | Number):
    """The largest integer not above input / other."""
    return by_one(core.floordiv, input, other)


differentiate_by_autograd(floor_divide)  # which has no derivative for it


@torchsymbol(methods=("__rdiv__", "__rtruediv__"))
def rdiv(self: Tensor, other: Tensor | Number):
    """other / self, computed as the reciprocal times other, as PyTorch's operator does."""
    return core.mul(core.reciprocal(self), other)


@torchsymbol("torch.remainder", methods=("remainder",))
def remainder(input: Tensor | Number, other: Tensor | Number):
    """input - other * floor(input / other): the sign is other's."""
    return core.remainder(input, other)


@torchsymbol("torch.fmod", methods=("fmod",))
def fmod(input: Tensor, other: Tensor | Number):
    """input - other * trunc(input / other): the sign is input's."""
    return core.fmod(input, other)


@torchsymbol("torch.pow", methods=("pow",))
def pow(input: Tensor | Number, exponent: Tensor | Number):
    """input to the power of exponent."""
    if isinstance(exponent, bool) and is_bool(input):
        return core.bitwise_or(input, not exponent)  # the only powers of booleans that PyTorch supports
    return core.pow(input, exponent)


@torchsymbol("torch.float_power", methods=("float_power",))
def float_power(input: Tensor | Number, exponent: Tensor | Number):
    """input to the power of exponent, in float64 or complex128."""
    dtype = dtypes.complex128 if core.promote(input, exponent).kind == "complex" else dtypes.float64
    return core.pow(*[core.convert(x, dtype) if isinstance(x, Tensor) else x for x in (input, exponent)])


@torchsymbol("torch.square", methods=("square",))
def square(input: Tensor):
    """input * input."""
    return core.pow(input, 2)


@torchsymbol("torch.neg", "torch.negative", methods=("neg", "negative"))
def neg(input: Tensor):
    """-input."""
    require_dtype(not is_bool(input), "the - operator of a boolean tensor is not supported; use ~ or logical_not to invert a mask")
    return core.neg(input)


@torchsymbol("torch.positive", methods=("positive",))
def positive(input: Tensor):
    """input itself."""
    require_dtype(not is_bool(input), "the + operator of a boolean tensor is not supported; convert it to an integer first")
    return input


@torchsymbol("torch.sign", methods=("sign",))
def sign(input: Tensor):
    """1, 0 or -1: the sign of each real element."""
    require_float(input, "int", "bool")
    return core.sign(input)


@torchsymbol("torch.sgn", methods=("sgn",))
def sgn(input: Tensor):
    """input / |input|, and 0 where input is 0."""
    return core.sign(input)


@torchsymbol("torch.round", "torch.special.round", methods=("round",))
def round(input: Tensor, *, decimals: int = 0):
    """The nearest multiple of 10**-decimals, the even one of two."""
    if decimals == 0:
        return core.round(input)
    require_float(input)
    unit = 10.0 ** abs(decimals)
    if decimals > 0:
        return in_wide(lambda x: core.div(core.round(core.mul(x, unit)), unit), input)
    return in_wide(lambda x: core.mul(core.round(core.div(x, unit)), unit), input)


@torchsymbol("torch.frac", methods=("frac",))
def frac(input: Tensor):
    """input - trunc(input)."""
    require_float(input)
    return core.sub(input, core.trunc(input))


@torchsymbol("torch.frexp", methods=("frexp",))
def frexp(input: Tensor):
    """(mantissa, exponent) with input = mantissa * 2**exponent."""
    require_float(input)
    return torch.return_types.frexp(prims.frexp(input))


@torchsymbol("torch.ldexp", methods=("ldexp",))
def ldexp(input: Tensor, other: Tensor):
    """input * 2**other; by an integer `other` exactly, also where 2**other overflows."""
    return in_wide(lambda x, _: _by_power_of_two(x, other), input, other)


def _by_power_of_two(x: Any, exponent: Any) -> Any:
    """x * 2**exponent, for integers in steps that are representable."""
    if core.promote(exponent).kind != "int":
        return core.mul(x, core.pow(2.0, core.convert(exponent, x.spec.dtype) if isinstance(exponent, Tensor) else exponent))
    most = 1000 if x.spec.dtype is dtypes.float64 else 100
    if isinstance(exponent, Tensor) and exponent.spec.dtype is not dtypes.int64:  # narrow integers hold no -1000
        exponent = core.convert(exponent, dtypes.int32)
    for _ in range(3):
        step = core.maximum(core.minimum(exponent, most), -most)
        x, exponent = core.mul(x, core.pow(2.0, core.convert(step, x.spec.dtype))), core.sub(exponent, step)
    return x


@ldexp.vjp
def ldexp_vjp(g: Any, out: Any, input: Any, other: Any) -> tuple:
    """g * conj(2**other), and g * conj(out * log(2)): the product of g and input may overflow where 2**other is small."""
    first = in_wide(lambda g, _: conjugated(_by_power_of_two(conjugated(g), other)), g, other)
    second = in_wide(lambda g, y: core.mul(g, conjugated(core.mul(y, math.log(2)))), g, out)
    return cotangent(first, input), cotangent(second, other)


@torchsymbol("torch.deg2rad", methods=("deg2rad",))
def deg2rad(input: Tensor):
    """input * pi / 180."""
    require_float(input, "int", "bool")
    return core.mul(input, math.pi / 180)


@torchsymbol("torch.rad2deg", methods=("rad2deg",))
def rad2deg(input: Tensor):
    """input * 180 / pi."""
    require_float(input, "int", "bool")
    return core.mul(input, 180 / math.pi)


@torchsymbol("torch.atan2", "torch.arctan2", methods=("atan2", "arctan2"))
def atan2(input: Tensor, other: Tensor):
    """The angle in [-pi, pi] of the point (other, input)."""
    return core.atan2(input, other)


@torchsymbol("torch.hypot", methods=("hypot",))
def hypot(input: Tensor, other: Tensor):
    """sqrt(input**2 + other**2), without overflow on the way."""
    kind = core.promote(input, other).kind
    require_dtype(kind == "float", "expected floating tensors, got {} and {}; convert one", input.spec, other.spec)

    def compute(a: Any, b: Any) -> Any:
        a, b = core.abs(a), core.abs(b)
        large, small = core.maximum(a, b), core.minimum(a, b)
        large = core.where(core.bitwise_or(core.isinf(a), core.isinf(b)), math.inf, large)  # of infinity and NaN too
        flat = core.bitwise_or(core.eq(large, 0.0), core.isinf(large))
        ratio = core.div(small, core.where(flat, 1.0, large))
        return core.where(flat, large, core.mul(large, core.sqrt(core.add(core.mul(ratio, ratio), 1.0))))

    return in_joint_layout(in_wide(compute, input, other), input, other)


@hypot.vjp
def hypot_vjp(g: Any, out: Any, input: Any, other: Any) -> tuple:
    """g times each operand, divided by the result."""
    wide = core.wide(out.spec.dtype)
    return tuple([cotangent(in_wide(lambda g, x, size: core.div(core.mul(g, x), size), core.convert(g, wide), x, out), x) for x in (input, other)])


@torchsymbol("torch.lerp", methods=("lerp",))
def lerp(input: Tensor, end: Tensor, weight: Tensor | Number):
    """input + weight * (end - input), computed from the end that is nearer."""
    for x in (end, weight) if isinstance(weight, Tensor) and weight.spec.rank else (end,):  # a weight without dimensions promotes
        require(x.spec.dtype is input.spec.dtype, "expected tensors of dtype {}, got {}; convert it first", input.spec.dtype.short, x.spec)
    require_float(input, "complex")

    def compute(a: Any, b: Any, w: Any) -> Any:
        change = core.sub(b, a)
        low = core.add(a, core.mul(change, w))
        if not isinstance(w, Tensor):
            held = c_float(w).value if type(w) is float and a.spec.dtype is dtypes.float32 else w  # 1 less a number of float32, as in a kernel
            return low if abs(w) < 0.5 else in_layout_of(low, core.sub(b, core.mul(change, 1 - held)))
        return in_layout_of(low, core.where(core.lt(core.abs(w), 0.5), low, core.sub(b, core.mul(change, core.sub(1.0, w)))))

    return in_wide(compute, input, end, weight)


@lerp.vjp
def lerp_vjp(g: Any, out: Any, input: Any, end: Any, weight: Any) -> tuple:
    """g split by the weight, and g * (end - input) for the weight, for both formulas of the result."""
    rest = in_wide(lambda g, w: core.mul(g, conjugated(core.sub(1.0, w) if isinstance(w, Tensor) else 1.0 - w)), g, weight)
    part = in_wide(lambda g, w: core.mul(g, conjugated(w)), g, weight)
    change = in_wide(lambda g, a, b: core.mul(g, conjugated(core.sub(b, a))), g, input, end)
    return cotangent(rest, input), cotangent(part, end), cotangent(change, weight)


@torchsymbol("torch.addcmul", methods=("addcmul",), factors=("value",))
def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number | Tensor = 1):
    """input + value * tensor1 * tensor2."""
    require_dtype(core.promote(input, tensor1, tensor2) is not dtypes.bool_, "expected numbers, got booleans; convert one of them")
    return in_wide(lambda x, a, b: core.add(x, core.mul(_times(a, value), b)), input, tensor1, tensor2, inexact=False)


@torchsymbol("torch.addcdiv", methods=("addcdiv",), factors=("value",))
def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number | Tensor = 1):
    """input + value * tensor1 / tensor2."""
    dtype = core.promote(input, tensor1, tensor2)
    require_dtype(core.promote(tensor1, tensor2).inexact, "expected a floating quotient, got {}; convert tensor1 or tensor2 first", dtype.short)
    return in_wide(lambda x, a, b: core.add(x, core.div(_times(a, value), b)), input, tensor1, tensor2)


def _times(x: Any, value: Any) -> Any:
    """x * value in x's dtype, and x itself where value is 1."""
    if isinstance(value, Tensor):
        return core.mul(x, core.convert(value, x.spec.dtype))
    if is_one(value):
        return x
    kind = x.spec.dtype.kind
    require(
        core.promote(value).kind != "complex" or kind == "complex", "expected a value of kind {} for operands of that kind, got {!r}", kind, value
    )
    return core.mul(x, core.stored(value, x.spec.dtype))


@torchsymbol("torch.real")
def real(input: Tensor):
    """The real parts, a view; a real tensor itself."""
    return _part(input, 0) if input.spec.dtype.kind == "complex" else input


@torchsymbol("torch.imag")
def imag(input: Tensor):
    """The imaginary parts of a complex tensor, a view."""
    require_dtype(
        input.spec.dtype.kind == "complex", "expected a complex tensor, got {}; the imaginary part of a real one is zeros_like(x)", input.spec
    )
    return _part(input, 1)


def _part(x: Any, part_index: int) -> Any:
    rank = len(x.spec.shape)
    pairs = prims.view_as_real(x)
    return prims.squeeze(core.sliced(pairs, rank, part_index, part_index + 1), dims=(rank,))


@torchsymbol("torch.conj_physical", methods=("conj_physical",))
def conj_physical(input: Tensor):
    """The complex conjugate; a real tensor itself."""
    return core.conj(input) if input.spec.dtype.kind == "complex" else input


@torchsymbol("torch.conj", methods=("conj",))
def conj(input: Tensor):
    """The complex conjugate, a view in eager PyTorch and a copy here; a real tensor itself."""
    return conj_physical.meta(input)


@torchquery("torch.resolve_conj", "torch.resolve_neg", methods=("resolve_conj", "resolve_neg"))
def resolved(input: Tensor) -> Any:
    """input itself: traced tensors are always computed in full."""
    return input


@torchsymbol("torch.angle", methods=("angle",))
def angle(input: Tensor):
    """The angle of each complex number in the plane: pi for negative reals, 0 for the others, NaN for NaN."""
    if input.spec.dtype.kind == "complex":
        x = row_major(input)
        x = core.where(core.eq(x, 0.0), prims.detach(x), x)  # where it is 0, so is the gradient, whatever the cotangent is
        return prims.atan2(prims.imag(x), prims.real(x))
    x = core.convert(input, core.inexact_of(input.spec.dtype))
    return core.where(core.isnan(x), nan_detached(x), core.mul(core.convert(core.lt(x, 0.0), x.spec.dtype), math.pi))


@torchsymbol("torch.complex")
def complex(real: Tensor, imag: Tensor):
    """real + i * imag, of float32 or float64."""
    require(real.spec.dtype is imag.spec.dtype, "expected parts of one dtype, got {} and {}; convert one of them", real.spec, imag.spec)
    require_traced(real.spec.dtype is not dtypes.float16, "complex numbers of half precision are not traced; convert the parts to float32 first")
    require_dtype(real.spec.dtype in dtypes.REAL_OF.values(), "expected float32 or float64 parts, got {}; convert them first", real.spec)
    return prims.complex(*core.alike(real, imag, dtype=real.spec.dtype))


@torchsymbol("torch.polar")
def polar(abs: Tensor, angle: Tensor):
    """abs * (cos(angle) + i * sin(angle)), of float32 or float64."""
    require(abs.spec.dtype is angle.spec.dtype, "expected parts of one dtype, got {} and {}; convert one of them", abs.spec, angle.spec)
    require(
        abs.spec.dtype in dtypes.REAL_OF.values(),
        "expected float32 or float64 parts, got {}; convert them first",
        abs.spec,
        error=NotImplementedError,
    )
    return prims.complex(core.mul(abs, core.cos(angle)), core.mul(abs, core.sin(angle)))


@polar.vjp
def polar_vjp(g: Any, out: Any, abs: Any, angle: Any) -> tuple:
    """The real parts of conj(g) * sgn(out) and of conj(g) * i * out, as PyTorch has them: NaN of infinite lengths."""
    g = core.conj(g)
    slopes = [prims.real(core.mul(g, each)) for each in (core.sign(out), core.mul(out, 1j))]
    return tuple([cotangent(slope, x) for slope, x in zip(slopes, (abs, angle), strict=True)])


LANGUAGE.properties |= {"real": real, "imag": imag}
symbols(UNARY)
operators(
    **{"add": add, "radd": add, "sub": sub, "rsub": rsub, "mul": mul, "rmul": mul, "truediv": div, "rtruediv": rdiv},
    **{"floordiv": floor_divide, "mod": remainder, "pow": pow, "neg": neg, "pos": positive, "abs": LANGUAGE["abs"]},
    **{"iadd": LANGUAGE["add_"], "isub": LANGUAGE["sub_"], "imul": LANGUAGE["mul_"], "itruediv": LANGUAGE["div_"]},
    **{"ifloordiv": LANGUAGE["floor_divide_"], "imod": LANGUAGE["remainder_"], "ipow": LANGUAGE["pow_"]},
)
