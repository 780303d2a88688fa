"""Models of plain torch.nn, compiled: equal to eager, and every operation in the trace."""

from __future__ import annotations

import copy

import harness
import pytest
import torch
import zoo

import dovetail
from dovetail.compiler.entry import compile_call
from dovetail.executors import Priority
from dovetail.trace import check

pytestmark = pytest.mark.trials

NAMES = list(zoo.cases())


@pytest.fixture(params=NAMES)
def case(request):
    torch.manual_seed(0)
    model, args = zoo.cases()[request.param]
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(), module.running_var.uniform_(0.5, 2)
    return model.eval(), args


def flat(result):
    return [x for x in torch.utils._pytree.tree_leaves(result) if isinstance(x, torch.Tensor)]


def test_scenario_61_forward_in_float32_equals_eager(case):
    model, args = case
    compiled = dovetail.jit(model)
    with torch.no_grad():
        want = flat(model(*args))
        for _ in range(2):
            for got, expected in zip(flat(compiled(*args)), want, strict=True):
                torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5 * expected.abs().max().item())
    assert dovetail.cache_misses(compiled) == ["the first call"]


@pytest.mark.one_in(2)
def test_forward_by_prims_alone_equals_eager(case):
    model, args = case
    with torch.no_grad():
        entry = compile_call(model, args, {}, Priority([harness.prims_only()]))
        for got, expected in zip(flat(entry.call(args, {})), flat(model(*args)), strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5 * expected.abs().max().item())


@pytest.mark.one_in(2)
def test_forward_in_bfloat16_is_as_close_to_float32_as_eagers(case):
    model, args = case
    small = copy.deepcopy(model).to(torch.bfloat16)
    if "frequencies" in dict(small.named_buffers()):
        small.frequencies = model.frequencies
    small_args = tuple(x.to(torch.bfloat16) if x.is_floating_point() else x for x in args)
    with torch.no_grad():
        exact, eager, ours = flat(model(*args)), flat(small(*small_args)), flat(dovetail.jit(small)(*small_args))
    for x, theirs, mine in zip(exact, eager, ours, strict=True):
        assert mine.dtype is theirs.dtype
        torch.testing.assert_close(mine, theirs, rtol=2e-2, atol=2e-2 * theirs.abs().max().item())
        assert (mine.float() - x).abs().max() <= 2 * (theirs.float() - x).abs().max() + 1e-3


def test_every_operation_is_in_the_trace_and_decomposes(case):
    """Nothing ran outside the trace: it holds no opaque line and no constant, and each line reads only what the trace makes or is given."""
    model, args = case
    with torch.no_grad():
        trace = dovetail.make_trace(model)(*args)
    check(trace)
    assert not trace.constants
    assert not [line.symbol.id for line in trace.lines if line.symbol.id.startswith("opaque")]


@pytest.mark.one_in(2)
def test_scenario_28_training_mode_draws_the_same_dropout_as_eager_from_the_same_seed(case):
    model, args = case
    model.train()
    compiled = dovetail.jit(model)
    twin = copy.deepcopy(model)
    for seed in (1, 2):
        with torch.no_grad():
            torch.manual_seed(seed)
            want = flat(twin(*args))
            torch.manual_seed(seed)
            got = flat(compiled(*args))
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5 * b.abs().max().item())
    for (name, a), b in zip(model.named_buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(a, b, msg=lambda message, name=name: f"buffer {name}: {message}")
