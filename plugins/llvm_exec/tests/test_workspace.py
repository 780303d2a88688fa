"""What lies between the loop nests of a kernel: memory that is free again is used again."""

from __future__ import annotations

import pytest
import torch
from llvm_against_eager import assert_like_eager, program_of

from dovetail.dtypes import float32
from dovetail.extend.advanced import ExecutorError
from dovetail_llvm_exec.loops.stage import Workspace
from dovetail_llvm_exec.region.exprs import Buffer


def offsets(*wanted):
    """(offsets, size) of rooms for (elements, first, last)."""
    workspace = Workspace()
    buffers = [workspace.take(Buffer("temp", i, float32), *room) for i, room in enumerate(wanted)]
    return [workspace.offsets[b] for b in buffers], workspace.size


def test_what_is_used_at_different_times_lies_in_one_place():
    assert offsets((16, 0, 1), (16, 2, 3), (32, 4, 4)) == ([0, 0, 0], 128)


def test_what_is_used_at_one_time_lies_apart():
    assert offsets((16, 0, 1), (16, 1, 2), (16, 2, 3)) == ([0, 64, 0], 128)
    assert offsets((1, 0, 9), (17, 0, 9), (1, 0, 9)) == ([0, 64, 192], 256)


def test_a_gap_is_filled_where_it_is_wide_enough():
    assert offsets((16, 0, 9), (32, 0, 1), (16, 0, 9), (48, 2, 3), (32, 4, 5)) == ([0, 64, 192, 256, 64], 448)


def test_a_buffer_has_one_place():
    workspace = Workspace()
    workspace.take(Buffer("temp", 0, float32), 16, 0, 1)
    with pytest.raises(ExecutorError, match="has a place in the workspace already"):
        workspace.take(Buffer("temp", 0, float32), 16, 2, 3)


def long(x):
    """More operations than one expression has room for."""
    for _ in range(600):
        x = (x * 0.99).sin() + 0.01
    return x


def test_a_chain_of_loop_nests_keeps_what_one_hands_to_the_next():
    x = torch.randn(64, 48)
    program = program_of(long, x)
    assert program.groups == len(program.plan.temporaries) + 1 > 3
    assert program.workspace == 2 * x.numel() * x.element_size()
    assert_like_eager(long, x, scale=100.0)
