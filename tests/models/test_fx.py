"""Models as torch.fx graphs: there and back they are the same program, and a graph computes what eager PyTorch does."""

from __future__ import annotations

import pytest
import torch
import zoo

from dovetail.frontend.fx import from_fx, to_fx
from dovetail.frontend.native import acquire


@pytest.mark.parametrize("name", list(zoo.cases()))
def test_a_model_as_a_graph_and_back(name):
    torch.manual_seed(0)
    model, args = zoo.cases()[name]
    acquired = acquire(model.eval(), args, {})
    trace, graph = acquired.trace, to_fx(acquired.trace)
    back = from_fx(graph)

    assert [line.symbol for line in back.lines] == [line.symbol for line in trace.lines]
    assert [p.spec for p in back.inputs] == [p.spec for p in trace.inputs]
    with torch.no_grad():
        got, want = graph(*acquired.tensors), model(*args)
    for a, b in zip(torch.utils._pytree.tree_leaves(got), torch.utils._pytree.tree_leaves(want), strict=True):
        torch.testing.assert_close(a, b)
