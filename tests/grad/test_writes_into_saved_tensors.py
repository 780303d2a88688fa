"""Tensors that an operation saves for its backward and the program writes before it: eager mode raises, and so does a compiled program."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import dovetail

OPERATIONS = {
    "saves its result": lambda y, w: y.exp(),
    "saves its operand": lambda y, w: y.sin(),
    "saves both operands": lambda y, w: y * w,
    "saves a view": lambda y, w: y[0] * w[0] + w,
    "saves what it wrote": lambda y, w: (y * 2).sigmoid_(),
    "saves statistics": lambda y, w: F.layer_norm(y, (3,)),
    "saves nothing": lambda y, w: y + w,
}


def without_history(tensor):
    with torch.no_grad():
        tensor.mul_(2)


WRITES = {
    "operand": lambda y, z, w: y.add_(1),
    "result": lambda y, z, w: z.add_(1),
    "part": lambda y, z, w: z[0].zero_(),
    "item": lambda y, z, w: z.__setitem__(0, 2.0),
    "unseen": lambda y, z, w: without_history(z),
    "leaf": lambda y, z, w: without_history(w),
    "all": lambda y, z, w: z.copy_(y.detach()),
}


def outcome(program, inside):
    x = torch.linspace(-1, 1, 9).view(3, 3).requires_grad_()
    w = torch.linspace(0.5, 2, 9).view(3, 3).requires_grad_()
    loss = None
    try:
        loss = program(x, w)
        if not inside:
            loss.backward()
    except RuntimeError as error:
        return str(error)[:60], loss is None
    return loss.detach(), x.grad, w.grad


@pytest.mark.parametrize("inside", [True, False], ids=["backward inside", "backward outside"])
@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_a_write_into_what_is_saved_raises_in_the_backward(operation, inside):
    for write in WRITES.values():

        def program(x, w, write=write):
            y = x * 1.5
            z = operation(y, w)
            write(y, z, w)
            loss = z.sum() + y.sum()
            if inside:
                loss.backward()
            return loss

        expected, compiled = outcome(program, inside), dovetail.jit(program)
        for _ in range(2):
            actual = outcome(compiled, inside)
            assert len(actual) == len(expected)
            if len(expected) == 2:
                assert actual == expected
            else:
                torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("create_graph", [False, True])
def test_only_a_gradient_that_needs_what_was_saved_raises(create_graph):
    def program(x, w):
        a, b = x.exp(), w.tanh()
        a.add_(1)
        return a.sum(), b.sum()

    for run in (program, dovetail.jit(program)):
        x, w = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
        first, second = run(x, w)
        (grad,) = torch.autograd.grad(second, w, create_graph=create_graph)
        torch.testing.assert_close(grad, 1 - torch.tanh(w) ** 2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.grad(first, x, create_graph=create_graph)


def test_equal_operations_of_which_one_is_written_are_told_apart():
    def program(x):
        kept, written = x.exp(), x.exp()
        written.add_(1)
        return kept.sum(), written.sum()

    x = torch.ones(3, requires_grad=True)
    kept, written = dovetail.jit(program)(x)
    torch.testing.assert_close(torch.autograd.grad(kept, x)[0], x.exp())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        written.backward()


def test_a_checkpointed_block_saves_nothing_that_it_writes():
    def block(x):
        y = x.exp()
        y.add_(1)
        return y

    def program(x):
        return checkpoint(block, x, use_reentrant=False).sum()

    x = torch.ones(3, requires_grad=True)
    torch.testing.assert_close(torch.autograd.grad(dovetail.jit(program)(x), x)[0], x.exp())


def test_statistics_that_two_calls_update_are_not_written_as_autograd_counts():
    norm = torch.nn.BatchNorm1d(3)

    def program(x):
        return (norm(x) * norm(x + 1)).square().sum()

    x = torch.randn(4, 3, requires_grad=True)
    torch.testing.assert_close(torch.autograd.grad(dovetail.jit(program)(x), x), torch.autograd.grad(program(x), x))
