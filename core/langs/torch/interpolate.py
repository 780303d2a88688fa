"""Resizing of signals, images and volumes: the functions that torch.nn.functional.interpolate calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dovetail import dtypes, prims
from dovetail.dtypes import DType
from dovetail.errors import require, require_dtype
from dovetail.langs import core
from dovetail.langs.torch.binding.opaque import opaque
from dovetail.langs.torch.binding.symbol import Tensor, resolve, torchsymbol
from dovetail.langs.torch.creation import ratio
from dovetail.langs.torch.padding import in_memory_format, positions
from dovetail.prims.sizes import Size
from dovetail.prims.spec import prod
from dovetail.torch_internals import C_NN

EXACT = 1 << 16  # numerators and denominators of factors whose product with a size is exact in float64


class Line(NamedTuple):
    """A dimension of x to be resized from `n` to `size` elements; `factor` is the requested ratio, None where a size was requested."""

    x: Tensor
    dim: int
    n: int
    size: int
    factor: float | None

    @property
    def step(self) -> Any:
        """The distance between new elements, in elements of x: a number, or a 0-d tensor."""
        return 1.0 / self.factor if self.factor is not None and self.factor > 0 else self.ratio(self.n, self.size)

    def ratio(self, a: int, b: int) -> Any:
        """Return a / b, as precise as positions are."""
        return ratio(a, b, core.wide(self.x.spec.dtype), self.x.spec.device)

    def take(self, index: Tensor) -> Tensor:
        """Return the elements at `index`, clamped to the border."""
        return prims.take(self.x, core.minimum(core.maximum(index, 0), self.n - 1), dim=self.dim)

    def spread(self, values: Tensor) -> Tensor:
        """Broadcast one number for each new element to the resized shape."""
        shape = (*self.x.spec.shape[: self.dim], self.size, *self.x.spec.shape[self.dim + 1 :])
        return prims.broadcast_in_dim(core.convert(values, self.x.spec.dtype), shape=shape, dims=(self.dim,))


def _nearest(line: Line, offset: float) -> Tensor:
    """Return the nearest element of each new one; the position is rounded to float32 before it is truncated, as in PyTorch."""
    dtype = dtypes.float64 if line.x.spec.dtype is dtypes.float64 else dtypes.float32
    at = core.mul(positions(line.x, line.size, start=offset, step=1.0, dtype=dtype), line.step)
    return line.take(core.convert(prims.floor(core.convert(at, dtypes.float32)), dtypes.int64))


def _source(line: Line, align_corners: bool, dtype: DType) -> Tensor:
    """Return the position of each new element in x."""
    if align_corners:
        step = line.ratio(line.n - 1, line.size - 1) if line.size > 1 else 0.0
        return core.mul(positions(line.x, line.size, start=0.0, step=1.0, dtype=dtype), step)
    return core.sub(core.mul(positions(line.x, line.size, start=0.5, step=1.0, dtype=dtype), line.step), 0.5)


def _linear(line: Line, align_corners: bool) -> Tensor:
    """Interpolate linearly between the two neighbours."""
    at = core.maximum(_source(line, align_corners, line.x.spec.dtype), 0.0)
    below = core.minimum(core.convert(prims.floor(at), dtypes.int64), line.n - 1)
    share = line.spread(core.minimum(core.sub(at, core.convert(below, at.spec.dtype)), 1.0))
    return core.add(core.mul(line.take(below), core.sub(1.0, share)), core.mul(line.take(core.add(below, 1)), share))


def _cubic(line: Line, align_corners: bool) -> Tensor:
    """Interpolate by a cubic through four neighbours (Keys, "Cubic convolution interpolation for digital image processing", 1981), with a = -0.75."""
    at = _source(line, align_corners, line.x.spec.dtype)
    below = prims.floor(at)
    share, below = core.sub(at, below), core.convert(below, dtypes.int64)
    total = None
    for tap, weight in ((-1, _far(core.add(share, 1.0))), (0, _near(share)), (1, _near(core.sub(1.0, share))), (2, _far(core.sub(2.0, share)))):
        term = core.mul(line.take(core.add(below, tap)), line.spread(weight))
        total = term if total is None else core.add(total, term)
    return total


def _near(t: Tensor) -> Tensor:
    """Return the weight of a neighbour at distance t <= 1: (1.25 t - 2.25) t^2 + 1."""
    return core.add(core.mul(core.mul(core.sub(core.mul(t, 1.25), 2.25), t), t), 1.0)


def _far(t: Tensor) -> Tensor:
    """Return the weight of a neighbour at distance 1 <= t <= 2: -0.75 t^3 + 3.75 t^2 - 6 t + 3."""
    return core.add(core.mul(core.sub(core.mul(core.add(core.mul(t, -0.75), 3.75), t), 6.0), t), 3.0)


def _lines(x: Tensor, spatial: int, output_size: Sequence[int] | None, scale_factors: Sequence[float] | None) -> list[tuple[int, int, float | None]]:
    """Return (dimension, new size, factor) for each of the last `spatial` dimensions."""
    shape = x.spec.shape
    require(len(shape) == spatial + 2, "expected [batch, channels] and {} dimensions after them, got {}", spatial, x.spec)
    require((output_size is None) != (scale_factors is None), "Must specify exactly one of output_size and scale_factors")
    sizes_or_factors = output_size if scale_factors is None else scale_factors
    require(len(sizes_or_factors) == spatial, "It is expected that there are {} output sizes or factors, got {}", spatial, sizes_or_factors)
    sizes = output_size if scale_factors is None else [_times(n, factor) for n, factor in zip(shape[2:], scale_factors, strict=True)]
    fits = all([n > 0 for n in (*shape[2:], *sizes)])
    require(fits, "Input and output sizes should be greater than 0, but got {} and {}", shape[2:], tuple(sizes))
    require(prod(shape[1:]) != 0, "Non-empty tensor expected but got {}", x.spec)
    return [(d + 2, n, None if scale_factors is None else float(scale_factors[d])) for d, n in enumerate(sizes)]


def _times(n: int, factor: float) -> int:
    """Return int(n * factor), of a size that is known when the program runs where the product is exact."""
    if type(n) is Size:
        a, b = float(factor).as_integer_ratio()
        return n * a // b if 0 < a < EXACT and b < EXACT else int(int(n) * factor)
    return int(n * factor)


def _resized(
    x: Tensor, spatial: int, output_size: Sequence[int] | None, scale_factors: Sequence[float] | None, resize: Callable[[Line], Tensor]
) -> Tensor:
    out = x
    for dim, size, factor in _lines(x, spatial, output_size, scale_factors):
        out = resize(Line(out, dim, x.spec.shape[dim], size, factor))
    return in_memory_format(core.convert(out, x.spec.dtype), x)


def _require_dtype(x: Tensor, is_supported: bool) -> None:
    require_dtype(is_supported, "interpolation is not implemented for {}; convert it to a floating dtype", x.spec)


def _pick(name: str, spatial: int, offset: float) -> None:
    """Register a torch function that selects the nearest element."""

    def meta(input: Tensor, output_size: Sequence[int] | None, scale_factors: Sequence[float] | None):
        _require_dtype(input, input.spec.dtype.kind == "float" or input.spec.dtype is dtypes.uint8)
        return _resized(input, spatial, output_size, scale_factors, lambda line: _nearest(line, offset))

    meta.__name__, meta.__doc__ = name, f"The nearest element of the last {spatial} dimensions at other sizes."
    torchsymbol(f"{C_NN}.{name}")(meta)


def _blend(name: str, spatial: int, resize: Callable[[Line, bool], Tensor]) -> None:
    """Register a torch function that weights the neighbours of each new element."""

    def meta(input: Tensor, output_size: Sequence[int] | None, align_corners: bool, scale_factors: Sequence[float] | None):
        x = input
        if x.spec.dtype is dtypes.uint8 and spatial == 2:  # the kernel uses weights of a few bits
            return opaque(resolve(f"{C_NN}.{name}"), (x, output_size, align_corners, scale_factors), {})
        _require_dtype(x, x.spec.dtype.kind == "float")
        wide = core.convert(x, core.wide(x.spec.dtype))
        out = _resized(wide, spatial, output_size, scale_factors, lambda line: resize(line, align_corners))
        return core.convert(out, x.spec.dtype)

    meta.__name__, meta.__doc__ = name, f"The last {spatial} dimensions at other sizes, neighbours weighted by distance."
    torchsymbol(f"{C_NN}.{name}")(meta)


for _spatial in (1, 2, 3):
    _pick(f"upsample_nearest{_spatial}d", _spatial, 0.0)
    _pick(f"_upsample_nearest_exact{_spatial}d", _spatial, 0.5)

_blend("upsample_linear1d", 1, _linear)
_blend("upsample_bilinear2d", 2, _linear)
_blend("upsample_trilinear3d", 3, _linear)
_blend("upsample_bicubic2d", 2, _cubic)
