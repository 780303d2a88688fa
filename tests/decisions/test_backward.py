"""backward() and torch.autograd.grad after a decision: eager autograd goes back through the segments that have run."""

from __future__ import annotations

import copy
import runpy
import warnings

import pytest
import torch
from decisions.helpers import agrees, compiled, graph_of
from decisions.random_programs import difference
from torch import nn

import dovetail

INPUTS = [torch.linspace(-1, 1, 8).view(2, 4) * scale for scale in (1.0, 3.0, -2.0, 5.0, 0.3, 0.3, 4.0)]


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))


def halved(model, x):
    loss = model(x).square().mean()
    if loss > 0.1:
        loss = loss * 0.5
    loss.backward()
    return loss.detach()


def skipped(model, x):
    loss = model(x).square().mean()
    if not torch.isfinite(loss) or loss > 0.3:
        return None
    loss.backward()
    return loss.detach()


def optimized(model, x):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loss = model(x).square().mean()
    if loss.item() > 1:
        loss = loss / loss.detach()
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
    optimizer.step()
    return norm


def accumulated(model, x):
    total = 0.0
    for i in range(3):
        loss = model(x * (i + 1)).square().mean()
        if loss > 0.5:
            continue
        loss.backward()
        total += loss.item()
    return total


def differentiated(model, x):
    loss = model(x).square().mean()
    if loss > 0.1:
        loss = loss.sqrt()
    loss.backward(retain_graph=True)
    return [2 * g for g in torch.autograd.grad(loss, list(model.parameters()))]


def penalized(model, x):
    y = model(x).sum()
    if y > 0:
        y = y * y
    penalty = sum(g.square().sum() for g in torch.autograd.grad(y, list(model.parameters()), create_graph=True))
    penalty.backward()
    return penalty.detach()


def unused(model, x):
    out = model[0](x)
    loss = out.sum() if out.sum() > 0 else model[2](out).sum()
    loss.backward()
    return loss.detach(), out.detach()


def shared(model, x):
    a, b = model[0].bias, model[2].weight.view(-1)
    loss = (a + b).sum()
    if x.sum() > 0:
        loss = loss * 1
    loss.backward()
    a.grad.mul_(2)  # the gradients of both are one tensor in the backward
    return loss.detach()


def masked(model, x):
    out = model(x).view(-1)
    loss = out[out > out.mean()].square().sum()
    loss.backward()
    return loss.detach()


def descending(model, x):
    optimizer, steps = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5), torch.tensor(0)
    while True:
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps = steps + 1
        if loss < 0.05 or steps > 5:
            return loss.detach(), steps


def updated(model, x):
    for _ in range(6):
        loss = model(x).square().mean()
        if loss < 0.05:
            break
        grads = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for p, g in zip(model.parameters(), grads, strict=True):
                p.sub_(g * 0.1)
    return loss.detach()


PROGRAMS = [halved, skipped, optimized, accumulated, differentiated, penalized, unused, shared, masked, descending, updated]


@pytest.mark.parametrize("program", PROGRAMS)
def test_12_a_backward_after_a_decision(program):
    fn, model = compiled(program), network()
    for x in INPUTS:
        theirs, ours = copy.deepcopy(model), copy.deepcopy(model)
        expected, result = program(theirs, x), fn(ours, x)
        torch.testing.assert_close(result, expected)
        torch.testing.assert_close([*ours.parameters()], [*theirs.parameters()])
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad)
    assert graph_of(fn).eager_calls == 0


def test_12_a_loop_of_steps_closes():
    fn, model = compiled(descending), network()
    for x in INPUTS:
        fn(copy.deepcopy(model), x)
    assert len(graph_of(fn).decisions) <= 6


def test_12_the_graph_of_a_loss_is_freed_as_in_eager_mode():
    def step(w, x):
        loss = (w * x).sin().sum()
        if loss > 0:
            loss.backward()
        return loss

    fn, w = compiled(step), torch.ones(3, requires_grad=True)
    for _ in range(2):
        loss = fn(w, torch.ones(3))
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            loss.backward()
    fn(w, -torch.ones(3)).backward()


def test_12_what_is_returned_keeps_what_it_saved_of_a_parameter_that_is_written():
    def step(w, x):
        y = (w * w * x).sum()
        if y > 0:
            y.backward(retain_graph=True)
        with torch.no_grad():
            w.sub_(0.1 * w.grad)
        return y

    fn, gradients = compiled(step), []
    for _ in range(3):
        w = torch.ones(3, requires_grad=True)
        y = fn(w, torch.ones(3))
        torch.testing.assert_close(w.detach(), torch.full((3,), 0.8))
        try:
            gradients += torch.autograd.grad(y, w)
        except RuntimeError:  # a call in eager mode, which overwrites what it saved
            continue
    assert len(gradients) >= 2 and all([torch.equal(g, torch.full((3,), 2.0)) for g in gradients])


def learned(x):
    w = torch.zeros(4, requires_grad=True)
    for _ in range(8):
        loss = (w - x).square().sum()
        if loss < 0.5:
            break
        (g,) = torch.autograd.grad(loss, w)
        w = (w - 0.3 * g).detach().requires_grad_()
    return w.detach()


def attacked(x):
    moved = x.detach().requires_grad_()
    loss = moved.sin().sum()
    if loss > 0:
        loss = loss * 3
    loss.backward()
    x.add_(0.1 * moved.grad.sign())
    return moved.grad


def weighted(x):
    w, b = nn.Parameter(torch.ones(4)), torch.ones(4, requires_grad=True)
    loss = (w * x + b).square().sum()
    if loss > 3:
        loss = loss * w.sum()
    loss.backward(retain_graph=True)
    if w.grad.norm() > 20:
        loss.backward()
    return w.grad, b.grad, b * x if x[0] > 0 else None


def written(x):
    w = torch.zeros(4, requires_grad=True)
    for _ in range(2):
        (g,) = torch.autograd.grad((w - x).square().sum(), w)
        with torch.no_grad():
            w -= 0.3 * g
    return w.detach() * 2 if w.sum() > 0 else w.detach()


def cleared(x):
    w = torch.ones(4, requires_grad=True)
    if x.sum() > 0:
        w.grad = x * 2
    (w * w * x).sum().backward()
    g = w.grad
    if g[0] > 0:
        w.grad = None
    (w * x).sum().backward()
    return g, w.grad


@pytest.mark.parametrize("program", [learned, attacked, weighted, written, cleared])
def test_12_leaves_that_the_program_creates(program):
    fn = compiled(program)
    for x in INPUTS:
        agrees(fn, program, x[0])
    assert graph_of(fn).eager_calls == 0


def test_12_hooks_on_the_way_are_run_by_eager_mode():
    def hooked(w, x):
        y = w * x
        if y.sum() > 0:
            y = y * 2
        y.register_hook(lambda g: g * 3)
        y.sum().backward()
        return y.detach()

    fn = compiled(hooked)
    for _ in range(2):
        ours, theirs = (torch.ones(3, requires_grad=True) for _ in range(2))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fn(ours, torch.ones(3))
        hooked(theirs, torch.ones(3))
        torch.testing.assert_close(ours.grad, theirs.grad)
    assert graph_of(fn).eager_calls == 2


def test_12_hooks_of_leaves_are_traced_behind_a_decision():
    def step(w, b, x, seen):
        loss = ((x * w + b) ** 2).sum()
        if loss > 1e6:
            return None
        loss.backward()
        if w.grad.sum() > 3:
            (loss,) = torch.autograd.grad((x * w).sum(), w)
        seen.append(w.grad.norm())
        return loss.detach()

    def leaves(calls):
        w, b = (torch.full((3,), value, requires_grad=True) for value in (0.5, 0.25))
        w.register_hook(lambda g: (calls.append("first"), g * 3)[1])
        w.register_hook(lambda g: calls.append("second") or g.clamp(max=20))

        def double(p):
            p.grad.mul_(2)

        b.register_post_accumulate_grad_hook(double)
        return w, b

    fn, calls, seen = compiled(step), ([], []), ([], [])
    ours, theirs = leaves(calls[0]), leaves(calls[1])
    for value in (1.0, 0.1, 2.0, -0.5):
        x = torch.tensor([value, 1.0, 3.0])
        torch.testing.assert_close(fn(*ours, x, seen[0]), step(*theirs, x, seen[1]))
        for mine, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine.grad, other.grad)
    torch.testing.assert_close(seen[0], seen[1])
    assert calls[0] == calls[1] and len(calls[0]) > 8
    assert graph_of(fn).eager_calls == 0
    (ours[0] * 2).sum().backward()
    (theirs[0] * 2).sum().backward()
    torch.testing.assert_close(ours[0].grad, theirs[0].grad)  # a backward() outside runs them again


def test_12_hooks_of_leaves_stay_in_place_while_gradients_are_computed(monkeypatch, tmp_path):
    w, calls, tables, differentiate = torch.full((3,), 0.5, requires_grad=True), [], [], torch.autograd.grad
    w.register_hook(lambda g: g * 3)

    def watched(*args, **kwargs):
        tables.append(len(w._backward_hooks))  # as another thread would find it
        return differentiate(*args, **kwargs)

    def step(w, x):
        loss = (x * w).square().sum()
        if loss > 0:
            loss.backward()
        return loss.detach(), (x * w).sum()

    fn, x = compiled(step), torch.arange(3.0)
    for _ in range(3):
        w.grad = None
        with monkeypatch.context() as patched:
            patched.setattr(torch.autograd, "grad", watched)
            outer = fn(w, x)[1]
        torch.testing.assert_close(w.grad, 6 * w.detach() * x * x)
        outer.backward()  # which runs the hook itself
        torch.testing.assert_close(w.grad, 6 * w.detach() * x * x + 3 * x)
        calls.append(len(tables))
    assert set(tables) == {1} and calls[-1] >= 3 and graph_of(fn).eager_calls == 0
    w.grad = None
    fn(w, x)

    path = tmp_path / "step.py"
    dovetail.last_driver(fn).save(path)
    namespace = runpy.run_path(str(path))
    w.grad = None
    namespace["step"](w, x)
    torch.testing.assert_close(w.grad, 6 * w.detach() * x * x)


def test_12_a_graph_that_a_backward_before_the_decision_has_freed():
    def step(w, x):
        y = x + w
        (first,) = torch.autograd.grad(y.sin().sum(), w)
        y = y + first
        if x.sum() > 0:
            y = y * 2
        return torch.autograd.grad(y.sum(), w)  # the sum saves nothing, so eager mode can go back through it again

    fn = compiled(step)
    for value in (1.0, -1.0, 2.0):
        args = torch.ones(3, requires_grad=True), torch.full((3,), value)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*calls run eagerly")
            torch.testing.assert_close(fn(*args), step(*args))


def test_32_random_programs_that_differentiate():
    for seed in (*range(12), 8216):  # 8216 writes what a freed graph has computed
        assert (text := difference(seed, False, backward=True)) is None, text


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100, 400, 100))
def test_32_many_random_programs_that_differentiate(first):
    for seed in range(first, first + 100):
        assert (text := difference(seed, False, backward=True)) is None, text
