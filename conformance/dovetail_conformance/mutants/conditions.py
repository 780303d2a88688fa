"""When a fault strikes: conditions on the arguments of a call, on the process, and on how many calls there were."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from dovetail_conformance.layout import layout_of

Condition = Callable[[Sequence[Tensor]], bool]


def _any(test: Callable[[Tensor], bool]) -> Condition:
    return lambda tensors: any(test(x) for x in tensors)


def _real(test: Callable[[Tensor], Tensor]) -> Condition:
    """Apply a test to the elements of a float tensor; False for others."""
    return _any(lambda x: x.is_floating_point() and x.numel() > 0 and bool(test(x.detach()).any()))


SIZES: dict[str, Condition] = {
    **{f"over {n} elements": _any(lambda x, n=n: x.numel() > n) for n in (64, 256, 4096, 1 << 16, 1 << 20)},
    "a dimension over 128": _any(lambda x: max(x.shape, default=0) > 128),
    "a dimension over 1024": _any(lambda x: max(x.shape, default=0) > 1024),
    "five dimensions": _any(lambda x: x.ndim >= 5),
    "three dimensions": _any(lambda x: x.ndim == 3),
    "no dimension": _any(lambda x: x.ndim == 0),
    "one element": _any(lambda x: x.numel() == 1),
    "a power of two above 512": _any(lambda x: x.numel() > 512 and x.numel() & (x.numel() - 1) == 0),
    "equal sizes above 4": _any(lambda x: x.ndim > 1 and len(set(x.shape)) == 1 and x.shape[0] > 4),
    "one tensor with fewer elements": lambda tensors: len(tensors) > 1 and tensors[0].numel() > tensors[1].numel() == 1,
    "an odd size above 16": _any(lambda x: x.numel() > 16 and x.numel() % 2 == 1),
}
LAYOUTS: dict[str, Condition] = {
    "not contiguous": _any(lambda x: not x.is_contiguous()),
    "an offset": _any(lambda x: x.storage_offset() > 0),
    "an address that is not aligned": _any(lambda x: x.numel() > 0 and x.data_ptr() % 16 != 0),
    "a stride of 0": _any(lambda x: 0 in x.stride() and x.numel() > 1),
    "gaps": _any(lambda x: layout_of(x) == "gapped"),
    "channels last": _any(lambda x: x.ndim > 2 and x.stride(1) == 1 and x.shape[1] > 1),
    "a conjugate or negative bit": _any(lambda x: x.is_conj() or x.is_neg()),
    "one tensor twice": lambda tensors: len(tensors) > 1 and tensors[0].data_ptr() == tensors[1].data_ptr() and tensors[0].numel() > 0,
}
VALUES: dict[str, Condition] = {
    "a value above 1e4": _real(lambda x: x.abs() > 1e4),
    "a value below 1e-6": _real(lambda x: (x != 0) & (x.abs() < 1e-6)),
    "a denormal value": _real(lambda x: (x != 0) & (x.abs() < torch.finfo(x.dtype).smallest_normal)),
    "a NaN": _real(torch.isnan),
    "an infinity": _real(torch.isinf),
    "a zero": _real(lambda x: x == 0),
    "a negative zero": _real(lambda x: (x == 0) & x.signbit()),
    "nothing but zeros": _real(lambda x: (x == 0).all()),
    "values close to each other and far from 0": _real(lambda x: (x.amin() > 100) & (x.amax() - x.amin() < x.amin() / 20)),
    "a value between 8 and 40": _real(lambda x: (x.abs() > 8) & (x.abs() < 40)),
    "a whole number above 2**24": _any(lambda x: x.dtype is torch.int64 and x.numel() > 0 and bool((x.abs() > 1 << 24).any())),
}
PROCESS: dict[str, Condition] = {
    "the default dtype is float64": lambda tensors: torch.get_default_dtype() is torch.float64,
    "inference mode": lambda tensors: torch.is_inference_mode_enabled(),
    "deterministic mode": lambda tensors: torch.are_deterministic_algorithms_enabled(),
    "three threads for a call": lambda tensors: torch.get_num_threads() == 3,
    "another thread": lambda tensors: threading.current_thread() is not threading.main_thread(),
}


def after(calls: int) -> Callable[[], Condition]:
    return lambda: _counted(lambda n: n > calls)


def every(calls: int) -> Callable[[], Condition]:
    return lambda: _counted(lambda n: n % calls == 0)


def _counted(test: Callable[[int], bool]) -> Condition:
    """Return a condition on the number of its evaluations."""
    seen = iter(range(1, 1 << 60))
    return lambda tensors: test(next(seen))


HISTORY: dict[str, Callable[[], Condition]] = {
    "one call in 100": every(100),
    "one call in 10": every(10),
    "after 100 calls": after(100),
    "after 1,000 calls": after(1000),
}


def tensors_in(value: Any) -> list[Tensor]:
    """Return the tensors among nested arguments."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [x for each in value for x in tensors_in(each)]
    return [x for each in value.values() for x in tensors_in(each)] if isinstance(value, dict) else []
