"""Trials hold lines to the contract of their operation; where no reference runs one, as of an operation of a plugin's own, that is an error."""

from __future__ import annotations

import warnings

import pytest
import torch
from stand_ins import Pointwise

import dovetail
from dovetail.errors import ExecutorError
from dovetail.extend import OperatorExecutor

pytestmark = pytest.mark.usefixtures("folder")

BROKEN = {  # an implementation of an operation that returns tensors like its argument, and the error
    "shape": (lambda x: x[:2] * 2, r"t1 has shape \[3, 3\] by its meta, and \[2, 3\] was returned"),
    "dtype": (lambda x: x.double() * 2, "t1 has dtype float32 by its meta, and float64 was returned"),
    "strides": (lambda x: (x * 2).t(), r"t1 has strides \[3, 1\] by its meta, and \[1, 3\] were returned"),
    "alias": (lambda x: x, "t1 shares memory with its argument t0"),
    "number": (lambda x: 3.0, "and float was returned"),
    "nothing": (lambda x: None, "and NoneType was returned"),
    "write": (lambda x: x.mul_(2).clone(), "it wrote into its argument t0"),
    "history": (lambda x: torch.nn.Parameter(torch.ones(3, 3)) * x, "t1 requires grad, and none of its arguments does"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_an_operation_of_its_own_that_breaks_its_contract_is_an_error(fault):
    """Kernels behind it are compiled for what its meta promises, and would read memory that is not there."""
    fn, message = BROKEN[fault]
    ex = OperatorExecutor("own")
    twice = ex.operation("twice", fn, meta=lambda x: x.fresh())
    compiled = dovetail.jit(lambda x: torch.sin(twice(x)) + 1, executors=[ex])

    for _ in range(2):
        with pytest.raises(ExecutorError, match=rf"broke the contract of own\.twice: .*{message}"):
            compiled(torch.ones(3, 3))


def test_an_operation_with_state_that_breaks_its_contract_is_an_error():
    class Half:
        def __call__(self, x):
            return x[:1]

    ex = OperatorExecutor("own")
    half = ex.operation("half", stateful=Half, meta=lambda x: x.fresh())

    with pytest.raises(ExecutorError, match=r"t1 has shape \[3\] by its meta, and \[1\] was returned"):
        dovetail.jit(lambda x: half(x) + 1, executors=[ex])(torch.ones(3))


def test_a_result_that_requires_grad_is_a_disagreement():
    weight = torch.nn.Parameter(torch.ones(3))
    ex = OperatorExecutor("leaking")
    ex.implements(torch.sin, lambda input: torch.sin(input) * weight)

    with pytest.warns(dovetail.DisagreementWarning, match=r"t1 requires grad, and none of its arguments does"):
        result = dovetail.jit(lambda x: torch.sin(x) * 2, executors=[ex])(torch.ones(3))

    assert not result.requires_grad


@pytest.mark.parametrize("form", [lambda results: results[0], lambda results: (), lambda results: (*results, *results)], ids=["alone", "none", "two"])
def test_a_region_that_returns_another_number_of_results_is_a_disagreement(form):
    class Misshapen(Pointwise):
        def fuse(self, region):
            run = super().fuse(region)
            return lambda *inputs: form(run(*inputs))

    compiled = dovetail.jit(lambda x: torch.sin(x) * 2, executors=[Misshapen()])

    with pytest.warns(dovetail.DisagreementWarning, match="it returns a tuple of 1 result, and"):
        torch.testing.assert_close(compiled(torch.ones(3)), torch.sin(torch.ones(3)) * 2)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(compiled(torch.zeros(3)), torch.zeros(3))
