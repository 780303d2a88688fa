"""Seed 002, the example of an executor for apex's cross-entropy, as it was given: names, arguments and mapping are the seed's.

The seed's listing ends before the loss is reduced and names `half_to_float` without giving it; both are marked below.  Its imports are those
of the reference system: here `add_operator_executor` is in `dovetail.executors`, and in `dovetail.extend`.
"""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import torch

import dovetail
from dovetail.executors.discovery.registry import REGISTRY

SEED = """
import torch
import xentropy_cuda

half_to_float = False  # not in the seed

def apex_xentropy(
    a: torch.Tensor, # a is an actual PyTorch tensor
    target,
    weight=None,
    size_average=None,
    ignore_index=-100,
    reduce=None,
    reduction="mean",
    label_smoothing=0.0,
):
    losses, max_log_sum_exp = xentropy_cuda.forward(a, target, label_smoothing, half_to_float)
    return losses.mean() if reduction == "mean" else losses.sum() if reduction == "sum" else losses  # not in the seed

from dovetail.trace import TensorProxy
def apex_xentropy_checker(
    a: TensorProxy, # a is a proxy
    target,
    weight=None,
    size_average=None,
    ignore_index=-100,
    reduce=None,
    reduction="mean",
    label_smoothing=0.0,
):
    # Apex's xentropy only supports "sum", "mean" or "none" reductions
    if reduction not in ["sum", "mean", "none"]:
        return False

    return True

_op_to_xentropy = {
    "torch.nn.functional.cross_entropy": ("apex_xentropy", apex_xentropy_checker, apex_xentropy),
}

def register_apex_xentropyex(*, add_to_default_executors: bool = True) -> None:
    from dovetail.executors import add_operator_executor

    return add_operator_executor("apex_xentropy", _op_to_xentropy, add_to_default_executors=add_to_default_executors)
"""
F = torch.nn.functional


@pytest.fixture
def seed(monkeypatch):
    """What the seed defines, with a module `xentropy_cuda` that computes the loss with PyTorch; `calls` are the calls of it."""
    module, calls = ModuleType("xentropy_cuda"), []

    def forward(logits, labels, smoothing, half_to_float):
        assert type(logits) is torch.Tensor and type(labels) is torch.Tensor
        calls.append(smoothing)
        return F.cross_entropy(logits, labels, reduction="none", label_smoothing=smoothing), torch.logsumexp(logits, -1)

    module.forward = forward
    monkeypatch.setitem(sys.modules, "xentropy_cuda", module)
    REGISTRY.load()
    before, defaults = dict(REGISTRY.executors), list(REGISTRY.defaults)
    REGISTRY.executors.pop("apex_xentropy", None)  # the installed one, where there is a kernel
    names = {"calls": calls}
    exec(compile(SEED, __file__, "exec"), names)
    yield names
    REGISTRY.executors.clear()
    REGISTRY.executors.update(before)
    REGISTRY.defaults[:] = defaults


def problem():
    return torch.randn(6, 10, generator=torch.Generator().manual_seed(0)), torch.arange(6)


def model(logits, target):
    return F.cross_entropy(logits * 2, target, label_smoothing=0.1)


def lines(jitted) -> str:
    return dovetail.last_traces(jitted)[-1].python(depth=0)


def test_seed_002_the_example_runs_in_what_is_compiled_afterwards(seed):
    early = dovetail.jit(model)
    early(*problem())
    assert "apex_xentropy" not in lines(early) and seed["calls"] == []

    made = seed["register_apex_xentropyex"]()
    jitted = dovetail.jit(model)
    result = jitted(*problem())

    assert made is dovetail.extend.advanced.get_executor("apex_xentropy") and seed["calls"] == [0.1]
    assert "apex_xentropy_exec.apex_xentropy(" in lines(jitted)
    torch.testing.assert_close(result, model(*problem()))


def test_seed_002_outside_the_default_it_is_asked_where_it_is_named(seed):
    seed["register_apex_xentropyex"](add_to_default_executors=False)
    plain, named = dovetail.jit(model), dovetail.jit(model, executors=["apex_xentropy"])

    torch.testing.assert_close(named(*problem()), plain(*problem()))
    assert "apex_xentropy" not in lines(plain) and "apex_xentropy_exec.apex_xentropy(" in lines(named)


def test_seed_002_a_checker_that_says_false_defers_to_another_executor(seed):
    checker, shapes = seed["apex_xentropy_checker"], []

    def small(a, *rest, **how):
        shapes.append(tuple(a.shape))  # a proxy answers what a tensor does
        return a.shape[1] <= 10 and checker(a, *rest, **how)

    seed["_op_to_xentropy"]["torch.nn.functional.cross_entropy"] = ("apex_xentropy", small, seed["apex_xentropy"])
    seed["register_apex_xentropyex"]()
    jitted = dovetail.jit(model)
    jitted(*problem())
    jitted(torch.randn(6, 12), torch.arange(6))

    assert shapes == [(6, 10), (6, 12)] and seed["calls"] == [0.1] and "apex_xentropy_exec" not in lines(jitted)
    assert "apex_xentropy refuses: gave no reason" in str(dovetail.explain(jitted))


def test_seed_002_a_second_registration_of_the_name_is_an_error(seed):
    seed["register_apex_xentropyex"]()
    with pytest.raises(dovetail.DovetailError, match="an executor called apex_xentropy exists already; choose another name or pass replace=True"):
        seed["register_apex_xentropyex"]()


def test_a_checker_asks_a_proxy_what_it_would_ask_a_tensor():
    asked = {}

    def checker(input, dim=None, **_):
        asked.update(shape=input.shape, dtype=input.dtype, device=input.device, ndim=input.ndim, grad=input.requires_grad, cuda=input.is_cuda)
        asked.update(size=input.size(0), dim=input.dim(), stride=input.stride(), numel=input.numel(), floats=input.is_floating_point())
        return True

    ex = dovetail.extend.OperatorExecutor("curious")
    ex.implements(F.softmax, F.softmax, checker=checker)
    x = torch.randn(2, 3)
    jitted = dovetail.jit(lambda x: F.softmax(x, -1), executors=[ex])
    jitted(x)

    assert lines(jitted).count("curious_exec.") == 1
    assert asked == {
        **{"shape": x.shape, "dtype": torch.float32, "device": x.device, "ndim": 2, "grad": False, "cuda": False},
        **{"size": 2, "dim": 2, "stride": (3, 1), "numel": 6, "floats": True},
    }


def test_what_a_checker_computes_with_a_proxy_is_its_own_mistake():
    ex = dovetail.extend.OperatorExecutor("computing")
    ex.implements(F.softmax, F.softmax, checker=lambda input, dim=None, **_: bool(input.sum() > 0))
    jitted = dovetail.jit(lambda x: F.softmax(x, -1), executors=[ex])
    with pytest.warns(UserWarning, match="(?s)the checker of computing 0 .* raised NotTracing"):
        jitted(torch.randn(2, 3))
