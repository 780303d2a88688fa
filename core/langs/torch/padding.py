"""Borders around tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dovetail import prims
from dovetail.dtypes import DType, bool_, int64
from dovetail.errors import require
from dovetail.langs import core
from dovetail.langs.torch.binding.symbol import Number, Tensor, torchsymbol, wrong_type
from dovetail.prims.sizes import Size
from dovetail.prims.spec import TensorSpec, channels_last_order, dense, is_channels_last


@torchsymbol("torch.nn.functional.pad")
def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: Number | None = None):
    """`input` with pad[0] places before and pad[1] after its last dimension, pad[2] and pad[3] around the one before it, and so on.

    The places hold `value` (constant), the elements mirrored at the border (reflect), the border (replicate) or the other end (circular).
    Negative numbers crop.
    """
    low, high = _borders(input, pad)
    if mode == "constant":
        return _filled(input, low, high, 0 if value is None else value)
    require(mode in _SOURCES, "Unrecognised padding mode {!r}: expected one of constant, {}", mode, ", ".join(_SOURCES), error=NotImplementedError)
    require(value is None or value == 0, "Padding mode {!r} doesn't take in value argument, got {}", mode, value)
    _require_supported(input.spec, mode, len(pad) // 2)
    padded_sizes = [n + a + b for n, a, b in zip(input.spec.shape, low, high, strict=True)][-(len(pad) // 2) :]
    require(mode == "circular" or any([n > 0 for n in padded_sizes]), "padding {} leaves nothing of {}", pad, input.spec)
    out = input
    for d, (n, a, b) in enumerate(zip(input.spec.shape, low, high, strict=True)):
        _require_room(mode, d, n, a, b)
        if a or b:
            out = prims.take(out, _SOURCES[mode](input, n, a, b), dim=d)
    out = prims.clone(out) if out is input else out
    return out if mode == "circular" else in_memory_format(out, input)


@torchsymbol("torch.constant_pad_nd")
def constant_pad_nd(input: Tensor, pad: Sequence[int], value: Number = 0):
    """`torch.nn.functional.pad` with a constant."""
    fits = not isinstance(value, complex) or input.spec.dtype.kind == "complex"
    require(fits, "value cannot be converted to type {} without overflow, got {}", input.spec.dtype.short, value)
    return _filled(input, *_borders(input, pad), value)


def in_memory_format(out: Tensor, *inputs: Tensor) -> Tensor:
    """Return `out`, channels last where an input is, as torch's kernels for images and volumes do."""
    if any([is_channels_last(x.spec) for x in inputs]):
        return prims.stride_order(out, order=channels_last_order(len(out.spec.shape)))
    return out


def slow_to_fast(spec: TensorSpec) -> tuple[int, ...]:
    """Return the dimensions in the memory order of torch.empty_like, slowest first."""
    steps = dense(spec).steps
    return tuple(sorted(range(spec.rank), key=lambda d: (-steps[d], spec.shape[d] == 1, d)))


def positions(x: Tensor, length: int, *, start: float = 0, step: float = 1, dtype: DType = int64) -> Tensor:
    """start, start + step, ...: `length` numbers on x's device."""
    return prims.iota(length=length, start=start, step=step, dtype=dtype, device=x.spec.device)


def _filled(x: Tensor, low: list[int], high: list[int], value: Any) -> Tensor:
    """Pad x with `value`; cropping alone keeps the memory order of x's dimensions, as in torch."""
    require(not isinstance(value, complex) or x.spec.dtype.kind == "complex", "argument 'value' must be float, not complex", error=TypeError)
    sizes = [n + a + b for n, a, b in zip(x.spec.shape, low, high, strict=True)]
    require(all([n >= 0 for n in sizes]), "padding {} and {} of {} leaves a negative size", low, high, x.spec)
    if any([n > 0 for n in (*low, *high)]):
        value = core.stored(float(value) if isinstance(value, int) else value, x.spec.dtype)
        return prims.pad(x, value=value, low=tuple(low), high=tuple(high), interior=(0,) * len(low))
    stops = tuple([n + b for n, b in zip(x.spec.shape, high, strict=True)])
    cropped = prims.strided_slice(x, starts=tuple([-a for a in low]), stops=stops, steps=(1,) * len(low))
    return prims.stride_order(cropped, order=slow_to_fast(cropped.spec))


def _borders(x: Tensor, pad: Any) -> tuple[list[int], list[int]]:
    """Return the padding before and after each dimension."""
    if not isinstance(pad, (tuple, list)) or not all([isinstance(n, (int, Size)) and not isinstance(n, bool) for n in pad]):
        wrong_type("pad", "pad", "a tuple of ints", pad)
    rank = len(x.spec.shape)
    require(len(pad) % 2 == 0, "Padding length must be divisible by 2, got {}", pad)
    require(len(pad) // 2 <= rank, "Padding length should be less than or equal to two times the input dimension, got {} for {}", pad, x.spec)
    low, high = [0] * rank, [0] * rank
    for i in range(len(pad) // 2):
        low[rank - 1 - i], high[rank - 1 - i] = pad[2 * i], pad[2 * i + 1]
    return low, high


def _require_supported(x: TensorSpec, mode: str, count: int) -> None:
    """Raise unless `count` dimensions of x, with one or two before them, can be padded with x's own elements."""
    fits = 1 <= count <= 3 and x.rank in (count + 1, count + 2)
    require(fits, "mode {!r} pads the last 1, 2 or 3 dimensions, one or two before them; got {} of {}", mode, count, x, error=NotImplementedError)
    if mode != "circular":
        require(x.dtype is not bool_, "mode {!r} is not implemented for bool; pad the tensor as uint8", mode, error=NotImplementedError)
        require(all([n > 0 for n in x.shape[x.rank - count - 1 :]]), "expected sizes other than 0 but for the batch, got {}", x)


def _require_room(mode: str, d: int, n: int, low: int, high: int) -> None:
    if not low and not high:
        return
    if mode == "reflect":
        require(low < n and high < n, "Padding size should be less than the input's, {} at dimension {}, got ({}, {})", n, d, low, high)
    if mode == "circular":
        remaining = n + min(low, 0) + min(high, 0)
        require(
            remaining > 0 or n + low + high == 0, "Negative padding value ({}, {}) is resulting in an empty dimension {} of size {}", low, high, d, n
        )
        require(low <= n and high <= n, "Padding value causes wrapping around more than once: size {} at dimension {}, got ({}, {})", n, d, low, high)
    require(n + low + high >= 0, "padding ({}, {}) takes more than size {} at dimension {}", low, high, n, d)


def _mirrored(x: Tensor, n: int, low: int, high: int) -> Tensor:
    at = positions(x, n + low + high, start=-low)
    return core.sub(n - 1, core.abs(core.sub(n - 1, core.abs(at))))


def _clamped(x: Tensor, n: int, low: int, high: int) -> Tensor:
    return core.minimum(core.maximum(positions(x, n + low + high, start=-low), 0), n - 1)


def _around(x: Tensor, n: int, low: int, high: int) -> Tensor:
    """Return positions that wrap around what remains of n after cropping."""
    first, remaining = max(-low, 0), n + min(low, 0) + min(high, 0)
    return core.add(core.remainder(positions(x, n + low + high, start=-max(low, 0)), max(remaining, 1)), first)


_SOURCES = {"reflect": _mirrored, "replicate": _clamped, "circular": _around}  # the source positions of the n + low + high elements
