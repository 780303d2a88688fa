"""Parameters of derived classes, on which torch computes as on any parameter: what their classes add is read, called and guarded."""

from __future__ import annotations

import copy

import pytest
import torch

import dovetail
from dovetail.errors import Unsupported


class Scaled(torch.nn.Parameter):
    """A parameter with a scale of its own."""

    power = 2

    def __new__(cls, data, requires_grad=True, scale=1.0):
        parameter = torch.Tensor._make_subclass(cls, data, requires_grad)
        parameter.scale = scale
        return parameter

    def __deepcopy__(self, memo):
        return type(self)(self.data.clone(), self.requires_grad, self.scale)

    @property
    def doubled(self):
        return self * 2

    def scaled(self, x):
        return self**self.power * x * self.scale

    @classmethod
    def named(cls):
        return cls.__name__

    def __rsub__(self, other):
        return other + 10 * self.scale


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = Scaled(torch.randn(3), scale=3.0)
        self.bias = torch.nn.Parameter(torch.randn(3))

    def forward(self, x):
        y = self.weight.scaled(x) + self.bias - self.weight.doubled
        return x - self.weight + y, isinstance(self.weight, Scaled), type(self.weight * 2) is torch.Tensor, self.weight.named()


def both():
    torch.manual_seed(0)
    model = Model()
    return model, copy.deepcopy(model)


def test_a_module_with_one_is_trained_as_in_eager_mode():
    eager, ours = both()
    compiled = dovetail.jit(ours)
    for seed in range(4):
        torch.manual_seed(seed)
        x = torch.randn(2, 3)
        (expected, *facts), (result, *compiled_facts) = eager(x), compiled(x)
        torch.testing.assert_close(result, expected)
        assert compiled_facts == facts
        for model, out in ((eager, expected), (ours, result)):
            out.square().sum().backward()
            for p in model.parameters():
                p.data -= 1e-4 * p.grad
                p.grad = None
        torch.testing.assert_close(dict(ours.named_parameters()), dict(eager.named_parameters()))


@pytest.mark.parametrize("change", ["scale", "power", "method"])
def test_what_it_adds_is_guarded(change, monkeypatch):
    eager, ours = both()
    compiled, x = dovetail.jit(ours), torch.ones(2, 3)
    torch.testing.assert_close(compiled(x)[0], eager(x)[0])
    if change == "scale":
        eager.weight.scale = ours.weight.scale = 5.0
    elif change == "power":
        monkeypatch.setattr(Scaled, "power", 3)
    else:
        monkeypatch.setattr(Scaled, "scaled", lambda self, x: self - x)
    torch.testing.assert_close(compiled(x)[0], eager(x)[0])


def test_a_step_that_trains_one_is_one_program():
    eager, ours = both()

    def step(model, optimizer, x):
        optimizer.zero_grad()
        loss = model(x)[0].square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    optimizers = [torch.optim.SGD(model.parameters(), 1e-4, momentum=0.9) for model in (eager, ours)]
    compiled = dovetail.jit(lambda x: step(ours, optimizers[1], x))
    for seed in range(4):
        torch.manual_seed(seed)
        x = torch.randn(2, 3)
        torch.testing.assert_close(compiled(x), step(eager, optimizers[0], x))
    torch.testing.assert_close(dict(ours.named_parameters()), dict(eager.named_parameters()))


def test_one_that_is_an_argument_comes_back_as_it_is():
    weight = Scaled(torch.randn(3), scale=2.0)
    same, product = dovetail.jit(lambda w, x: (w, w.scaled(x)))(weight, torch.ones(3))
    assert same is weight
    torch.testing.assert_close(product, weight.scaled(torch.ones(3)))


def test_one_of_a_class_that_sees_what_torch_computes_is_refused():
    class Seeing(torch.nn.Parameter):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return super().__torch_function__(func, types, args, kwargs or {})

    with pytest.raises(Unsupported, match="a Seeing is not traced"):
        dovetail.jit(lambda w: w * 2)(Seeing(torch.randn(3)))
