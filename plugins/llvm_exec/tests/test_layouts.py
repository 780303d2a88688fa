"""Reductions of tensors that lie across the rows that are reduced: copied by tiles first."""

from __future__ import annotations

import pytest
import torch
from llvm_against_eager import assert_like_eager, compiled, program_of
from torch.nn import functional as F

ACROSS = {
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "softmax": lambda x: x.softmax(-1),
    "softmax down": lambda x: x.softmax(0),
    "softmax of computed": lambda x: (x * 2 + 1).softmax(-1),
    "log_softmax and itself": lambda x: (x.log_softmax(-1), x + 1),
    "argmax": lambda x: x.argmax(-1),
    "argmin down": lambda x: x.contiguous().argmin(0),
    "max": lambda x: x.max(-1),
    "two orders": lambda x: (x.softmax(-1), x.argmax(0), x.t().softmax(-1)),
    "normalized": lambda x: F.normalize(x, dim=-1),
    "variance": lambda x: x.var(-1) + x.mean(-1),
}


@pytest.mark.parametrize("name", ACROSS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_across_memory(name, dtype):
    assert_like_eager(ACROSS[name], torch.randn(100, 70, dtype=dtype).t(), scale=4)


@pytest.mark.parametrize("fn", [lambda x: x.softmax(1), lambda x: x.argmax(1), lambda x: F.group_norm(x, 2), lambda x: x.amax((2, 3))])
def test_channels_last(fn):
    assert_like_eager(fn, torch.randn(3, 8, 17, 19).to(memory_format=torch.channels_last), scale=4)


def test_each_line_of_memory_is_read_once():
    plan = program_of(lambda x: F.layer_norm(x, x.shape[-1:]), torch.randn(128, 128).t()).plan
    (copy, *others) = plan.groups
    assert [item.node.op for item in copy.items] == ["copy"]
    inputs = {plan.memory[node] for node in plan.graph.inputs}
    assert not inputs & {e.data[0] for group in others for e in group.lowering.table.known.values() if e.op == "load"}


FEW = {
    "average pool": lambda x: F.avg_pool2d(x, 2),
    "max pool with gaps": lambda x: F.max_pool2d(x, 3, stride=2),
    "sum": lambda x: x.sum(1),
    "mean, and what lies around it": lambda x: x - x.mean(1, keepdim=True),
    "product": lambda x: x.prod(1),
    "largest": lambda x: x.amax(1),
    "any": lambda x: (x > 1).any(1),
    "all": lambda x: (x > -1).all(1),
    "of dear values": lambda x: torch.exp(torch.tanh(x) * 2).sum(1) / 3,
    "of sums": lambda x: x.sum(1).sum(0),
    "softmax": lambda x: x.softmax(1),
}


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("last", [False, True])
def test_few_elements_that_lie_far_apart(name, dtype, last):
    x = torch.randn(3, 6, 14, 22).mul(3).to(dtype)
    x = x.to(memory_format=torch.channels_last) if last else x
    x[0, 1, 2, 3] = float("nan") if dtype.is_floating_point else 7
    try:
        FEW[name](x)
    except (RuntimeError, NotImplementedError) as error:
        pytest.skip(f"eager refuses it: {error}")
    assert_like_eager(FEW[name], x, scale=4)


def test_windows_are_expressions():
    built = program_of(lambda x: F.max_pool2d(x, 2), torch.randn(2, 8, 16, 16).to(memory_format=torch.channels_last))
    assert built.groups == 1 and built.workspace == 0


@pytest.mark.parametrize("batch", [1, 4, 60])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_kernels_read_images_as_they_lie_whatever_a_view_brings_out(dtype, batch):
    """The stride of the one image decides on the memory format only after the dimensions are transposed."""
    x, weight = torch.randn(60).to(dtype).as_strided((1, 4, 5, 3), (batch, 1, 4, 20)), torch.randn(5, 4, 1, 1).to(dtype)
    fn = lambda x: F.conv2d(x.transpose(-1, -2), weight) * 2 + 1  # noqa: E731
    torch.testing.assert_close(compiled(fn)(x), fn(x), atol=2e-2, rtol=2e-2)
