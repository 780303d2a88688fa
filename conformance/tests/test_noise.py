"""Output and warnings of calls, of which a plugin has no more than eager."""

from __future__ import annotations

import sys
import warnings

import torch

from dovetail.extend import OperatorExecutor
from dovetail_conformance import check
from dovetail_conformance.noise import Noise, recording_noise


def test_output_and_warnings_are_recorded() -> None:
    with recording_noise() as noise:
        print("a line")
        print("another", file=sys.stderr)
        warnings.warn("a slow kernel", stacklevel=1)
        warnings.warn("a file is open", ResourceWarning, stacklevel=1)

    assert noise == Noise("a line\nanother\n", ["UserWarning: a slow kernel"])


def test_what_eager_warns_of_as_well_is_no_fault() -> None:
    assert Noise("", ["UserWarning: a slow kernel"]).beyond(Noise("", ["UserWarning: a slow kernel"])) is None
    assert "a slow kernel" in Noise("", ["UserWarning: a slow kernel"]).beyond(Noise())


def test_a_warning_of_large_tensors_is_noticed() -> None:
    def reciprocal(input):
        if input.numel() > 100:
            warnings.warn("no plan for so large a tensor", stacklevel=2)
        return torch.reciprocal(input)

    ex = OperatorExecutor("warning", dtypes=["float32"])
    ex.implements("torch.reciprocal", reciprocal)

    report = check(ex, operations=["torch.reciprocal"], devices=["cpu"], level="core", checks=["surroundings"])

    assert [row.message for row in report.failures if "no plan for so large a tensor" in row.message], report.counts
