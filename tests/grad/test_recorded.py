"""Programs that autograd records as they run: gradients flow through PyTorch's own operations alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import dovetail
import dovetail.extend
from dovetail import prims

INDEX = torch.tensor([[0, 2, 1], [2, 0, 0]])
LAYERS = {
    "lstm": lambda: nn.LSTM(3, 4, 2, bidirectional=True),
    "lstm with dropout": lambda: nn.LSTM(3, 4, 3, dropout=0.4),
    "gru": lambda: nn.GRU(3, 4, batch_first=True),
    "rnn": lambda: nn.RNN(3, 4, nonlinearity="relu", bias=False),
}
RECORDED = {
    "one operation": (lambda x: torch.cdist(x, x[:2]), (5, 3)),
    "one of two results": (lambda x: x.kthvalue(2, -1)[0], (4, 5)),
    "two results": (lambda x: tuple(x.median(-1)), (4, 5)),
    "the results of two": (lambda x: (torch.linalg.matrix_exp(x), {"log": torch.logcumsumexp(x, 0)}), (3, 3)),
    "one after the other": (lambda x: torch.logcumsumexp(torch.linalg.matrix_exp(x), 1), (3, 3)),
    "a view behind it": (lambda x: torch.logcumsumexp(x, 0)[1:].mT, (4, 3)),
    "beside what has no gradient": (lambda x: F.embedding_bag(INDEX * 2 % 3, x, mode="mean"), (3, 2)),
    "a result without a gradient": (lambda x: torch.linalg.lu(x)[:2], (3, 3)),
    "random numbers": (lambda x: torch._standard_gamma(torch.linalg.matrix_exp(x)), (2, 2)),
    "an argument that is returned": (lambda x: (torch.logcumsumexp(x, 0), x.mT), (4, 3)),
    "a view of a result that is returned": (lambda x: (y := torch.logcumsumexp(x, 0), y[1:], y.detach()), (4, 3)),
}
WEIGHT = torch.randn(2, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
RECORDED |= {
    "a product behind it": (lambda x: F.linear(torch.logcumsumexp(x, 0)[-1:], WEIGHT), (4, 3)),
    "a product before it": (lambda x: torch.logcumsumexp(torch.matmul(WEIGHT, x), 0), (3, 3)),
}
OTHERS = {
    "an operation of ours": lambda x: torch.logcumsumexp(x, 0) * 2,
    "an operation of ours before it": lambda x: torch.logcumsumexp(x * 2, 0),
    "a write": lambda x: x.kthvalue(2, -1)[0].add_(1),
    "products alone": lambda x: F.linear(torch.matmul(x, x.mT), torch.ones(2, 4, dtype=x.dtype)),
    "a checkpoint": lambda x: checkpoint(lambda x: torch.logcumsumexp(x, 0), x, use_reentrant=False),
}


def point(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()


def tensors(result) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    return [x for part in (result.values() if isinstance(result, dict) else result) for x in tensors(part)]


def trained(fn, x: torch.Tensor, *also: torch.Tensor) -> list:
    torch.manual_seed(3)
    results = tensors(fn(x))
    loss = sum(y.square().sum() for y in results if y.requires_grad)
    return [[y.requires_grad for y in results], [y.stride() for y in results], *results, *torch.autograd.grad(loss, [x, *also])]


def same(got: list, want: list) -> None:
    assert got[:2] == want[:2]
    torch.testing.assert_close(got[2:], want[2:], rtol=0, atol=0)


@pytest.mark.parametrize("name", RECORDED)
def test_operations_of_pytorch_alone_have_no_backward_program(name):
    fn, shape = RECORDED[name]
    fast = dovetail.jit(fn)
    for step in range(4):
        x = (point(*shape) + step).detach().requires_grad_()
        same(trained(fast, x), trained(fn, x))
    assert not dovetail.last_backward_traces(fast)
    with torch.no_grad():
        assert [y.requires_grad for y in tensors(fast(x))] == [y.requires_grad for y in tensors(fn(x))]


@pytest.mark.parametrize("name", OTHERS)
def test_other_programs_have_one(name):
    fn, x = OTHERS[name], point(4, 3)
    fast = dovetail.jit(fn)
    for _ in range(3):
        same(trained(fast, x), trained(fn, x))
    assert dovetail.last_backward_traces(fast)


@pytest.mark.parametrize("name", LAYERS)
def test_recurrent_layers_alone_are_recorded(name):
    module = LAYERS[name]().double()
    fast = dovetail.jit(module)
    for length in (5, 5, 7, 6, 5):
        x = point(length, 2, 3)
        same(trained(fast, x, *module.parameters()), trained(module, x, *module.parameters()))
    assert not dovetail.last_backward_traces(fast)


def test_it_is_differentiated_to_any_order():
    fast, x = dovetail.jit(torch.linalg.matrix_exp), point(3, 3)
    orders = []
    for fn in (fast, torch.linalg.matrix_exp):
        value = fn(x).sum()
        for _ in range(3):
            (slope,) = torch.autograd.grad(value, x, create_graph=True)
            value = slope.square().sum()
        orders.append(slope)
    torch.testing.assert_close(*orders)


def test_a_backward_raises_where_what_it_needs_was_overwritten():
    fast, x = dovetail.jit(lambda x: torch.logcumsumexp(x, 0)), point(4)
    y = fast(x)
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_hooks_see_what_they_see_in_eager_mode():
    def fn(x):
        y = torch.linalg.matrix_exp(x)
        y.register_hook(lambda g: g * 2)
        return torch.logcumsumexp(y, 0)

    fast, x, seen = dovetail.jit(fn), point(3, 3), []
    for called in (fast, fn, fast):
        result = called(x)
        result.register_hook(lambda g: seen.append(g.clone()))
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
            other = called(x)
        seen.append(torch.autograd.grad(result.sum() + other.sum(), x)[0])
    torch.testing.assert_close(seen[:2], seen[2:4])
    torch.testing.assert_close(seen[:2], seen[4:])


@torch.no_grad()
def twice_without(x):
    return torch.linalg.matrix_exp(torch.linalg.matrix_exp(x))


def viewed_without(x):
    with torch.no_grad():
        y = x[1:]
    return torch.logcumsumexp(x, 0), torch.logcumsumexp(y, 0)


def viewed_behind_without(x):
    y = torch.logcumsumexp(x, 0)
    with torch.no_grad():
        z = y[1:]
    return y, torch.logcumsumexp(z, 0)


PARTS = {
    "an operation": lambda x: (twice_without(x), torch.logcumsumexp(x, 0)),
    "what another reads": lambda x: (torch.logcumsumexp(twice_without(x), 0), torch.logcumsumexp(x, 0)),
    "a view": viewed_without,
    "a view of a result": viewed_behind_without,
    "detached": lambda x: (torch.logcumsumexp(x.detach(), 0), torch.logcumsumexp(x, 0)),
    "switched on": lambda x: (torch.logcumsumexp(x.detach().clone().requires_grad_(), 0), torch.logcumsumexp(x, 0)),
}


@pytest.mark.parametrize("name", PARTS)
def test_parts_with_grad_mode_off_have_no_history(name):
    fn, x = PARTS[name], point(3, 3)
    fast = dovetail.jit(fn)
    for _ in range(3):
        same(trained(fast, x), trained(fn, x))


def test_the_contract_is_checked(monkeypatch):
    monkeypatch.setenv("DOVETAIL_CHECK", "1")
    fn, x = lambda x: torch.logcumsumexp(x, 0).mT, point(3, 3)
    same(trained(dovetail.jit(fn), x), trained(fn, x))


def test_the_rule_of_a_user_comes_first():
    def rule(input, weight):
        y = prims.matmul(input, prims.transpose(weight, order=(1, 0)))
        prims.put_grad(input, prims.get_grad(y).sum() * torch.ones_like(input))
        return y

    x = point(4, 3)
    dovetail.extend.register_grad(F.linear, rule)
    try:
        fast = dovetail.jit(lambda x: F.linear(torch.logcumsumexp(x, 0), WEIGHT))
        fast(x).sum().backward()
    finally:
        dovetail.extend.register_grad(F.linear, None)
    assert dovetail.last_backward_traces(fast)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), F.linear(torch.logcumsumexp(x, 0), WEIGHT))


@pytest.mark.parametrize("frozen", [False, True])
def test_a_recurrent_layer_and_a_head_are_recorded(frozen):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.head = nn.LSTM(3, 4), nn.Linear(4, 2)
            self.head.requires_grad_(not frozen)

        def forward(self, x):
            return self.head(self.layer(x)[0][-1])

    model = Model().double()
    fast = dovetail.jit(model, executors=["llvm", "torch"])
    parameters = [p for p in model.parameters() if p.requires_grad]
    for length in (5, 5, 7):
        x = point(length, 2, 3)
        same(trained(fast, x, *parameters), trained(model, x, *parameters))
    assert not dovetail.last_backward_traces(fast)
