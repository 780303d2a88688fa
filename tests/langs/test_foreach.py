"""Functions of lists of tensors return what eager mode returns: those in place the list itself."""

from __future__ import annotations

import pytest
import torch

import dovetail
from dovetail.langs.torch.binding.symbol import TABLE
from dovetail.torch_internals import FOREACH

PREFIX = FOREACH.rpartition(".")[2]
IN_PLACE = sorted(name for name in dir(torch) if name.startswith(PREFIX) and name.endswith("_") and getattr(torch, name) in TABLE)
ONE, TWO = ("add", "sub", "mul", "div", "pow", "maximum", "minimum", "copy", "clamp_max", "clamp_min"), ("lerp", "addcmul", "addcdiv")


def others_of(name, tensors):
    """Return the arguments after the first list."""
    name = name.removeprefix(PREFIX).removesuffix("_")
    return [tensors] * (name in ONE) + [tensors, tensors] * (name in TWO)


@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("name", IN_PLACE)
def test_a_function_in_place_returns_what_it_was_called_with(name, kind):
    def program(tensors, others):
        result = getattr(torch, name)(tensors, *others)
        return result, result is tensors

    ours, theirs = (kind([torch.tensor([0.25, 0.5]), torch.tensor(0.75)]) for _ in range(2))
    others = others_of(name, [torch.tensor([2.0, 3.0]), torch.tensor(4.0)])
    result, same = dovetail.jit(program)(ours, others)
    expected, same_in_eager_mode = program(theirs, others)
    torch.testing.assert_close((result, ours), (expected, theirs), equal_nan=True)
    assert same == same_in_eager_mode and type(result) is type(expected) and result is ours


def test_in_place_functions_are_tested():
    assert len(IN_PLACE) > 30


def test_a_float_of_the_program_to_the_power_of_each_tensor():
    def program(x):
        return torch._foreach_pow(x.sum().item(), [x, x * 2])

    x = torch.tensor([1.0, 2.0])
    torch.testing.assert_close(dovetail.jit(program)(x), program(x))
