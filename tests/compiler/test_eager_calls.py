"""Calls that end in eager mode are not traced each time, and are tried again now and then."""

from __future__ import annotations

import warnings
from contextlib import nullcontext

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import dovetail
from dovetail.compiler import cache, function_compiler
from dovetail.compiler.eager_calls import KINDS, LONGEST, EagerCalls, kind_of


class Checkpointed(torch.nn.Module):
    """A block that writes, which runs in eager mode where something requires grad."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(3)
        self.keeps = False

    def forward(self, x):
        return self.norm(x) if self.keeps else checkpoint(self.norm, x, use_reentrant=False)


@pytest.fixture
def traced(monkeypatch):
    """The calls that were traced."""
    calls, compile = [], function_compiler.compile_call
    monkeypatch.setattr(function_compiler, "compile_call", lambda fn, *args, **more: calls.append(fn) or compile(fn, *args, **more))
    warnings.filterwarnings("ignore", ".*runs in eager mode")
    return calls


def step(model, x):
    model(x).sum().backward()
    return x.grad


def test_a_call_that_runs_in_eager_mode_is_traced_less_and_less(traced):
    model, beside = Checkpointed(), Checkpointed()
    compiled = dovetail.jit(model)
    for _ in range(20):
        x = torch.randn(5, 3)
        torch.testing.assert_close(step(compiled, x.clone().requires_grad_()), step(beside, x.clone().requires_grad_()), rtol=0, atol=0)
    torch.testing.assert_close(model.norm.running_mean, beside.norm.running_mean, rtol=0, atol=0)
    assert len(traced) == 4, "of the calls 1 to 20: 1, 2, 7 and 16"
    assert compiled.cache_info()[:2] == (0, 0)


def test_the_second_call_that_ends_in_eager_mode_says_why_once():
    @dovetail.opaque(meta=lambda x, counts: x)
    def counted(x, counts):
        counts.append(1)
        return x.clone()

    class Counts:
        def append(self, n):
            self.n = n

    compiled = dovetail.jit(lambda x: counted(x, Counts()) * 2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(8):
            assert compiled(torch.ones(2)).tolist() == [2.0, 2.0]
    (warning,) = caught
    assert "calls like this one run in eager mode, since counted, which is not traced, may change the Counts" in str(warning.message)
    assert warning.filename == __file__ and f"called at {__file__}" in str(warning.message)


def test_other_calls_are_compiled_meanwhile(traced):
    model = Checkpointed()
    compiled = dovetail.jit(model)
    for _ in range(3):
        step(compiled, torch.randn(5, 3, requires_grad=True))
    with torch.no_grad():
        for _ in range(3):
            compiled(torch.randn(5, 3))
    assert compiled.cache_info()[:3] == (2, 1, 1)

    dovetail.jit(model.eval())(torch.randn(5, 3, requires_grad=True))
    assert compiled.cache_info().programs == 1


def test_a_call_that_can_be_compiled_later_is_compiled(traced):
    model = Checkpointed()
    compiled = dovetail.jit(model)
    for _ in range(3):
        step(compiled, torch.randn(5, 3, requires_grad=True))
    model.keeps = True
    for _ in range(5):
        step(compiled, torch.randn(5, 3, requires_grad=True))
    assert compiled.cache_info().programs == 1

    compiled.clear_cache()
    step(compiled, torch.randn(5, 3, requires_grad=True))
    assert compiled.cache_info().programs == 1


@pytest.mark.parametrize("scoped", [False, True], ids=["the first scope", "after others"])
def test_configuration_tries_again(traced, scoped):
    with dovetail.use(executors=["torch"]) if scoped else nullcontext():
        pass
    compiled = dovetail.jit(Checkpointed())
    for _ in range(3):
        step(compiled, torch.randn(5, 3, requires_grad=True))
    for _ in range(2):
        with dovetail.use(executors=["torch"]):
            step(compiled, torch.randn(5, 3, requires_grad=True))
    assert len(traced) == 4


def test_an_error_of_the_program_is_raised_each_time():
    class Model(torch.nn.Module):
        def forward(self, x):
            self.calls = getattr(self, "calls", 0) + 1
            raise ValueError(f"call {self.calls}")

    compiled = dovetail.jit(Model())
    for i in range(1, 10):
        with pytest.raises(ValueError, match=f"call {i}$"):
            compiled(torch.ones(2))


def test_how_often_a_kind_is_traced_has_bounds():
    calls = EagerCalls()
    for kind in range(3 * KINDS):
        calls.note(kind)
    assert len(calls.ended) <= KINDS
    for _ in range(20):
        calls.note("often")
    assert calls.left["often"] == LONGEST


def test_kinds_are_of_what_calls_look_like():
    def kind(*args, **kwargs):
        return kind_of(torch.sin, args, kwargs)

    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    assert kind(torch.ones(2), [1, "a"], nested, b=None) == kind(torch.zeros(2), [1, "a"], nested, b=None)
    others = [(torch.ones(3),), (torch.ones(2).int(),), (torch.ones(2, requires_grad=True),), (1,), (1.0,), (True,), (float("nan"),), (object(),), ()]
    assert len({kind(*args) for args in others}) == len(others)
    assert kind(a=1) != kind(b=1)


def ragged(i):
    """Lists of other lengths for each i below 4 ** 3."""
    return [list(torch.ones(1 + (i // 4**place) % 4)) for place in range(3)]


def summed(rows):
    return torch.stack([sum(row) for row in rows])


@pytest.mark.filterwarnings("ignore:.*was compiled .* times")
def test_calls_that_no_program_fits_run_eagerly_once_most_have_compiled_one():
    compiled = dovetail.jit(summed)
    with dovetail.use(recompile_limit=2):
        for i in range(40):
            torch.testing.assert_close(compiled(ragged(i)), summed(ragged(i)))
        programs = compiled.cache_info().programs
        assert cache.MANY * 2 <= programs < 16
        for _ in range(20):  # calls that fit a program run it, and when most do others are compiled again
            torch.testing.assert_close(compiled(ragged(3)), summed(ragged(3)))
        assert compiled.cache_info().hits == 20
        torch.testing.assert_close(compiled(ragged(50)), summed(ragged(50)))
    assert compiled.cache_info().programs == programs + 1
    compiled.clear_cache()
    compiled(ragged(51))
    assert compiled.cache_info() == (0, 1, 1)
