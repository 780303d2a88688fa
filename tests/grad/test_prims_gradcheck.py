"""Every prim's grad rule against numeric differences, through the grad pass, the split and the bridge to autograd.

tests/prims/test_grad_rules.py compares the same rules with PyTorch's autograd.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import dovetail
from dovetail import devices, dtypes
from dovetail.prims import Tag
from dovetail.prims.op import SYMBOLS
from dovetail.trace import check, dce, functionalize, grad, leaves, split
from dovetail_conformance.opinfo import OpInfo, SampleInput
from dovetail_conformance.prims import OPINFOS

SMALL, MOST = 24, 8  # elements of a sample's arguments together; samples of each prim
DIFFERENTIABLE = [
    pytest.param(info, dtype, id=f"{info}-{dtype.short}", marks=[pytest.mark.slow] * (dtype.kind == "complex"))
    for info in OPINFOS
    for dtype in (dtypes.float64, dtypes.complex128)
    if info.grad and dtype in info.dtypes
]


def is_inexact(x: Any) -> bool:
    return isinstance(x, Tensor) and (x.is_floating_point() or x.is_complex())


def small_samples(info: OpInfo, dtype: dtypes.DType) -> Iterator[SampleInput]:
    """A few samples of each shape of arguments, none with more elements than a numeric derivative in every direction is worth."""
    seen: set[Any] = set()
    for sample in info.samples(dtype, devices.cpu):
        tensors = [x for x in leaves(sample.args) if isinstance(x, Tensor)]
        key = (*(tuple(x.shape) for x in tensors), *(type(x) for x in sample.args))
        if sum(x.numel() for x in tensors) <= SMALL and key not in seen and len(seen) < MOST and any(map(is_inexact, tensors)):
            seen.add(key)
            yield sample


def program(info: OpInfo, sample: SampleInput) -> tuple[Any, list[Tensor]]:
    """The prim as a function of the sample's inexact tensors alone, and these, requiring grad."""
    given = [x.detach().clone().requires_grad_() for x in leaves(sample.args) if is_inexact(x)]

    def fn(*tensors: Any) -> Any:
        rest = iter(tensors)
        out = info.symbol(*replaced(sample.args, rest), **sample.kwargs)
        return [x for x in leaves(out) if x.spec.dtype.inexact]

    return fn, given


def replaced(nest: Any, rest: Iterator[Any]) -> Any:
    if isinstance(nest, (tuple, list)):
        return type(nest)(replaced(x, rest) for x in nest)
    return next(rest) if is_inexact(nest) else nest


@pytest.mark.one_in(2)
@pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0", "ignore:Input #")
@pytest.mark.parametrize(("info", "dtype"), DIFFERENTIABLE)
def test_scenario_22_gradients_are_the_derivatives(info: OpInfo, dtype: dtypes.DType) -> None:
    for sample in small_samples(info, dtype):
        fn, given = program(info, sample)
        if not any(x.numel() for x in given):
            continue
        compiled = dovetail.jit(fn)

        out = compiled(*given)

        exact = all(x.dtype in (torch.float64, torch.complex128) and not x.isnan().any() for x in out)
        if exact and any(x.requires_grad for x in out):
            torch.autograd.gradcheck(lambda *xs: tuple(compiled(*xs)), given, eps=1e-6, atol=1e-4, rtol=1e-4, check_undefined_grad=False)  # noqa: B023


@pytest.mark.parametrize(("info", "dtype"), DIFFERENTIABLE)
def test_joint_forward_and_backward_are_valid(info: OpInfo, dtype: dtypes.DType) -> None:
    for sample in small_samples(info, dtype):
        fn, given = program(info, sample)
        pure, _ = functionalize(dovetail.make_trace(fn)(*given))

        joint = check(grad(pure))

        for recompute in ("none", "balanced", "all"):
            forward, backward = split(dce(joint), recompute=recompute)
            check(forward)
            check(backward)


def test_every_prim_has_a_rule_or_says_that_it_has_none() -> None:
    for symbol in SYMBOLS.values():
        if symbol.is_prim and symbol.module == "prims":
            says = (symbol.vjp_rule is not None) + (Tag.NO_GRAD in symbol.tags)
            assert says == 1, f"{symbol} has {says} of: a vjp rule, Tag.NO_GRAD"
