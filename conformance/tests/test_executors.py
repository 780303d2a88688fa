"""Every executor that is installed is held to the suite: `pytest -k unfold` runs that operation, over executors, dtypes and devices."""

from __future__ import annotations

import torch

from dovetail.extend import executors
from dovetail_conformance import suite

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
FEWER = {"llvm": ["float32", "bfloat16", "int64", "bool"]}  # a kernel is compiled for each sample; `make conformance` has the other dtypes

found = [ex.name for ex in executors() if ex.available() is True]
test_executors = suite(*(name for name in found if name not in FEWER), devices=DEVICES)
for name in FEWER.keys() & set(found):
    globals()[f"test_{name}"] = suite(name, dtypes=FEWER[name], devices=DEVICES)
