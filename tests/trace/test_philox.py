"""Random numbers by counters: the option `random`."""

from __future__ import annotations

import programs
import pytest
import torch
from torch.nn import functional as F

import dovetail
from dovetail import devices, prims
from dovetail.dtypes import float32, int64
from dovetail.trace import Trace
from dovetail.trace.passes.philox import philox


@pytest.fixture(autouse=True)
def counters():
    with dovetail.use(random="philox"):
        yield


def seeded(fn, *args, seed=0):
    torch.manual_seed(seed)
    return fn(*args)


def used(trace: Trace) -> list[str]:
    """The ids of the prims of a program, those inside regions and operations too."""

    def inside(lines):
        for line in lines:
            yield from inside(line.body) if line.body else [line.symbol.id]

    return list(inside(trace.lines))


@pytest.mark.parametrize("executors", [None, ["torch"]], ids=["default", "torch"])
def test_a_seed_decides_every_number_and_each_call_draws_others(executors):
    compiled = dovetail.jit(lambda x: (torch.rand_like(x), torch.randn(3, 5), F.dropout(x, 0.4)), executors=executors)
    x = torch.ones(7, 9)
    first, second = seeded(compiled, x), compiled(x)

    assert all(map(torch.equal, first, seeded(compiled, x)))
    assert not any(map(torch.equal, first, second))
    assert not any(map(torch.equal, first, seeded(compiled, x, seed=1)))
    assert used(dovetail.last_traces(compiled)[-1]).count("prims.randint") == 1


def test_executors_agree_on_every_number():
    fn = lambda x: (torch.rand_like(x), F.dropout(x, 0.4), torch.bernoulli(torch.full((50,), 0.25)))  # noqa: E731
    ours, theirs = (seeded(dovetail.jit(fn, executors=executors), torch.ones(64, 33)) for executors in (None, ["torch"]))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_numbers_are_spread_as_they_should_be():
    @dovetail.jit
    def fn():
        shape = (200_000,)
        half = torch.full(shape, 0.001, dtype=torch.bfloat16)
        return torch.rand(shape), torch.randn(shape), F.dropout(torch.ones(shape), 0.3), torch.bernoulli(half)

    uniform, normal, dropped, rare = seeded(fn)

    assert uniform.min() >= 0 and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 5e-3 and abs(uniform.var() - 1 / 12) < 2e-3
    assert abs(normal.mean()) < 1e-2 and abs(normal.var() - 1) < 2e-2
    assert set(dropped.unique().tolist()) == {0.0, (torch.tensor(1.0) / 0.7).item()} and abs((dropped == 0).float().mean() - 0.3) < 5e-3
    assert abs(rare.float().mean() - 0.001) < 4e-4  # a bfloat16 number has too few bits to decide it


def test_two_draws_of_one_program_are_unrelated():
    a, b = seeded(dovetail.jit(lambda: (torch.rand(10_000), torch.rand(10_000))))
    assert abs(torch.corrcoef(torch.stack([a, b]))[0, 1]) < 0.05


@pytest.mark.parametrize("executors", [None, ["torch"]], ids=["default", "torch"])
@pytest.mark.parametrize("recompute", ["none", "balanced", "all"])
def test_the_backward_drops_what_the_forward_dropped(executors, recompute):
    x = torch.randn(40, 30, requires_grad=True)
    compiled = dovetail.jit(lambda x: F.dropout(torch.exp(x), 0.5), executors=executors, recompute=recompute)

    out = seeded(compiled, x)
    (gx,) = torch.autograd.grad(out.sum(), x)

    torch.testing.assert_close(gx, out.detach())
    assert 0.3 < (gx == 0).float().mean() < 0.7


def test_a_backward_that_computes_masks_again_keeps_a_seed_alone():
    x = torch.randn(64, 64, requires_grad=True)
    compiled = dovetail.jit(lambda x: F.dropout(x, 0.5))
    compiled(x)
    assert dovetail.last_backward_traces(compiled)[0].saved_bytes == 8


def test_attention_with_dropout():
    q, k, v = (torch.randn(2, 3, 16, 8, requires_grad=True) for _ in range(3))
    compiled = dovetail.jit(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.5))

    out = seeded(compiled, q, k, v)
    assert torch.equal(out, seeded(compiled, q, k, v))

    weights = seeded(compiled, q, k, torch.eye(16).expand(2, 3, 16, 16).contiguous())  # the same shape of weights: the same mask
    torch.testing.assert_close(weights @ v, out)
    assert 0.4 < (weights == 0).float().mean() < 0.6
    (gv,) = torch.autograd.grad(out.sum(), v)
    torch.testing.assert_close(gv, weights.mT @ torch.ones_like(v))


def test_checkpointed_blocks_draw_again_what_they_drew():
    from torch.utils.checkpoint import checkpoint

    x = torch.randn(40, 30, requires_grad=True)
    compiled = dovetail.jit(lambda x: checkpoint(lambda x: F.dropout(torch.exp(x), 0.5), x, use_reentrant=False))
    out = seeded(compiled, x)
    (gx,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(gx, out.detach())


def test_probabilities_that_are_computed_and_integers_stay_with_the_generator():
    fn = lambda p: (torch.bernoulli(p), torch.randint(0, 9, (50,)), torch.randperm(20))  # noqa: E731
    compiled, p = dovetail.jit(fn), torch.rand(30)

    assert all(map(torch.equal, seeded(compiled, p), seeded(fn, p)))
    with pytest.raises(RuntimeError, match="p_in >= 0 && p_in <= 1"):
        compiled(p + 1)


def test_operations_that_draw_nothing_stay_whole():
    compiled = dovetail.jit(lambda x: F.dropout(F.softmax(x, -1), 0.5))
    compiled(torch.randn(3, 4))
    made = next(trace for trace in dovetail.last_traces(compiled) if trace.made_by == "philox")
    names = [line.symbol.id for line in made.lines]
    assert "torch.nn.functional.softmax" in names and "torch.nn.functional.dropout" not in names
    assert all(line.where for line in made.lines)


def test_a_seed_is_taken_anew_after_what_may_set_the_generator():
    def draw():
        return prims.uniform(shape=(2,), low=0.0, high=1.0, dtype=float32, device=devices.device("cpu"))

    def fn():
        return draw(), draw(), prims.randperm(length=3, dtype=int64, device=devices.device("cpu")), draw()

    made = programs.record(fn)

    assert [line.symbol.name for line in philox(made).lines if line.effects] == ["randint", "randperm", "randint"]


def test_another_source_compiles_again():
    compiled, x = dovetail.jit(lambda x: F.dropout(x, 0.5)), torch.ones(20, 20)
    ours = seeded(compiled, x)
    with dovetail.use(random="generator"):
        assert torch.equal(seeded(compiled, x), seeded(lambda x: F.dropout(x, 0.5), x))
    assert torch.equal(seeded(compiled, x), ours)
    assert compiled.cache_info().misses == 2
    assert 'random is "generator"' in dovetail.cache_misses(compiled)[-1]
