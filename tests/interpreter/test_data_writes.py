"""`p.data = value` inside compiled functions, as momentum averages of weights are written."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import dovetail

X = torch.linspace(-1, 2, 6).reshape(2, 3)


class Momentum(nn.Module):
    """An encoder beside one whose weights are a momentum average of its weights, as in MoCo and BYOL."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.query = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
        self.key = copy.deepcopy(self.query).requires_grad_(False)

    @torch.no_grad()
    def update(self) -> None:
        for q, k in zip(self.query.parameters(), self.key.parameters(), strict=True):
            k.data = k.data * 0.9 + q.data * (1.0 - 0.9)

    def forward(self, x):
        self.update()
        with torch.no_grad():
            target = self.key(x)
        return (self.query(x) - target).square().mean()


def test_a_momentum_average_of_weights_trains_as_eager():
    model = Momentum()
    compiled = dovetail.jit(twin := copy.deepcopy(model))
    ours, theirs = (torch.optim.SGD(m.query.parameters(), lr=0.1, momentum=0.9) for m in (twin, model))
    for _ in range(4):
        for forward, optimizer in ((model, theirs), (compiled, ours)):
            optimizer.zero_grad()
            forward(X).backward()
            optimizer.step()
    for name, value in model.state_dict().items():
        torch.testing.assert_close(twin.state_dict()[name], value, msg=name)
    assert compiled.cache_info().misses == 1


def clamped(p, x):
    p.data = p.data.clamp_(0.0)
    return p * x


def swapped_once(p, x):
    new = x * 2
    p.data = new
    p.mul_(3)
    return p + 1


def of_computed(p, x):
    y = p * 2
    y.data = (x + 1).reshape(2, 3)
    return y * p


def step(p, x):
    loss = (p * p * x).sum()
    loss.backward()
    p.data = p.data - 0.1 * p.grad
    return loss.detach()


def created(p, x):
    w = nn.Parameter(torch.ones(3))
    w.data = w.data * 2
    return p * w


def module_moved(p, x):
    layers = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).to(p.device).float()
    for parameter in layers.parameters():
        nn.init.constant_(parameter, 0.5)
    return layers(p)


def module_of_another_dtype(p, x):
    layers = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).double()
    for parameter in layers.parameters():
        nn.init.constant_(parameter, 0.5)
    half = nn.Linear(3, 2)
    nn.init.ones_(half.weight)
    return layers(p.double()), half.to(torch.bfloat16).weight


@pytest.mark.parametrize("fn", [clamped, swapped_once, of_computed, step, created, module_moved, module_of_another_dtype])
def test_values_and_gradients_are_eagers(fn):
    results = []
    for function in (fn, dovetail.jit(fn)):
        p = X.clone().requires_grad_(fn in (of_computed, step))
        out = function(p, X.flip(0).contiguous())
        out, *more = out if isinstance(out, tuple) else (out,)
        if out.requires_grad:
            out.sum().backward()
        results.append((out.detach(), *[each.detach() for each in more], p.detach().clone(), p.grad))
    torch.testing.assert_close(results[1], results[0])


def shared(p, x):
    p.data = x
    return p + 1


def viewed(p, x):
    p[0].data = x[0] + 1
    return p + 1


def of_another_shape(p, x):
    p.data = x.sum(0)
    return p + 1


def old_name_of_created(p, x):
    old = torch.ones(3)
    w = nn.Parameter(old)
    w.data = w.data * 2
    return old * p


def parameter_before_its_dtype(p, x):
    layer = nn.Linear(3, 2)
    weight = layer.weight
    layer.double()
    return p @ weight.T.float()


def part_of_created(p, x):
    part = torch.ones(2, 3)[0]
    part.data = x.sum(0)
    return part * p


def old_view(p, x):
    old = p.data
    p.data = x + 1
    return old + p


def old_view_returned(p, x):
    old = p.view(-1)
    p.data = x + 1
    return old


def value_written(p, x):
    new = x + 1
    p.data = new
    new.add_(1)
    return p * 1


def value_returned(p, x):
    new = x + 1
    p.data = new
    return new


def value_of_two(p, x):
    q, new = x * 3, x + 1
    p.data = new
    q.data = new
    return p + q


SHARING = [
    shared,
    viewed,
    of_another_shape,
    old_name_of_created,
    part_of_created,
    old_view,
    old_view_returned,
    value_written,
    value_returned,
    value_of_two,
]


def old_weights_kept(p, x):
    kept["old"] = p.data.clone()
    p.data = p.data + x
    result = p * 2
    p.data = kept["old"]
    p.mul_(0.5)
    return result


kept = {}


@pytest.mark.parametrize("fn", [*SHARING, old_weights_kept])
def test_calls_whose_memory_would_be_shared_run_in_eager_mode(fn):
    compiled = dovetail.jit(fn)
    for k in range(3):
        ours, eager = X + k, X + k
        expected, old = fn(eager, X * k), kept.pop("old", None)
        result = compiled(ours, X * k)
        assert torch.equal(result, expected) and torch.equal(ours, eager)
        assert (result.data_ptr() == ours.data_ptr()) is (fn is value_returned)
        if old is not None:
            assert torch.equal(kept["old"], old) and kept["old"].data_ptr() == ours.data_ptr()


def test_a_tensor_outside_that_shares_the_memory_is_never_written():
    compiled, p = dovetail.jit(lambda p, x: setattr(p, "data", x + 1)), X.clone()
    compiled(p, X)
    assert torch.equal(p, X + 1)
    view = p[0]
    compiled(p, X * 2)
    assert torch.equal(view, X[0] + 1) and torch.equal(p, X * 2 + 1)
    del view
    compiled(p, X * 3)
    assert torch.equal(p, X * 3 + 1)
