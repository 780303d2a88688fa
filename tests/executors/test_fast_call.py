"""Fast calls of executors: what they are offered, and when, and that they change no result."""

from __future__ import annotations

import pytest
import torch

import dovetail
from dovetail.extend import OperatorExecutor


class Quick(OperatorExecutor):
    """Runs torch.sin, and takes over calls whose first argument has as many elements as `fits` says."""

    def __init__(self, name="quick", fits=None, operation=torch.sin, devices=None):
        super().__init__(name, devices=devices)
        self.implements(operation, lambda input: operation(input))
        self.fits, self.offered, self.taken, self.left = fits, [], [], []

    def fast_call(self, prologue, computation, slow):
        self.offered.append((prologue, computation))
        if self.fits is None:
            return None

        def call(args, kwargs):
            if args[0].numel() == self.fits:
                self.taken.append(args)
                return "quick"
            self.left.append(args)
            return slow(args, kwargs)

        return call


def test_a_fast_call_runs_what_it_is_sure_of_and_hands_over_the_rest():
    ex = Quick(fits=3)
    fn = dovetail.jit(torch.sin, executors=[ex])
    x, y = torch.randn(3), torch.randn(4)
    assert fn(x) == "quick"
    assert torch.equal(fn(y), torch.sin(y)) and len(dovetail.cache_misses(fn)) == 2
    assert len(ex.taken) == 1 and ex.left and all(args[0] is y for args in ex.left)
    assert [prologue.name for prologue, _ in ex.offered] == ["prologue"] * 2


def test_it_is_offered_to_those_that_run_a_line_in_order_until_one_takes_it():
    idle, first, second = Quick("idle", 3, torch.cos), Quick("first"), Quick("second", 3, torch.exp)
    fn = dovetail.jit(lambda x: torch.exp(torch.sin(x)), executors=[idle, first, second])
    assert fn(torch.randn(3)) == "quick"
    assert not idle.offered and len(first.offered) == 1 and len(second.taken) == 1


@pytest.mark.parametrize(("devices", "asked"), [(["cpu"], True), (["cuda"], False)])
def test_it_is_offered_to_those_that_declare_the_devices(devices, asked):
    idle = Quick("idle", 3, torch.cos, devices)
    fn = dovetail.jit(torch.sin, executors=[idle, "torch"])
    x = torch.randn(3)
    assert (fn(x) == "quick") if asked else torch.equal(fn(x), torch.sin(x))
    assert bool(idle.offered) == asked


def test_the_computation_is_offered_where_nothing_else_runs():
    ex = Quick()
    fn = dovetail.jit(lambda x: torch.sin(x) + 1, executors=[ex])
    fn(torch.ones(2))
    assert ex.offered[-1][1] is dovetail.last_traces(fn)[-1]
    for other, argument in (
        (lambda x: x.add_(torch.sin(x)), torch.ones(2)),  # the epilogue writes
        (lambda x: (torch.sin(x), x[0]), torch.ones(2)),  # and makes views
        (lambda x: torch.sin(x), torch.ones(2, requires_grad=True)),  # the bridge gives a history
    ):
        dovetail.jit(other, executors=[ex])(argument)
        assert ex.offered[-1][1] is None


def test_the_prologue_says_which_function_it_runs():
    ex = Quick()
    fn = dovetail.jit(lambda x: torch.sin(x), executors=[ex])
    fn(torch.ones(2, requires_grad=True))
    prologue = ex.offered[-1][0]
    program, *inputs = prologue.lines[-1].args
    assert prologue.lines[-1].symbol is dovetail.prims.call_program and len(inputs) == 1
    x = torch.randn(2, requires_grad=True)
    assert torch.equal(prologue.constants[program](x), torch.sin(x))


def test_an_error_in_a_fast_call_names_the_executor():
    class Broken(Quick):
        def fast_call(self, prologue, computation, slow):
            return 1 // 0

    with pytest.raises(dovetail.DovetailError, match=r"fast_call of broken 0 \(defined in this process.*\) raised ZeroDivisionError"):
        dovetail.jit(torch.sin, executors=[Broken("broken")])(torch.ones(2))
