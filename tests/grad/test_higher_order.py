"""Gradients of compiled functions are differentiated again: right to any order, or refused, never zero and never None."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.autograd import functional, gradgradcheck
from torch.nn.functional import dropout, gelu, layer_norm

import dovetail


def point(*shape):
    return torch.randn(shape, dtype=torch.double, requires_grad=True)


PROGRAMS = {
    "powers": (lambda x: x**3, (3,)),
    "linear": (lambda x: x * 2 + 1, (3,)),
    "product": (lambda x, y: x @ y, (2, 3), (3, 2)),
    "softmax": (lambda x: torch.softmax(x, -1) * torch.exp(-x), (2, 3)),
    "normalized": (lambda x: gelu(layer_norm(x, (4,))), (2, 4)),
    "several results": (lambda x, y: (x * y, torch.sin(x) + y), (3,), (3,)),
    "a view and a write": (lambda x: (x * 2)[1:].mul_(x[:-1]), (4,)),
    "a result that is the gradient": (lambda x: x + 1, (3,)),
    "indexed": (lambda x: x[torch.tensor([0, 2, 0])] ** 2, (3,)),
    "opaque": (lambda x: torch.linalg.qr(x.sin()), (3, 3)),
    "opaque, of two": (lambda x, y: torch.linalg.solve(x, y * 2).exp(), (3, 3), (3, 2)),
    "opaque, on the way": (lambda x: torch.scatter_reduce(x, 0, torch.tensor([[0, 1], [2, 2]]), (x * x)[:2], "prod").sin(), (3, 2)),
}


@pytest.mark.parametrize(("program", "shapes"), [(p[0], p[1:]) for p in PROGRAMS.values()], ids=PROGRAMS)
def test_second_derivatives_agree_with_differences(program, shapes):
    assert gradgradcheck(dovetail.jit(program), tuple(point(*shape) for shape in shapes))


def cubes(x):
    return (x**3 * torch.tanh(x)).sum()


@pytest.mark.parametrize("name", ["hessian", "hvp", "vhp", "jacobian", "vjp", "jvp"])
def test_the_functions_of_torch_autograd_functional(name):
    x = torch.randn(3, dtype=torch.double)
    of, more = getattr(functional, name), {"hvp": (x,), "vhp": (x,), "jvp": (x,)}.get(name, ())
    torch.testing.assert_close(of(dovetail.jit(cubes), x, *more), of(cubes, x, *more))


def derivatives(function, order):
    x = torch.tensor([0.5, 1.5], dtype=torch.double, requires_grad=True)
    found = [function(x)]
    for _ in range(order):
        found += torch.autograd.grad(found[-1].sum(), x, create_graph=True)
    return found


CHANGING = {
    "a mean of rows": lambda x, rate: x.mean(0) * rate,
    "a deviation": lambda x, rate: x.std(0),
    "two results": lambda x, rate: ((x * rate).sin(), x.exp().sum(1)),
    "results of other sizes": lambda x, rate: (x.sum(0), (x**3).mean(), torch.cat([x, x * x])),
    "a size as a factor": lambda x, rate: x * x.shape[0] ** 0.5,
    "half of the rows": lambda x, rate: (x[: x.shape[0] // 2] ** 2, x * 2),
    "a filled tensor": lambda x, rate: torch.full_like(x, rate) * x * x,
    "a number computed of one": lambda x, rate: torch.nn.functional.rms_norm(x, x.shape[1:], eps=rate / 2),
    "smoothed labels": lambda x, rate: torch.nn.functional.cross_entropy(x, torch.arange(len(x)) % 3, label_smoothing=rate / 4),
}


@pytest.mark.parametrize("name", CHANGING)
def test_second_derivatives_of_calls_with_other_sizes_and_numbers(name):
    """By all results, and by one of several, so that the cotangents of others are absent."""
    program = CHANGING[name]
    compiled = dovetail.jit(program)
    for rows, rate in ((4, 0.5), (5, 0.6), (7, 0.7)):
        for chosen in (None, 0, -1):
            x, outcomes = point(rows, 3), []
            for function in (program, compiled):
                results = function(x, rate)
                results = list(results) if isinstance(results, tuple) else [results]
                wanted = results if chosen is None else [results[chosen]]
                cotangents = [torch.linspace(1, 2, y.numel()).double().reshape(y.shape).requires_grad_() for y in wanted]
                (gradient,) = torch.autograd.grad(wanted, x, cotangents, create_graph=True)
                outcomes.append(
                    (gradient, torch.autograd.grad((gradient**2 * rate).sum(), [x, *cotangents], allow_unused=True, materialize_grads=True))
                )
            torch.testing.assert_close(outcomes[1], outcomes[0])
    assert compiled.cache_info().programs < 4


def test_third_derivatives():
    torch.testing.assert_close(derivatives(dovetail.jit(cubes), 3), derivatives(cubes, 3))


def test_a_gradient_penalty_reaches_parameters():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.LayerNorm(4), nn.Linear(4, 2)).double()
    compiled, x = dovetail.jit(model), point(5, 3)

    def penalties(called):
        model.zero_grad()
        x.grad = None
        result = called(x)
        (slope,) = torch.autograd.grad(result.sum(), x, create_graph=True)
        ((slope**2).sum() + result.sum()).backward()
        return [p.grad for p in (*model.parameters(), x)]

    torch.testing.assert_close(penalties(compiled), penalties(model))


def test_a_result_without_a_cotangent_gives_none():
    compiled = dovetail.jit(lambda x, y: (x * x, y * y))
    x, y = point(2), point(2)
    grads = torch.autograd.grad(compiled(x, y)[0].sum(), (x, y), create_graph=True, allow_unused=True)
    assert grads[1] is None
    torch.testing.assert_close(torch.autograd.grad(grads[0].sum(), x)[0], torch.full_like(x, 2.0))


REFUSED = {
    "random": (lambda x: dropout(torch.sin(x), 0.5) * x, "random number"),
    "a keyword": (lambda x: torch.linalg.solve(x.view(2, 2), B=x.view(2, 2) * 2), "no gradient rule for keyword arguments"),
}


@pytest.mark.parametrize(("program", "why"), REFUSED.values(), ids=REFUSED)
def test_what_has_no_second_derivative_is_refused(program, why):
    x = point(4)
    (slope,) = torch.autograd.grad(dovetail.jit(program)(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match=why):
        torch.autograd.grad(slope.sum(), x, allow_unused=True)


def test_third_derivatives_of_what_autograd_differentiates_are_refused():
    x = point(3, 3)
    (slope,) = torch.autograd.grad(dovetail.jit(lambda x: torch.linalg.matrix_exp(x) * 2)(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(slope.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="no gradient rule"):
        torch.autograd.grad(second.sum(), x)


RECURRENT = {"lstm": lambda: nn.LSTM(3, 4, 2, bidirectional=True), "gru": lambda: nn.GRU(3, 4), "cell": lambda: nn.GRUCell(3, 4)}


@pytest.mark.parametrize("name", RECURRENT)
def test_a_gradient_penalty_reaches_recurrent_layers(name):
    module = RECURRENT[name]().double()
    compiled, x = dovetail.jit(module), point(4, 3) if name == "cell" else point(5, 2, 3)

    def penalties(called):
        module.zero_grad()
        x.grad = None
        result = called(x)
        result = result[0] if isinstance(result, tuple) else result
        (slope,) = torch.autograd.grad(result.sum(), x, create_graph=True)
        ((slope**2).sum() + result.sum()).backward()
        return [p.grad for p in (*module.parameters(), x)]

    for _ in range(2):
        torch.testing.assert_close(penalties(compiled), penalties(module))


MODULES = {
    "convolution": (lambda: nn.Conv2d(2, 3, 3), (1, 2, 5, 5)),
    "recurrent": (lambda: nn.GRU(3, 4, batch_first=True), (2, 5, 3)),
    "linear": (lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1)), (3, 4)),
}


@pytest.mark.parametrize("name", MODULES)
def test_a_gradient_inside_is_differentiated_by_parameters_around_it(name):
    make, shape = MODULES[name]
    module, x = make().double(), point(*shape).detach()

    def slopes(x):
        def loss(x):
            y = module(x)
            return (y[0] if isinstance(y, tuple) else y).square().sum()

        return torch.func.grad(loss)(x)

    grads = []
    for run in (dovetail.jit(slopes), slopes):
        module.zero_grad()
        run(x).square().sum().backward()
        grads.append([p.grad for p in module.parameters()])
    torch.testing.assert_close(*grads)


def test_an_argument_that_is_written_is_refused_at_once():
    x = point(3)
    result = dovetail.jit(lambda x: x.square_())(x * 1)
    with pytest.raises(RuntimeError, match="writes into an argument"):
        torch.autograd.grad(result.sum(), x, create_graph=True)


def test_an_input_that_only_second_derivatives_need_may_be_overwritten():
    x = point(3)
    between = x * 1
    result = dovetail.jit(lambda x: torch.exp(x) * 2)(between)
    expected = torch.exp(x.detach()) * 2
    with torch.no_grad():
        between.zero_()
    try:
        result.sum().backward()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
    else:
        torch.testing.assert_close(x.grad, expected)


BATCHED = {
    "is_grads_batched": lambda y, x: torch.autograd.grad(y, x, torch.eye(3).double(), is_grads_batched=True)[0],
    "vmap": lambda y, x: torch.func.vmap(lambda v: torch.autograd.grad(y, x, v, retain_graph=True)[0])(torch.eye(3).double()),
    "with a history": lambda y, x: torch.autograd.grad(
        torch.autograd.grad(y, x, torch.eye(3).double(), is_grads_batched=True, create_graph=True)[0].sum(), x
    )[0],
}


@pytest.mark.parametrize("name", BATCHED)
def test_gradients_of_batched_cotangents(name):
    def program(x):
        return (x.sin() * x).cumsum(0)

    x = point(3)
    torch.testing.assert_close(BATCHED[name](dovetail.jit(program)(x), x), BATCHED[name](program(x), x))
    with torch.no_grad():
        x.add_(1)
    hessians = [functional.hessian(lambda x, f=f: f(x).sum(), x.detach(), vectorize=True) for f in (dovetail.jit(program), program)]
    torch.testing.assert_close(*hessians)


PIECES = {
    "a slice": lambda x: x[1:] * x[:-1],
    "steps": lambda x: x[:, ::2] * x[:, 1::2],
    "a row and a write": lambda x: torch.cat([x[:1], (x * 2)[1:].mul_(x[:-1])]),
    "padding": lambda x: torch.nn.functional.pad(x, (1, 2, -1, 1)) ** 2,
    "a diagonal": lambda x: x.diagonal(1) ** 2,
    "indices": lambda x: x.index_put((torch.tensor([0, 2]),), x[1:3] * x[1:3]),
    "opaque": lambda x: torch.linalg.qr(x.sin())[1],
    "opaque, through a view": lambda x: torch.linalg.inv(x[:3]).sin(),
    "opaque, with indices": lambda x: torch.scatter_reduce(x, 0, torch.tensor([[0, 2, 1], [2, 2, 0]]), (x * x)[:2], "amax"),
}


@pytest.mark.parametrize("name", PIECES)
def test_batched_cotangents_of_pieces(name):
    x = point(4, 3).detach()
    both = dovetail.jit(PIECES[name]), PIECES[name]
    torch.testing.assert_close(*[functional.jacobian(f, x, vectorize=True) for f in both])
    torch.testing.assert_close(*[torch.func.jacrev(f)(x) for f in both])
    if name != "opaque, with indices":  # torch has no rule for it
        x.requires_grad_()
        units = torch.eye(PIECES[name](x).numel()).double().unflatten(1, PIECES[name](x).shape)
        pulls = [torch.func.vmap(lambda g, y: torch.autograd.grad(y, x, g, retain_graph=True)[0], (0, None))(units, f(x)) for f in both]
        torch.testing.assert_close(*pulls)


def test_a_draw_that_is_not_kept_is_refused_for_batched_cotangents():
    x = point(3)
    y = dovetail.jit(lambda x: dropout(x, 0.5) * x)(x)
    with pytest.raises(RuntimeError, match="under a transform, such as vmap, and its gradient depends on a random number"):
        torch.autograd.grad(y, x, torch.eye(3).double(), is_grads_batched=True)
