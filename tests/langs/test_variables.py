"""torch.autograd.Variable, which older programs wrap their tensors in."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import Variable
from torch.nn import Parameter

import dovetail

X = torch.arange(1.0, 7.0).view(2, 3)


def written(x):
    y = Variable(x * 1)
    y.add_(1)
    return y, x * y


def argument_written(x):
    Variable(x).mul_(2)
    return x + 1


def trained(x):
    state = Variable(torch.zeros(3), requires_grad=True)
    loss = ((x + state) ** 2).sum()
    loss.backward()
    return loss.detach(), state.grad


PROGRAMS = {
    "data": lambda x: Variable(x) + Variable(data=x),
    "nothing": lambda x: Variable(),
    "created": lambda x: x + Variable(torch.zeros(3).float()),
    "by position": lambda x: Variable(torch.ones(2, 3), True) * x,
    "volatile": lambda x: Variable(x, False, True) * x,
    "without history": lambda x: (Variable(x * 2) * x, Variable(x * 2, requires_grad=True) * x),
    "written": written,
    "argument written": argument_written,
    "trained": trained,
    "classes": lambda x: (
        [isinstance(each, Variable) for each in (x, Variable(x), Parameter(x.detach()), [x], 3)],
        isinstance(x, (int, Variable)),
        issubclass(type(x), Variable),
        type(Variable(x)) is torch.Tensor,
    ),
}


@pytest.mark.filterwarnings("ignore:volatile was removed")
@pytest.mark.parametrize("needs_grad", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_variables_are_tensors(name, needs_grad):
    if name == "argument written":
        needs_grad = False
    x, y = X.clone().requires_grad_(needs_grad), X.clone().requires_grad_(needs_grad)
    want, got = PROGRAMS[name](x), dovetail.jit(PROGRAMS[name])(y)
    torch.testing.assert_close(got, want, rtol=0, atol=0)
    torch.testing.assert_close(y, x, rtol=0, atol=0)
    results = [(a, b) for a, b in zip(torch.utils._pytree.tree_leaves(got), torch.utils._pytree.tree_leaves(want)) if isinstance(b, torch.Tensor)]
    for a, b in results:
        assert a.requires_grad == b.requires_grad
        if b.requires_grad and needs_grad:
            b.sum().backward(retain_graph=True)
            a.sum().backward(retain_graph=True)
            torch.testing.assert_close(y.grad, x.grad, rtol=0, atol=0)


@pytest.mark.parametrize("bad", [lambda x: Variable(3), lambda x: Variable(x.long(), requires_grad=True), lambda x: Variable([x])])
def test_errors_are_of_eagers_type(bad):
    with pytest.raises(Exception) as want:
        bad(X)
    with pytest.raises(want.type):
        dovetail.jit(bad)(X)
