"""Large results of products: written into memory from the pool, and otherwise what eager gives."""

from __future__ import annotations

import pickle

import pytest
import torch

import dovetail
from dovetail.extend import OperatorExecutor
from dovetail.extend.advanced import POOL, ExecutorError

F = torch.nn.functional
N = 4096  # columns; 2048 rows of them in float32 are 32 MiB
X, W, B = torch.randn(2, 1024, 3), torch.randn(N, 3), torch.randn(N)
PRODUCTS = {
    "linear": lambda x: F.linear(x, W, B),
    "linear without bias": lambda x: F.linear(x, W),
    "rows by a matrix": lambda x: x @ W.t(),
    "matrices": lambda x: x[0].repeat(2, 1) @ W.t(),
    "columns left out": lambda x: F.linear(torch.cat((x, x), -1)[..., :3], W, B),
    "a batch of one": lambda x: F.linear(x.reshape(1, 2048, 3).as_strided((1, 2048, 3), (5, 3, 1)), W, B),
    "batches": lambda x: x @ W.t().expand(2, 3, N),
}


def lines(fn):
    return [line.implementation.name for line in dovetail.last_traces(fn)[-1].lines if line.implementation]


@pytest.mark.parametrize("name", PRODUCTS)
def test_large_products_are_eagers(name):
    fn = PRODUCTS[name]
    ours, want = dovetail.jit(lambda x: fn(x), executors=["torch"]), fn(X)
    for _ in range(2):
        got = ours(X)
        assert torch.equal(got, want) and got.stride() == want.stride() and not got._is_view()
    assert lines(ours)[-1].endswith("_large")


def test_memory_is_used_again_when_the_result_is_gone_and_not_before():
    POOL.clear()
    ours = dovetail.jit(PRODUCTS["linear"], executors=["torch"])
    first = ours(X)
    second = ours(X)
    addresses = {first.data_ptr(), second.data_ptr()}
    assert len(addresses) == 2 and torch.equal(first, second)
    del first, second
    assert ours(X).data_ptr() in addresses


def test_small_products_are_pytorchs_own_functions():
    ours = dovetail.jit(lambda x: F.linear(x[:, :1000], W, B), executors=["torch"])
    ours(X)
    assert "torch.nn.functional.linear(" in dovetail.last_traces(ours)[-1].python()


def test_a_training_step_is_eagers():
    w = W.clone().requires_grad_()
    ours = dovetail.jit(lambda x, w: F.linear(x, w, B).sin(), executors=["torch"])
    for fn in (ours, lambda x, w: F.linear(x, w, B).sin()):
        fn(X, w).sum().backward()
        if fn is ours:
            got, w.grad = w.grad, None
    torch.testing.assert_close(got, w.grad)
    assert any(name.endswith("_large") for name in lines(ours))


def test_the_program_can_be_pickled():
    ours = dovetail.jit(lambda x, w, b: F.linear(x, w, b), executors=["torch"])
    want = ours(X, W, B)
    read = pickle.loads(pickle.dumps(dovetail.last_traces(ours)[-1]))
    assert torch.equal(dovetail.extend.advanced.to_callable(read)(X, W, B), want)


def test_an_executor_places_a_variant_by_the_specs_of_a_line():
    class TwoWays(OperatorExecutor):
        def choose_variant(self, implementation, line):
            return self.own("sin_long") if line.writes[0].spec.numel > 8 else implementation

    ex = TwoWays("two_ways")
    ex.implements(torch.sin, lambda input: torch.sin(input))
    ex.add_variant("sin_long", lambda input: torch.sin(input) + 0)
    ours = dovetail.jit(lambda x: (torch.sin(x), torch.sin(x[:3])), executors=[ex])
    ours(torch.randn(16))
    assert [name for name in lines(ours) if name.startswith("sin")] == ["sin_long", "sin"]
    with pytest.raises(ExecutorError, match="two_ways has an implementation called sin_long already; give the variant another name"):
        ex.add_variant("sin_long", torch.sin)
