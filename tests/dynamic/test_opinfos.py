"""Every operation of the conformance suite with symbolic sizes agrees with eager mode and with plain sizes at three shapes, and its gradients.

Random operations draw the numbers of the program with plain sizes.
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

INFOS = [info for info in OPINFOS if isinstance(info.symbol, TorchSymbol) and info.symbol.callable is not None]
OTHERS = (dtypes.bfloat16, dtypes.float16, dtypes.int64, dtypes.bool_, dtypes.complex64)  # of each operation those that it takes
NEAR = {dtypes.float32: 1e-4, dtypes.complex64: 1e-4, dtypes.bfloat16: 5e-2, dtypes.float16: 1e-2}
UNWRITTEN = {"empty_like", "Tensor.new_empty", "Tensor.new_empty_strided"}
SAMPLES = 3  # of an operation; of each other dtype one less
PINNING = {  # operations that need a size of some sample as a plain number
    *("Tensor.split", "split", "unbind", "nn.functional.scaled_dot_product_attention"),
    *(f"_C._nn.upsample_{kind}" for kind in ("linear1d", "bilinear2d", "trilinear3d", "bicubic2d")),
    *(f"_C._nn.{kind}{d}d" for kind in ("upsample_nearest", "_upsample_nearest_exact") for d in (1, 2, 3)),
}


def first_dtype(info: OpInfo) -> dtypes.DType:
    return dtypes.float32 if dtypes.float32 in info.dtypes else info.dtypes[0]


def samples_of(info: OpInfo, dtype: dtypes.DType) -> list[SampleInput]:
    most = SAMPLES - (dtype is not first_dtype(info))
    samples = [s for s in info.samples(dtype, devices.cpu) if any(n > 1 for x in tensors_of((s.args, s.kwargs)) for n in x.shape)]
    return samples if len(samples) <= most else random.Random(0).sample(samples, most)


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


def check(info: OpInfo, sample: SampleInput, dtype: dtypes.DType) -> None:
    """Compare results, and what is written into arguments."""
    program = program_of(info.symbol, sample)
    compiled, static = (dovetail.jit(program.fn, dynamic=dynamic) for dynamic in (True, False))
    first, *others = calls_of(info, sample)
    for inputs in (first, *others, first):
        ours, plain, theirs = (fresh(inputs) for _ in range(3))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                expected = program.fn(*theirs)
        except Exception as error:  # sizes that the operation does not take
            with pytest.raises(type(error) if isinstance(error, RuntimeError) else Exception):
                compiled(*ours)
            continue
        results = []
        for fn, args in ((compiled, ours), (static, plain)):
            torch.manual_seed(0)
            results.append(flat((fn(*args), args)))
        for got, like, want in zip(*results, flat((expected, theirs)), strict=True):
            agree(info, got, like, NEAR.get(dtype))
            agree(info, got, want, NEAR.get(dtype), written=not info.random)


def agree(info: OpInfo, got: object, want: object, near: float | None, *, written: bool = True) -> None:
    """Compare a result; where no values are `written`, or are random, what it looks like."""
    if not isinstance(want, torch.Tensor):
        assert got == want or want != want
    elif info.name in UNWRITTEN or not written:
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
    else:
        torch.testing.assert_close(got, want, equal_nan=True, rtol=near, atol=near)


@pytest.mark.trials
@pytest.mark.one_in(40)
@pytest.mark.parametrize("info", INFOS, ids=lambda info: info.name)
def test_an_operation_agrees_with_eager_mode_at_three_shapes(info):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for sample in samples_of(info, first_dtype(info)):
            check(info, sample, first_dtype(info))
            if info.grad and not info.random:
                differentiated(info, sample)
    texts = [str(each.message) for each in caught]
    assert not [text for text in texts if "separately" in text or "bug" in text or "eager" in text]
    assert any("is compiled for each value" in text for text in texts) == (info.name in PINNING)


@pytest.mark.trials
@pytest.mark.one_in(150)
@pytest.mark.parametrize(
    ("info", "dtype"),
    [pytest.param(info, d, id=f"{info.name}-{d}") for info in INFOS for d in OTHERS if d in info.dtypes and d is not first_dtype(info)],
)
def test_an_operation_on_other_dtypes_agrees_at_three_shapes(info, dtype):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for sample in samples_of(info, dtype):
            check(info, sample, dtype)
    assert not [text for each in caught if "separately" in (text := str(each.message)) or "bug" in text]
