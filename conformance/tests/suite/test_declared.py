"""Which cells an executor may have a part in, decided from recorded programs."""

from __future__ import annotations

import subprocess
import sys
from itertools import islice

import pytest
import torch

from dovetail import devices, dtypes
from dovetail.dtypes import DType
from dovetail_conformance.broken import running
from dovetail_conformance.case import Case
from dovetail_conformance.declared import has_room, recorded
from dovetail_conformance.plan import Task, opinfos
from dovetail_conformance.program import program_of
from dovetail_conformance.subject import Subject

BICUBIC = "torch._C._nn.upsample_bicubic2d"


def room(operation: str, own: str, dtype: DType = dtypes.float32, device: str = "cpu") -> bool:
    return has_room(Subject.of(running(torch.clone, own)), Task(operation, dtype, device))


def test_an_operation_and_those_with_a_part_of_it_have_room() -> None:
    assert room("torch.softmax", "torch.softmax")
    assert room("torch.std", "prims.sqrt")
    assert not room("torch.std", "prims.sin")
    assert not room("prims.sqrt", "torch.sqrt")


def test_programs_with_the_dtype_that_is_asked_for_decide() -> None:
    """Blending is one line of bytes, its first dtype, and arithmetic of other numbers."""
    assert room(BICUBIC, "prims.mul")
    assert not room(BICUBIC, "prims.mul", dtypes.uint8)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_here_has_room_where_the_cpu_has() -> None:
    assert room("torch.std", "prims.sqrt", device="cuda")
    assert not room("torch.std", "prims.sin", device="cuda")


@pytest.mark.parametrize("operation", ["torch.scatter_reduce", "torch.linalg.matrix_norm", "torch.repeat_interleave", "torch.normal"])
def test_opaque_calls_are_recorded_as_on_fake_tensors(operation) -> None:
    info = opinfos()[operation]
    on_fakes: dict[object, str] = {}
    for sample in islice(info.samples(dtypes.float32, devices.cpu), 24):
        program = program_of(info.symbol, sample)
        try:
            text = str(Case(None, info, program, "", sample).specs(devices.cpu))
        except Exception:  # it needs values
            continue
        on_fakes.setdefault(program.template, text)
    state = torch.get_rng_state()

    without = [str(trace) for trace in recorded.__wrapped__(operation, dtypes.float32, devices.cpu)]

    assert without and without == list(on_fakes.values())[: len(without)]
    assert torch.equal(state, torch.get_rng_state())


SMOKE = """
import sys, torch
from dovetail_conformance import check
from dovetail_conformance.broken import running
report = check(running(torch.nn.functional.softmax, "torch.nn.functional.softmax"), level="smoke", devices=["cpu"])
assert not report.failures and report.operations["ran"] == 1, report.counts
print(*(name for name in ("torch._dynamo", "torch.distributed.tensor") if name in sys.modules))
"""


@pytest.mark.slow
def test_a_plugin_of_one_operation_waits_for_no_heavy_import() -> None:
    done = subprocess.run([sys.executable, "-c", SMOKE], capture_output=True, text=True, check=True)

    assert done.stdout.split() == []
