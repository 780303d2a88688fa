"""What eager refuses because of values, a plugin has to refuse as well."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from dovetail.extend import OperatorExecutor
from dovetail_conformance import Report, check


def examined(operation: str, fn, **restricted) -> Report:
    ex = OperatorExecutor("lenient", dtypes=["float32", "int64"])
    ex.implements(operation, fn)
    return check(ex, operations=[operation], devices=["cpu"], level="core", **restricted)


def clamped(input, p=None, *, generator=None):
    return torch.bernoulli(input.clamp(0, 1), generator=generator) if p is None else torch.bernoulli(input, p, generator=generator)


def in_any_range(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    return F.binary_cross_entropy(input.clamp(0, 1), target, weight, size_average, reduce, reduction)


@pytest.mark.parametrize(("operation", "fn"), [("torch.bernoulli", clamped), ("torch.nn.functional.binary_cross_entropy", in_any_range)])
def test_probabilities_out_of_range_are_refused(operation, fn) -> None:
    report = examined(operation, fn, checks=["errors"])

    assert [row.message for row in report.failures if "in x0 it returned a result" in row.message], report.counts


EAGER = [("torch.bernoulli", torch.bernoulli), ("torch.nn.functional.binary_cross_entropy", F.binary_cross_entropy)]


@pytest.mark.parametrize(("operation", "fn"), EAGER)
def test_eager_itself_is_not_accused(operation, fn) -> None:
    report = examined(operation, fn, checks=["errors"])

    assert [row.state for row in report if row.check == "errors"] == ["pass"], report.failures


def test_a_sequence_whose_dtype_is_not_declared_is_not_a_claim_too_many() -> None:
    report = examined("torch.arange", torch.arange, checks=["claims"])  # (0.5, 3) has a float32 result in every cell

    assert not report.failures


def test_checkers_are_offered_operations_without_tensors() -> None:
    ex = OperatorExecutor("raising", dtypes=["float32"])
    ex.implements("torch.full", torch.full, checker=lambda size, fill_value, **named: size[5] > 0)

    report = check(ex, operations=["torch.full"], devices=["cpu"], level="core", checks=["checkers"])

    assert [row.message for row in report.failures if "the checker of torch.full raised IndexError" in row.message], report.counts
