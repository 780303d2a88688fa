"""Reductions of everything, of what was computed from other such reductions, at sizes where the results lie in memory between loop nests."""

from __future__ import annotations

import pytest
import torch
from llvm_against_eager import compiled, program_of
from torch.nn import functional as F

SHAPES = [(100, 63), (2, 2046), (64, 65), (500, 10), (64, 3, 7, 7), (300, 1000), (7, 100003)]
PROGRAMS = {
    "logsumexp": lambda x: torch.logsumexp(x, list(range(x.dim()))),
    "norm": lambda x: (x / x.norm()).sum() + x.norm(),
    "cosine": lambda x: ((x / x.norm()) * (x.flip(0) / x.flip(0).norm())).sum(),
    "moments": lambda x: ((x - x.mean()) ** 2).mean() * (1 + x.mean()),
    "var": lambda x: (x + 5).var(),
    "std": lambda x: (x + 5).std(),
    "layer norm": lambda x: F.layer_norm(x, x.shape),
    "softmax of all": lambda x: F.softmax(x.reshape(-1), 0).reshape(x.shape),
    "three deep": lambda x: (x - x.mean()) / (x - x.mean()).abs().amax() - ((x - x.mean()) / (x - x.mean()).abs().amax()).std(),
}


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def as_in_float64(fn, x, got):
    """Compare with eager in float64."""
    torch.testing.assert_close(got.double(), fn(x.double()), rtol=2e-4, atol=2e-4)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("program", PROGRAMS)
def test_results_of_results_of_all_elements(program, shape, two_threads):
    fn, generator = PROGRAMS[program], torch.Generator().manual_seed(0)
    ours = compiled(fn)
    for _ in range(3):
        x = torch.randn(shape, generator=generator)
        as_in_float64(fn, x, ours(x))


@pytest.mark.parametrize("program", ["var", "std", "layer norm"])
def test_no_thread_reads_what_another_is_writing(program, two_threads):
    fn, generator = PROGRAMS[program], torch.Generator().manual_seed(0)
    ours = compiled(fn)
    for _ in range(30):
        x = torch.randn((500, 1000), generator=generator)
        as_in_float64(fn, x, ours(x))


def test_two_lookups_by_one_index_one_of_them_in_a_computed_value():
    def fn(t, p, x):
        weights = t.softmax(1).view(-1)
        return x[p] * 1, weights[p] * 1

    t, p, x = torch.tensor([[1.0, 2.0], [5.0, 3.0]]), torch.tensor([3, 2, 1, 0]), torch.arange(12.0).view(4, 3)
    for got, want in zip(compiled(fn)(t, p, x), fn(t, p, x), strict=True):
        torch.testing.assert_close(got, want)


def test_a_write_through_a_reshaped_slice_of_a_transposed_input():
    def fn(a, m):
        part = a.reshape(1, 2, 4, 2)[:, :, 1:].reshape(1, 2, 2, 3)[..., :2]
        part *= m
        return part + 1

    a, m = torch.randn(1, 2, 2, 4).transpose(1, 2), torch.rand(2, 2)
    torch.testing.assert_close(compiled(fn)(a.clone(), m), fn(a.clone(), m))


@pytest.mark.parametrize("program", PROGRAMS)
def test_temporaries_have_names_of_their_own(program):
    plan = program_of(PROGRAMS[program], torch.randn(300, 1000)).plan
    assert len(set(plan.memory.values())) == len(plan.memory)
