"""Wrong arguments of public functions: an error that names the argument and what it should be, and nothing that is left behind."""

from __future__ import annotations

import re

import pytest
import torch

import dovetail
from dovetail.errors import DovetailError, ExecutorError, InvalidTrace
from dovetail.extend import FusionExecutor, OperatorExecutor, make_prim, options_of, register_grad
from dovetail.extend.advanced import RegionLimit, get_executor, make_symbol, to_callable, watch

X = torch.arange(3.0)


def twice(x):
    return x * 2


async def later(x):
    return x * 2


class Later(torch.nn.Module):
    async def forward(self, x):
        return x * 2


def total(x):
    return x.sum()


def operation(**how):
    """Define an operation of a new executor."""
    return OperatorExecutor("mine").operation("twice", twice, **{"meta": lambda x: x.fresh()} | how)


def implements(**how):
    """Implement the sine in a new executor."""
    OperatorExecutor("mine").implements(torch.sin, **how)


def run(vjp):
    """Differentiate an operation by `vjp`."""
    ex = OperatorExecutor("mine")
    own = ex.operation("twice", twice, meta=lambda x: x.fresh(), vjp=vjp, replace=True)
    dovetail.jit(lambda x: own(x).sum(), executors=[ex])(X.clone().requires_grad_()).backward()


WRONG = {
    "recompute": (lambda: dovetail.jit(twice, recompute="al"), DovetailError, "'none' or 'balanced' or 'all', not 'al'"),
    "passes, a function": (lambda: dovetail.jit(twice, passes=lambda trace: trace), TypeError, "passes is a collection of functions"),
    "passes, no function": (lambda: dovetail.jit(twice, passes=[None]), TypeError, "passes is a collection of functions"),
    "passes, a name": (lambda: dovetail.jit(twice, passes="dce"), TypeError, "passes is a collection of functions"),
    "a pass without a result": (lambda: dovetail.jit(twice, passes=[lambda trace: None])(X), InvalidTrace, "returned None; return a Trace"),
    "an async function": (lambda: dovetail.jit(later), TypeError, "later is async; compile what it calls"),
    "a module with an async forward": (lambda: dovetail.jit(Later()), TypeError, "forward is async; compile what it calls"),
    "one cotangent of two": (lambda: dovetail.vjp(lambda x: (x * 2, x + 1), X)[1](X), ValueError, "each of the 2 leaves of the result"),
    "three cotangents of two": (lambda: dovetail.vjp(lambda x: (x * 2, x + 1), X)[1]((X, X, X)), ValueError, "or None; got 3"),
    "grad of a number": (lambda: dovetail.grad(3), TypeError, "grad expects a function, got 3"),
    "a name as argnums": (lambda: dovetail.grad(total, argnums="x"), TypeError, "argnums= to be the position of an argument"),
    "argnums beyond the last": (lambda: dovetail.grad(total, argnums=1)(X), RuntimeError, "position 1 of a call with 1 positional"),
    "argnums before the first": (lambda: dovetail.grad(total, argnums=(0, -2))(X), RuntimeError, "position -2 of a call with 1 positional"),
    "an argument by keyword": (lambda: dovetail.grad(total)(x=X), RuntimeError, "position 0 of a call with 0 positional"),
    "has_aux without": (lambda: dovetail.grad(total, has_aux=True)(X), RuntimeError, "a tuple of the number and what is beside it"),
    "has_aux, three": (lambda: dovetail.grad(lambda x: (x.sum(), 1, 2), has_aux=True)(X), RuntimeError, "a tuple of the number and what is"),
    "verify without arguments": (lambda: dovetail.verify(dovetail.jit(twice)), TypeError, "missing 1 required positional argument: 'x'"),
    "make_trace of a number": (lambda: dovetail.make_trace(3), TypeError, "make_trace expects a function, got 3"),
    "to_fx of a function": (lambda: dovetail.to_fx(twice), TypeError, "to_fx takes a program, as dovetail.last_traces"),
    "from_fx of a function": (lambda: dovetail.from_fx(twice, X), TypeError, "from_fx takes a torch.fx.GraphModule"),
    "a number as meta": (lambda: dovetail.opaque(twice, meta=3), TypeError, "meta= of opaque expects a function, got 3"),
    "a name as a bound": (lambda: dovetail.mark_dynamic(X.clone(), 0, min="2"), TypeError, "bounds that are whole numbers, got '2'"),
    "a number as a name": (lambda: OperatorExecutor(3), ExecutorError, "an executor's name is an identifier"),
    "available at once": (lambda: OperatorExecutor("mine", available=True), ExecutorError, "write available=lambda: True"),
    "a number as a rule": (lambda: implements(fn=torch.sin, grad=3), ExecutorError, "grad=3, which cannot be called"),
    "a number as a class": (lambda: implements(stateful=3), ExecutorError, "stateful=3, which cannot be called"),
    "no meta": (lambda: operation(meta=None), TypeError, "meta= of mine.twice expects a function, got None"),
    "a name as a tag": (lambda: operation(tags="ELEMENTWISE"), DovetailError, "a collection of dovetail.extend.Tag"),
    "a number as vjp": (lambda: operation(vjp=3, replace=True), TypeError, "vjp= of mine.twice expects a function, got 3"),
    "a number is replaced": (lambda: operation(replaces=3, replace=True), DovetailError, "calls of 3 cannot be replaced"),
    "make_prim": (lambda: make_prim("mine.p", "p", meta=3), TypeError, "meta= of mine.p expects a function, got 3"),
    "make_symbol": (lambda: make_symbol("mine.s", program=3), TypeError, "program= of mine.s expects a function, got 3"),
    "register_grad": (lambda: register_grad("torch.sin", 3), TypeError, "register_grad of torch.sin expects a function, got 3"),
    "get_executor": (lambda: get_executor(3), ExecutorError, "an executor is called by a name, got 3"),
    "options_of": (lambda: options_of("torch"), ExecutorError, "options_of takes an executor, as get_executor"),
    "RegionLimit": (lambda: RegionLimit("torch", 1), ExecutorError, "RegionLimit takes a FusionExecutor"),
    "to_callable": (lambda: to_callable(twice), TypeError, "to_callable takes a program"),
    "watch": (lambda: watch(before=3), TypeError, "before= of watch expects a function, got 3"),
    "a cotangent that is a number": (lambda: run(lambda g, out, x: (2.0,)), InvalidTrace, "gives 2.0 for the cotangent of t0"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_argument_is_an_error_that_names_it(case):
    call, kind, message = WRONG[case]
    with pytest.raises(kind, match=re.escape(message)):
        call()

    torch.testing.assert_close(dovetail.jit(twice)(X), X * 2)
    torch.testing.assert_close(dovetail.jit(torch.sin)(X), torch.sin(X))


@pytest.mark.parametrize("meta", [lambda x: x.shape, lambda x: X, lambda x: "f32[3]"], ids=["a shape", "a tensor", "text"])
def test_a_meta_that_returns_no_spec_is_an_error_that_names_it(meta):
    ex = OperatorExecutor("mine")
    own = ex.operation("twice", twice, meta=meta, replace=True)
    with pytest.raises(InvalidTrace, match=r"the meta of mine\.twice returned .*return the spec of the result"):
        dovetail.jit(lambda x: own(x), executors=[ex])(X)


@pytest.mark.parametrize(
    ("how", "what"),
    [({"meta": lambda x: 1 / 0}, "the meta of mine.twice"), ({"meta": lambda x: x.fresh(), "vjp": lambda g: g}, "the vjp rule of mine.twice")],
    ids=["meta", "vjp"],
)
def test_an_error_in_a_rule_is_noted_to_be_in_that_rule(how, what):
    ex = OperatorExecutor("mine")
    own = ex.operation("twice", twice, replace=True, **how)
    with pytest.raises((ZeroDivisionError, TypeError)) as raised:
        dovetail.jit(lambda x: own(x).sum(), executors=[ex])(X.clone().requires_grad_()).backward()
    assert any(what in note and "test_wrong_arguments.py" in note for note in raised.value.__notes__)


@pytest.mark.parametrize("kernel", [None, 3])
def test_a_fusion_that_returns_no_function_is_an_error_of_its_executor(kernel):
    class Broken(FusionExecutor):
        def can_fuse(self, line):
            return True

        def fuse(self, region):
            return kernel

    with pytest.raises(ExecutorError, match=f"fuse of broken .*it returned {kernel}; return a function of the region's inputs"):
        dovetail.jit(lambda x: x.sin() * 2, executors=[Broken("broken")])(X)


def test_a_cotangent_that_is_none_is_none():
    _, pullback = dovetail.vjp(lambda x: (x * 2, x + 1), X)
    torch.testing.assert_close(pullback((X, None)), (X * 2,))
    torch.testing.assert_close(pullback((None, X)), (X,))


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_error_of_a_watching_function_is_noted_as_its_own(when):
    with pytest.raises(TypeError) as raised:
        dovetail.jit(twice, passes=[watch(**{when: lambda line: None})])(X)
    assert any("raised by the function that dovetail.extend.advanced.watch calls" in note for note in raised.value.__notes__)
