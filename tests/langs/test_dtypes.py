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


CLASSES = (bool, int, float, complex)
AS_WIDE = {bool: torch.uint8, int: torch.float64, float: torch.int64, complex: torch.complex128}
BY_CLASS = {
    "to": lambda x, c: x.to(c),
    "to, by name": lambda x, c: x.to(dtype=c),
    "to, behind a device": lambda x, c: x.to("cpu", c),
    "empty": lambda x, c: torch.empty(3, dtype=c).zero_(),
    "zeros": lambda x, c: torch.zeros(3, dtype=c),
    "empty_like": lambda x, c: torch.empty_like(x, dtype=c).zero_(),
    "new_empty": lambda x, c: x.new_empty(3, dtype=c).zero_(),
    "new_full": lambda x, c: x.new_full((2,), 1, dtype=c),
    "sum": lambda x, c: x.sum(dtype=c),
    "view": lambda x, c: torch.ones(4, dtype=AS_WIDE[c]).view(c),
    "a branch": lambda x, c: x * 2 if x.to(c).dtype.is_floating_point else x - 1,
    "used": lambda x, c: torch.cat([x.to(c), x]) if c is not bool else x[x.to(c)],
}


@pytest.mark.parametrize("name", BY_CLASS)
@pytest.mark.parametrize("cls", CLASSES)
def test_a_class_of_python_stands_for_its_dtype(cls, name):
    x, fn = torch.tensor([0.0, 1.5, 2.5]), BY_CLASS[name]
    got, want = dovetail.jit(fn)(x, cls), fn(x, cls)
    assert got.dtype is want.dtype
    assert torch.equal(got, want)


def test_a_class_that_stands_for_no_dtype_is_refused():
    x = torch.ones(3)
    with pytest.raises(TypeError):
        dovetail.jit(lambda x: x.to(str))(x)
    with pytest.raises(ValueError, match="invalid type"):
        dovetail.jit(lambda x: x.type(float))(x)
