"""torch.func inside compiled functions."""

from __future__ import annotations

import copy
from functools import partial

import functorch
import pytest
import torch
from torch import nn
from torch.autograd import functional
from torch.func import functional_call

import dovetail
from dovetail.errors import Unsupported


def f(x, y):
    return (x.sin() * y).sum()


def with_aux(x, y):
    h = x.exp() * y
    return h.sum(), h


outside = torch.func.grad(f)

FUNCTIONAL = [functional.jacobian, functional.hessian, partial(functional.jacobian, vectorize=True), partial(functional.hessian, vectorize=True)]


def gradients_of_batch(x, y):
    x, w = x.detach().requires_grad_(), torch.ones(3, requires_grad=True)
    units = torch.zeros(2, 3)
    units.diagonal().fill_(1)
    return torch.autograd.grad(x.sin() * w, [x, w], units, is_grads_batched=True)


OUTSIDE = [torch.func.vmap(torch.sin), torch.func.jacrev(torch.sin), torch.func.jacfwd(torch.sin), torch.func.hessian(lambda x: f(x, x))]

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
    "a pull that is differentiated": lambda x, y: torch.func.grad(lambda u: (torch.func.vjp(lambda x: x.sin() * x, x)[1](u)[0] ** 2).sum())(y),
    "a pull inside another function": lambda x, y: (lambda pull: torch.func.grad(lambda u: pull(u)[0].prod())(y))(torch.func.vjp(torch.sin, x)[1]),
    "jacrev": lambda x, y: torch.func.jacrev(lambda x: (x * y).cumsum(0))(x),
    "jacrev of nests": lambda x, y: torch.func.jacrev(lambda x, y: {"a": x.sin() * y[1], "b": y.sum()}, argnums=(0, 1))(x, y),
    "jacrev with aux": lambda x, y: torch.func.jacrev(lambda x: (x.sin(), x * y), has_aux=True)(x),
    "jacrev in chunks": lambda x, y: [torch.func.jacrev(lambda x: x * y.sin(), chunk_size=n)(x) for n in (1, 2)],
    "jacfwd": lambda x, y: torch.func.jacfwd(lambda x, y: (torch.outer(x, y), y.sum()), argnums=(1, 0))(x, y),
    "jacfwd with aux": lambda x, y: torch.func.jacfwd(lambda x: (x.sin(), x * y), has_aux=True)(x),
    "hessian": lambda x, y: torch.func.hessian(lambda x: (x.exp() * y).sum())(x),
    "jvp": lambda x, y: torch.func.jvp(lambda x, y: (x.softmax(0) * y, y.var()), (x, y), (y, x)),
    "jvp of rules that leave out cotangents of 0": lambda x, y: torch.func.jvp(lambda x, y: torch.xlogy(x, y.exp()) + x**2, (x, y), (y, x)),
    "jvp with aux": lambda x, y: torch.func.jvp(lambda x: (x.prod(), x * y), (x,), (y,), has_aux=True),
    "jvp of jvp": lambda x, y: torch.func.jvp(lambda x: torch.func.jvp(lambda z: z.exp() * x, (x,), (y,))[1], (x,), (y,)),
    "jvp of grad": lambda x, y: torch.func.jvp(torch.func.grad(lambda x: f(x, x * y)), (x,), (y,)),
    "grad of jvp": lambda x, y: torch.func.grad(lambda x: torch.func.jvp(lambda z: z.cumprod(0) * x, (x,), (y,))[1].sum())(x),
    "jvp of complex": lambda x, y: torch.func.jvp(lambda z: (z * z).exp().real / z.abs(), (torch.complex(x, y),), (torch.complex(y, x),)),
    "autograd.functional": lambda x, y: [derivative(lambda x: (x.sin() * x).prod(), x) for derivative in FUNCTIONAL],
    "autograd.functional along y": lambda x, y: [derivative(lambda x: (x.sin() * x).prod(), x, y) for derivative in (functional.hvp, functional.jvp)],
    "gradients for a batch of cotangents": gradients_of_batch,
    "transforms made outside": lambda x, y: [transform(x) for transform in OUTSIDE],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_transform_inside_computes_what_eager_does(name):
    x, y = torch.randn(3), torch.randn(3)
    torch.testing.assert_close(dovetail.jit(PROGRAMS[name])(x, y), PROGRAMS[name](x, y))


@pytest.mark.parametrize(
    "name", [name for name in PROGRAMS if name.partition(" ")[0] in ("grad", "vjp", "jacrev", "jacfwd", "hessian", "jvp", "transforms")]
)
def test_a_transform_computes_the_same_in_inference_mode(name):
    x, y = torch.randn(3), torch.randn(3)

    def inside(x, y):
        with torch.inference_mode():
            return PROGRAMS[name](x, y)

    expected = PROGRAMS[name](x, y)
    torch.testing.assert_close(dovetail.jit(inside)(x, y), expected)
    with torch.inference_mode():
        torch.testing.assert_close(dovetail.jit(PROGRAMS[name])(x, y), expected)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)
        self.second = nn.Linear(3, 3)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(self.norm(self.first(x)))


def twice(x):
    y = x.sin()
    return y, y


def twice_a_number(x):
    return twice(x.prod())


TWICE = {
    "vjp": lambda x, y: torch.func.vjp(twice, x)[1]((x, y)),
    "vjp of an argument": lambda x, y: torch.func.vjp(lambda x: (x, x.exp(), x), x)[1]((x, y, y)),
    "vjp, of aux": lambda x, y: torch.func.vjp(twice, x, has_aux=True)[1](y),
    "jacrev": lambda x, y: torch.func.jacrev(twice)(x),
    "jacrev, of aux": lambda x, y: torch.func.jacrev(twice, has_aux=True)(x),
    "jacrev of jacrev": lambda x, y: torch.func.jacrev(torch.func.jacrev(twice, has_aux=True), has_aux=True)(x),
    "jacfwd, of aux": lambda x, y: torch.func.jacfwd(twice, has_aux=True)(x),
    "jvp, of aux": lambda x, y: torch.func.jvp(twice, (x,), (y,), has_aux=True),
    "grad, of aux": lambda x, y: torch.func.grad(twice_a_number, has_aux=True)(x),
    "grad and value, of aux": lambda x, y: torch.func.grad_and_value(twice_a_number, has_aux=True)(x),
    "autograd.functional": lambda x, y: functional.vjp(twice, x, (x, y)),
}


@pytest.mark.parametrize("name", TWICE)
def test_a_function_that_returns_a_tensor_twice(name):
    x, y = torch.tensor([0.5, 1.25, 2.0]), torch.tensor([3.0, 0.75, 1.5])
    torch.testing.assert_close(dovetail.jit(TWICE[name])(x, y), TWICE[name](x, y))


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


def test_linearize_maps_any_tangent():
    def tangents(x, y):
        value, push = torch.func.linearize(lambda x: x.sin() * x, x)
        return value, push(y), push(x)

    x, y = torch.randn(3), torch.randn(3)
    value, first, second = dovetail.jit(tangents)(x, y)
    want = torch.func.jvp(lambda x: x.sin() * x, (x,), (y,))
    torch.testing.assert_close((value, first), want)
    torch.testing.assert_close(second, first / y * x)


def test_a_transformed_function_is_cast_as_autocast_has_it():
    def both(x, w):
        with torch.autocast("cpu", torch.bfloat16):
            return torch.func.grad(lambda w: (x @ w).sum().float())(w), torch.func.vjp(lambda w: x @ w, w)[0]

    x, w = torch.randn(3), torch.randn(3, 3)
    torch.testing.assert_close(dovetail.jit(both)(x, w), both(x, w))


@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.vmap, lambda f: lambda x: torch.func.jvp(f, (x,), (x,))])
def test_a_write_to_a_tensor_from_outside_of_a_transformed_function_is_refused(transform):
    def program(x):
        total = torch.zeros(())

        def function(x):
            total.add_(x.detach().sum())
            return (x * x).sum()

        return transform(function)(x), total

    with pytest.raises(Unsupported, match="writes into a tensor from outside of it"):
        dovetail.jit(program)(torch.randn(3))


def test_tangents_of_a_function_with_its_own_backward_follow_from_that():
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            return g * 3 * ctx.saved_tensors[0] ** 2

    x, y = torch.randn(3), torch.randn(3)
    got = dovetail.jit(lambda x, y: torch.func.jvp(Cube.apply, (x,), (y,)))(x, y)
    torch.testing.assert_close(got, (x**3, y * 3 * x**2))


def test_a_functionalized_function_is_traced_as_it_is():
    def doubled(x):
        x.view(-1).mul_(2)
        return x.t(), torch.func.grad(torch.func.functionalize(lambda y: y.clone().mul_(y).sum()))(x)

    x, y = torch.arange(6.0).view(2, 3), torch.arange(6.0).view(2, 3)
    got = dovetail.jit(lambda x: torch.func.functionalize(doubled)(x))(x)
    torch.testing.assert_close((got, x), (torch.func.functionalize(doubled)(y), y), rtol=0, atol=0)


def test_other_parts_of_torch_func_are_refused():
    with pytest.raises(Unsupported, match=r"part of torch\.func is not traced"):
        dovetail.jit(lambda x: torch.func.functionalize(torch.sin, remove="mutations_and_views")(x))(torch.randn(2))


class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2

    @staticmethod
    def jvp(ctx, t):
        return t * 3


def test_a_function_with_its_own_tangents_is_refused():
    with pytest.raises(Unsupported, match=r"forward-mode differentiation of Own, which defines jvp, is not traced; use reverse mode"):
        dovetail.jit(lambda x: torch.func.jvp(Own.apply, (x,), (x,)))(torch.randn(3))


def test_operations_without_a_decomposition_have_tangents():
    def derivatives(x):
        symmetric = lambda x: torch.outer(x, x) + torch.eye(3)  # noqa: E731
        return torch.func.jvp(lambda x: torch.linalg.inv(symmetric(x)), (x,), (x,)), torch.func.hessian(lambda x: torch.logdet(symmetric(x)))(x)

    x = torch.randn(3)
    torch.testing.assert_close(dovetail.jit(derivatives)(x), derivatives(x))


def test_functional_call_reads_what_it_does_not_replace_from_the_module():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    compiled = dovetail.jit(lambda x, values: torch.func.functional_call(model, values, (x,)))
    x = torch.ones(2, 3)

    for bias in (nn.Parameter(torch.ones(3)), nn.Parameter(torch.zeros(3)), None):
        model[1].bias = bias
        for values in ({"0.weight": torch.eye(3)}, {"0.weight": torch.eye(3) * 2}):
            torch.testing.assert_close(compiled(x, values), torch.func.functional_call(model, values, (x,)))


class Counting(nn.Module):
    """A module that counts its calls in several ways."""

    WAYS = {
        "sets a buffer": lambda self, x: setattr(self, "mean", self.mean * 0.5 + x.detach().mean(0)),
        "adds to a buffer": lambda self, x: setattr(self, "seen", self.seen.add_(1)),
        "sets another": lambda self, x: setattr(self, "seen", self.seen + 1),
        "writes a buffer": lambda self, x: self.mean.mul_(0.5).add_(1),
        "registers a buffer": lambda self, x: self.register_buffer("mean", torch.ones(2)),
        "reads only": lambda self, x: None,
    }

    def __init__(self, way):
        super().__init__()
        self.way, self.calls, self.norm, self.weight = way, 0, nn.BatchNorm1d(2), nn.Parameter(torch.ones(2))
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        self.WAYS[self.way](self, x)
        return self.norm(x * self.weight + self.mean)


def a_parameter(net, x):
    return functional_call(net, {"weight": torch.full((2,), 2.0)}, (x,)), net.mean * 1, net.seen * 1


def a_buffer(net, x):
    values = {"weight": torch.full((2,), 2.0), "mean": torch.ones(2)}
    return functional_call(net, values, (x,)), net.mean * 1, net.seen * 1, list(values.values())


def its_own_tensors(net, x):
    return functional_call(net, {**dict(net.named_parameters()), **dict(net.named_buffers())}, (x,)), net.mean * 1, net.seen * 1


def copies_of_its_buffers(net, x):
    values = {name: buffer.clone() for name, buffer in net.named_buffers()}
    return functional_call(net, values, (x,)), net.mean * 1, net.seen * 1, values["mean"], values["seen"]


def what_was_set_before(net, x):
    net.mean, net.weight = net.mean + 1, nn.Parameter(net.weight.detach() * 2)
    y = functional_call(net, {"seen": torch.ones(())}, (x,))
    net.weight.data.mul_(2)
    return y.detach(), net.mean * 1, net.seen * 1


def two_calls(net, x):
    net.mean = net.mean + 1
    y = functional_call(net, {"mean": torch.ones(2)}, (x,))
    net.mean = net.mean + 1
    return functional_call(net, [{"mean": torch.ones(2) * 3}], (y,)), net.mean * 1, net.seen * 1


def a_copy(net, x):
    other = copy.deepcopy(net)
    y = functional_call(other, {"weight": torch.full((2,), 2.0), "mean": torch.ones(2)}, (x,))
    return y, other(x), other.mean, other.seen, net.seen * 1


def created(net, x):
    layer = nn.Linear(2, 2)
    y = functional_call(layer, {"bias": torch.ones(2), "weight": torch.eye(2)}, (x,))
    return y, layer.bias.sum() == 2, functional_call(nn.Sequential(net), {"0.mean": torch.ones(2)}, (x,))


CALLED = [a_parameter, a_buffer, its_own_tensors, copies_of_its_buffers, what_was_set_before, two_calls, a_copy, created]


@pytest.mark.parametrize("way", Counting.WAYS)
@pytest.mark.parametrize("program", CALLED)
def test_functional_call_leaves_what_it_leaves_in_eager_mode(program, way):
    nets = [Counting(way), Counting(way)]
    compiled = dovetail.jit(program, executors=["torch"])
    for i in range(3):
        x, left = torch.arange(6.0).view(3, 2) + i, []
        for net, call in zip(nets, (program, compiled), strict=True):
            torch.manual_seed(i)
            left.append((call(net, x), net.state_dict(), net.calls))
        torch.testing.assert_close(left[1], left[0])


class Cache:
    def __init__(self):
        self.value, self.items = None, {}


def kept_in_an_attribute(cache, x):
    cache.value = x * 2
    result = (cache.value * x).sum()
    cache.value = None
    return result


def kept_in_a_dict(cache, x):
    before = cache.items.get("x", 0)
    cache.items["x"] = x
    result = (cache.items["x"] ** 3).sum()
    cache.items["x"] = before
    return result


@pytest.mark.parametrize("keep", [kept_in_an_attribute, kept_in_a_dict])
@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.vmap, torch.func.jacrev, torch.func.hessian])
def test_what_a_transformed_function_keeps_for_a_while(transform, keep):
    outcomes = []
    for wrap in (lambda function: function, dovetail.jit):
        cache = Cache()
        compiled = wrap(lambda x, cache=cache: transform(partial(keep, cache))(x))
        outcomes.append([(compiled(torch.ones(3, 3) * k), cache.value, dict(cache.items)) for k in range(3)])
    torch.testing.assert_close(outcomes[1], outcomes[0])


def test_functions_of_make_functional_train_in_a_transform():
    function, weights = functorch.make_functional(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)))

    def step(weights, x):
        gradients, loss = torch.func.grad_and_value(lambda weights: function(weights, x).square().mean())(weights)
        with torch.no_grad():
            return loss, [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)]

    single, several = [w.detach() for w in weights], [torch.stack([w.detach(), w.detach() * 2]) for w in weights]
    for program, arguments in ((step, single), (lambda weights, x: torch.func.vmap(step, (0, None))(weights, x), several)):
        compiled = dovetail.jit(program)
        for rows in (5, 6, 5):
            x = torch.randn(rows, 3)
            torch.testing.assert_close(compiled(arguments, x), program(arguments, x))
