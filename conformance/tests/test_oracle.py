"""Results are the same where their bits are: the signs of zeros count, what a NaN holds does not."""

from __future__ import annotations

import struct
from itertools import count

import pytest
import torch

from dovetail.extend import OperatorExecutor
from dovetail_conformance import check
from dovetail_conformance.oracle import same_bits

FLOATS = [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2]
OTHER_NAN = torch.tensor([0x7FC00001], dtype=torch.int32).view(torch.float32)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.complex64, torch.complex128], ids=str)
def test_the_sign_of_a_zero_counts(dtype: torch.dtype) -> None:
    zero, negative = torch.tensor([0.0, 1.0]).to(dtype), torch.tensor([-0.0, 1.0]).to(dtype)

    assert same_bits(zero, zero.clone()) and not same_bits(zero, negative)
    assert not same_bits([1, (zero,)], [1, (negative,)])


def test_what_nan_holds_does_not_count() -> None:
    nan, mixed = torch.tensor([torch.nan]), torch.tensor([torch.nan, -0.0, torch.inf])

    assert same_bits(nan, OTHER_NAN)
    assert same_bits(mixed, torch.cat([OTHER_NAN, mixed[1:]]))
    assert not same_bits(mixed, torch.cat([OTHER_NAN, torch.tensor([0.0, torch.inf])]))
    assert not same_bits(mixed.double(), torch.tensor([torch.nan, -0.0, torch.finfo(torch.float64).max], dtype=torch.float64))
    assert not same_bits(mixed, torch.tensor([1.0, -0.0, torch.inf]))


def test_numbers_of_python_are_compared_alike() -> None:
    other_nan = struct.unpack("d", struct.pack("Q", 0x7FF8000000000001))[0]

    assert same_bits([1, 0.5, float("nan"), None], [1, 0.5, other_nan, None])
    assert not same_bits(0.0, -0.0) and not same_bits(1, 1.0) and not same_bits([1], [1, 1])


def test_lazy_bits_are_computed_first() -> None:
    x = torch.tensor([1 + 2j, -0.0 + 0j])

    assert same_bits(x.conj(), x.conj().resolve_conj()) and same_bits(x.conj().imag, x.conj().imag.resolve_neg())
    assert not same_bits(x.conj(), x)


def test_a_kernel_that_loses_the_signs_of_zeros_later_is_noticed() -> None:
    calls, ex = count(), OperatorExecutor("forgetful")
    ex.implements("torch.ceil", lambda x: torch.ceil(x) + 0.0 if next(calls) > 500 and x.is_floating_point() else torch.ceil(x))

    report = check(ex, operations=["torch.ceil"], checks=["calls"], devices=["cpu"])

    assert any("returned other results than an earlier call" in row.message for row in report.failures), report.counts
