"""Every executor that is installed is held to the suite: `pytest -k unfold` runs that operation, over executors, dtypes and devices."""

from __future__ import annotations

import torch

from dovetail_conformance import suite

test_executors = suite(devices=["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"])
