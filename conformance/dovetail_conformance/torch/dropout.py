"""Elements, or whole channels, dropped at random.  Their references know what the elements are that are kept, and what the others are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.langs.torch import symbol_for
from dovetail_conformance.opinfo import EXTREMES, FLOATS, OPINFOS, Maker, OpInfo, SampleInput, laid, refused_rows

ALPHA = 1.7580993408473766  # scale * alpha of SELU, which a dropped unit saturates at
CHANCES = (
    ("row-major", (4, 10), 0.5),
    ("gapped", (2, 3), 0.0),
    ("column-major", (2, 0, 3), 0.5),
    ("row-major", (2, 3, 4), 1.0),
    ("gapped", (6, 2), 0.25),
    ("row-major", (2, 3, 5, 4), 0.5),
)  # layout, shape, probability: one with channels of several elements is needed


def function_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for layout, shape, p in CHANCES:
        yield SampleInput((laid(make, layout, *shape), p))
    yield SampleInput((make(),))
    yield SampleInput((make(4, 3).t(), 0.9, False))
    yield SampleInput((make(3, 1).expand(3, 4),), {"p": 0.2})
    yield SampleInput((make(2, 3),), {"p": 0.5, "training": False, "inplace": False})


def samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for layout, shape, p in CHANCES:
        yield SampleInput((laid(make, layout, *shape), p, True))
    yield SampleInput((make(4, 3).t(), 0.9, False))
    yield SampleInput((make(1, 1),), {"p": 0.5, "train": True})


def kept(x: Tensor, p: float = 0.5, train: bool = True, *, alpha: bool, channels: bool, **named: Any) -> Callable[[Tensor], str | None]:
    """Return whether each element, or channel, is either x's times a scale and shifted, or what a dropped one becomes; computed in float64."""
    wide, train = x.to(torch.float64, copy=True), named.get("training", train)
    if not train or p == 0 or not x.numel():
        ways = [wide]
    elif p == 1:
        ways = [wide * 0]
    elif alpha:
        scale = ((ALPHA**2 * p + 1) * (1 - p)) ** -0.5
        shift = ALPHA * scale * p
        ways = [wide * scale + shift, torch.full_like(wide, shift - ALPHA * scale)]
    else:
        ways = [wide / (1 - p), wide * 0]

    def message(got: Tensor) -> str | None:
        if (got.shape, got.dtype) != (x.shape, x.dtype):
            return f"{got.dtype}{list(got.shape)} in place of {x.dtype}{list(x.shape)}"
        eps = 8 * torch.finfo(x.dtype).eps
        fits = [torch.isclose(got.to(torch.float64), way, rtol=eps, atol=eps, equal_nan=True) for way in ways]
        if channels and x.ndim > 2:
            fits = [fit.flatten(2).all(-1) for fit in fits]
        wrong = ~torch.stack(fits).any(0)
        return f"{int(wrong.sum())} of {wrong.numel()} are neither kept and scaled nor dropped" if wrong.any() else None

    return message


CHANCE = "probability has to be between 0 and 1"
WRONG = (((2, 3), 1.5, True, RuntimeError, CHANCE), ((2, 3), -0.1, False, RuntimeError, CHANCE), ((2, 3), 0.5, TypeError, "missing"))
NO_CHANNELS = ((3,), 0.5, True, RuntimeError, "Feature dropout requires at least 2 dimensions")
KINDS = {  # of torch.dropout: whether units saturate, whether whole channels go
    "dropout": (False, False),
    "feature_dropout": (False, True),
    "alpha_dropout": (True, False),
    "feature_alpha_dropout": (True, True),
}


def info(name: str, samples: Callable, errors: tuple[tuple, ...], alpha: bool, channels: bool) -> OpInfo:
    reference = partial(kept, alpha=alpha, channels=channels)
    outside = not name.endswith("_")  # a leaf that requires grad cannot be written to
    return OpInfo(symbol_for(f"torch.{name}"), samples, partial(refused_rows, errors), reference, FLOATS, outside, random=True, extremes=EXTREMES)


OPINFOS += [
    info("nn.functional.dropout", function_samples, (((2, 3), 1.5, ValueError, CHANCE), ((2, 3), -0.1, ValueError, CHANCE)), False, False),
    *(
        info(f"{name}{end}", samples, (*WRONG, NO_CHANNELS) if channels else WRONG, alpha, channels)
        for name, (alpha, channels) in KINDS.items()
        for end in ("", "_")
    ),
]
