"""What the reference system gets wrong, by its number; the other half is in tests/executors/test_scenarios.py."""

from __future__ import annotations

import pytest
import torch

from dovetail_conformance import check
from dovetail_conformance.broken import running


@pytest.mark.parametrize(
    ("wrong", "message"),
    [(lambda x: torch.sin(x).reshape(1, *x.shape), "has shape"), (lambda x: torch.sin(x).double(), "has dtype float32 by its meta")],
    ids=["shape", "dtype"],
)
def test_scenario_41_a_result_that_is_not_what_the_operation_promises_is_caught(wrong, message) -> None:
    report = check(running(wrong), operations=["torch.sin"], dtypes=["float32"], devices=["cpu"])

    assert any(row.check == "meta" and message in row.message for row in report.failures)
