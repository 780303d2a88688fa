"""What generated kernels call, in Triton's own words.  Importing this imports triton.

`native` holds what differs between a GPU, where elementary functions are those of CUDA's libdevice as in eager PyTorch, and Triton's
interpreter, which has none.
"""

from __future__ import annotations

import triton
import triton.language as tl

from dovetail_triton_exec import availability

if availability.interpreting():
    from dovetail_triton_exec import interpreted as native
else:
    from dovetail_triton_exec import compiled as native

INFINITY: tl.constexpr = tl.constexpr(float("inf"))
TWO_PI: tl.constexpr = tl.constexpr(6.283185307179586)


@triton.jit
def sigmoid(x):
    return native.div(tl.full((), 1.0, x.dtype), 1.0 + native.exp(-x))


@triton.jit
def reciprocal(x):
    return native.div(tl.full((), 1.0, x.dtype), x)


@triton.jit
def isnan(x):
    return x != x


@triton.jit
def isinf(x):
    return tl.abs(x) == INFINITY


@triton.jit
def isfinite(x):
    return tl.abs(x) < INFINITY


@triton.jit
def sign_float(x):
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)


@triton.jit
def sign_int(x):
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)


@triton.jit
def signbit_float(x):
    if x.dtype == tl.float64:
        return x.to(tl.int64, bitcast=True) < 0
    else:
        return x.to(tl.int32, bitcast=True) < 0


@triton.jit
def signbit_int(x):
    return x < 0


@triton.jit
def floordiv_int(a, b):
    q = a // b
    return tl.where(((a < 0) != (b < 0)) & (q * b != a), q - 1, q)


@triton.jit
def remainder_int(a, b):
    m = a % b
    return tl.where((m != 0) & ((m < 0) != (b < 0)), m + b, m)


@triton.jit
def fmod_int(a, b):
    return a % b


@triton.jit
def fmod_float(a, b):
    return native.fmod(a, b)


@triton.jit
def remainder_float(a, b):
    m = native.fmod(a, b)
    return tl.where((m != 0) & ((m < 0) != (b < 0)), m + b, m)


@triton.jit
def floordiv_float(a, b):
    """Divide as eager does: the quotient without the remainder, which is nearly an integer, rounded to it."""
    m = native.fmod(a, b)
    q = native.div(a - m, b)
    q = tl.where((m != 0) & ((b < 0) != (m < 0)), q - 1, q)
    f = native.floor(q)
    f = tl.where(q - f > 0.5, f + 1, f)
    plain = native.div(a, b)
    return tl.where(b == 0, plain, tl.where(q == 0, native.copysign(q, plain), f))


@triton.jit
def shift_left(a, b, bits: tl.constexpr):
    fits = (b >= 0) & (b < bits)
    return tl.where(fits, a << tl.where(fits, b, 0).to(a.dtype), 0).to(a.dtype)


@triton.jit
def shift_right(a, b, bits: tl.constexpr):
    fits = (b >= 0) & (b < bits)
    return (a >> tl.where(fits, b, bits - 1).to(a.dtype)).to(a.dtype)


@triton.jit
def _words(seed, offset, block):
    key_low, key_high = (seed & 0xFFFFFFFF).to(tl.uint32), ((seed >> 32) & 0xFFFFFFFF).to(tl.uint32)
    c0 = (block & 0xFFFFFFFF).to(tl.uint32)
    zero = c0 & 0
    c1 = ((block >> 32) & 0xFFFFFFFF).to(tl.uint32)
    c2 = (offset & 0xFFFFFFFF).to(tl.uint32) + zero
    c3 = ((offset >> 32) & 0xFFFFFFFF).to(tl.uint32) + zero
    return tl.philox_impl(c0, c1, c2, c3, key_low + zero, key_high + zero)


@triton.jit
def word(seed, offset, position):
    """Compute word `position` of the stream of a seed and an offset: four to each block."""
    position = position.to(tl.int64)
    a, b, c, d = _words(seed, offset, position // 4)
    which = position % 4
    return tl.where(which == 0, a, tl.where(which == 1, b, tl.where(which == 2, c, d)))


@triton.jit
def unit(seed, offset, position, bits: tl.constexpr, double: tl.constexpr):
    """Compute number `position` of the stream, in [0, 1) with `bits` bits."""
    if bits > 32:
        low = word(seed, offset, position.to(tl.int64) * 2).to(tl.int64)
        high = word(seed, offset, position.to(tl.int64) * 2 + 1).to(tl.int64)
        top = (high << (bits - 32)) | (low >> (64 - bits))
        return top.to(tl.float64) * (0.5**bits)
    else:
        top = word(seed, offset, position) >> (32 - bits)
        return top.to(tl.float64 if double else tl.float32) * (0.5**bits)


@triton.jit
def uniform(seed, offset, position, low, high, bits: tl.constexpr):
    return unit(seed, offset, position, bits, False) * (high - low) + low


@triton.jit
def normal(seed, offset, position, mean, std, bits: tl.constexpr):
    """Compute normal numbers 2i and 2i + 1 from uniform ones (Box and Muller, 1958)."""
    first = position.to(tl.int64) // 2 * 2
    radius = native.sqrt(-2.0 * native.log1p(-unit(seed, offset, first, bits, True)))
    angle = unit(seed, offset, first + 1, bits, True) * TWO_PI
    return radius * tl.where(first == position, native.cos(angle), native.sin(angle)) * std + mean
