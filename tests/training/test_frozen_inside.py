"""requires_grad_(False) and detach_() inside compiled functions, as steps of two networks switch the gradients of one off."""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import dovetail
from dovetail.errors import Unsupported

X = torch.arange(3.0)


def trained(step, generator, critic):
    """Return the losses of four steps, and what they leave of the weights."""
    losses = [step(torch.randn(5, 3), torch.randn(5, 2)) for _ in range(4)]
    return losses, [(p.detach(), p.requires_grad) for p in (*generator.parameters(), *critic.parameters())]


def adversarial_step(compile):
    generator = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 3))
    critic = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    first, second = torch.optim.Adam(generator.parameters(), 1e-2), torch.optim.Adam(critic.parameters(), 1e-2)

    def step(real, z):
        for p in critic.parameters():
            p.requires_grad = False
        first.zero_grad()
        fake = generator(z)
        F.softplus(-critic(fake)).mean().backward()
        first.step()
        for p in critic.parameters():
            p.requires_grad = True
        second.zero_grad()
        loss = (F.softplus(-critic(real)) + F.softplus(critic(fake.detach()))).mean()
        loss.backward()
        second.step()
        return loss.detach()

    return trained(compile(step), generator, critic)


def critic_first(compile):
    generator, critic = nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    first, second = torch.optim.Adam(critic.parameters(), 1e-2), torch.optim.Adam(generator.parameters(), 1e-2)

    def step(real, z):
        critic.requires_grad_(True)
        first.zero_grad()
        (F.softplus(-critic(real)) + F.softplus(critic(generator(z).detach()))).mean().backward()
        first.step()
        critic.requires_grad_(False)  # it has been written already
        second.zero_grad()
        loss = F.softplus(-critic(generator(z))).mean()
        loss.backward()
        second.step()
        return loss.detach()

    return trained(compile(step), generator, critic)


def frozen_by_forward(compile):
    class Tuned(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(3, 3), nn.Linear(3, 2)

        def forward(self, x):
            self.body.requires_grad_(False)
            return self.head(self.body(x))

    model = Tuned()
    compiled, seen = compile(model), []
    for _ in range(3):
        y = compiled(torch.randn(4, 3))
        y.sum().backward()
        seen.append((y.detach(), [(p.requires_grad, None if p.grad is None else p.grad.clone()) for p in model.parameters()]))
    return seen


def read_before_and_after(compile):
    w = nn.Parameter(torch.ones(3))

    def program(x):
        first = (w * x).sum()
        w.requires_grad_(False)
        second, flag = (w * w * x).sum(), w.requires_grad
        w.requires_grad_(True)
        return first + second + (w * 3).sum(), second.requires_grad, flag

    y, *flags = compile(program)(X)
    y.backward()
    return y.detach(), w.grad, flags, w.requires_grad


def left_frozen(compile):
    w, flags = nn.Parameter(torch.ones(3)), []

    def program(x):
        first = (w * x).sum()
        w.requires_grad_(False)
        return first, (w * x).sum()

    compiled = compile(program)
    for _ in range(2):
        first, second = compiled(X)
        flags.append((first.requires_grad, second.requires_grad, w.requires_grad))
        if first.requires_grad:
            first.backward()  # adds nothing to a leaf that requires no gradient now
    return flags, w.grad


def written_while_frozen(compile):
    w = nn.Parameter(torch.ones(3))

    def program(x):
        w.requires_grad_(False)
        w.mul_(2)
        w[0] += x[1]
        w.requires_grad_(True)
        return (w * x).sum()

    compile(program)(X).backward()
    return w.detach(), w.grad, w.requires_grad


def decided(compile):
    w, seen = nn.Parameter(torch.ones(3)), []

    def program(x):
        w.requires_grad_(False)
        y = w * x
        if y.sum() > 0:
            y = y + w
        w.requires_grad_(True)
        return y if y.sum() > 100 else y * w

    compiled = compile(program)
    for k in (1.0, -1.0, 50.0, 2.0):
        w.grad, y = None, compiled(X * k)
        if y.requires_grad:
            y.sum().backward()
        seen.append((y.detach(), y.requires_grad, w.requires_grad, w.grad))
    return seen


def backward_while_frozen(compile):
    w = nn.Parameter(torch.ones(3))

    def program(x):
        loss = (w * x).sum()
        w.requires_grad_(False)
        loss.backward()
        w.requires_grad_(True)
        return (w * x).sum()

    y = compile(program)(X)
    return w.grad, y.requires_grad


def functions_inside(compile):
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a * b

        @staticmethod
        def backward(ctx, g):
            a, _ = ctx.saved_tensors
            assert ctx.needs_input_grad == (False, True)
            return None, g * a

    w, v = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))

    def program(x):
        w.requires_grad_(False)
        y = Product.apply(w, v) + torch.func.grad(lambda t: (t * w).square().sum())(x) + checkpoint(lambda t: (t * w).sin(), x, use_reentrant=False)
        w.requires_grad_(True)
        return y.sum() + w.sum()

    x = X.clone().requires_grad_()
    compile(program)(x).backward()
    return w.grad, v.grad, x.grad


def optimised(compile):
    a, b, seen = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3)), []
    optimizer = torch.optim.SGD([a, b], 0.1, momentum=0.9)

    def step(x, frozen):
        a.requires_grad_(not frozen)
        optimizer.zero_grad()
        loss = (a * b * x).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled = compile(step)
    for frozen in (False, True, True, False):
        seen.append((compiled(torch.ones(3), frozen), a.detach().clone(), b.detach().clone(), a.requires_grad))
    return seen


def created(compile):
    def program(x):
        y = x.detach() * 2
        y.requires_grad_()
        first = (y * x).sum()
        y.requires_grad_(False)
        return y, first, (y * y).sum()

    x = torch.ones(3, requires_grad=True)
    y, first, second = compile(program)(x)
    first.backward()
    return y.requires_grad, y.grad, second.requires_grad, x.grad


def states_cut(compile):
    def program(x):
        h, outputs = torch.zeros(4), []
        for row in x:
            h = torch.tanh(h + row)
            h.detach_()
            h = h * row
            outputs.append(h)
        return torch.stack(outputs), h

    x = torch.arange(12.0).view(3, 4).div(7).requires_grad_()
    outputs, _ = compile(program)(x)
    outputs.sum().backward()
    return outputs.detach(), x.grad


def written_after_a_cut(compile):
    def program(x):
        h = x * 2
        h.detach_()
        flag = h.requires_grad
        h.add_(x)
        return h, flag, h.requires_grad, h.is_leaf

    x = torch.ones(3, requires_grad=True)
    h, *flags = compile(program)(x)
    h.sum().backward()
    return h.detach(), x.grad, flags


def cut_and_returned(compile):
    def program(x):
        h = x * 2
        g = h * 3
        h.detach_()
        return h, g, h + x

    x = torch.ones(3, requires_grad=True)
    h, *others = compile(program)(x)
    sum(each.sum() for each in others).backward()
    return h.requires_grad, h.detach(), x.grad


def cut_by_a_decision(compile):
    seen = []

    def program(x):
        h = x * 2
        h.detach_()
        if h.sum() > 0:
            h.add_(x)
        return h * x

    compiled = compile(program)
    for k in (1.0, -1.0, 0.5):
        x = torch.full((3,), k, requires_grad=True)
        y = compiled(x)
        y.sum().backward()
        seen.append((y.detach(), x.grad))
    return seen


PROGRAMS = [
    *(adversarial_step, critic_first, frozen_by_forward, read_before_and_after, left_frozen, written_while_frozen, decided),
    *(backward_while_frozen, functions_inside, optimised, created),
    *(states_cut, written_after_a_cut, cut_and_returned, cut_by_a_decision),
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_gradients_and_flags_are_those_of_eager_mode(program):
    torch.manual_seed(0)
    expected = program(lambda fn: fn)
    torch.manual_seed(0)
    torch.testing.assert_close(program(dovetail.jit), expected)


PARTS = ("freeze", "thaw", "train", "train", "descend", "differentiate the input", "decide", "write a view", "write frozen", "differentiate twice")


def drawn(seed):
    """Return a program that freezes three leaves, trains and writes them in a random order."""
    rng = random.Random(seed)
    parts = [(rng.choice(PARTS), rng.randrange(3), rng.randrange(3)) for _ in range(rng.randint(4, 10))]

    def program(compile):
        leaves, seen = [torch.randn(3, requires_grad=True) for _ in range(3)], []

        def step(x, frozen):
            results = []
            for p in leaves:
                p.grad = None
                p.requires_grad_(True)
            for part, i, j in parts:
                a, b, z = leaves[i], leaves[j], x.clone().requires_grad_()
                if part in ("freeze", "thaw"):
                    a.requires_grad_(part == "thaw")
                elif part == "train" and (a.requires_grad or b.requires_grad):
                    (a * b * x).sin().sum().backward()
                elif part == "descend" and a.grad is not None:
                    with torch.no_grad():
                        a.sub_(a.grad, alpha=0.1)
                elif part == "differentiate the input":
                    (z * a * b).sum().backward()
                    results.append(z.grad)
                elif part == "decide":
                    results.append(b.detach() * 2 if a.detach().sum() > 0 else b.detach() + 1)
                elif part == "write a view":
                    with torch.no_grad():
                        a[:2] = b[1:] * 2
                elif part == "write frozen" and not a.requires_grad:
                    a.mul_(0.5)
                elif part == "differentiate twice":
                    (g,) = torch.autograd.grad(((z * a).tanh() * b).sum(), z, create_graph=True)
                    g.square().sum().backward()
                    results.append(z.grad)
            leaves[0].requires_grad_(not frozen)
            return results

        compiled = compile(step)
        for k in range(4):
            results = compiled(torch.randn(3), k % 2 == 1)
            seen.append((results, [(p.detach().clone(), p.requires_grad, None if p.grad is None else p.grad.clone()) for p in leaves]))
        return seen

    return program


@pytest.mark.filterwarnings("ignore:.*calls run eagerly where autograd cannot go back")
@pytest.mark.parametrize("seed", range(30))
def test_leaves_frozen_trained_and_written_in_any_order(seed):
    torch.manual_seed(seed)
    expected = drawn(seed)(lambda fn: fn)
    torch.manual_seed(seed)
    torch.testing.assert_close(drawn(seed)(dovetail.jit), expected)


def written_with_history(x, w):
    w.requires_grad_(False)
    w.copy_(x * 2)
    return w * 1


def leaf_after_a_cut(x, w):
    h = x * 2
    h.detach_()
    return h.requires_grad_() * w


def outside_cut(x, w):
    return x.detach_() * w


@pytest.mark.parametrize("program", [written_with_history, leaf_after_a_cut, outside_cut])
def test_what_is_not_traced_names_a_way_out(program):
    x, w = torch.ones(3, requires_grad=True), nn.Parameter(torch.ones(3))
    with pytest.raises(Unsupported, match=r"not traced; (write|call)"):
        dovetail.jit(program)(x, w)
    assert torch.equal(w, torch.ones(3)) and w.requires_grad and x.requires_grad


def test_no_leaf_is_frozen_that_is_none():
    x, w = torch.ones(3, requires_grad=True), nn.Parameter(torch.ones(3))

    def computed(x):
        return (x * 2).requires_grad_(False)

    def of_frozen(x):
        loss = (w * x).sum()
        w.requires_grad_(False)
        return torch.autograd.grad(loss, w)

    for program, argument in ((computed, x), (lambda x: x.requires_grad_(False), x * 2), (of_frozen, x)):
        with pytest.raises(RuntimeError, match=r"leaf variables|does not require grad"):
            dovetail.jit(program)(argument)
    assert x.requires_grad
