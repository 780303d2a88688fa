"""The OpInfos themselves: every operation has one, eager PyTorch agrees with its samples, and its reference agrees with eager."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import islice
from math import sqrt

import pytest
import torch
from eager_versions import OLDEST, RELEASE

import dovetail
import dovetail_conformance.torch  # noqa: F401
from dovetail import devices, dtypes
from dovetail.errors import InputDtypeError
from dovetail.langs.torch import TorchSymbol
from dovetail.prims import SYMBOLS
from dovetail_conformance.draws import seeded
from dovetail_conformance.opinfo import OPINFOS, TO_TORCH, ErrorSample, OpInfo, SampleInput, unlike
from dovetail_conformance.program import extreme, program_of
from dovetail_conformance.twins import twin_of

INFOS = [info for info in OPINFOS if isinstance(info.symbol, TorchSymbol) and info.symbol.callable is not None]
FEW = (dtypes.float32, dtypes.bfloat16, dtypes.int64, dtypes.bool_, dtypes.complex64)
LOOSE = {dtypes.bfloat16: 2e-2, dtypes.float16: 2e-3}


def skipped(info: OpInfo, dtype: dtypes.DType) -> str:
    """Why nothing of the operation runs on the CPU with this dtype, as its OpInfo says, or an empty string."""
    return next((d.reason for d in info.directives if d.kind == "skip" and d.check == "*" and d.covers("*", dtype, "cpu")), "")


def accepted(info: OpInfo) -> list[dtypes.DType]:
    """The dtypes of FEW that the operation takes and that its OpInfo does not skip; a skip where that leaves none."""
    listed = [dtype for dtype in FEW if dtype in info.dtypes]
    usable = [dtype for dtype in listed if not skipped(info, dtype)]
    if listed and not usable:
        pytest.skip(skipped(info, listed[0]))
    return usable


def samples_of(info: OpInfo) -> Iterator[tuple[dtypes.DType, SampleInput]]:
    """Every sample of an operation, with its dtype."""
    for dtype in accepted(info):
        for sample in info.samples(dtype, devices.cpu):
            yield dtype, sample


by_operation = pytest.mark.parametrize("info", INFOS, ids=lambda info: info.name)  # one test for all dtypes: there are 500 operations


@pytest.fixture(autouse=True)
def quiet():
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_every_operation_of_the_torch_language_has_one():
    have = {info.symbol for info in OPINFOS}
    lacking = [s.id for s in SYMBOLS.values() if isinstance(s, TorchSymbol) and s not in have and twin_of(s) not in have]

    assert not lacking, f"{len(lacking)} operations have no OpInfo: {', '.join(lacking)}"


def test_an_operation_has_one():
    names = [info.symbol.id for info in OPINFOS]

    assert sorted(names) == sorted(set(names))


@by_operation
def test_eager_accepts_the_samples_and_the_reference_agrees(info: OpInfo):
    agree(info)


@pytest.mark.slow
@by_operation
def test_the_reference_agrees_with_other_seeds(info: OpInfo):
    for seed in range(1, 4):
        with seeded(seed):
            agree(info)


def agree(info: OpInfo) -> None:
    """Compare the reference of an operation with eager, with every sample."""
    ran = set()
    for dtype, sample in samples_of(info):
        if OLDEST and info.name == "trace" and dtype is dtypes.bfloat16:  # which torch 2.10 does not compute
            ran.add(dtype)
            continue
        expected = info.reference(*sample.args, **sample.kwargs) if info.reference is not None else None  # eager may write into its arguments
        got = info.symbol.callable(*sample.args, **sample.kwargs)
        ran.add(dtype)
        if info.reference is not None:
            if any([word in info.name for word in ("conv", "avg_pool3d")]) and dtype in LOOSE and expected.numel():
                # kernels of convolutions that some CPUs have round each of the products that they add up, and those of pooling each sum
                largest = max(float(expected.abs().max()), 1.0)
                got, expected = got / largest, expected / largest
            message = unlike(got, expected, max(info.tolerance, LOOSE.get(dtype, 0) * sqrt(terms_of(sample))))
            assert message is None, f"{dtype.name}, {sample}: {message}"
    assert ran == set(accepted(info))


def terms_of(sample: SampleInput) -> int:
    """How many numbers a sum in 16 bits may have: those along the longest dimension."""
    return max([1, *(n for x in sample.args if isinstance(x, torch.Tensor) for n in x.shape)])


@pytest.mark.parametrize("info", [info for info in INFOS if info.extremes], ids=lambda info: info.name)
def test_eager_accepts_the_samples_with_extreme_values(info: OpInfo):
    for dtype in set(accepted(info)) - ({dtypes.bfloat16} if OLDEST and info.name == "trace" else set()):
        programs = [program_of(info.symbol, sample) for sample in islice(info.samples(dtype, devices.cpu), 20)] if dtype.inexact else []
        for kind in info.extremes:
            candidates = ((program.fn, extreme(program.inputs, kind)) for program in programs)
            first = next(((fn, inputs) for fn, inputs in candidates if inputs is not None), None)  # the one that the suite takes
            if first is not None:
                first[0](*first[1])


@by_operation
def test_eager_or_dovetail_refuses_other_dtypes(info: OpInfo):
    """An OpInfo leaves out no dtype that its operation runs with."""
    for dtype in FEW:
        if dtype not in info.dtypes and not skipped(info, dtype):
            assert refused(info, dtype), f"eager runs {info} with {dtype.name} and its OpInfo does not list it"


def refused(info: OpInfo, dtype: dtypes.DType) -> bool:
    """Whether the operation has no samples of this dtype, or eager refuses some."""
    try:
        samples = list(info.samples(dtype, devices.cpu))
    except Exception:
        return True  # the samples themselves have no such form
    tensors = [x for sample in samples for x in (*sample.args, *sample.kwargs.values()) if isinstance(x, torch.Tensor)]
    return not any(x.dtype is TO_TORCH[dtype] for x in tensors) or any(refuses(info, sample) or is_refused(info, sample) for sample in samples)


def refuses(info: OpInfo, sample: SampleInput) -> bool:
    try:
        info.symbol.callable(*sample.args, **sample.kwargs)
    except Exception:
        return True
    return False


DTYPE_ERRORS = (RuntimeError, TypeError)  # versions of PyTorch refuse a dtype by either


def is_refused(info: OpInfo, sample: SampleInput | ErrorSample) -> bool:
    """Whether Dovetail refuses the dtype of a sample."""
    try:
        dovetail.make_trace(info.symbol.callable)(*sample.args, **sample.kwargs)
    except InputDtypeError:
        return True
    except Exception:
        return False
    return False


@by_operation
def test_eager_refuses_the_error_samples(info: OpInfo):
    for sample in info.error_samples(devices.cpu):
        raised = DTYPE_ERRORS if is_refused(info, sample) else sample.error
        if OLDEST or RELEASE >= (2, 15):  # 2.10 takes a string for the name of a dimension, 2.15 has other errors for vectors in cells
            raised = (*(raised if isinstance(raised, tuple) else (raised,)), RuntimeError)
        with pytest.raises(raised):
            info.symbol.callable(*sample.args, **sample.kwargs)


def test_what_departs_from_the_default_says_why():
    default = OpInfo.__dataclass_fields__
    for info in OPINFOS:
        assert info.tolerance == default["tolerance"].default or info.tolerance_source != default["tolerance_source"].default, info
        assert all(directive.reason for directive in info.directives), info
