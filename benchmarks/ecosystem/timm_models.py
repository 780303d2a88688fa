"""timm: a small model of each of its modules, forward and training on two images."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import timm
import torch
from cases import Case, chosen

SMALL = (  # what small models are called, the smallest first
    *("test", "atto", "femto", "pico", "nano", "050", "035", "10t", "xxs", "xxtiny", "xtiny", "tiny", "ti", "xs", "t0", "b0", "s0", "m0"),
    *("lite0", "128s", "002", "s", "small", "18", "a0", "a1", "m1", "x1", "50"),
)


def cases() -> Iterator[Case]:
    for name, size in chosen()["timm"].values():
        yield Case("timm", name, partial(build, name, size))


def modules() -> Iterator[tuple[str, list[str]]]:
    """Yield each module of timm and the names of its models."""
    for module in timm.list_modules():
        yield module, timm.list_models(module=module)


def rank(name: str) -> tuple[int, int]:
    """Return how large a model's name sounds."""
    words = name.split("_")
    return next((i for i, word in enumerate(SMALL) if any(each == word or each.endswith(word) for each in words)), len(SMALL)), len(name)


def build(name: str, size: int) -> tuple[torch.nn.Module, tuple, dict[str, Any]]:
    """Return a model for images of that many pixels, one that knows only its own size for that."""
    try:
        model = timm.create_model(name, num_classes=10, img_size=size)
    except TypeError:
        model = timm.create_model(name, num_classes=10)
    return model, (torch.randn(2, 3, size, size),), {}
