"""Values that a program computes from constants alone are known while it is traced."""

import pytest
import torch

import dovetail
from dovetail.errors import TracedValueError

X = torch.arange(6.0).view(3, 2)


def number(x):
    return x * torch.tensor(3).item() + int(torch.arange(4).max()) + float(torch.linspace(0, 1, 3).sum())


def branch(x):
    if torch.tensor(16) > 3 and not torch.zeros(2).any():
        return x + torch.div(17, 4, rounding_mode="trunc")
    return x


def size(x):
    return x.view(torch.tensor(2), 3)[: torch.tensor(1)], torch.arange(3).tolist()


def written(x):
    steps = torch.zeros(2, dtype=torch.int64)
    view = steps[1:]
    steps[1] += 5
    before = int(view)
    steps.add_(1)
    return x * before + int(view)


@pytest.mark.parametrize("program", [number, branch, size, written])
def test_a_known_value_is_no_branch_on_data(program):
    compiled = dovetail.jit(program)
    torch.testing.assert_close(compiled(X), program(X))
    torch.testing.assert_close(compiled(X), program(X))


@pytest.mark.parametrize(
    "unknown",
    [lambda x: x * torch.rand(()).item() if torch.rand(()) > 0.5 else x, lambda x: x if torch.zeros(()) + x.sum() > 0 else -x],
    ids=["random", "input"],
)
def test_a_value_of_an_input_or_a_generator_stays_unknown(unknown):
    with pytest.raises(TracedValueError, match="tracing only knows shapes and dtypes"):
        dovetail.jit(unknown, decisions="error")(X)


def test_a_written_input_makes_a_constant_unknown():
    def program(x):
        total = torch.zeros(())
        total += x.sum()
        return x if total > 0 else -x

    with pytest.raises(TracedValueError):
        dovetail.jit(program, decisions="error")(X)
