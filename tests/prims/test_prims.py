"""Every prim against its OpInfo: meta, eager implementation and reference agree; and nothing that belongs to a prim was forgotten."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from dovetail import devices, dtypes, prims
from dovetail.errors import InputError
from dovetail.frontend.fx.rows import ROWS
from dovetail.prims import SYMBOLS, NumberSpec, Symbol, Tag, TensorSpec
from dovetail_conformance.opinfo import FROM_TORCH, TO_TORCH, OpInfo, spec_of, specs_of
from dovetail_conformance.prims import OPINFOS
from dovetail_torch_exec.prims import PRIMS

ALL = [s for s in SYMBOLS.values() if s.is_prim and s.module == "prims" and Tag.GUARD not in s.tags]
NEVER_RUN = {"get_grad", "put_grad"}  # the grad pass replaces them
NOT_PUBLIC = {"size", "integer", "arithmetic", "evaluate", "format_number", "format_tensor", "join_text", "with_history"}  # lines that tracing adds
NOT_IN_FX = {*NEVER_RUN, *NOT_PUBLIC, "bernoulli", "uniform_philox", "normal_philox", "print_", "delete"}  # torch.fx graphs have no such calls
FEW = (dtypes.float32, dtypes.bfloat16, dtypes.int64, dtypes.uint8, dtypes.bool_, dtypes.complex64, dtypes.float8_e5m2)
TOLERANCE = {dtypes.bfloat16: 2e-2, dtypes.float16: 2e-3}

CASES = [pytest.param(info, dtype, id=f"{info}-{dtype.short}") for info in OPINFOS for dtype in FEW if dtype in info.dtypes]
WITH_REFERENCE = [case for case in CASES if case.values[0].reference is not None and not case.values[1].storage_only]  # NumPy has no float8
REFUSALS = [pytest.param(info, sample, id=f"{info}-{i}") for info in OPINFOS for i, sample in enumerate(info.error_samples(devices.cpu))]


@pytest.mark.parametrize("symbol", ALL, ids=repr)
def test_nothing_was_forgotten(symbol: Symbol) -> None:
    with_samples = {info.symbol for info in OPINFOS}
    missing = {
        "a docstring": not symbol.doc.strip(),
        "its name in dovetail.prims.__all__": (symbol.name not in prims.__all__) != (symbol.name in NOT_PUBLIC),
        "a row in dovetail_torch_exec.prims.PRIMS": symbol not in PRIMS,
        "a row in dovetail.frontend.fx.rows.ROWS": (symbol not in ROWS) != (symbol.name in NOT_IN_FX),
        "an OpInfo in dovetail_conformance.prims": symbol not in with_samples and symbol.name not in NEVER_RUN,
        f"a grad rule (@{symbol.name}.vjp) or Tag.NO_GRAD": not symbol.vjp_rule and Tag.NO_GRAD not in symbol.tags,
        f"a put rule (@{symbol.name}.put), being a view": Tag.VIEW in symbol.tags and not symbol.put_rule,
        "Tag.VIEW, having a put rule": Tag.VIEW not in symbol.tags and symbol.put_rule is not None,
    }
    assert not any(missing.values()), f"{symbol} expects " + " and ".join(what for what, absent in missing.items() if absent)


def test_a_prim_has_one_opinfo() -> None:
    names = [info.symbol.name for info in OPINFOS]

    assert sorted(names) == sorted(set(names))


@pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0")
@pytest.mark.one_in(2)
@pytest.mark.parametrize(("info", "dtype"), CASES)
def test_meta_and_implementation_agree(info: OpInfo, dtype: dtypes.DType) -> None:
    run = PRIMS[info.symbol]
    for sample in info.samples(dtype, devices.cpu):
        expected = info.symbol.meta(*map(specs_of, sample.args), **sample.kwargs)
        before = [x.clone() for x in tensors_of(sample.args)]

        out = run(*sample.args, **sample.kwargs)

        where = f"{info} of {specs_of(sample.args)} {sample.kwargs}"
        assert described(out) == stripped(expected), where
        assert_storage(info.symbol, out, sample.args, where)
        if Tag.MEMORY not in info.symbol.tags:
            for x, was in zip(tensors_of(sample.args), before, strict=True):
                torch.testing.assert_close(as_comparable(x), as_comparable(was), rtol=0, atol=0, equal_nan=True, msg=f"{where} writes to its inputs")


@pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0")
@pytest.mark.one_in(2)
@pytest.mark.parametrize(("info", "dtype"), WITH_REFERENCE)
def test_values_are_those_of_the_reference(info: OpInfo, dtype: dtypes.DType) -> None:
    rtol = max(TOLERANCE.get(dtype, 0), info.tolerance)
    for sample in info.samples(dtype, devices.cpu):
        expected = info.reference(*sample.args, **sample.kwargs)

        out = PRIMS[info.symbol](*sample.args, **sample.kwargs)

        where = f"{info} of {specs_of(sample.args)} {sample.kwargs}"
        for got, want in zip(leaves(out), leaves(expected), strict=True):
            if isinstance(want, Tensor):
                # kernels of convolutions that some CPUs have round each of the products that they add up
                largest = float(want.abs().max()) if "convolution" in info.symbol.name and dtype in TOLERANCE and want.numel() else 1.0
                torch.testing.assert_close(
                    as_comparable(got),
                    as_comparable(want),
                    rtol=rtol,
                    atol=rtol * max(largest, 1.0),
                    equal_nan=True,
                    msg=lambda m, where=where: f"{where}: {m}",
                )
            elif want is not None:
                assert got == want, where


@pytest.mark.parametrize(("info", "sample"), REFUSALS)
def test_mistakes_raise_what_pytorch_raises(info: OpInfo, sample: Any) -> None:
    with pytest.raises(sample.error, match=sample.match) as caught:
        info.symbol.meta(*map(specs_of, sample.args), **sample.kwargs)

    assert isinstance(caught.value, InputError)


def leaves(value: Any) -> list[Any]:
    return [x for item in value for x in leaves(item)] if isinstance(value, (tuple, list)) else [value]


def tensors_of(value: Any) -> list[Tensor]:
    return [x for x in leaves(value) if isinstance(x, Tensor)]


def described(out: Any) -> Any:
    """A result of the implementation, as the meta would describe it."""
    if isinstance(out, tuple):
        return tuple(map(described, out))
    if isinstance(out, Tensor):
        return spec_of(out)
    return out if out is None else NumberSpec(type(out).__name__)


def stripped(spec: Any) -> Any:
    return tuple(map(stripped, spec)) if isinstance(spec, tuple) else spec.like(requires_grad=False) if isinstance(spec, TensorSpec) else spec


def as_comparable(x: Tensor) -> Tensor:
    return x.to(torch.complex128 if x.is_complex() else torch.float64)


def assert_storage(symbol: Symbol, out: Any, args: tuple, where: str) -> None:
    """A view shares the storage of its first input; any other result has storage of its own."""
    taken = {x.untyped_storage().data_ptr() for x in tensors_of(args) if x.numel()}
    for x in tensors_of(out):
        if x.numel():
            assert (x.untyped_storage().data_ptr() in taken) == (Tag.VIEW in symbol.tags), where


def test_dtypes_have_their_torch_counterparts() -> None:
    assert all(FROM_TORCH[t] is d for d, t in TO_TORCH.items())
    assert set(TO_TORCH) == set(dtypes.ALL)
