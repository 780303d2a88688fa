"""Opaque operations in training: autograd's graph of the forward is kept, and nothing runs twice."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import checkpoint

import dovetail
from dovetail.torch_internals import gradients
from dovetail.trace import Trace

INDEX = torch.tensor([[0, 2, 1], [2, 2, 0], [1, 0, 0], [2, 1, 1]])
LAYERS = {
    "lstm": lambda: nn.LSTM(3, 4, 2, bidirectional=True),
    "lstm with dropout": lambda: nn.LSTM(3, 4, 3, dropout=0.4),
    "gru": lambda: nn.GRU(3, 4, batch_first=True),
    "rnn": lambda: nn.RNN(3, 4, nonlinearity="relu", bias=False),
}
FUNCTIONS = {
    "amax": (lambda a: torch.scatter_reduce(a.tanh(), 0, INDEX, a * 2, "amax", include_self=False).exp(), (4, 3)),
    "prod": (lambda a: torch.scatter_reduce(a, 0, INDEX, a + 3, "prod").sin(), (4, 3)),
    "qr": (lambda a: torch.linalg.qr(a @ a)[1], (3, 3)),
    "sample": (lambda a: torch._standard_gamma(a.exp() + 1), (3, 3)),
    "largest of bags": (lambda a: torch.nn.functional.embedding_bag(INDEX, a, mode="max").sin(), (3, 2)),
    "some results": (lambda a: torch.linalg.eigh(a + a.mT)[0] * 2, (3, 3)),
}


def values(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def trained(fn, *args: torch.Tensor, module: nn.Module | None = None) -> list:
    """The results of fn and all gradients, after some seed."""
    torch.manual_seed(1)
    args = [a.clone().requires_grad_() for a in args]
    out = fn(*args)
    loss = (out[0] if isinstance(out, tuple) else out).square().sum()
    loss.backward()
    grads = [p.grad for p in module.parameters()] if module is not None else []
    if module is not None:
        module.zero_grad()
    return [loss.detach(), *(a.grad for a in args), *grads]


def programs(fn) -> str:
    return "\n".join(str(trace) for trace in dovetail.last_traces(fn) + dovetail.last_backward_traces(fn) if isinstance(trace, Trace))


@pytest.fixture
def counted():
    """A custom operator with a gradient, and a list with an item for each time that it runs."""
    runs: list[int] = []

    @torch.library.custom_op("dovetail_tests::counted", mutates_args=())
    def op(t: torch.Tensor) -> torch.Tensor:
        runs.append(1)
        return t * 3

    op.register_fake(torch.empty_like)
    op.register_autograd(lambda ctx, g: g * 3)
    return op, runs


def test_the_forward_runs_once_in_each_step(counted) -> None:
    op, runs = counted
    fn, x = dovetail.jit(lambda a: op(a.sin()).cos()), values(4, 3)
    for step in range(6):
        got, want = (trained(f, x + step) for f in (fn, lambda a: op(a.sin()).cos()))
        torch.testing.assert_close(got, want)
    assert len(runs) == 2 * 6


class Followed(nn.Module):
    """A layer, and an operation behind it."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0] * 2


@pytest.mark.parametrize("name", LAYERS)
def test_layers_train_as_in_eager_mode(name: str) -> None:
    module = Followed(LAYERS[name]())
    fast = dovetail.jit(module)
    for seed, length in enumerate((5, 5, 7, 6, 5)):
        x = values(length, 2, 3, seed=seed)
        torch.testing.assert_close(trained(fast, x, module=module), trained(module, x, module=module))
    assert "_graph.torch." in programs(fast) and "_graph_vjp.torch." in programs(fast)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_train_as_in_eager_mode(name: str) -> None:
    fn, shape = FUNCTIONS[name]
    fast = dovetail.jit(fn)
    for seed in range(4):
        x = values(*shape, seed=seed)
        torch.testing.assert_close(trained(fast, x), trained(fn, x))


def test_nothing_is_kept_where_nothing_requires_grad() -> None:
    module = LAYERS["gru"]().requires_grad_(False)
    fast = dovetail.jit(module)
    fast(values(5, 2, 3))
    assert "opaque_graph" not in programs(fast)


def test_a_graph_may_be_used_twice_and_not_after_it_was_let_go() -> None:
    module = LAYERS["gru"]()
    x = values(5, 2, 3).requires_grad_()
    loss = dovetail.jit(module)(x)[0].sum()
    loss.backward(retain_graph=True)
    once = x.grad.clone()
    loss.backward()
    torch.testing.assert_close(x.grad, 2 * once)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_the_graph_goes_with_the_backward() -> None:
    kept: list[weakref.ref] = []

    @torch.library.custom_op("dovetail_tests::plain", mutates_args=())
    def op(t: torch.Tensor) -> torch.Tensor:
        return t * 2

    op.register_fake(torch.empty_like)

    def setup(ctx, inputs: tuple, output: torch.Tensor) -> None:
        own = inputs[0] * 2
        kept.append(weakref.ref(own))
        ctx.save_for_backward(own)

    op.register_autograd(lambda ctx, g: g * ctx.saved_tensors[0], setup_context=setup)
    fn = dovetail.jit(lambda a: op(a).sin())
    x = values(3, 3).requires_grad_()
    for _ in range(3):
        kept.clear()
        y = fn(x)
        assert [ref() is not None for ref in kept] == [True]
        y.sum().backward()
        gc.collect()
        assert [ref() is None for ref in kept] == [True]
    y = fn(x)
    del y
    gc.collect()
    assert kept[-1]() is None  # a forward without a backward


def test_hooks_on_saved_tensors_get_what_is_saved_and_the_call_runs_again(counted) -> None:
    op, runs = counted
    fn, x = dovetail.jit(lambda a: op(a.sin()).cos()), values(4, 3)

    def hooked(a: torch.Tensor) -> torch.Tensor:
        with save_on_cpu():
            return fn(a)

    want = trained(lambda a: op(a.sin()).cos(), x)
    torch.testing.assert_close(trained(fn, x), want)
    torch.testing.assert_close(trained(hooked, x), want)
    torch.testing.assert_close(trained(lambda a: checkpoint(fn, a, use_reentrant=False), x), want)
    assert runs


@pytest.mark.parametrize("name", ["amax", "matrix_exp"])
def test_a_result_that_was_written_is_an_error_as_in_eager_mode(name: str) -> None:
    fn, shape = (lambda a: torch.scatter_reduce(a, 0, INDEX, a * 2, "amax"), (4, 3)) if name == "amax" else (torch.linalg.matrix_exp, (3, 3))
    outcomes = []
    for run in (dovetail.jit(fn), fn):
        x = values(*shape).requires_grad_()
        y = run(x)
        y.mul_(2)
        try:
            y.sum().backward()
            outcomes.append(x.grad)
        except RuntimeError as error:
            outcomes.append("modified by an inplace operation" in str(error))
    torch.testing.assert_close(*outcomes)


def test_an_outer_gradient_flows_through_the_value_beside_an_inner_one() -> None:
    module = LAYERS["gru"]()

    def fn(a: torch.Tensor) -> torch.Tensor:
        def loss(t: torch.Tensor) -> tuple:
            y = module(t)[0]
            return y.square().sum(), y

        return torch.func.grad(loss, has_aux=True)(a)[1]

    def step(a: torch.Tensor) -> torch.Tensor:
        loss = module(a)[0].square().sum()
        loss.backward(retain_graph=True)
        return loss * 3

    x = values(5, 2, 3)
    for each in (fn, step):
        torch.testing.assert_close(trained(dovetail.jit(each), x, module=module), trained(each, x, module=module))


def test_a_gradient_lies_as_what_it_is_of():
    """As autograd's do: a weight that is multiplied transposed gets its gradient without another transposition."""

    def fn(x, weight):
        return torch.linalg.qr(weight.mT * 2)[1].sum() + torch.linalg.qr(weight.mT)[0].sum() * x

    x, weight = torch.tensor(1.5, requires_grad=True), torch.randn(3, 5, 4, requires_grad=True)
    ours = dovetail.jit(fn)
    got, want = (torch.autograd.grad(each(x, weight), (x, weight)) for each in (ours, fn))
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other)
    gradients = [line for line in dovetail.last_backward_traces(ours)[-1].lines if "opaque_graph_vjp" in str(line)]
    assert [line.out[0].spec.steps for line in gradients] == [(20, 1, 4)] * len(gradients) and gradients


@pytest.mark.parametrize("fn", [torch.linalg.lu, lambda a: torch.lu_unpack(*torch.linalg.lu_factor(a))])
def test_results_that_no_gradient_flows_to_require_none(fn):
    a = values(3, 3).requires_grad_()
    ours = dovetail.jit(fn)
    got, want = ours(a), fn(a)
    assert [x.requires_grad for x in got] == [x.requires_grad for x in want] == [False, True, True]
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other)
    got, want = (torch.autograd.grad(x[1].sum() + x[2].sin().sum(), a)[0] for x in (got, want))
    torch.testing.assert_close(got, want)


def test_a_graph_of_an_argument_that_the_program_overwrites_is_not_kept():
    """Autograd would find the argument changed; eager PyTorch keeps a copy of it here."""

    def largest(x):
        x.scatter_reduce_(0, INDEX, x * 2, "amax")
        return x

    def product(x):
        x[1:].index_reduce_(0, torch.tensor([0, 1]), x[:2] + 3, "prod")
        return x * x

    for fn in (largest, product):
        gradients = []
        for run in (fn, dovetail.jit(fn)):
            x = values(4, 3).requires_grad_()
            run(x * 1).sum().backward()
            gradients.append(x.grad)
        torch.testing.assert_close(*gradients)


GRAPHS = {
    "one operation": lambda a, b: [torch.cdist(a, b)],
    "one operation of one leaf": lambda a, b: [a.digamma()],
    "another shape than the leaf's": lambda a, b: [a * b[0]],
    "another dtype than the leaf's": lambda a, b: [a * b.double()[0].detach(), a.double() * 2],
    "one leaf twice": lambda a, b: [torch.maximum(a, a)],
    "two results": lambda a, b: list(torch.linalg.qr(a)),
    "hidden results": lambda a, b: [torch.layer_norm(a, (3,), b[0].detach())],
    "two operations": lambda a, b: [torch.cdist(a.exp(), b)],
    "two results of two operations": lambda a, b: [a.sin(), a.cos()],
    "a leaf that nothing reaches": lambda a, b: [b.sin()],
    "a function in Python": lambda a, b: [Doubled.apply(a)],
}


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx, g: torch.Tensor) -> torch.Tensor:
        return g * 2


@pytest.mark.parametrize("name", GRAPHS)
def test_a_node_alone_differentiates_as_the_engine_does(name: str) -> None:
    leaves = [values(4, 3, seed=i).exp().requires_grad_() for i in range(2)]
    results = GRAPHS[name](*leaves)
    for present in {len(results), 1}:
        gs = [values(*y.shape, seed=7).to(y.dtype) if i < present else None for i, y in enumerate(results)]
        pairs = [(y, g) for y, g in zip(results, gs, strict=True) if g is not None]
        want = torch.autograd.grad([y for y, _ in pairs], leaves, [g for _, g in pairs], retain_graph=True, allow_unused=True)
        for got, other in zip(gradients([y for y, _ in pairs], leaves, [g for _, g in pairs]), want, strict=True):
            torch.testing.assert_close(got, other, rtol=0, atol=0)


@pytest.mark.parametrize("wanted", [(0,), (1,), (0, 1)])
def test_a_gradient_of_some_tensors_alone(wanted: tuple[int, ...]) -> None:
    """Then autograd's engine has nodes compute what leads to these tensors, and no others."""
    fast, outcomes = dovetail.jit(torch.cdist), []
    for run in (torch.cdist, fast, fast):
        leaves = [values(4, 3, seed=i).requires_grad_() for i in range(2)]
        y = run(*leaves)
        outcomes.append(torch.autograd.grad(y, [leaves[i] for i in wanted], torch.ones_like(y)))
        with torch.autograd.detect_anomaly(check_nan=False):
            run(*leaves).sum().backward()
        outcomes[-1] += tuple([leaf.grad for leaf in leaves])
    for got in outcomes[1:]:
        torch.testing.assert_close(got, outcomes[0])
