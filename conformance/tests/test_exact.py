"""Gradients in complex128: no wider dtype has the exact ones, and eager's may have lost their digits."""

from __future__ import annotations

import pytest
import torch

from dovetail.extend import get_grad, put_grad
from dovetail_conformance import check
from dovetail_conformance.broken import running

SGN = {"operations": ["torch.sgn"], "dtypes": ["complex128"], "checks": ["variants"], "devices": ["cpu"], "level": "core"}


def differentiated(factor: float):
    """An executor whose gradient of sgn is computed as eager's is, and off by a factor."""

    def rule(x):
        out = torch.sgn(x)
        g = get_grad(out)
        put_grad(x, torch.where(x == 0, 0.0, (g - out * (g * out.conj()).real) / x.abs()) * factor)
        return out

    return running(torch.sgn, "torch.sgn", grad=rule)


def test_a_gradient_that_is_nearer_than_eagers_is_right():
    report = check("torch", **SGN, seed=2)  # where eager's is 2e-8 of itself away from the exact one

    assert [row.state for row in report if row.check == "variants"] == ["pass"], report.failures


def test_a_gradient_that_is_off_by_a_little_is_wrong():
    report = check(differentiated(1 + 1e-12), **SGN)

    (row,) = [row for row in report if row.check == "variants"]
    assert row.state == "fail" and "the gradient of x0" in row.message


@pytest.mark.slow
def test_a_gradient_with_eagers_own_errors_is_right():
    report = check(differentiated(1.0), **SGN)

    assert not report.failures
