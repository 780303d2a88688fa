"""Tensors that hold other tensors, with a `__torch_dispatch__` of their own, inside compiled functions."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.nn import functional as F

import dovetail
from dovetail.errors import Unsupported
from tests.frontend.two_tensors import Pair, Quantized


def pair(*shape, note=""):
    return Pair(torch.randn(*shape), torch.randn(*shape), note)


def assert_same(actual, expected):
    """Compare two results, of which pairs are equal where both their tensors are."""
    assert type(actual) is type(expected)
    if isinstance(expected, (tuple, list)):
        assert len(actual) == len(expected)
        for ours, theirs in zip(actual, expected, strict=True):
            assert_same(ours, theirs)
    elif isinstance(expected, Pair):
        assert (actual.shape, actual.stride(), actual.dtype, actual.note) == (expected.shape, expected.stride(), expected.dtype, expected.note)
        assert_same([actual.left, actual.right], [expected.left, expected.right])
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(actual, expected)
    else:
        assert actual == expected


def set_first(x):
    x[0] = 1.0
    x[:, 1] = x[:, 2] * 3
    return x


def add_in_place(x, y):
    x += y
    x[1:] = y[1:]
    return x


PROGRAMS = {
    "arithmetic": lambda x, y: ((x + y) * 2, 1 - x, x**2 / 3, -x, abs(x)),
    "with a plain tensor": lambda x, y: (x + y.left, y.left * x, torch.ones(4) + x),
    "linear": lambda x, y: (F.linear(x, y), x @ y.T, F.linear(x, y.left, y.right[:, 0])),
    "shapes": lambda x, y: (x.view(-1), x[0, 1:], x.t(), torch.cat([x, y]), x.split(1), list(x), len(x)),
    "reductions": lambda x, y: (x.sum(), x.mean(0), torch.softmax(x, -1), x.max()),
    "functions in Python": lambda x, y: (F.layer_norm(x, (4,)), F.gelu(x), F.pad(x, (1, 1)), torch.std_mean(x)),
    "choices": lambda x, y: (torch.where(x > 0, x, y), x.masked_fill(x > 0, 0.0), torch.zeros_like(x)),
    "what it says of itself": lambda x, y: (x.shape, x.dtype, x.device, x.dim(), x.numel(), x.requires_grad, x.is_contiguous(), x.grad),
    "shapes that change in place": lambda x, y: ((x + 0).unsqueeze_(0) * 2, (y + 0).t_(), F.linear(x[0], y), F.linear(x.left[0], y)),
    "writes": lambda x, y: (x.clone().copy_(y), y.clone().fill_(2.0), set_first(x.clone()), x.clone().zero_()),
    "a parameter of the program": lambda x, y: torch.nn.Parameter(x, requires_grad=False) * 2,
    "its parts": lambda x, y: (x.left * x.right, x.note + "!", isinstance(x, Pair), type(x) is Pair, x is y),
    "methods of plain tensors": lambda x, y: (torch.ones(4).mul(x), x.left.sub(y), y.left.t().matmul(x), torch.ones(2, 4).where(x.left > 0, x)),
    "operators of plain tensors": lambda x, y: (torch.ones(4) - x, 2 ** x.left.abs() ** y, x.left.t() @ y, x.left < y),
    "plain tensors that are written": lambda x, y: (torch.ones(2, 4).mul_(x), add_in_place(x.left + 0, y), torch.zeros(2, 4).copy_(x)),
    "one of the program": lambda x, y: Pair(x.left * 2, y.right + 1, "new").sin(),
    "one that comes back": lambda x, y: (x, [y, x + 0]),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_operations_are_those_of_its_dispatch(program):
    compiled = dovetail.jit(program)
    for _ in range(2):
        x, y = pair(2, 4, note="x"), pair(2, 4, note="y")
        assert_same(compiled(x, y), program(x, y))

    assert compiled.cache_info().programs == 1


def test_the_program_consists_of_plain_operations():
    compiled = dovetail.jit(lambda x: x * 2 + 1)
    compiled(pair(3))

    printed = str(dovetail.last_traces(compiled)[0])
    assert "Pair" not in printed and len(dovetail.last_traces(compiled)[0].inputs) == 2


def test_a_result_that_is_an_argument_is_that_object():
    x = pair(3)

    first, (second, doubled) = dovetail.jit(lambda x: (x, (x, x * 2)))(x)

    assert first is second is x and doubled is not x


def test_writes_in_place_change_the_tensors_that_it_holds():
    def program(x, y):
        x.mul_(2)
        return x.add_(y)

    x, y = pair(3), pair(3)
    ours = Pair(x.left.clone(), x.right.clone())

    assert dovetail.jit(program)(ours, y) is ours
    assert_same(ours, program(x, y))


CHANGES = {
    "a shape": lambda: pair(4),
    "a dtype": lambda: Pair(torch.ones(3).double(), torch.ones(3).double()),
    "a note": lambda: pair(3, note="other"),
    "a plain tensor": lambda: torch.ones(3),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_another_tensor_compiles_another_program(change):
    compiled = dovetail.jit(lambda x: x + 1)
    compiled(pair(3))
    other = change()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(compiled(other), other + 1)
    assert compiled.cache_info().programs == 2


def test_a_branch_on_what_it_holds():
    program = lambda x: x * 2 if x.left.sum() > 0 else x - 1  # noqa: E731
    compiled = dovetail.jit(program)

    for sign in (1, -1, 1):
        x = Pair(torch.full((3,), float(sign)), torch.randn(3))
        assert_same(compiled(x), program(x))


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)
        for layer in (self.first, self.second):
            layer.weight = torch.nn.Parameter(Quantized.of(layer.weight.detach()), requires_grad=False)

    def forward(self, x):
        return self.second(F.gelu(self.first(x))) + x


def test_a_network_with_quantized_weights_computes_and_trains_the_rest():
    network, x = Network(), torch.randn(3, 8)
    compiled = dovetail.jit(network)

    torch.testing.assert_close(compiled(x), network(x))
    network.first.weight = torch.nn.Parameter(Quantized.of(torch.randn(16, 8)), requires_grad=False)
    torch.testing.assert_close(compiled(x), network(x))
    assert compiled.cache_info().programs == 1

    ours = torch.autograd.grad(compiled(x).square().sum(), [network.first.bias, network.second.bias])
    torch.testing.assert_close(ours, torch.autograd.grad(network(x).square().sum(), [network.first.bias, network.second.bias]))


def test_quantized_weights_outside_of_their_own_linear():
    weight, x = Quantized.of(torch.randn(4, 8)), torch.randn(3, 8)
    program = lambda x, w: (x @ w.t(), w.dequantize(), w.shape, w.detach().scale, w * 2)  # noqa: E731

    assert_same(dovetail.jit(program)(x, weight), program(x, weight))


class Unflattened(Pair):
    __tensor_flatten__ = None


def test_one_that_cannot_be_taken_apart_is_refused():
    with pytest.raises(Unsupported, match=r"a Unflattened is not traced, only torch\.Tensor itself"):
        dovetail.jit(lambda x: x + 1)(Unflattened(torch.ones(2), torch.ones(2)))


def test_its_value_is_refused():
    with pytest.raises(Unsupported, match="the value of a Pair is needed"):
        dovetail.jit(lambda x: float(x.sum()))(pair(2))


class Converting(Pair):
    """Its `__torch_function__` is torch's own, and its dispatch returns plain tensors."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func(*[x.left if isinstance(x, Pair) else x for x in args], **(kwargs or {}))


Converting.__torch_function__ = vars(torch.Tensor)["__torch_function__"]  # torch disables it where a class is created


def test_results_that_torch_would_make_instances_of_the_class_are_refused():
    with pytest.raises(Unsupported, match=r"which makes a Converting of each result"):
        dovetail.jit(lambda x: x + 1)(Converting(torch.ones(2), torch.ones(2)))


ATEN = torch.ops.aten
OVERLOADS = {
    "that fit an operation": lambda x: ATEN.add.Tensor(x, x, alpha=2) + ATEN.mm.default(x, ATEN.t.default(x)),
    "in place": lambda x: ATEN.copy_.default(x * 2, x) + ATEN.mul_.Tensor(x + 1, x),
    "with results to write": lambda x: (
        ATEN.mul.out(x.detach(), x.detach(), out=torch.empty(3, 3)) + x + ATEN.sum.IntList_out(x.detach(), [0], out=torch.empty(3))
    ),
    "of no operation": lambda x: (
        ATEN._adaptive_avg_pool2d.default(x[None], [1, 1]) + ATEN.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)[0]
    ),
    "with arguments of their own": lambda x: ATEN.convolution.default(x[None, None], x[None, None], None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
    "that create tensors": lambda x: x + ATEN.full.default([3, 3], 2.0) + ATEN.arange.default(3) + ATEN.scalar_tensor.default(1.0),
}


@pytest.mark.parametrize("program", OVERLOADS.values(), ids=OVERLOADS)
def test_overloads_of_aten_are_called(program):
    compiled = dovetail.jit(program)
    for _ in range(2):
        x = torch.randn(3, 3, requires_grad=True)
        torch.testing.assert_close(compiled(x), program(x))
        torch.testing.assert_close(torch.autograd.grad(compiled(x).sum(), x), torch.autograd.grad(program(x).sum(), x))
