"""Backwards of the results of one call, one after another: what eager mode computes or raises, and what each of them keeps."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dovetail


def trunk(use):
    return lambda x, y: use(x.exp(), y)


PROGRAMS = {
    "apart": lambda x, y: ((x * x).sum(), (y * y).sum(), x.sin()),
    "of one leaf": lambda x, y: ((x * x).sum(), (x * y).sum(), x.sin().sum()),
    "saved results": lambda x, y: (x.exp(), y.exp(), x.sigmoid()),
    "a trunk": trunk(lambda h, y: ((h * 2).sum(), (h * y).sum(), y.sin().sum())),
    "a trunk that saves nothing": lambda x, y: (lambda h: ((h * h).sum(), h.sin(), y.square()))(x + y),
    "two of three": trunk(lambda h, y: ((h * h).sum(), (h * y.detach()).sum(), y.cos())),
    "a matrix product": lambda x, y: (x[None] @ y[:, None], x.outer(y), x / y),
    "a decision": lambda x, y: ((x * x).sum(), (y * y).sum() if y.sum() > -99 else y.sum(), x.sin()),
}
PLANS = (  # which results have a backward one after another: with r the graph is retained
    *("a b", "b a", "a a", "a b b", "a b a", "a ab", "ab c", "c ab", "a b c", "c b a", "ac b", "abc a"),
    *("ar b", "ar a a", "ar br a b", "ar b a", "abr c ab"),
)


def backwards(program, plan, call):
    """Return what three calls leave: gradients after each backward, or the kind of error it raises, and which results are let go of."""
    x, y = (torch.randn(5, generator=torch.Generator().manual_seed(i)).requires_grad_() for i in (1, 2))
    happened = []
    for _ in range(3):
        results = dict(zip("abc", call(x, y)))
        for step in plan.split():
            wanted = [results[name] for name in step if name in results]
            try:
                torch.autograd.backward(wanted, [torch.ones_like(r) for r in wanted], retain_graph="r" in step)
            except RuntimeError as error:
                assert "a second time" in str(error)
                happened.append("raises")
                break  # eager mode has accumulated some gradients before
            happened += [None if leaf.grad is None else leaf.grad.clone() for leaf in (x, y)]
        refs = [weakref.ref(r) for r in results.values()]
        del results, wanted
        gc.collect()
        happened.append([ref() is None for ref in refs])
        x.grad = y.grad = None
    return happened


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_backwards_one_after_another_are_those_of_eager_mode(program, plan):
    got, want = (backwards(PROGRAMS[program], plan, call) for call in (dovetail.jit(PROGRAMS[program]), PROGRAMS[program]))
    for one, other in zip(got, want, strict=True):
        assert one == other if not isinstance(other, torch.Tensor) else torch.allclose(one, other, atol=1e-6)


def test_critics_with_an_optimizer_each_learn_as_in_eager_mode():
    class Twins(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other = (nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)) for _ in range(2))

        def forward(self, x):
            return self.one(x), self.other(x)

    learned = []
    for jit in (lambda module: module, dovetail.jit):
        torch.manual_seed(0)
        twins = Twins()
        call, optimizers = jit(twins), [torch.optim.Adam(part.parameters()) for part in (twins.one, twins.other)]
        for _ in range(4):
            x, target = torch.randn(6, 4), torch.randn(6, 1)
            losses = [F.mse_loss(value, target) for value in call(x)]
            for loss, optimizer in zip(losses, optimizers):
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        learned.append([p.detach() for p in twins.parameters()])
    torch.testing.assert_close(learned[1], learned[0])


def test_what_is_written_between_two_backwards_raises():
    x, y = (torch.ones(3, requires_grad=True) for _ in range(2))
    a, b = dovetail.jit(lambda x, y: ((x * x).sum(), (y * y).sum()))(x, y)
    a.backward()
    with torch.no_grad():
        y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        b.backward()


def test_results_of_one_graph_keep_nothing_for_each_other():
    x = torch.ones(3, requires_grad=True)
    loss, logits = dovetail.jit(trunk(lambda hidden, x: ((hidden * hidden).sum(), hidden.sin())))(x, x)
    loss.backward()
    assert logits.grad_fn is loss.grad_fn and logits.grad_fn.kept is None
