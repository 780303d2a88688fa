"""Long chains of operations are computed in passes over a block, with the same results."""

from __future__ import annotations

import re

import pytest
import torch
from llvm_against_eager import assert_like_eager, assert_same, compiled, flat, program_of

from dovetail_llvm_exec.loops import elements

CHAINS = {
    "one value between": (lambda x, y: torch.tanh(torch.exp(-(torch.sin(x * 2 - y) ** 2)) * y), 1),
    "two values between": (lambda x, y: torch.sin(torch.tanh(torch.tanh(x)) * torch.tanh(torch.tanh(y))), 2),
    "a number that stays": (lambda x, y: torch.tanh(torch.tanh(x * y[0, 0]) + 1), 1),
    "behind a sum of all": (lambda x, y: torch.tanh(torch.tanh(x * y.sum()) + 1), 0),  # one row, whose kernel has no passes
    "two results": (lambda x, y: ((z := torch.tanh(torch.sin(x)) * y), torch.exp(torch.tanh(z))), 1),
    "transposed": (lambda x, y: torch.tanh(torch.tanh(x.t()) * y.t()), 1),
    "a bias": (lambda x, y: torch.tanh(torch.tanh(x + y[0]) * 2), 1),
    "a choice": (lambda x, y: torch.where(torch.tanh(torch.tanh(x)) > 0.2, torch.sin(torch.sin(y).exp()), x), 2),
}
SHAPES = ((3, 5), (1, 300), (7, 257), (5, 4096), (3, 9001), (2, 3, 700))


def arrays(text: str) -> int:
    """How many arrays a kernel has for what lies between its passes."""
    return len(re.findall(r"alloca (?:float|double), i64 \d{3,}", text))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_is_what_eager_makes_of_it(name, shape):
    fn, _ = CHAINS[name]
    x, y = torch.randn(shape), torch.randn(shape)
    if x.ndim != 2:
        fn = CHAINS["one value between"][0]
    assert_like_eager(fn, x, y, scale=20.0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["one value between", "two values between", "two results"])
def test_of_every_float(name, dtype):
    fn, _ = CHAINS[name]
    assert_like_eager(fn, torch.randn(5, 1030).to(dtype), torch.randn(5, 1030).to(dtype), scale=20.0)


def test_passes_change_no_bit(monkeypatch):
    x, y = torch.randn(3, 9001), torch.randn(3, 9001)
    fns = [fn for fn, _ in CHAINS.values()]
    in_passes = [flat(compiled(fn)(x, y)) for fn in fns]
    monkeypatch.setattr(elements, "LEAST", 1 << 40)
    at_once = [flat(compiled(fn)(x, y)) for fn in fns]
    for some, others in zip(in_passes, at_once, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(some, others, strict=True))


@pytest.mark.parametrize("name", [name for name, (_, count) in CHAINS.items() if count])
def test_what_is_dear_lies_in_arrays_between_passes(name):
    fn, count = CHAINS[name]
    assert arrays(program_of(fn, torch.randn(40, 512), torch.randn(40, 512)).text) == count


@pytest.mark.parametrize("fn", [lambda x, y: torch.tanh(x) * y, lambda x, y: torch.sqrt(x / y) / (x * y), lambda x, y: (x * y) ** 2 + y**3])
def test_a_short_chain_is_computed_at_once(fn):
    assert arrays(program_of(fn, torch.randn(40, 512), torch.randn(40, 512)).text) == 0


def test_a_result_that_is_written_over_what_it_is_computed_from():
    def step(x, y):
        x.mul_(torch.tanh(torch.tanh(torch.sin(x) + y).exp()))
        return x

    x, y = torch.randn(9, 2000), torch.randn(9, 2000)
    mine, theirs = x.clone(), x.clone()
    ours = compiled(step)
    for _ in range(2):
        assert_same(ours(mine, y), step(theirs, y), scale=20.0)
