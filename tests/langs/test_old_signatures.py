"""PyTorch's old signatures, deprecated and still in use, with numbers among the tensors: `x.add_(alpha, other)`, `addmm(beta, x, alpha, a, b)`."""

from __future__ import annotations

import pytest
import torch

import dovetail

OPERANDS = {  # shapes of the tensors of each operation, and how many numbers come with them
    "add": ([(3,), (3,)], 1),
    "sub": ([(3,), (3,)], 1),
    "addcmul": ([(3,), (3,), (3,)], 1),
    "addcdiv": ([(3,), (3,), (3,)], 1),
    "addmm": ([(2, 4), (2, 3), (3, 4)], 2),
    "addmv": ([(2,), (2, 3), (3,)], 2),
    "addr": ([(2, 3), (2,), (3,)], 2),
    "addbmm": ([(2, 4), (5, 2, 3), (5, 3, 4)], 2),
    "baddbmm": ([(5, 2, 4), (5, 2, 3), (5, 3, 4)], 2),
}
CALLS = [(name, count) for name, (_, most) in OPERANDS.items() for count in range(1, most + 1)]
NUMBERS = (0.5, 3.0)


def function(name, numbers):
    if OPERANDS[name][1] == 1:
        return lambda x, *others: getattr(torch, name)(x, *numbers, *others)
    return lambda x, *others: getattr(torch, name)(numbers[0], x, *numbers[1:], *others)


def method(name, numbers):
    return lambda x, *others: getattr(x, name)(*numbers, *others)


def in_place(name, numbers):
    return lambda x, *others: getattr(x.clone(), f"{name}_")(*numbers, *others)


@pytest.mark.filterwarnings("ignore:This overload")
@pytest.mark.parametrize("form", [function, method, in_place])
@pytest.mark.parametrize(("name", "count"), CALLS)
def test_numbers_among_the_tensors(name, count, form):
    program = form(name, NUMBERS[:count])
    tensors = [torch.rand(shape, dtype=torch.float64) + 0.5 for shape in OPERANDS[name][0]]
    torch.testing.assert_close(dovetail.jit(program)(*tensors), program(*tensors))


@pytest.mark.parametrize(
    "program",
    [lambda x: torch.add(x, x, 2.0), lambda x: torch.add(2.0, x, x), lambda x: x.addcmul(x, 2.0, x), lambda x: torch.add(x, 2.0, x, alpha=3.0)],
    ids=["number last", "number first", "number between factors", "number twice"],
)
def test_other_orders_are_errors_as_in_eager_mode(program):
    for each in (program, dovetail.jit(program)):
        with pytest.raises(TypeError):
            each(torch.ones(3))
