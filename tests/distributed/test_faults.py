"""A rank that diverges, ends or hangs: the others say which one, and in which collective."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from types import FunctionType

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh

import dovetail
from dovetail_conformance.ranks import Ranks

pytestmark = pytest.mark.xdist_group("distributed")


def summed(x: Tensor) -> Tensor:
    y = x * 2
    distributed.all_reduce(y)
    return y


def error_of(fn: object, *args: object) -> str:
    try:
        fn(*args)
    except dovetail.distributed.CollectiveError as error:
        return "\n".join([str(error), *getattr(error, "__notes__", ())])
    return "no error"


def diverged() -> list[str]:
    """Run other collectives on each rank, then collectives of other shapes, then the same."""

    def by_rank(x: Tensor) -> Tensor:
        y = x + 1
        distributed.all_reduce(y)
        return distributed.broadcast(y, 0) if distributed.get_rank() else y

    rank = distributed.get_rank()
    errors = []
    for fn, x in ((by_rank, torch.ones(3)), (summed, torch.ones(3 + rank))):
        errors.append(error_of(dovetail.jit(fn), x))
        distributed.barrier()  # ranks go on after an error, which no program does: none may be ahead
    torch.testing.assert_close(dovetail.jit(summed)(torch.ones(3)), torch.full((3,), 4.0))
    return errors


def alone() -> list[int]:
    """Compile again on one rank, for a batch of another size: the collectives are those of the program before."""

    def mean(x: Tensor) -> Tensor:
        total = x.sum(0)
        distributed.all_reduce(total)
        return total

    fast = dovetail.jit(mean, dynamic=False)
    fast(torch.ones(4, 3))
    result = fast(torch.ones(4 - distributed.get_rank(), 3)).tolist()
    for size in (5, 6):  # what is compiled afterwards is compared as before
        dovetail.jit(summed)(torch.ones(size))
    return result


def killed() -> tuple[str, float]:
    return without_rank_1(lambda: os.kill(os.getpid(), signal.SIGKILL))


def hangs() -> tuple[str, float]:
    return without_rank_1(lambda: time.sleep(300))


def killed_while_training() -> tuple[str, float]:
    """Train a copy of a module; rank 1 ends between two steps."""
    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    fast = dovetail.distributed.data_parallel(nn.Linear(4, 2), mesh)
    fast(torch.ones(3, 4)).sum().backward()
    if distributed.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    return error_of(fast(torch.ones(3, 4)).sum().backward), time.monotonic() - began


def without_rank_1(fault: Callable[[], object]) -> tuple[str, float]:
    """Run a collective that rank 1 takes no part in; return the error, and after how many seconds it was raised."""
    fast = dovetail.jit(summed)
    fast(torch.ones(3))
    if distributed.get_rank() == 1:
        fault()
    began = time.monotonic()
    return error_of(fast, torch.ones(3)), time.monotonic() - began


def test_ranks_with_other_collectives_are_an_error_before_the_first(two: Ranks) -> None:
    for rank, (other, shapes) in enumerate(two.run(diverged)):
        assert f"the programs of rank {rank} and rank {1 - rank} have different collectives" in other
        assert "number 2 on rank 1 is computation: broadcast(cpu f32[3], src=0, group='world', ranks=2)  # " in other
        assert "number 2 on rank 0 is nothing" in other
        assert "number 1 on rank 1 is computation: all_reduce(cpu f32[4]" in shapes
        assert "test_faults.py:" in shapes


def test_one_rank_may_compile_alone(two: Ranks) -> None:
    assert two.run(alone) == [[7.0] * 3, [7.0] * 3]


@pytest.mark.slow
@pytest.mark.parametrize("fault, where", [(killed, "test_faults.py:"), (hangs, "test_faults.py:"), (killed_while_training, "backward's t")])
def test_a_rank_that_takes_no_part_is_named(fault: FunctionType, where: str) -> None:
    ranks = Ranks(2, timeout=20)
    try:
        ((sentence, seconds),) = ranks.run(fault, survivors=(0,))
    finally:
        ranks.close()

    assert "all_reduce over the process group 'world' of 2 ranks failed on rank 0: rank 1 did not take part" in sentence
    assert where in sentence
    assert seconds < 60, "the timeout of the group is 20 s"


def waits_for_ever() -> None:
    if distributed.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(1000)


@pytest.mark.slow
def test_a_rank_that_waits_for_one_that_has_ended_is_late() -> None:
    ranks = Ranks(2, timeout=2)
    try:
        answers = ranks.answers(waits_for_ever, hurry=False)
    finally:
        ranks.close()

    assert [answers[rank].state for rank in (0, 1)] == ["late", "ended"]
