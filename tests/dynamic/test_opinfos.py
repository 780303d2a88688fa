"""Every operation of the conformance suite with symbolic sizes: one compiled function agrees with eager mode at three shapes, and its gradients.

The suite compares static programs with eager mode.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator

import pytest
import torch

import dovetail
import dovetail_conformance.torch  # noqa: F401
from dovetail import devices, dtypes
from dovetail.langs.torch import TorchSymbol
from dovetail_conformance import OPINFOS, OpInfo, SampleInput
from dovetail_conformance.axes.sizes import grown, mapped, tensors_of
from dovetail_conformance.oracle import flat
from dovetail_conformance.program import fresh, program_of

INFOS = [info for info in OPINFOS if isinstance(info.symbol, TorchSymbol) and info.symbol.callable is not None and not info.random]
UNWRITTEN = {"empty_like", "Tensor.new_empty", "Tensor.new_empty_strided"}
SAMPLES = 3  # of an operation
PINNING = {  # operations that need a size of some sample as a plain number
    *("Tensor.split", "split", "unbind", "nn.functional.scaled_dot_product_attention"),
    *(f"_C._nn.upsample_{kind}" for kind in ("linear1d", "bilinear2d", "trilinear3d", "bicubic2d")),
    *(f"_C._nn.{kind}{d}d" for kind in ("upsample_nearest", "_upsample_nearest_exact") for d in (1, 2, 3)),
}


def samples_of(info: OpInfo) -> list[SampleInput]:
    dtype = dtypes.float32 if dtypes.float32 in info.dtypes else info.dtypes[0]
    samples = [s for s in info.samples(dtype, devices.cpu) if any(n > 1 for x in tensors_of((s.args, s.kwargs)) for n in x.shape)]
    return samples if len(samples) <= SAMPLES else random.Random(0).sample(samples, SAMPLES)


def calls_of(info: OpInfo, sample: SampleInput) -> Iterator[list[torch.Tensor]]:
    """Yield the tensors of a sample, and others with larger sizes."""
    generator = torch.Generator().manual_seed(1)
    yield program_of(info.symbol, sample).inputs
    for larger in (lambda n: 2 * n + 1, lambda n: n + 2):
        shape = lambda x, larger=larger: tuple(larger(n) if n > 1 else n for n in x.shape)  # noqa: E731
        yield program_of(info.symbol, mapped(sample, lambda x, shape=shape: grown(x, shape(x), generator))).inputs


def gradients(results: object, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the gradients of random sums of the results, zeros where there are none."""
    generator, leaves = torch.Generator().manual_seed(2), [x for x in inputs if x.requires_grad and x.is_leaf]
    outputs = [x for x in flat(results) if isinstance(x, torch.Tensor) and x.requires_grad]
    cotangents = [torch.randn(x.shape, dtype=torch.float64, generator=generator).to(x.dtype) for x in outputs]
    return list(torch.autograd.grad(outputs, leaves, cotangents, allow_unused=True, materialize_grads=True)) if outputs else []


def differentiated(info: OpInfo, sample: SampleInput) -> None:
    """Compare gradients, where eager mode has them."""
    program = program_of(info.symbol, sample)
    compiled = dovetail.jit(program.fn, dynamic=True)
    for inputs in calls_of(info, sample):
        ours, theirs = fresh(inputs, grad=True), fresh(inputs, grad=True)
        try:
            expected = gradients(program.fn(*theirs), theirs)
        except Exception:
            continue
        torch.testing.assert_close(gradients(compiled(*ours), ours), expected, equal_nan=True, rtol=2e-3, atol=2e-3)


def check(info: OpInfo, sample: SampleInput) -> None:
    program = program_of(info.symbol, sample)
    compiled = dovetail.jit(program.fn, dynamic=True)
    first, *others = calls_of(info, sample)
    for inputs in (first, *others, first):
        ours, theirs = fresh(inputs), fresh(inputs)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                expected = program.fn(*theirs)
        except Exception as error:  # sizes that the operation does not take
            with pytest.raises(type(error) if isinstance(error, RuntimeError) else Exception):
                compiled(*ours)
            continue
        results = compiled(*ours)
        for got, want in zip(flat((results, ours)), flat((expected, theirs)), strict=True):
            if not isinstance(want, torch.Tensor):
                assert got == want or want != want
            elif info.name in UNWRITTEN:
                assert (got.shape, got.dtype) == (want.shape, want.dtype)
            else:
                near = {"rtol": 1e-4, "atol": 1e-4} if want.dtype is torch.float32 else {}
                torch.testing.assert_close(got, want, equal_nan=True, **near)


@pytest.mark.trials
@pytest.mark.one_in(40)
@pytest.mark.parametrize("info", INFOS, ids=lambda info: info.name)
def test_an_operation_agrees_with_eager_mode_at_three_shapes(info):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for sample in samples_of(info):
            check(info, sample)
            if info.grad:
                differentiated(info, sample)
    texts = [str(each.message) for each in caught]
    assert not [text for text in texts if "separately" in text or "bug" in text or "eager" in text]
    assert any("is compiled for each value" in text for text in texts) == (info.name in PINNING)
