"""torch.func.vmap inside compiled functions."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, jvp, stack_module_state, vmap
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import dovetail
from dovetail.errors import Unsupported

WEIGHT, CONVOLUTION, TABLE = torch.randn(4, 3), nn.Conv2d(2, 4, 3, padding=1), torch.randn(7, 3)
MODELS = [nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)) for _ in range(2)]
INDEX = torch.tensor([[0, 3], [6, 6], [1, 2], [5, 0], [2, 2]])


def write_argument(x):
    def one(row):
        row.mul_(2)
        return row.sum()

    x = x.clone()
    return vmap(one)(x), x


def write_own(x):
    def one(row):
        y = row.clone()
        y[1] = 5.0
        return y

    return vmap(one)(x)


def ensemble(x):
    parameters, buffers = stack_module_state(MODELS)
    return vmap(lambda p, b, x: functional_call(MODELS[0], (p, b), (x,)), in_dims=(0, 0, None))(parameters, buffers, x)


def gradients_of_samples(x):
    parameters = {name: p.detach() for name, p in CONVOLUTION.named_parameters()}
    images = x[:, :2, None, None] * torch.ones(4, 4)
    return vmap(grad(lambda p, i: functional_call(CONVOLUTION, p, (i[None],)).square().mean()), in_dims=(None, 0))(parameters, images)


PROGRAMS = {
    "a product with a shared matrix": lambda x: vmap(lambda row: WEIGHT @ row)(x),
    "dimensions in and out": lambda x: vmap(lambda a, b: (a.softmax(0) * b, a.sum(), torch.ones(2)), (1, None), (1, 0, 0))(x, x[:, 0]),
    "nests": lambda x: vmap(lambda d, n: {"r": d["a"].sum() * n + d["b"][0]}, in_dims=({"a": 0, "b": [0]}, None))({"a": x, "b": [x[:, 1]]}, 2),
    "nested": lambda x: vmap(lambda row: vmap(lambda w: (row * w).sum())(WEIGHT))(x),
    "of grad": lambda x: vmap(grad(lambda row: row.sin().prod()))(x),
    "in grad": lambda x: grad(lambda x: vmap(lambda row: row.sin().prod())(x).sum())(x),
    "in jvp": lambda x: jvp(vmap(lambda row: F.layer_norm(row, (3,))), (x,), (x.cos(),)),
    "no gradient where the function has none": lambda x: grad(lambda x: vmap(lambda row: row * row.detach())(x).sum())(x),
    "positions of each": lambda x: vmap(lambda row, i: (TABLE[i], row[row.argsort()], F.embedding(i, TABLE)))(x, INDEX),
    "a table of each": lambda x: vmap(grad(lambda table, i: F.embedding(i, table).sin().sum()), in_dims=(None, 0))(TABLE, INDEX),
    "in chunks": lambda x: vmap(lambda row: (row.sum(), row), out_dims=(0, 1), chunk_size=2)(x),
    "operations without rules": lambda x: vmap(lambda row: (torch.median(row), torch.linalg.inv(torch.outer(row, row) + torch.eye(3))))(x),
    "an argument written": write_argument,
    "its own tensor written": write_own,
    "different draws": lambda x: vmap(lambda row: row + torch.rand(3), randomness="different")(x),
    "same draws": lambda x: vmap(lambda row: row + torch.rand(3), randomness="same")(x),
    "an ensemble": ensemble,
    "gradients of samples": gradients_of_samples,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_vmap_computes_what_eager_does(name):
    x = torch.randn(5, 3)
    with torch.random.fork_rng():
        got = dovetail.jit(PROGRAMS[name])(x)
    torch.testing.assert_close(got, PROGRAMS[name](x))


DRAWS = {
    "dropout": lambda row: F.dropout(row, 0.5),
    "dropout of what all examples share": lambda row: F.dropout(torch.ones(3), 0.5) + row,
    "dropout of a number": lambda row: F.dropout(row.sum(), 0.5),
    "dropout of channels": lambda row: F.dropout1d(row[:, None].expand(3, 2), 0.5),
    "alpha_dropout": lambda row: F.alpha_dropout(row, 0.5, training=True),
    "feature_alpha_dropout": lambda row: F.feature_alpha_dropout(row[:, None], 0.5, training=True),
    "dropout of attention": lambda row: F.scaled_dot_product_attention(*[row.view(1, 1, 3)] * 3, dropout_p=0.5),
    "bernoulli": lambda row: torch.bernoulli(row.sigmoid()),
    "bernoulli of one tensor": lambda row: torch.bernoulli(torch.full((3,), 0.5)) + row,
    "bernoulli of one number": lambda row: torch.bernoulli(torch.tensor(0.5)) + row,
    "bernoulli of one expanded": lambda row: torch.bernoulli(torch.tensor(0.5).expand(3)) + row,
    "bernoulli with p": lambda row: torch.bernoulli(row, p=0.5),
    "bernoulli_": lambda row: row.clone().bernoulli_(0.3),
    "rand_like and dropout": lambda row: torch.rand_like(row) + F.dropout(row, 0.2),
    "normal_": lambda row: row.clone().normal_(),
    "randn_like of a transposed tensor": lambda row: torch.randn_like(row[:, None].expand(3, 2).T) * 2,
    "randint_like": lambda row: torch.randint_like(row, 2, 9),
    "randperm": lambda row: torch.randperm(3) + row,
    "gumbel_softmax": lambda row: F.gumbel_softmax(row),
}


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("name", DRAWS)
def test_each_example_draws_eagers_numbers(name, dim):
    def program(x):
        return vmap(DRAWS[name], in_dims=dim, randomness="different")(x)

    x = torch.randn(5, 3) if dim == 0 else torch.randn(3, 5)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        want = program(x), program(x), torch.rand(2)
        torch.manual_seed(3)
        compiled = dovetail.jit(program)
        got = compiled(x), compiled(x), torch.rand(2)
    torch.testing.assert_close(got, want)


def test_each_example_has_created_tensors_of_its_own():
    def program(x):
        return vmap(lambda row: (torch.zeros_like(row), row.new_ones(2), torch.full_like(row[:, None], 3.0), row * 2), in_dims=1)(x)

    x = torch.randn(3, 5)
    got, want = dovetail.jit(program)(x), program(x)
    for mine, theirs in zip(got, want, strict=True):
        assert mine.stride() == theirs.stride()
        mine[0] += 1
        theirs[0] += 1
    torch.testing.assert_close(got, want)


def escape(x):
    kept = []
    result = vmap(lambda row: kept.append(row * 2) or row)(x)
    return result, kept[0] + 1


REFUSED = {
    "a value of one example outside": (escape, Unsupported, "used outside of the function that torch.func.vmap was applied to"),
    "randomness": (lambda x: vmap(lambda row: row + torch.rand(3))(x), RuntimeError, "randomness error mode"),
    "a number of each": (lambda x: vmap(lambda row: row * row.sum().item())(x), Unsupported, "item of a tensor that differs between the examples"),
    "a branch": (lambda x: vmap(lambda row: row if row.sum() > 0 else -row)(x), TypeError, "tracing only knows shapes and dtypes"),
    "unequal sizes": (lambda x: vmap(lambda a, b: a)(x, x.T), ValueError, "same size in the mapped dimension"),
    "a result that is no tensor": (lambda x: vmap(lambda row: 3)(x), ValueError, "must only return Tensors"),
    "an argument that is no tensor": (lambda x: vmap(lambda row, n: row * n)(x, 2), ValueError, "which is no Tensor"),
    "a structure": (lambda x: vmap(lambda row, n: row, in_dims=(0,))(x, 2), ValueError, "in_dims is not compatible"),
    "same draws of chunks": (lambda x: vmap(lambda row: row + torch.rand(3), randomness="same", chunk_size=2)(x), Unsupported, "chunk"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_vmap_cannot_do_is_refused(name):
    program, error, match = REFUSED[name]
    with pytest.raises(error, match=match):
        dovetail.jit(program)(torch.randn(5, 3))


class Doubled(torch.autograd.Function):
    """x * 2, whose gradient is that of x * 5."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 5 * ctx.saved_tensors[0] / ctx.saved_tensors[0]


def test_a_batch_of_a_function_with_its_own_backward_has_that_backward():
    x = torch.rand(5, 3) + 1
    value, gradient = dovetail.jit(lambda x: (vmap(Doubled.apply)(x), grad(lambda x: vmap(Doubled.apply)(x).sum())(x)))(x)
    torch.testing.assert_close((value, gradient), (x * 2, torch.full_like(x, 5)))


def test_a_batch_flows_to_the_parameters_of_eager_autograd():
    x, w = torch.randn(5, 3), torch.randn(3, requires_grad=True)
    program = lambda x, w: vmap(lambda row: (row * w).sin().sum())(x)  # noqa: E731
    (want,), (got,) = [torch.autograd.grad(function(x, w).sum(), w) for function in (program, dovetail.jit(program))]
    torch.testing.assert_close(got, want)


OWN_GRADIENTS = {
    "softmax": lambda x: torch.softmax(x, -1),
    "log_softmax": lambda x: torch.log_softmax(x * x, -1),
    "norm": lambda x: x.norm() * x,
    "clamp": lambda x: x.clamp(-0.5, 0.5) * x,
    "amax": lambda x: x.amax() * x,
    "attention": lambda x: torch.nn.functional.scaled_dot_product_attention(*[x.view(1, 1, -1)] * 3),
}


@pytest.mark.parametrize("name", OWN_GRADIENTS)
def test_second_derivatives_of_a_batch_around_the_compiled_function(name):
    x, outcomes = torch.randn(2, 3, dtype=torch.double, requires_grad=True), []
    for function in (torch.func.vmap(OWN_GRADIENTS[name]), dovetail.jit(torch.func.vmap(OWN_GRADIENTS[name]))):
        with sdpa_kernel(SDPBackend.MATH):  # the one of which eager mode has second derivatives in all versions
            (gradient,) = torch.autograd.grad(function(x).sin().sum(), x, create_graph=True)
            outcomes.append(torch.autograd.grad((gradient**2).sum(), x))
    torch.testing.assert_close(outcomes[1], outcomes[0])
