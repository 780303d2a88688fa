"""PyTorch's own samples for its operations, run through Dovetail.

python tests/langs/opdb.py softmax nn.functional.gelu      shows what differs from eager, whole and decomposed
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import SEED, set_rng_seed

sys.path.insert(0, __file__.rpartition("/")[0])
import harness

DTYPES = (torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.complex64)


def samples(info: Any, dtype: torch.dtype, most: int, *, requires_grad: bool = False) -> Iterator[tuple[tuple, dict]]:
    """Yield the first samples that `info.sample_inputs` gives, without its walk over the whole stack: a third of a second each."""
    every = info.sample_inputs_func(info, "cpu", dtype, requires_grad)
    for _ in range(most):
        set_rng_seed(SEED)
        sample = next(every, None)
        if sample is None:
            return
        yield (sample.input, *sample.args), sample.kwargs


def spelled(op: Any) -> Any:
    """`op`, where it is a method of the C class, as users call it: on the tensor, which a traced one answers to."""
    if type(op).__name__ not in ("method_descriptor", "wrapper_descriptor"):
        return op
    return lambda x, *args, **kwargs: getattr(x, op.__name__)(*args, **kwargs)


def failures(info: Any, dtype: torch.dtype, *, most: int = 30, way_names: tuple[str, ...] = ("whole", "decomposed", "printed")) -> Iterator[str]:
    """A sentence for each sample and way in which Dovetail differs from eager."""
    op = spelled(info.op)
    for i, (args, kwargs) in enumerate(samples(info, dtype, most)):
        want = harness.eager(op, args, kwargs)
        for way in way_names:
            try:
                got = harness.printed(op, args, kwargs) if way == "printed" else harness.ours(op, args, kwargs, harness.ways()[way])
            except Exception as error:
                if want.error is None:
                    yield f"{info.formatted_name} {dtype} sample {i} {way}: {type(error).__name__}: {error}"
                continue
            if want.error is not None:
                yield f"{info.formatted_name} {dtype} sample {i} {way}: no error, eager raises {type(want.error).__name__}: {want.error}"
                continue
            loose = (
                {"rtol": 2e-2, "atol": 2e-2}
                if dtype in (torch.bfloat16, torch.float16)
                else {"rtol": 1e-4, "atol": 1e-4}
                if dtype.is_floating_point
                else {}
            )
            for message in harness.differences(got, want, **loose):
                yield f"{info.formatted_name} {dtype} sample {i} {way}: {message}"


def dealt(names: Iterable[str]) -> list[Any]:
    """Return test parameters for the operations in order, all but every fourth slow: the conformance suite has samples of its own for each."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (i % 4 > 0)) for i, name in enumerate(sorted(names))]


def infos(names: list[str]) -> list[Any]:
    return [info for info in op_db if info.name in names or info.formatted_name in names]


if __name__ == "__main__":
    for info in infos(sys.argv[1:]):
        for dtype in DTYPES:
            if dtype in info.supported_dtypes("cpu"):
                found = list(failures(info, dtype))
                print(f"{info.formatted_name} {dtype}: {len(found)} differences")
                for message in found[:6]:
                    print("   ", message[:600])
