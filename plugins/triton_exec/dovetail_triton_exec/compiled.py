"""What generated kernels call on a GPU where the interpreter has something of its own: libdevice, and reductions that keep NaN."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda.libdevice import acos as acos
from triton.language.extra.cuda.libdevice import acosh as acosh
from triton.language.extra.cuda.libdevice import asin as asin
from triton.language.extra.cuda.libdevice import asinh as asinh
from triton.language.extra.cuda.libdevice import atan as atan
from triton.language.extra.cuda.libdevice import atan2 as atan2
from triton.language.extra.cuda.libdevice import atanh as atanh
from triton.language.extra.cuda.libdevice import ceil as ceil
from triton.language.extra.cuda.libdevice import copysign as copysign
from triton.language.extra.cuda.libdevice import cos as cos
from triton.language.extra.cuda.libdevice import cosh as cosh
from triton.language.extra.cuda.libdevice import erf as erf
from triton.language.extra.cuda.libdevice import erfc as erfc
from triton.language.extra.cuda.libdevice import erfinv as erfinv
from triton.language.extra.cuda.libdevice import exp as exp
from triton.language.extra.cuda.libdevice import exp2 as exp2
from triton.language.extra.cuda.libdevice import expm1 as expm1
from triton.language.extra.cuda.libdevice import floor as floor
from triton.language.extra.cuda.libdevice import fmod as fmod
from triton.language.extra.cuda.libdevice import lgamma as lgamma
from triton.language.extra.cuda.libdevice import log as log
from triton.language.extra.cuda.libdevice import log1p as log1p
from triton.language.extra.cuda.libdevice import log2 as log2
from triton.language.extra.cuda.libdevice import log10 as log10
from triton.language.extra.cuda.libdevice import pow as pow
from triton.language.extra.cuda.libdevice import rint as rint
from triton.language.extra.cuda.libdevice import rsqrt as rsqrt
from triton.language.extra.cuda.libdevice import sin as sin
from triton.language.extra.cuda.libdevice import sinh as sinh
from triton.language.extra.cuda.libdevice import sqrt as sqrt
from triton.language.extra.cuda.libdevice import tan as tan
from triton.language.extra.cuda.libdevice import tanh as tanh
from triton.language.extra.cuda.libdevice import trunc as trunc

round = rint  # halves go to the even neighbour, as in eager PyTorch


@triton.jit
def div(a, b):
    """Compute a / b, rounded as IEEE wants it."""
    if b.dtype == tl.float64:
        return a / b
    else:
        return tl.div_rn(a, b)


@triton.jit
def to_bfloat16(x):
    return x.to(tl.bfloat16)


@triton.jit
def check(index, size: tl.constexpr, mask):
    """Return the index; out of bounds it stops the program."""
    tl.device_assert((index >= 0) & (index < size), "index out of bounds", mask=mask)
    return index


@triton.jit
def _larger(a, b):
    return tl.where((a > b) | (a != a), a, b)


@triton.jit
def _smaller(a, b):
    return tl.where((a < b) | (a != a), a, b)


@triton.jit
def _product(a, b):
    return a * b


@triton.jit
def reduce_amax(x):
    return tl.reduce(x, 1, _larger, keep_dims=True)


@triton.jit
def reduce_amin(x):
    return tl.reduce(x, 1, _smaller, keep_dims=True)


@triton.jit
def reduce_prod(x):
    return tl.reduce(x, 1, _product, keep_dims=True)


@triton.jit
def _first_larger(a, i, b, j):
    takes = (a > b) | ((a != a) & (b == b)) | (((a == b) | ((a != a) & (b != b))) & (i < j))
    return tl.where(takes, a, b), tl.where(takes, i, j)


@triton.jit
def _first_smaller(a, i, b, j):
    takes = (a < b) | ((a != a) & (b == b)) | (((a == b) | ((a != a) & (b != b))) & (i < j))
    return tl.where(takes, a, b), tl.where(takes, i, j)


@triton.jit
def reduce_argmax(x, position):
    return tl.reduce((x, position), 1, _first_larger, keep_dims=True)[1]


@triton.jit
def reduce_argmin(x, position):
    return tl.reduce((x, position), 1, _first_smaller, keep_dims=True)[1]
