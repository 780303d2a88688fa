"""Scenario 29: every dtype converts as in PyTorch, and what computes in none says so."""

from __future__ import annotations

import warnings

import pytest
import torch

import dovetail
from dovetail import dtypes
from dovetail.langs.torch import TO_TORCH

ALL = [TO_TORCH[d] for d in dtypes.ALL if d in TO_TORCH]


def values(dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor([0.0, 1.0, 2.0, 0.5]).to(dtype)


@pytest.mark.parametrize("source", ALL, ids=str)
def test_scenario_29_every_dtype_converts_to_every_other(source):
    x = values(source)
    for target in ALL:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                want = x.to(target)
            except (RuntimeError, NotImplementedError) as error:
                with pytest.raises((RuntimeError, NotImplementedError)):
                    dovetail.jit(lambda x, target=target: x.to(target))(x)
                assert "not implemented" in str(error)
                continue
            got = dovetail.jit(lambda x, target=target: x.to(target))(x)
        assert got.dtype is target
        assert torch.equal(got.view(torch.uint8) if got.dim() else got, want.view(torch.uint8) if want.dim() else want), f"{source} to {target}"


@pytest.mark.parametrize("dtype", [TO_TORCH[d] for d in dtypes.ALL if d in TO_TORCH and d.storage_only], ids=str)
def test_scenario_29_float8_is_for_storage_and_says_so(dtype):
    x = values(dtype)
    short = dovetail.make_trace(lambda x: x)(x).inputs[0].spec.dtype.short
    for fn in (lambda x: x + x, torch.sin, lambda x: x.sum(), lambda x: x @ x):
        with pytest.raises((RuntimeError, NotImplementedError), match=short):
            dovetail.make_trace(fn)(x)
    for fn in (lambda x: x.view(2, 2).t(), lambda x: x[1:], lambda x: x.clone(), lambda x: torch.cat([x, x])):
        try:
            want = fn(x)
        except (RuntimeError, NotImplementedError):
            continue
        got = dovetail.jit(fn)(x)
        assert got.dtype is dtype and got.shape == want.shape and torch.equal(got.float(), want.float())


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64], ids=str)
def test_scenario_29_unsigned_integers_do_not_promote_with_signed_ones(dtype):
    with pytest.raises(RuntimeError, match=f"u{torch.iinfo(dtype).bits}"):
        dovetail.make_trace(lambda x, y: x + y)(values(dtype), values(torch.int64))


def test_complex_numbers_compute():
    x = torch.randn(3, dtype=torch.complex64)
    fn = lambda x: (x * x.conj(), torch.view_as_real(x).sum(-1), x.real, x.imag + 1, x.abs(), torch.exp(x))  # noqa: E731
    torch.testing.assert_close(dovetail.jit(fn)(x), fn(x))
