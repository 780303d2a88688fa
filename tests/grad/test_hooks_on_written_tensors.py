"""Hooks on gradients, and retain_grad(), of tensors that are written in place: a hook sees the gradient of what the tensor held before."""

from __future__ import annotations

import warnings

import pytest
import torch

import dovetail


def before_a_write(x, seen):
    y = x * 2
    y.register_hook(lambda g: seen.append(g.clone()))
    y.mul_(3)
    y.sum().backward()


def between_writes(x, seen):
    y = x * 2
    y.mul_(3)
    y.register_hook(lambda g: seen.append(g.clone()))
    y.register_hook(lambda g: g * 10)
    y.mul_(x.detach())
    y.register_hook(lambda g: seen.append(g.clone()))
    y.sum().backward()


def before_an_activation(x, seen):
    y = x.sin()
    handle = y.register_hook(lambda g: seen.append(g.clone()))
    y = torch.relu_(y)
    y.sum().backward(retain_graph=True)
    (y * 2).sum().backward(retain_graph=True)
    handle.remove()
    (y * 4).sum().backward()


def summed_losses(x, seen):
    loss = x.sum()
    loss.register_hook(lambda g: g * 5)
    loss.register_hook(lambda g: seen.append(g.clone()))
    loss += x.square().sum()
    loss *= 2
    torch.autograd.backward(loss)


def retained(x, seen):
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda g: seen.append(g.clone()))
    y.mul_(3)
    y[0] = 1
    y.sum().backward()
    seen.append(y.grad)


def written_without_grad(x, seen):
    y = x * 2
    y.register_hook(lambda g: seen.append(g.clone()))
    with torch.no_grad():
        y.mul_(3)
    (y * 2).sum().backward()


def part_written(x, seen):
    y = x * 2
    y.register_hook(lambda g: seen.append(g.clone()))
    y[0] = y[1] * 3
    v = y[1]
    v.mul_(5)
    y.sum().backward()


def view_before(x, seen):
    y = x * 2
    v = y[0]
    v.register_hook(lambda g: seen.append(g.clone()))
    v.mul_(3)
    (y.sum() + 2 * v.sum()).backward()


def view_between(x, seen):
    y = x * 2
    v = y[0]
    v.mul_(3)
    v.register_hook(lambda g: g * 10)
    y.mul_(5)
    (y.sum() + 2 * v.sum()).backward()


def view_retained(x, seen):
    y = x * 2
    v = y[0]
    v.mul_(3)
    v.retain_grad()
    (y.sum() + 2 * v.sum()).backward()
    seen.append(v.grad)


def base_between(x, seen):
    y = x * 2
    v = y[0]
    v.mul_(3)
    y.register_hook(lambda g: seen.append(g.clone()))
    v.mul_(5)
    y.sum().backward()


def view_after_a_write(x, seen):
    y = x * 2
    y.mul_(3)
    v = y.view(-1)
    v.register_hook(lambda g: seen.append(g.clone()))
    v.square().sum().backward()


TRACED = [before_a_write, between_writes, before_an_activation, summed_losses, retained, written_without_grad, part_written]
IN_EAGER_MODE = [view_before, view_between, view_retained, base_between, view_after_a_write]


@pytest.mark.parametrize("program", TRACED + IN_EAGER_MODE)
def test_hooks_and_retained_gradients(program):
    fast = dovetail.jit(program)
    for _ in range(3):
        x = torch.randn(2, 3)
        gradients = []
        for call in (fast, program):
            leaf, seen = x.clone().requires_grad_(), []
            with warnings.catch_warnings():
                warnings.simplefilter("error" if program in TRACED else "ignore")
                call(leaf, seen)
            gradients.append([leaf.grad, *seen])
        torch.testing.assert_close(*gradients)
        assert [g.stride() for g in gradients[0]] == [g.stride() for g in gradients[1]]
