"""Values that loops would compute again and again are stored before: what is broadcast along outer loops, and kinds that take turns in memory."""

from __future__ import annotations

import pytest
import torch
from llvm_against_eager import assert_like_eager, program_of
from torch.nn import functional as F

import dovetail


def positions(x):
    """The sine positions of transformers: a power for each channel, sines and cosines in turns."""
    channels = torch.arange(64, dtype=x.dtype)
    angles = x[..., None] / 10000 ** (2 * torch.div(channels, 2, rounding_mode="floor") / 64)
    return torch.stack((angles[..., 0::2].sin(), angles[..., 1::2].cos()), -1).flatten(-2)


def rotations(x):
    inverse = 1.0 / 10000 ** (torch.arange(0, 64, 2, dtype=x.dtype) / 64)
    angles = x.reshape(-1)[:, None] * inverse
    return torch.cat((angles, angles), -1).cos()


def scaled(x):
    return x * F.softplus(x[0]).log1p()


def scaled_by_a_view(x):
    return x.reshape(-1, 4, 8) * F.softplus(x[0].reshape(4, 8).t().exp()).t()


def along_rows(x):
    return x * F.softplus(x[:, :1])


def cheaply(x):
    return x * (x[0] + 1)


def normalized(x):
    return (x - x.mean(0)) * torch.rsqrt(x.var(0) + 1e-5)


def with_a_result(x):
    weight = F.softplus(x[0]).log1p()
    return x * weight, weight


def joined_in_turns(x):
    return torch.stack((x, x.neg()), -1).sin()


def joined_in_turns_for_little(x):
    return torch.stack((x, x.neg()), -1) + 1


def picked(x):
    return torch.index_select(F.softplus(x[:1]).log1p(), 1, torch.arange(8192) % 32) + x[0, 0]


def spread_over_windows(x):
    """A value for each window of four elements, at all of them."""
    y = F.gelu(x) * x.exp()
    wide = y[..., None].expand(*y.shape, 2).reshape(y.shape[0], -1) + 1
    return wide[:, None].expand(y.shape[0], 2, wide.shape[1]).reshape(-1, wide.shape[1])


def spread_for_little(x):
    return (x + 1)[..., None].expand(*x.shape, 8).reshape(x.shape[0], -1)


PROGRAMS = {
    positions: {"pow": 1, "sin": 1, "cos": 1},
    rotations: {"mul": 1},
    scaled: {"log1p": 1},
    along_rows: {},
    cheaply: {},
    with_a_result: {},
    joined_in_turns: {"cat": 1},
    joined_in_turns_for_little: {},
    picked: {"log1p": 1},
    spread_over_windows: {"mul": 1},
    spread_for_little: {},
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_is_stored(program):
    stored = [node.op for node in program_of(program, torch.rand(256, 32)).plan.temporaries]
    assert {op: stored.count(op) for op in stored} == PROGRAMS[program]


def test_what_is_computed_for_few_elements_is_not_stored():
    assert program_of(scaled, torch.rand(4, 8)).plan.temporaries == []


def test_loops_follow_the_memory_of_what_they_read():
    """In channels_last the channels are the inner loop, which computes what depends on them for each place."""

    def program(x):
        return x * torch.rsqrt(x[:1, :, :1, :1].exp() + 1e-5)

    x = torch.rand(8, 64, 12, 12)
    for format, count in ((torch.contiguous_format, 0), (torch.channels_last, 1)):
        assert len(program_of(program, x.to(memory_format=format)).plan.temporaries) == count


@pytest.mark.parametrize("program", [*PROGRAMS, scaled_by_a_view, normalized])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 8, 264])
def test_results_are_those_of_eager_mode(program, dtype, rows):
    if program is normalized and rows == 1:
        pytest.skip("one row has no variance")
    assert_like_eager(program, torch.rand(rows, 32).to(dtype), scale=16.0)


@pytest.mark.parametrize("program", [positions, rotations, scaled, normalized])
def test_sizes_are_symbols(program):
    ours = dovetail.jit(program, dynamic=True)
    for rows in (16, 40, 1000):
        x = torch.rand(rows, 32)
        torch.testing.assert_close(ours(x), program(x))
    assert len(dovetail.cache_misses(ours)) == 1
