"""Under autocast, each of PyTorch's operations has results of eager's dtypes: PyTorch's own samples, with both narrow dtypes."""

from __future__ import annotations

import warnings
from zlib import crc32

import opdb
import pytest
import torch
from torch.utils._pytree import tree_leaves

import dovetail
from dovetail.errors import Unsupported

FLOATING = sorted({info.formatted_name for info in opdb.op_db if torch.float32 in info.supported_dtypes("cpu")})
MULTIPLYING = ("cov", "corrcoef", "linalg_pinv")  # autocast casts what they multiply, not their arguments
HALF_COMPLEX = ("chalf",)  # its result has a dtype that Dovetail lacks


def outcome(fn, args, kwargs):
    """Return the dtypes of the results, or the error."""
    try:
        return [x.dtype for x in tree_leaves(fn(*args, **kwargs)) if isinstance(x, torch.Tensor)]
    except Exception as error:
        return error


@pytest.mark.one_in(24, key=lambda name: 0 if any(f"[{each}]" in name for each in MULTIPLYING) else crc32(name.encode()))
@pytest.mark.parametrize("name", [name for name in FLOATING if name not in HALF_COMPLEX])
def test_results_have_eagers_dtype_under_autocast(name):
    for info in opdb.infos([name]):
        fn = opdb.spelled(info.op)
        for args, kwargs in list(opdb.samples(info, torch.float32, 3))[::2]:
            for dtype in (torch.bfloat16, torch.float16):
                with torch.autocast("cpu", dtype), torch.no_grad(), warnings.catch_warnings(action="ignore"):
                    want = outcome(fn, args, kwargs)
                    got = outcome(dovetail.jit(fn, executors=["torch"]), args, kwargs)
                if isinstance(got, Unsupported):
                    continue
                assert isinstance(got, type(want)) and (isinstance(want, Exception) or got == want), (dtype, want, got)
