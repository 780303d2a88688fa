"""The OpInfos themselves: every operation has one, eager PyTorch agrees with its samples, and its reference agrees with eager."""

from __future__ import annotations

import warnings
from itertools import islice
from typing import Any

import pytest
import torch

import dovetail_conformance.torch  # noqa: F401
from dovetail import devices, dtypes
from dovetail.langs.torch import TorchSymbol
from dovetail.prims import SYMBOLS
from dovetail_conformance.opinfo import OPINFOS, TO_TORCH, OpInfo, unlike
from dovetail_conformance.program import extreme, program_of
from dovetail_conformance.twins import twin_of

INFOS = [info for info in OPINFOS if isinstance(info.symbol, TorchSymbol) and info.symbol.callable is not None]
FEW = (dtypes.float32, dtypes.bfloat16, dtypes.int64, dtypes.bool_, dtypes.complex64)
LOOSE = {dtypes.bfloat16: 2e-2, dtypes.float16: 2e-3}


def case(info: OpInfo, dtype: dtypes.DType) -> Any:
    """A parameter; skipped where the OpInfo says that nothing of the operation runs on the CPU."""
    reasons = [d.reason for d in info.directives if d.kind == "skip" and d.check == "*" and d.covers("*", dtype, "cpu")]
    return pytest.param(info, dtype, id=f"{info.name}-{dtype.short}", marks=[pytest.mark.skip(reason=reason) for reason in reasons])


ACCEPTED = [case(info, dtype) for info in INFOS for dtype in FEW if dtype in info.dtypes]
OTHERS = [case(info, dtype) for info in INFOS for dtype in FEW if dtype not in info.dtypes]


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


@pytest.mark.parametrize(("info", "dtype"), ACCEPTED)
def test_eager_accepts_the_samples(info: OpInfo, dtype: dtypes.DType):
    count = 0
    for sample in info.samples(dtype, devices.cpu):
        info.symbol.callable(*sample.args, **sample.kwargs)
        count += 1
    assert count


@pytest.mark.parametrize(("info", "dtype"), [case for case in ACCEPTED if case.values[0].extremes and case.values[1].inexact])
def test_eager_accepts_the_samples_with_extreme_values(info: OpInfo, dtype: dtypes.DType):
    programs = [program_of(info.symbol, sample) for sample in islice(info.samples(dtype, devices.cpu), 20)]
    for kind in info.extremes:
        made = ((program.fn, extreme(program.inputs, kind)) for program in programs)
        first = next(((fn, inputs) for fn, inputs in made if inputs is not None), None)  # the one that the suite takes
        if first is not None:
            first[0](*first[1])


@pytest.mark.parametrize(("info", "dtype"), OTHERS)
def test_eager_or_dovetail_refuses_other_dtypes(info: OpInfo, dtype: dtypes.DType):
    """An OpInfo leaves out no dtype that its operation runs with."""
    try:
        samples = list(info.samples(dtype, devices.cpu))
    except Exception:
        return  # the samples themselves have no such form
    tensors = [x for sample in samples for x in (*sample.args, *sample.kwargs.values()) if isinstance(x, torch.Tensor)]
    if not any(x.dtype is TO_TORCH[dtype] for x in tensors):
        return

    refused = 0
    for sample in samples:
        try:
            info.symbol.callable(*sample.args, **sample.kwargs)
        except Exception:
            refused += 1
    assert refused, f"eager runs {info} with {dtype.name} and its OpInfo does not list it"


@pytest.mark.parametrize(("info", "dtype"), [case for case in ACCEPTED if case.values[0].reference is not None])
def test_the_reference_agrees_with_eager(info: OpInfo, dtype: dtypes.DType):
    for sample in info.samples(dtype, devices.cpu):
        expected = info.reference(*sample.args, **sample.kwargs)

        got = info.symbol.callable(*sample.args, **sample.kwargs)

        said = unlike(got, expected, max(info.tolerance, LOOSE.get(dtype, 0)))
        assert said is None, f"{sample}: {said}"


@pytest.mark.parametrize("info", INFOS, ids=lambda info: info.name)
def test_eager_refuses_the_error_samples(info: OpInfo):
    for sample in info.error_samples(devices.cpu):
        with pytest.raises(sample.error):
            info.symbol.callable(*sample.args, **sample.kwargs)


@pytest.mark.parametrize("info", OPINFOS, ids=lambda info: info.name)
def test_what_departs_from_the_default_says_why(info: OpInfo):
    default = OpInfo.__dataclass_fields__
    assert info.tolerance == default["tolerance"].default or info.tolerance_source != default["tolerance_source"].default
    assert all(directive.reason for directive in info.directives)
