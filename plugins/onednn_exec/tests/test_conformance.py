"""A small part of the conformance suite; `dovetail conformance onednn` runs all of it."""

from __future__ import annotations

import pytest

pytest.importorskip("dovetail_conformance", reason="the conformance suite is not installed")

from onednn_against_eager import ALWAYS

import dovetail_onednn_exec.opinfos  # noqa: F401  (it brings samples of our operation)
from dovetail_conformance import check


def test_the_operations_that_gain_most():
    report = check(ALWAYS, level="smoke", operations=["onednn.linear_epilogue", "torch.nn.functional.linear", "prims.matmul", "prims.convolution"])
    assert not report.failures, report.failures[0].said
    assert sum(row.state == "pass" for row in report.rows) > 20
