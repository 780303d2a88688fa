"""Forward rules, run eagerly: the tangent of a result is that of PyTorch's forward mode."""

from __future__ import annotations

from itertools import count

import pytest
import torch
from eager_prims import Value, bare, leaves, replaced, running
from torch import Tensor

from dovetail import devices, dtypes, prims
from dovetail.prims.tangents import RULES
from dovetail_conformance.opinfo import OpInfo, specs_of
from dovetail_conformance.prims import OPINFOS
from dovetail_torch_exec.prims import PRIMS

STAND_INS = {  # what PyTorch differentiates in the place of its own function, where it does not differentiate that one
    prims.coo_mm: lambda rows, columns, values, x, num_rows: x.new_zeros(num_rows, x.shape[1]).index_add(0, rows, values[:, None] * x[columns]),
    prims.embedding_backward: lambda g, index, num_weights, padding_idx: g.new_zeros(num_weights, g.shape[-1]).index_put(
        (index,), torch.where((index == padding_idx)[..., None], 0, g), accumulate=True
    ),
}
CASES = [
    pytest.param(info, dtype, id=f"{info}-{dtype.short}")
    for info in OPINFOS
    if info.symbol in RULES
    for dtype in (dtypes.float64, dtypes.complex128)
    if dtype in info.dtypes
]


@pytest.mark.parametrize(("info", "dtype"), CASES)
def test_a_rule_agrees_with_forward_mode(info: OpInfo, dtype: dtypes.DType) -> None:
    symbol = info.symbol
    run = STAND_INS.get(symbol, PRIMS[symbol])
    for sample in info.samples(dtype, devices.cpu):
        flat = leaves(sample.args)
        inexact = [i for i, x in enumerate(flat) if isinstance(x, Tensor) and (x.is_floating_point() or x.is_complex())]
        for moving in [inexact, *([i] for i in inexact if len(inexact) > 1)]:
            tangents = {i: torch.randn(flat[i].shape, dtype=flat[i].dtype) for i in moving}

            def function(*values: Tensor, moving: list[int] = moving, sample=sample) -> list[Tensor]:
                return leaves(run(*replaced(sample.args, dict(zip(moving, values, strict=True)), count()), **sample.kwargs))

            out, want = torch.func.jvp(function, tuple(flat[i].clone() for i in moving), tuple(tangents.values()))
            results = [Value(x) for x in out]
            traced = {i: Value(x) for i, x in enumerate(flat) if isinstance(x, Tensor)}
            absent = dict.fromkeys(range(len(flat))) | {i: Value(t) for i, t in tangents.items()}
            with running():
                result = tuple(results) if len(results) > 1 else results[0]
                got = RULES[symbol](replaced(sample.args, absent, count()), result, *replaced(sample.args, traced, count()), **sample.kwargs)

            where = f"{symbol} of {specs_of(sample.args)} {sample.kwargs}, tangents of {moving}"
            for x, y, value in zip(leaves(bare(got)), want, out, strict=True):
                if value.is_floating_point() or value.is_complex():
                    torch.testing.assert_close(x, y, equal_nan=True, msg=lambda m, where=where: f"{where}: {m}")
