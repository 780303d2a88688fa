"""What multiplications of 16-bit floats cost PyTorch on this processor, as a multiple of what they cost it in float32.

A processor may have instructions for them and still take longer: without a matrix unit, an Intel Xeon takes twice as long for a product in bfloat16
as in float32, and a hundred times as long for the gradients of a convolution in float16.  So each kind of operation is measured, once for a machine:
the results lie in files, so that all processes choose alike.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from functools import cache, partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from time import perf_counter
from typing import NamedTuple

import torch
from platformdirs import user_cache_path
from torch import Tensor

from dovetail.extend.advanced import processor, seconds_waited, torch_internals, undisturbed

FORMAT = 1
CONVERSION = 20  # multiplications in float32 that take as long as the conversion of one element to float32 or back, about
CLEARLY = 1.2  # times as fast, at least
ROUNDS, BUDGET, PATIENCE = 3, 0.02, 0.1  # rounds that count, at least; seconds of them, then; and seconds of all rounds, at most
LONGEST_WAIT = 0.03  # of a round that counts
HALVES = {torch.bfloat16: "has_bfloat16", torch.float16: "has_float16"}
aten = torch_internals.aten


class Kind(Enum):
    """Operations that PyTorch computes by the same kernels."""

    PRODUCT = "product"
    BATCHES = "products-of-batches"
    CONVOLUTION = "convolution"
    CONVOLUTION_BACKWARD = "gradients-of-convolution"
    ATTENTION = "attention"
    ATTENTION_BACKWARD = "gradients-of-attention"


class Sample(NamedTuple):
    """An operation of a kind, and the shapes of its arguments."""

    run: Callable[..., object]
    shapes: tuple[tuple[int, ...], ...]


def _attention_gradients(g: Tensor, q: Tensor, k: Tensor, v: Tensor) -> object:
    sums = torch.zeros(q.shape[:3], device="cpu")
    return aten("_scaled_dot_product_flash_attention_for_cpu_backward.default")(g, q, k, v, q, sums, 0.0, False)


def _convolution_gradients(g: Tensor, x: Tensor, weight: Tensor) -> object:
    return aten("convolution_backward.default")(g, x, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False])


_HEADS = (1, 4, 256, 64)
SAMPLES: dict[Kind, Sample] = {
    Kind.PRODUCT: Sample(torch.nn.functional.linear, ((256, 512), (512, 512))),
    Kind.BATCHES: Sample(torch.bmm, ((8, 256, 64), (8, 64, 256))),
    Kind.CONVOLUTION: Sample(partial(torch.conv2d, padding=1), ((2, 64, 16, 16), (64, 64, 3, 3))),
    Kind.CONVOLUTION_BACKWARD: Sample(_convolution_gradients, ((2, 32, 12, 12), (2, 32, 12, 12), (32, 32, 3, 3))),
    Kind.ATTENTION: Sample(torch.nn.functional.scaled_dot_product_attention, (_HEADS,) * 3),
    Kind.ATTENTION_BACKWARD: Sample(_attention_gradients, (_HEADS,) * 4),
}


@cache
def slow_dtypes() -> frozenset[torch.dtype]:
    """Return the dtypes that PyTorch multiplies without instructions of this processor; of those other than x86, that is not known."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return frozenset()
    supported = {dtype: torch_internals.MKLDNN[name].value for dtype, name in HALVES.items()}
    return frozenset([dtype for dtype, has in supported.items() if has is not None and not has()])


def pays(dtype: torch.dtype, kind: Kind, multiplications: float, elements: float) -> bool:
    """Return whether an operation in a 16-bit `dtype` takes clearly less time in float32, with so many elements to convert."""
    return cost(dtype, kind) * multiplications >= CLEARLY * (multiplications + CONVERSION * elements)


@cache
def cost(dtype: torch.dtype, kind: Kind) -> float:
    """Return how many times as long a multiplication takes in `dtype` as in float32, from the file of this machine.

    Measure it where there is none: the first process that has done so writes the file, and the others take what it wrote.  On a machine that other
    processes keep busy there is no measurement, and 1.
    """
    path = user_cache_path("dovetail") / "torch" / f"{str(dtype).removeprefix('torch.')}-{kind.value}-{_machine()}.json"
    if (known := _read(path)) is not None:
        return known
    measured = measure(dtype, SAMPLES[kind])
    if measured is None:
        return 1.0
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile("w", dir=path.parent, prefix=path.stem, suffix=".new", encoding="utf-8") as file:
            json.dump({"format": FORMAT, "cost": measured}, file)
            file.flush()
            if _read(path) is None:
                path.unlink(missing_ok=True)  # damaged
            with suppress(FileExistsError):
                os.link(file.name, path)
    return _read(path) or measured


def _read(path: Path) -> float | None:
    """Return the cost of a file; None where it is missing, damaged, or of another version."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["format"] == FORMAT:
            return float(stored["cost"])
    return None


@cache
def _machine() -> str:
    """Return a hash of what costs depend on."""
    of = [processor(), torch.__version__]
    of += [os.environ.get(name) for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS")]
    return hashlib.sha256(json.dumps(of).encode()).hexdigest()[:16]


def measure(dtype: torch.dtype, sample: Sample) -> float | None:
    """Return how many times as long a sample takes in `dtype` as in float32, in turns; None where other processes disturb that."""
    with undisturbed():
        ways = [
            partial(sample.run, *[torch.full(shape, 0.5, dtype=each, device="cpu") for shape in sample.shapes]) for each in (dtype, torch.float32)
        ]
        times: list[list[float]] = []
        for way in ways:
            way()  # the first call of each also loads and compiles
        began = perf_counter()
        while (len(times) < ROUNDS or sum(map(sum, times)) < BUDGET) and perf_counter() - began < PATIENCE:
            before, start = seconds_waited(), perf_counter()
            seconds = [_time(way) for way in ways]
            if seconds_waited() - before <= LONGEST_WAIT * (perf_counter() - start):
                times.append(seconds)
    if len(times) < ROUNDS:
        return None
    narrow, wide = map(min, zip(*times, strict=True))
    return narrow / wide


def _time(way: Callable[[], object]) -> float:
    start = perf_counter()
    way()
    return perf_counter() - start
