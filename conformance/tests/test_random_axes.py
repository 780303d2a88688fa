"""Operations that draw: each kind of fault that shows along an axis only is noticed, and numbers of a plugin's own are not accused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dovetail.extend import OperatorExecutor, get_grad, put_grad
from dovetail_conformance import check

pytestmark = pytest.mark.slow  # level core of an operation takes seconds
FLOATS = ["float32", "float64", "float16", "bfloat16"]


def dropped(input, p=0.5, training=True, inplace=False):
    """Drop elements by numbers of its own."""
    if not training or p == 0:
        return input
    return input * 0 if p == 1 else input * (torch.rand(input.shape) >= p) / (1 - p)


def of_size(size: Any) -> tuple[int, ...]:
    return tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else tuple(size)


def dropped_channels(input, p, train):
    """Drop channels by numbers of its own."""
    if not train or p == 0 or not input.numel():
        return input
    return input * 0 if p == 1 else input * (torch.rand((*input.shape[:2], *(1 for _ in input.shape[2:]))) >= p) / (1 - p)


def uniform(*size, dtype=None, generator=None, **named):
    """Return numbers of its own."""
    return torch.rand((2, *of_size(named.get("size", size))), dtype=dtype, generator=generator)[1].clone()


def normal(mean, std=1.0, size=None, *, generator=None, dtype=None, **named):
    """Return numbers of its own."""
    if size is not None:
        return torch.randn(tuple(size), generator=generator, dtype=dtype) * std + mean
    shape = torch.broadcast_shapes(*(x.shape for x in (mean, std) if isinstance(x, Tensor)))
    like = mean if isinstance(mean, Tensor) else std
    if (std if isinstance(std, Tensor) else torch.tensor(std)).ge(0).logical_not().any():
        raise RuntimeError("normal expects std >= 0.0")
    return (mean + std * torch.randn(shape, generator=generator, dtype=like.dtype)).to(like.dtype).contiguous()


def scaled_less_above(input, p=0.5, training=True, inplace=False):
    out = dropped(input, p, training)
    return out * 0.97 if training and input.numel() > 4096 and 0 < p < 1 else out


def one_mask_for_a_batch(input, p=0.5, training=True, inplace=False):
    if input.ndim != 3 or not training or not 0 < p < 1:
        return dropped(input, p, training)
    return input * (torch.rand(input.shape[1:]) >= p) / (1 - p)


def of_another_mask(input, p=0.5, training=True, inplace=False):
    out = F.dropout(input, p, training)
    gradient = get_grad(out)
    put_grad(input, F.dropout(gradient, p, training))
    return out


def repeated_blocks(*size, **named):
    out = uniform(*size, **named)
    flat = out.view(-1)
    if flat.numel() > 2048:
        flat[1024:2048] = flat[:1024]
    return out


def from_the_first_call() -> Callable:
    kept: dict[Any, Tensor] = {}

    def rand(*size, **named):
        out = uniform(*size, **named)
        return kept.setdefault((out.shape, out.dtype), out).clone()

    return rand


def stuck_after_many_calls() -> Callable:
    calls, kept = [0], {}

    def randn(*size, **named):
        calls[0] += 1
        out = torch.randn(*size, **named)
        kept.setdefault((out.shape, out.dtype), out)
        return kept[out.shape, out.dtype].clone() if calls[0] > 700 else out

    return randn


def mirrored() -> Callable:
    before: dict[Any, Tensor] = {}

    def randn(*size, **named):
        out = torch.randn(*size, **named)
        key = (out.shape, out.dtype)
        if key in before:
            return -before.pop(key)
        before[key] = out.clone()
        return out

    return randn


def without_the_highest(*args, size=None, dtype=None, generator=None, **named):
    *ends, size = args if size is None else (*args, size)
    low, high = (0, *ends, *[named[name] for name in ("low", "high") if name in named])[-2:]
    return torch.randint(low, max(low + 1, high - (low != 0)), tuple(size), dtype=dtype or torch.int64, generator=generator)


def of_the_default_generator(*size, generator=None, dtype=None, **named):
    return torch.rand(of_size(named.get("size", size)), dtype=dtype)


def unshuffled_end(n, *, dtype=torch.int64, generator=None, **named):
    first = min(n, 1000)
    return torch.cat([torch.randperm(first, generator=generator), torch.arange(first, n)]).to(dtype)


def one_cycle(n, *, dtype=torch.int64, generator=None, **named):
    """Sattolo's algorithm, which leaves no element in its place."""
    if n > 64:
        return torch.randperm(n, generator=generator, dtype=dtype)
    places = list(range(n))
    for i in range(n - 1, 0, -1):
        j = int(torch.randint(i, (), generator=generator))
        places[i], places[j] = places[j], places[i]
    return torch.tensor(places, dtype=dtype)


def of_equal_spread(*size, generator=None, dtype=None, **named):
    return (torch.rand(of_size(named.get("size", size)), dtype=dtype, generator=generator) - 0.5) * 12**0.5


def rows_alike(input, num_samples, replacement=False, *, generator=None):
    out = torch.multinomial(input, num_samples, replacement, generator=generator)
    return out[:1].expand(out.shape).clone() if out.ndim == 2 and replacement else out


def variances(mean, std=1.0, size=None, *, generator=None, dtype=None, **named):
    if isinstance(mean, Tensor) and isinstance(std, Tensor) and mean.shape != std.shape:
        return normal(mean, std.sqrt(), generator=generator)
    return normal(mean, std, size, generator=generator, dtype=dtype)


def rounded_to_one(*size, generator=None, dtype=None, **named):
    return torch.rand(of_size(named.get("size", size)), generator=generator).to(dtype or torch.float32)


def of_24_bits(*args, size=None, dtype=None, generator=None, **named):
    *ends, size = args if size is None else (*args, size)
    low, high = (0, *ends, *[named[name] for name in ("low", "high") if name in named])[-2:]
    return (torch.rand(tuple(size), generator=generator).double() * (high - low)).floor().to(torch.int64).add_(low).to(dtype or torch.int64)


FAULTS: dict[str, tuple[str, Callable, dict[str, Any]]] = {
    "a scale above a size": ("torch.nn.functional.dropout", scaled_less_above, {}),
    "one mask for all of a batch": ("torch.nn.functional.dropout", one_mask_for_a_batch, {}),
    "a gradient of another mask": ("torch.nn.functional.dropout", F.dropout, {"grad": of_another_mask}),
    "a block that comes twice": ("torch.rand", repeated_blocks, {}),
    "numbers of the first call": ("torch.rand", from_the_first_call(), {}),
    "numbers that come again after 700 calls": ("torch.randn", stuck_after_many_calls(), {}),
    "the numbers of the call before with the other sign": ("torch.randn", mirrored(), {}),
    "no highest number": ("torch.randint", without_the_highest, {"dtypes": ["int64", "float32"]}),
    "another generator than the one that is passed": ("torch.rand", of_the_default_generator, {}),
    "an end that is not shuffled": ("torch.randperm", unshuffled_end, {"dtypes": ["int64", "float32"]}),
    "a permutation without fixed points": ("torch.randperm", one_cycle, {"dtypes": ["int64", "float32"]}),
    "another distribution of the same spread": ("torch.randn", of_equal_spread, {}),
    "one row for all": ("torch.multinomial", rows_alike, {}),
    "1, which lies outside": ("torch.rand", rounded_to_one, {"dtypes": ["bfloat16", "float16"]}),
    "numbers with fewer digits": ("torch.randint", of_24_bits, {"dtypes": ["int64", "float32"]}),
    "variances in place of deviations": ("torch.normal", variances, {}),
}

RIGHT: dict[str, tuple[str, Callable, dict[str, Any]]] = {
    "dropout": ("torch.nn.functional.dropout", dropped, {}),
    "feature_dropout": ("torch.feature_dropout", dropped_channels, {}),
    "rand": ("torch.rand", uniform, {"dtypes": ["float32", "float64"]}),
    "normal": ("torch.normal", normal, {"dtypes": ["float32", "float64"]}),
}


def failures(operation: str, fn: Callable, how: dict[str, Any]) -> list[str]:
    ex = OperatorExecutor("drawing", dtypes=how.get("dtypes", FLOATS))
    ex.implements(operation, fn, grad=how.get("grad"))
    report = check(ex, operations=[operation], devices=["cpu"], level="core")
    return [f"{row.check} {row.dtype}: {row.message}" for row in report.failures if row.operation == operation]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_random_numbers_is_noticed(fault: str) -> None:
    assert failures(*FAULTS[fault])


@pytest.mark.parametrize("name", RIGHT)
def test_numbers_of_its_own_are_not_accused(name: str) -> None:
    assert failures(*RIGHT[name]) == []
