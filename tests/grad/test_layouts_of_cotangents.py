"""Results in several layouts: each cotangent is handed to the backward in the layout of its result, whatever the caller's lies in."""

from __future__ import annotations

import pytest
import torch

import dovetail

LAYOUTS = {
    "row-major": lambda x: x.contiguous(),
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "transposed": lambda x: x.mT.contiguous().mT,
}
PAIRS = [(a, b) for a in LAYOUTS for b in LAYOUTS]


def gradients(fn, x, w, cotangents):
    inputs = [x.detach().requires_grad_(), w.detach().requires_grad_()]
    results = fn(*inputs)
    torch.autograd.backward(results, cotangents)
    return [(y.detach(), y.stride()) for y in results], [y.grad for y in inputs]


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=["-".join(pair) for pair in PAIRS])
def test_cotangents_of_results_in_two_layouts(first, second):
    def fn(x, w):
        return (LAYOUTS[first](x) * w).sin(), (LAYOUTS[second](x) * w).cos(), (x * w).sum()

    compiled = dovetail.jit(fn)
    x, w = torch.randn(2, 3, 4, 5), torch.randn(3, 1, 1)
    for one, other in PAIRS:
        cotangents = [LAYOUTS[one](torch.randn(x.shape)), LAYOUTS[other](torch.randn(x.shape)), torch.tensor(2.0)]
        torch.testing.assert_close(gradients(compiled, x, w, cotangents), gradients(fn, x, w, cotangents))
