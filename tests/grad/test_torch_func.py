"""torch.func inside compiled functions."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import dovetail
from dovetail.errors import Unsupported


def f(x, y):
    return (x.sin() * y).sum()


def with_aux(x, y):
    h = x.exp() * y
    return h.sum(), h


outside = torch.func.grad(f)

PROGRAMS = {
    "grad": lambda x, y: torch.func.grad(f)(x, y),
    "grad of both": lambda x, y: torch.func.grad(f, argnums=(0, 1))(x, y),
    "grad with aux": lambda x, y: torch.func.grad(with_aux, has_aux=True)(x, y),
    "grad and value": lambda x, y: torch.func.grad_and_value(f)(x, y),
    "grad of grad": lambda x, y: torch.func.grad(lambda x: torch.func.grad(f)(x, y).square().sum())(x),
    "grad made outside": lambda x, y: outside(x, y) * 2,
    "vjp": lambda x, y: torch.func.vjp(lambda x, y: x * y, x, y)[1](x + y),
    "vjp twice": lambda x, y: [g for _, pull in [torch.func.vjp(lambda x: x.sin() * y, x)] for c in (x, y) for g in pull(c)],
    "vjp with aux": lambda x, y: (lambda value, pull, aux: (value, pull(y), aux))(*torch.func.vjp(lambda x: (x.sin(), x * 2), x, has_aux=True)),
    "jacrev": lambda x, y: torch.func.jacrev(lambda x: (x * y).cumsum(0))(x),
    "hessian": lambda x, y: torch.func.hessian(lambda x: (x.exp() * y).sum())(x),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_transform_inside_computes_what_eager_does(name):
    x, y = torch.randn(3), torch.randn(3)
    torch.testing.assert_close(dovetail.jit(PROGRAMS[name])(x, y), PROGRAMS[name](x, y))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)
        self.second = nn.Linear(3, 3)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(self.norm(self.first(x)))


def test_a_functional_call_reads_other_parameters_and_writes_none():
    model, x = Tied().eval(), torch.randn(4, 3)
    values = {name: torch.randn_like(p) for name, p in model.named_parameters()} | {name: b.clone() for name, b in model.named_buffers()}

    def loss(values, x):
        return torch.func.functional_call(model, values, (x,)).square().sum()

    def step(values, x):
        return torch.func.grad(lambda parameters: loss({**values, **parameters}, x))({"first.weight": values["first.weight"]}), model(x)

    before = {name: x.clone() for name, x in model.state_dict().items()}
    want = step({k: v.clone() for k, v in values.items()}, x)
    model.load_state_dict(before)
    torch.testing.assert_close(dovetail.jit(step)(values, x), want)
    assert model.first.weight is model.second.weight and torch.equal(model.first.weight, before["first.weight"])


def test_other_transforms_are_refused():
    with pytest.raises(Unsupported, match=r"transform of torch\.func is not traced"):
        dovetail.jit(lambda x: torch.func.vmap(torch.sin)(x))(torch.randn(2))
    with pytest.raises(Unsupported, match="at most of 64"):
        dovetail.jit(lambda x: torch.func.jacrev(torch.sin)(x))(torch.randn(65))
