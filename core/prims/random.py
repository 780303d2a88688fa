"""Random numbers.  The first prims take the next numbers of their device's generator; the *_philox prims are functions of a seed and an offset.

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) turns a counter of four 32-bit words and a key of two into
four random words.  The key is the seed, low word first.  Counter words 0 and 1 are the block number, low word first; words 2 and 3 the offset.
A block's words become, in order, four numbers, or two float64 numbers of two words each, low word first.  With b bits per word (or pair):

    uniform: low + (high - low) * u, where u is the top p bits divided by 2**p, and p = 53, 24, 11, 8 for float64, float32, float16, bfloat16
    normal:  Box-Muller on numbers 2i and 2i + 1 of the stream: r = sqrt(-2 log(1 - u[2i])), then r cos(2 pi u[2i + 1]) and r sin(2 pi u[2i + 1]);
             u has 53 bits for float64 and 24 for the others
"""

from __future__ import annotations

from typing import Any

from dovetail.devices import Device
from dovetail.dtypes import DType, int64
from dovetail.errors import require
from dovetail.prims.creation import require_number, sized, zeros_like
from dovetail.prims.op import Tag, prim
from dovetail.prims.spec import NumberSpec, TensorSpec
from dovetail.prims.unary import FLOAT, ROUNDED, require_kind

RANDOM = frozenset({Tag.RANDOM})
CREATION = RANDOM | {Tag.CREATION, Tag.NO_GRAD}


def drawn(shape: tuple[int, ...], dtype: DType, device: Device, kinds: tuple[str, ...] = FLOAT) -> TensorSpec:
    """Return the spec of random numbers of a dtype of one of `kinds`."""
    out = TensorSpec(sized(shape), dtype, device)
    require_kind(out, kinds)
    return out


@prim(tags=CREATION)
def uniform(*, shape: tuple[int, ...], low: float, high: float, dtype: DType, device: Device) -> TensorSpec:
    """Numbers uniformly distributed over [low, high)."""
    _require_interval(low, high)
    return drawn(shape, dtype, device)


def _require_interval(low: Any, high: Any) -> None:
    computed = isinstance(low, NumberSpec) or isinstance(high, NumberSpec)  # by the program, which has seen to it
    require(computed or low <= high, "uniform expects low <= high, got {} and {}", low, high)


@prim(tags=CREATION)
def normal(*, shape: tuple[int, ...], mean: float, std: float, dtype: DType, device: Device) -> TensorSpec:
    """Normally distributed numbers."""
    require(isinstance(std, NumberSpec) or std >= 0, "normal expects std >= 0.0, but found std {}", std)
    return drawn(shape, dtype, device)


@prim(tags=CREATION)
def exponential(*, shape: tuple[int, ...], rate: float, dtype: DType, device: Device) -> TensorSpec:
    """Exponentially distributed numbers with mean 1 / rate."""
    require(isinstance(rate, NumberSpec) or rate > 0, "exponential expects rate > 0.0, but found rate {}", rate)
    return drawn(shape, dtype, device)


@prim(tags=CREATION)
def randint(*, shape: tuple[int, ...], low: int, high: int, dtype: DType, device: Device) -> TensorSpec:
    """Integers uniformly distributed over low, ..., high - 1; a floating dtype holds them too."""
    require(low < high, "randint expects low < high, got {} and {}", low, high)
    out = drawn(shape, dtype, device, ROUNDED)
    require_number(low, dtype)
    require_number(high, dtype)
    return out


@prim(tags=CREATION)
def randperm(*, length: int, dtype: DType, device: Device) -> TensorSpec:
    """The integers 0, ..., length - 1 in some order."""
    return drawn((length,), dtype, device, ROUNDED)


@prim(tags=RANDOM)
def bernoulli(p: TensorSpec, *, shape: tuple[int, ...] | None = None) -> TensorSpec:
    """1 with probability p, else 0, in the dtype of p; with a `shape`, so many of one probability, which PyTorch draws as other numbers."""
    require_kind(p, FLOAT)
    require(shape is None or p.rank == 0, "expected one probability for the elements of a shape, got {}", p)
    return p.fresh(None if shape is None else sized(shape))


@bernoulli.vjp
def bernoulli_vjp(g, out, p, shape=None):
    return (zeros_like(p),)


@prim(tags=RANDOM | {Tag.NO_GRAD})
def multinomial(x: TensorSpec, *, num_samples: int, replacement: bool) -> TensorSpec:
    """`num_samples` positions along the last dimension, drawn with probabilities in proportion to the weights x."""
    require_kind(x, FLOAT)
    require(x.rank in (1, 2), "prob_dist must be 1 or 2 dim, got {}", x)
    require(num_samples > 0, "cannot sample n_sample <= 0 samples, got {}", num_samples)
    is_enough = replacement or num_samples <= x.shape[-1]
    require(is_enough, "cannot sample n_sample > prob_dist.size(-1) samples without replacement, got {} of {}", num_samples, x)
    return x.fresh((*x.shape[:-1], num_samples), int64)


def counted(seed: TensorSpec, offset: TensorSpec, shape: tuple[int, ...], dtype: DType, device: Device) -> TensorSpec:
    """Return the spec of numbers drawn from a seed and an offset, both int64 without dimensions."""
    for x in (seed, offset):
        require(x.dtype is int64 and x.rank == 0, "expected an int64 tensor of no dimensions, got {}", x)
    return drawn(shape, dtype, device)


@prim(tags={Tag.CREATION, Tag.NO_GRAD, Tag.CHEAP})
def uniform_philox(
    seed: TensorSpec, offset: TensorSpec, *, shape: tuple[int, ...], low: float, high: float, dtype: DType, device: Device
) -> TensorSpec:
    """Numbers uniformly distributed over [low, high): the same for the same seed and offset, unrelated for others."""
    _require_interval(low, high)
    return counted(seed, offset, shape, dtype, device)


@prim(tags={Tag.CREATION, Tag.NO_GRAD})
def normal_philox(
    seed: TensorSpec, offset: TensorSpec, *, shape: tuple[int, ...], mean: float, std: float, dtype: DType, device: Device
) -> TensorSpec:
    """Normally distributed numbers: the same for the same seed and offset, unrelated for others."""
    require(isinstance(std, NumberSpec) or std >= 0, "normal expects std >= 0.0, but found std {}", std)
    return counted(seed, offset, shape, dtype, device)
