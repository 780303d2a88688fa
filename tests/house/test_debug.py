"""What DOVETAIL_DEBUG says and checks, level by level."""

from __future__ import annotations

import functools

import pytest
import torch

import dovetail
from dovetail.errors import InvalidTrace
from dovetail.trace import Trace


@pytest.fixture
def level(monkeypatch):
    return lambda n: monkeypatch.setenv("DOVETAIL_DEBUG", str(n))


def program(x):
    return torch.sin(x) * 2


def broken(trace: Trace) -> Trace:
    """A pass that leaves out the first line, which the second one reads."""
    new = trace.derive("broken")
    new.lines = trace.lines[1:]
    return new


def test_nothing_is_said_by_default(capfd, level):
    level(0)
    dovetail.jit(program)(torch.ones(2))

    assert capfd.readouterr() == ("", "")


def test_1_says_what_was_compiled_and_why(capfd, level):
    level(1)
    compiled = dovetail.jit(program)
    compiled(torch.ones(2))
    compiled(torch.ones(3))
    first, second = capfd.readouterr().err.splitlines()

    assert first.startswith("dovetail: compiled program: the first call (") and "tracing " in first and "release " in first
    assert 'args[0] is no longer a tensor "cpu f32[2]"' in second


def test_a_warm_call_says_nothing(capfd, level):
    compiled = dovetail.jit(program)
    compiled(torch.ones(2))
    level(4)
    compiled(torch.ones(2))

    assert capfd.readouterr().err == ""


def test_2_checks_between_passes(level):
    level(2)

    with pytest.raises(InvalidTrace, match=r"the trace of broken is invalid: t1 is read by torch\.mul before it is computed"):
        dovetail.jit(program, executors=["torch"], passes=[broken])(torch.ones(2))


def test_2_checks_training_and_mutation_too(level):
    level(2)
    x = torch.ones(2, requires_grad=True)
    dovetail.jit(lambda x: program(x).sum())(x).backward()

    def bump(x):
        x.add_(1)
        return x

    torch.testing.assert_close(dovetail.jit(bump)(torch.zeros(2)), torch.ones(2))
    torch.testing.assert_close(x.grad, 2 * torch.cos(torch.ones(2)))


def draws(x):
    state = torch.get_rng_state()
    y = torch.rand(2, generator=torch.Generator().manual_seed(3)) + torch.rand(2)
    torch.set_rng_state(state)
    return x + y + torch.rand(2)


@functools.cache
def mask(n):
    rows = torch.zeros(n, n)
    rows[0] = 1
    return rows.tril_()


@pytest.mark.parametrize("fn", [draws, lambda x: x @ mask(x.shape[0])], ids=["random generators", "a size that a region reads"])
def test_2_accepts_valid_programs(level, fn):
    level(2)
    compiled = dovetail.jit(fn)

    for size in (2, 2, 3, 4) if fn is not draws else (2, 2):
        torch.manual_seed(0)
        got = compiled(torch.ones(size))
        torch.manual_seed(0)
        torch.testing.assert_close(got, fn(torch.ones(size)))


def test_3_prints_the_program_that_runs(capfd, level):
    level(3)
    dovetail.jit(program)(torch.ones(2))

    assert capfd.readouterr().err.count("def computation(t0):") == 1


def test_4_prints_what_every_pass_made(capfd, level):
    level(4)
    compiled = dovetail.jit(program)
    compiled(torch.ones(2))

    assert capfd.readouterr().err.count("def computation(t0):") == len(dovetail.last_traces(compiled))
