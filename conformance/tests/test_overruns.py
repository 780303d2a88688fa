"""The check of overruns: a write behind a result, which no Python code sees, is a failing row."""

from __future__ import annotations

import pytest

from dovetail_conformance import check
from dovetail_conformance.overruns import missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

PLUGIN = """
import ctypes, os
import torch
from dovetail.extend import OperatorExecutor

wrong = OperatorExecutor("wrong")


def sine(x):
    out = torch.sin(x).contiguous()
    behind = 2 if x.dtype is torch.float16 and out.numel() % 16 == 1 else 0  # as wide as a float32, and no element has room for that
    if os.environ.get("MALLOC_CHECK_"):  # elsewhere it would damage the process of this test
        ctypes.memset(out.data_ptr() + out.numel() * out.element_size() + BEHIND, 0, behind)
    return out


wrong.implements("torch.sin", sine, dtypes=["float32", "float16"])
"""


@pytest.mark.parametrize(("behind", "state"), [(0, "fail"), (-2, "pass")])
def test_a_write_behind_a_result_is_noticed(tmp_path, behind, state):
    file = tmp_path / "mine.py"
    file.write_text(PLUGIN.replace("BEHIND", str(behind)))

    report = check(f"{file}:wrong", level="core", operations=["sin"], checks=["overruns"], devices=["cpu"])

    (row,) = [row for row in report if row.check == "overruns"]
    assert row.state == state and ("torch.sin of float16 (float16[65" in row.message) == (state == "fail")
    assert ("behind memory" in row.message) == (state == "fail")
