"""Every pointwise operation, scan and reduction on special integers and booleans, compared with eager PyTorch: exactly, where both are integers.

python tests/langs/special_integers.py cumsum prod      shows what differs; without names, of everything

The extremes of each dtype meet each other, so sums, products and shifts wrap around.  What eager refuses or raises has to raise as well.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from special_values import function_of
from torch import Tensor

import dovetail

DTYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
LARGE = (1 << 20) + 17
SHAPES = ((7,), (67,), (9, 63), (LARGE,))
LAYOUTS = ("contiguous", "spaced", "transposed", "broadcast")

UNARY = (
    *("torch.abs(x)", "torch.neg(x)", "torch.sign(x)", "torch.sgn(x)", "torch.square(x)", "torch.positive(x)", "torch.bitwise_not(x)", "~x"),
    *("x ** 2", "x ** 3", "x ** 0", "x ** 1", "x ** 0.5", "2 ** x.abs().clamp(max=70)", "x + 1", "1 - x", "x * 2", "x * 0", "x + 200", "x * -3"),
    *("x / 3", "x / 0", "3 / x", "x // 3", "x // -3", "x % 3", "x % -3", "torch.fmod(x, 3)", "torch.fmod(x, -3)", "x + 1.5", "x * 0.5", "x // 1.5"),
    *("torch.div(x, 3, rounding_mode='trunc')", "torch.div(x, -3, rounding_mode='floor')", "torch.add(x, 2, alpha=3)", "torch.rsub(x, 1)"),
    *(f"x {op} {n}" for op in ("<<", ">>") for n in (0, 1, 7, 8, 31, 33, 64, -1)),
    *("x & 5", "x | 5", "x ^ -1", "torch.logical_not(x)", "x > 0", "x == 0", "x != x", "x >= 3", "x <= -1", "x < 2.5", "x == 1e30"),
    *("torch.sqrt(x)", "torch.exp(x)", "torch.sin(x)", "torch.log(x)", "torch.tanh(x)", "torch.sigmoid(x)", "torch.rsqrt(x)", "torch.reciprocal(x)"),
    *("torch.erf(x)", "torch.log1p(x)", "torch.expm1(x)", "torch.atan(x)", "torch.deg2rad(x)", "torch.float_power(x, 2)", "torch.lgamma(x)"),
    *("torch.ceil(x)", "torch.floor(x)", "torch.trunc(x)", "torch.round(x)", "torch.isnan(x)", "torch.isinf(x)", "torch.isfinite(x)"),
    *("torch.signbit(x)", "torch.nan_to_num(x)", "torch.isposinf(x)", "torch.isreal(x)", "torch.angle(x)", "torch.logit(x)"),
    *("torch.clamp(x, -3, 5)", "torch.clamp(x, min=0)", "torch.clamp(x, max=5)", "torch.clamp(x, -0.5, 2.5)", "torch.masked_fill(x, x > 0, 1)"),
    *("F.relu(x)", "F.relu6(x)", "F.hardtanh(x, -2, 3)", "F.threshold(x, 2, 7)", "torch.where(x > 0, x, -1)", "torch.where(x > 0, x, 0.5)"),
    *(f"x.to(torch.{name})" for name in ("float64", "float32", "bfloat16", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")),
    *("x.to(torch.int8) + x", "x.float() + x", "x.half() * 2 + x", "torch.copysign(x, -1.0)", "torch.sinc(x)", "torch.sum(x * 2 + 1)"),
)
BINARY = (
    *("x + y", "x - y", "x * y", "x / y", "torch.add(x, y, alpha=3)", "torch.sub(x, y, alpha=-2)", "torch.rsub(x, y)", "x & y", "x | y", "x ^ y"),
    *("x // torch.where(y == 0, 1, y)", "x % torch.where(y == 0, 1, y)", "torch.fmod(x, torch.where(y == 0, 1, y))"),
    *("torch.div(x, torch.where(y < 1, 1, y), rounding_mode='trunc')", "x // y", "x % y", "torch.fmod(x, y)"),
    *(
        "x << y",
        "x >> y",
        "torch.pow(x, y)",
        "torch.pow(x, y & 7)",
        "torch.maximum(x, y)",
        "torch.minimum(x, y)",
        "torch.fmax(x, y)",
        "torch.fmin(x, y)",
    ),
    *(f"torch.{name}(x, y)" for name in ("eq", "ne", "lt", "le", "gt", "ge", "logical_or", "logical_and", "logical_xor", "heaviside", "xlogy")),
    *(
        "torch.where(x > y, x, y)",
        "torch.clamp(x, y, x)",
        "torch.clamp(x, min=y)",
        "torch.clamp(x, max=y)",
        "torch.atan2(x, y)",
        "torch.isclose(x, y)",
    ),
    *(
        "torch.addcmul(x, x, y, value=3)",
        "torch.gcd(x, y)",
        "torch.lcm(x.abs() >> 1, y.abs() >> 1)",
        "torch.copysign(x, y)",
        "torch.true_divide(x, y)",
        "torch.ldexp(x, y % 100)",
        "torch.ldexp(x.double(), y % 100)",
    ),
    *("F.mse_loss(x, y, reduction='none')", "F.l1_loss(x, y, reduction='none')", "torch.float_power(x, y)", "x.float() * y", "x.to(torch.int64) + y"),
    *("x + y.to(torch.int8)", "x > y.float()", "x == y.to(torch.int64)", "torch.maximum(x, y.to(torch.int32))", "torch.hypot(x.double(), y)"),
)
REDUCTIONS = (
    *(
        "torch.sum(x, {d})",
        "torch.sum(x, {d}, dtype=torch.int32)",
        "torch.sum(x >> 24, {d}, dtype=torch.float64)",
        "torch.amax(x, {d})",
        "torch.amin(x, {d})",
    ),
    *(
        "torch.any(x, {d})",
        "torch.all(x, {d})",
        "torch.count_nonzero(x, {d})",
        "torch.mean(x >> 24, {d}, dtype=torch.float64)",
        "torch.nansum(x, {d})",
    ),
    *("torch.sum(x * 2, {d}, keepdim=True) + x", "torch.sum(x.to(torch.int16), {d})", "torch.sum(x, {d}, dtype=torch.int8)"),
)
ALONG = (
    *("torch.prod(x, {d})", "torch.cumsum(x, {d})", "torch.cumprod(x, {d})", "torch.max(x, {d})", "torch.min(x, {d})", "torch.argmax(x, {d})"),
    *("torch.argmin(x, {d})", "torch.aminmax(x, dim={d})", "torch.cummax(x, {d})", "torch.cummin(x, {d})", "torch.diff(x, dim={d})"),
    *("torch.sort(x, dim={d}, stable=True)", "torch.cumsum(x, {d}, dtype=torch.int32)", "torch.prod(x, {d}, dtype=torch.int32)"),
    *("torch.cumsum(x, {d}, dtype=torch.int8)", "torch.softmax(x, {d}, dtype=torch.float64)"),
)
ROUNDED = ("torch.softmax(x, {d}, dtype=torch.float64)",)  # sums of numbers that are not whole
ALL = (*UNARY, *BINARY, *REDUCTIONS, *ALONG)


def specials(dtype: torch.dtype) -> Tensor:
    """Return the extremes of a dtype, what lies beside them, powers of two around the sizes of other dtypes, and small numbers."""
    if dtype is torch.bool:
        return torch.tensor([False, True])
    info = torch.iinfo(dtype)
    numbers = {info.min, info.min + 1, info.max, info.max - 1, info.max // 3, info.min // 3, *range(-9, 10), 33, 46, 63, 64, 65, 100}
    numbers |= {sign * (2**k + step) for k in (7, 8, 11, 15, 16, 24, 31, 32, 53, 62) for step in (-1, 0, 1) for sign in (1, -1)}
    return torch.tensor(sorted(n for n in numbers if info.min <= n <= info.max), dtype=dtype)


def arguments(text: str, shape: tuple[int, ...], dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Return tensors that hold the special numbers, or as many of their pairs as there is room for."""
    values, n = specials(dtype), math.prod(shape)
    m, places = len(values), torch.arange(n)
    if "{d}" in text:
        return (values[torch.randint(m, shape, generator=torch.Generator().manual_seed(n))],)
    if re.search(r"\by\b", text):
        first = places * 11 % (m * m) if n < m * m else places % (m * m)
        return values[first // m].reshape(shape), values[(first + first // m) % m].reshape(shape)
    return (values[(places * 5 + 3) % m].reshape(shape),)


def laid_out(x: Tensor, layout: str, i: int) -> Tensor:
    """Return argument `i` in another layout; broadcast, its first row for all or the last element of each row."""
    if layout == "spaced":
        return torch.stack([x, x], -1)[..., 0]
    if layout == "transposed" and x.dim() == 2:
        return x.t().contiguous().t()
    if layout == "broadcast":
        return x[:1].expand(x.shape) if i or x.dim() == 1 else x[..., -1:].expand(x.shape)
    return x


def outcome(fn: Callable[..., Any], arguments: tuple[Tensor, ...]) -> list[Tensor] | Exception:
    try:
        result = fn(*arguments)
    except Exception as error:
        return error
    return [result] if isinstance(result, Tensor) else [x for x in result if isinstance(x, Tensor)]


def check(text: str, shape: tuple[int, ...], dtype: torch.dtype, layout: str = "contiguous") -> Iterator[str]:
    """Yield a sentence for each result that is not eager's."""
    dims = [None] if "{d}" not in text else [0] if len(shape) == 1 else [-1, 0] if text in ALONG else [-1, 0, (0, 1)]
    for dim in dims:
        name = text.replace("{d}", repr(dim))
        function = function_of(name)
        label = f"{name} {str(dtype).removeprefix('torch.')}{list(shape)} {layout}"
        xs = tuple(laid_out(x, layout, i) for i, x in enumerate(arguments(text, shape, dtype)))
        theirs, ours = outcome(function, xs), outcome(dovetail.jit(function), xs)
        if isinstance(theirs, Exception):
            if not isinstance(theirs, NotImplementedError) and not isinstance(ours, Exception) and "not implemented" not in str(theirs):
                yield f"{label}: no error, eager raises {theirs}"
        elif isinstance(ours, Exception):
            yield f"{label}: raises {type(ours).__name__}: {ours}"
        else:
            terms = math.prod(shape) if text in ROUNDED else 1
            messages = [difference(*both, xs, terms) for both in zip(ours, theirs, strict=True)]
            yield from (f"{label}: {message}" for message in messages if message)


def difference(ours: Tensor, theirs: Tensor, xs: tuple[Tensor, ...], terms: int = 1) -> str | None:
    """Return how a result differs: integers exactly, floats by more than roundings, in NaN, infinities or signs of zeros.

    Of a sum of `terms` that are rounded, eager adds one after another: equal terms have equal errors, and these add up as well.
    """
    if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
        return f"{ours.dtype}{list(ours.shape)} in place of {theirs.dtype}{list(theirs.shape)}"
    wrong = ours != theirs
    if ours.is_floating_point():
        a, b = ours.double(), theirs.double()
        near = (a - b).abs() <= (4 + terms / 64) * torch.finfo(ours.dtype).eps * b.abs()
        wrong = ~((a == b) & (a.signbit() == b.signbit()) | a.isnan() & b.isnan() | near & (b != 0) & b.isfinite())
    if not bool(wrong.any()):
        return None
    at = int(wrong.flatten().nonzero()[0])
    values = [x.flatten()[at].item() for x in xs if x.shape == ours.shape]
    return f"{int(wrong.sum())} elements, first at {at} of {values}: {ours.flatten()[at].item()} in place of {theirs.flatten()[at].item()}"


if __name__ == "__main__":
    for text in ALL:
        if len(sys.argv) == 1 or any(part in text for part in sys.argv[1:]):
            for i, dtype in enumerate(DTYPES):
                for shape in SHAPES:
                    for layout in LAYOUTS if shape != (LARGE,) else (LAYOUTS[(i + len(text)) % 4],):
                        for message in check(text, shape, dtype, layout):
                            print(message, flush=True)
            print(f"# {text}", flush=True)
