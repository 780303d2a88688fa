"""Objects that are no tensors and have a `__torch_function__`: they define what functions, methods and operators of torch do with them."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch.nn import functional as F

import dovetail


class Lazy:
    """Writes down which function it is called with, and with what."""

    def __init__(self, value):
        self.value = value

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        places = [i for i, x in enumerate(args) if isinstance(x, cls)]
        return func.__name__, func, [kind.__name__ for kind in types], places, dict(kwargs or {})


class Pair(NamedTuple):
    value: float
    scale: float


class LazyPair(Pair, Lazy):
    """As Lazy, and a tuple: torch asks it before it looks for tensors in it."""

    def __new__(cls, value):
        return Pair.__new__(cls, value, 2.0)

    def __init__(self, value):
        pass


def inplace(x, y):
    x = x * 1
    x *= y
    return x


CALLS = {
    "functions": lambda x, y: (torch.mul(x, y), torch.stack([x, y]), torch.sum(y, 0), torch.where(x > 0, x, y)),
    "functions in Python": lambda x, y: (F.relu(y), F.softmax(y, -1), F.layer_norm(y, (2,)), torch.split(y, 2), torch.norm(y)),
    "beside tensors": lambda x, y: (F.mse_loss(x, y), F.mse_loss(y, x), torch.einsum("i,i", x, y), F.linear(x, y)),
    "methods": lambda x, y: (x.mul(y), x.matmul(y), x.addcmul(x, y)),
    "operators": lambda x, y: (x + y, x - y, x @ y, x / y, x**y, x // y, x % y, x & y, x < y, x == y, x != y, x | y, x << y),
    "on the right": lambda x, y: (y + x, y * x, y - x, y @ x, y / x, y**x, y == x, y != x, y < x),
    "as an index": lambda x, y: (x[y], x.__getitem__(y)),
    "in place": inplace,
    "named operators": lambda x, y: (x.__add__(y), x.__rsub__(y), x.__matmul__(y), x.__imul__(y), x.__eq__(y), x.__lt__(y)),
    "more named operators": lambda x, y: (x.__floordiv__(y), x.__pow__(y), x.__mod__(y), x.__and__(y), x.__lshift__(y), x.__radd__(y)),
}


@pytest.mark.parametrize("program", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("kind", [Lazy, LazyPair])
def test_it_is_called_as_in_eager_mode(kind, program):
    if kind is LazyPair and program is CALLS["as an index"]:
        pytest.skip("a tuple is several indices")
    compiled = dovetail.jit(program)
    for value in (1.0, 2.0):
        assert compiled(torch.ones(2), kind(value)) == program(torch.ones(2), kind(value))


class Scaled:
    """A number times a matrix, which is computed when it meets a tensor."""

    def __init__(self, matrix, scale):
        self.matrix, self.scale = matrix, scale

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in (torch.matmul, torch.Tensor.matmul):
            x, y = args
            return x.matmul(y.matrix) * y.scale
        if func is F.softmax:
            return torch.softmax(args[0].matrix * args[0].scale, -1)
        return NotImplemented


def test_what_it_computes_is_traced():
    def program(x, matrix, scale):
        scaled = Scaled(matrix, scale)
        return x @ scaled + x.matmul(scaled) + F.softmax(scaled, -1)

    compiled = dovetail.jit(program)
    x, matrix = torch.randn(3, 3), torch.randn(3, 3, requires_grad=True)
    torch.testing.assert_close(compiled(x, matrix, 2.0), program(x, matrix, 2.0))
    actual, expected = (torch.autograd.grad(function(x, matrix, 3.0).sum(), matrix) for function in (compiled, program))
    torch.testing.assert_close(actual, expected)


def test_an_object_that_declines_is_an_error():
    with pytest.raises(TypeError, match=r"(?i)no implementation found|all __torch_function__ handlers returned NotImplemented"):
        dovetail.jit(lambda x, y: x.mul(y))(torch.ones(2), Scaled(torch.ones(2, 2), 1.0))
