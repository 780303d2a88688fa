"""Values: ranges that every dtype has, within what an operation's arguments may be."""

from __future__ import annotations

from math import inf, log2

import torch
from torch import Tensor

from dovetail_conformance.axes.sizes import mapped, tensors_of
from dovetail_conformance.opinfo import OpInfo, SampleInput

KINKS = (-6.0, -3.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 3.0, 6.0)  # where activations and roundings change their form
ALIKE = 0.1  # of which float32 loses a fifth to two fifths of a unit at every size of a sum
UNTIED = (float("nan"), -inf, inf)
SPECIAL = (inf, -inf, float("nan"), 0.0, -0.0)


def with_one_of_each(x: Tensor) -> Tensor:
    """Return a copy with infinity, negative infinity and NaN in it, each once, so that nothing is tied."""
    new = x.detach().clone(memory_format=torch.contiguous_format)
    if x.is_floating_point() and x.numel() > len(UNTIED):
        new.view(-1)[:: (x.numel() - 1) // len(UNTIED)][: len(UNTIED)] = torch.tensor(UNTIED, dtype=x.dtype)
    return new


def crossed(sample: SampleInput) -> SampleInput:
    """Return the sample with special values in its floats such that each of them, and a usual one, meets each of the others at some element."""
    floats = [x for x in tensors_of((sample.args, sample.kwargs)) if x.is_floating_point() and x.dtype.itemsize > 1]
    places = {id(x): i for i, x in enumerate(floats)}

    def special(x: Tensor) -> Tensor:
        if id(x) not in places:
            return x
        new = x.detach().clone(memory_format=torch.contiguous_format)
        turns = torch.arange(x.numel()) // (len(SPECIAL) + 1) ** places[id(x)] % (len(SPECIAL) + 1)
        for i, value in enumerate(SPECIAL):
            new.view(-1)[turns == i] = value
        return new

    return mapped(sample, special)


def filled(x: Tensor, values: str, info: OpInfo, numbers: tuple[float, ...], generator: torch.Generator) -> Tensor | None:
    """Return `x` with values of a kind that lie in the operation's domain; None where its dtype has none.

    Tensors of probabilities or of non-negative numbers stay so. `numbers` are arguments of the call, near which its form may change.
    """
    if not x.numel() or x.dtype is torch.bool or (x.dtype.itemsize == 1 and x.is_floating_point()):
        return None
    if x.is_complex():
        parts = [_real(part, values, (-inf, inf), numbers, generator) for part in torch.view_as_real(x.detach().resolve_conj()).unbind(-1)]
        return None if parts[0] is None or parts[1] is None else torch.complex(*(part.contiguous() for part in parts)).to(x.dtype)
    if x.is_floating_point():
        return _real(x.detach(), values, info.domain, numbers, generator)
    return _whole(x.detach(), values, info.integers, generator)


def _real(x: Tensor, values: str, domain: tuple[float, float], numbers: tuple[float, ...], generator: torch.Generator) -> Tensor | None:
    low, high = bounds(x, domain)
    info, shape = torch.finfo(x.dtype), tuple(x.shape)
    if values == "kinks":
        choices = [n for n in (*KINKS, *numbers, *(-n for n in numbers)) if low <= n <= high]
        drawn = torch.tensor(choices, dtype=torch.float64)[torch.randint(len(choices), shape, generator=generator)] if choices else None
    elif values == "moderate":
        drawn = _uniform(shape, max(low, -40.0), min(high, 40.0), generator)
    elif values in ("wide", "tiny", "huge"):
        least = log2(info.smallest_normal) - (10 if info.bits > 16 else 4)
        span = min(30.0, log2(info.max) - 2)
        lowest, highest = {"wide": (-span, span), "tiny": (least, -12.0), "huge": (12.0, log2(info.max) - 0.01)}[values]
        drawn = 2.0 ** _uniform(shape, lowest, highest, generator)
        drawn = drawn * _signs(shape, generator) if low < 0 else drawn
        if values == "tiny" and low == info.smallest_normal:
            low *= info.eps  # numbers that are not 0 may be denormal
        if values == "huge" and x.numel() > 1:
            drawn.view(-1)[0], drawn.view(-1)[-1] = info.max, info.max if low >= 0 else -info.max
        drawn = drawn.clamp(low, high)
    elif values == "zeros":
        drawn = torch.zeros(shape, dtype=torch.float64).clamp(low, high)
    elif values == "alike":  # a sum that grows number by number rounds each of them alike, and drifts
        drawn = (ALIKE * (1 + _uniform(shape, 0.0, 2.0**-13, generator))).clamp(low, high)
    elif values == "shifted":  # close to each other and far from zero, where differences of squares cancel
        centre = 2.0 ** (13 if info.bits > 16 else 10 if x.dtype is torch.float16 else 8)
        reach = max(1.0, 4 * info.eps * centre)
        drawn = (centre + _uniform(shape, -reach, reach, generator)).clamp(low, high)
    else:
        drawn = x.to(torch.float64).clone(memory_format=torch.contiguous_format)
        if x.ndim > 1 and low <= 0 <= high:
            drawn[-1], drawn[..., -1] = 0.0, 0.0  # sums and norms over any dimension are 0 somewhere
        flat = drawn.view(-1)
        for i, value in enumerate(SPECIAL):
            flat[i * (len(flat) - 1) // len(SPECIAL)] = value
    return None if drawn is None else drawn.to(x.dtype).to(x.device)


def within(sample: SampleInput, info: OpInfo) -> SampleInput:
    """Return the sample with its integers inside the operation's domain: growing it makes them distinct, however many there are."""
    if info.integers == (-inf, inf):
        return sample
    return mapped(sample, lambda x: x if x.is_floating_point() or x.is_complex() or x.dtype is torch.bool else x.clamp(*info.integers))


def bounds(x: Tensor, domain: tuple[float, float]) -> tuple[float, float]:
    """Return the limits for new values of a tensor: those of its own, which infinities and NaN do not tell."""
    wide = x.to(torch.float64)
    if not bool(torch.isfinite(wide).all()):
        return domain
    least, most = (float(n) for n in torch.aminmax(wide))
    low, high = domain
    if least >= 0:
        low = max(low, 0.0 if least == 0 else torch.finfo(x.dtype).smallest_normal)
        if most <= 1 and x.numel() > 1:
            high = min(high, 1.0)
    return low, high


def _uniform(shape: tuple[int, ...], low: float, high: float, generator: torch.Generator) -> Tensor:
    return low + torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low)


def _signs(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randint(2, shape, generator=generator, dtype=torch.float64) * 2 - 1


def _whole(x: Tensor, values: str, domain: tuple[float, float], generator: torch.Generator) -> Tensor | None:
    info, shape = torch.iinfo(x.dtype), tuple(x.shape)
    low, high = int(max(info.min, domain[0])), int(min(info.max, domain[1]))
    if values == "kinks":
        drawn = torch.randint(-2, 3, shape, generator=generator)
    elif values == "shifted":  # close to each other and so far from zero that floats do not tell them apart
        drawn = high // 4 * 3 + torch.randint(-2, 3, shape, generator=generator)
    elif values == "wide":
        drawn = torch.randint(low, high, shape, generator=generator, dtype=torch.int64)
        if x.numel() > 1:
            drawn.view(-1)[0], drawn.view(-1)[-1] = low, high
    else:
        return None
    return drawn.clamp(low, high).to(x.dtype)
