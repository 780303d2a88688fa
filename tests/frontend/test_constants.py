"""Values that a program computes from constants alone are known while it is traced."""

import numpy as np
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


def counts():
    return torch.tensor([3, 0, 1, 0])


def rows():
    return torch.tensor([True, False, True])


OF_CONSTANTS = {
    "nonzero": lambda x: (counts().nonzero(), x + counts().nonzero().shape[0]),
    "nonzero_as_tuple": lambda x: counts().nonzero(as_tuple=True),
    "where": lambda x: torch.where(counts() > 0),
    "none": lambda x: torch.zeros(3, 2).nonzero().shape,
    "unique": lambda x: counts().unique(return_counts=True),
    "unique_columns": lambda x: torch.tensor([[1, 0, 2], [0, 3, 4]]).unique(dim=1),
    "bincount": lambda x: counts().bincount(),
    "one_hot": lambda x: torch.nn.functional.one_hot(counts()),
    "equal": lambda x: x + 1 if torch.equal(counts(), counts()) else x,
    "allclose": lambda x: x + 1 if torch.allclose(counts() * 1.0, counts() + 1.0) else x * 3,
    "masked_select": lambda x: (counts() * 0.1).masked_select(counts() > 0),
    "repeat_interleave": lambda x: counts().repeat_interleave(counts()),
    "repeated_input": lambda x: x.repeat_interleave(torch.tensor([2, 0, 1]), dim=0),
    "repeated_twice": lambda x: x.repeat_interleave(torch.tensor([2])),
    "array": lambda x: x * (torch.from_numpy(np.linspace(0, 1, 5)) == 0.5).nonzero()[0].item(),
    "mask": lambda x: x[rows()],
    "mask_of_columns": lambda x: x[:, torch.arange(2) > 0],
    "mask_and_number": lambda x: x[rows(), 1],
    "mask_of_elements": lambda x: x[torch.arange(6).view(3, 2) % 5 == 0],
    "mask_of_nothing": lambda x: x[torch.zeros(3, dtype=torch.bool)],
    "mask_without_dimensions": lambda x: x[torch.tensor(True)],
}


@pytest.mark.parametrize("program", OF_CONSTANTS.values(), ids=OF_CONSTANTS)
def test_a_shape_that_depends_on_known_values_is_known(program):
    compiled, expected = dovetail.jit(program, decisions="error"), program(X)
    for _ in range(2):
        result = compiled(X)
        torch.testing.assert_close(result, expected)
        if isinstance(expected, torch.Tensor):
            assert result.stride() == expected.stride()


def add_to_rows(x):
    x[rows()] = x[rows()] * 2
    x[:, torch.arange(2) > 0] += 1
    x[rows(), torch.tensor([0, 1])] = torch.tensor([7.0, 8.0])


def test_a_known_result_is_written_into_a_tensor():
    def program(x):
        out = torch.empty(0, dtype=torch.int64)
        torch.nonzero(torch.cat([counts(), counts()]), out=out)
        return out, x + 1

    torch.testing.assert_close(dovetail.jit(program, decisions="error")(X), program(X))


def test_elements_are_written_by_a_known_mask():
    mine, theirs = X.clone(), X.clone()
    add_to_rows(theirs)
    dovetail.jit(add_to_rows, decisions="error")(mine)
    torch.testing.assert_close(mine, theirs)


def test_a_known_result_is_new_at_every_call():
    def program(x):
        places = counts().nonzero()
        places.T.add_(1)
        return places

    compiled = dovetail.jit(program, decisions="error")
    compiled(X).zero_()
    torch.testing.assert_close(compiled(X), program(X))


def test_gradients_flow_through_a_known_mask():
    x = X.clone().requires_grad_()
    dovetail.jit(lambda x: x[rows()].sin(), decisions="error")(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.where(rows()[:, None], X.cos(), 0.0))


def test_an_array_that_is_changed_between_calls_is_no_constant():
    array = np.array([1.0, 0.0, 2.0])

    def program(x):
        return x.sum() + torch.from_numpy(array).nonzero().sum()

    compiled = dovetail.jit(program)
    for value in (0.0, 3.0, 4.0):
        array[1] = value
        torch.testing.assert_close(compiled(X), program(X))


OUTSIDE = torch.tensor([1, 0, 2])


def test_a_tensor_from_outside_is_not_known():
    def program(x):
        return x[OUTSIDE > 0], OUTSIDE.nonzero(), torch.equal(OUTSIDE, counts()[:3])

    compiled = dovetail.jit(program)
    for value in (0, 5, 0):
        OUTSIDE[1] = value
        torch.testing.assert_close(compiled(X), program(X))


def test_a_mask_is_known_until_the_program_writes_an_input_into_it():
    def program(x):
        mask = torch.zeros(3, dtype=torch.bool)
        mask[1] = True
        before = x[mask]
        mask[:] = x[:, 0] > 1
        return before, x[mask]

    compiled = dovetail.jit(program)
    for factor in (1, -1, 2):
        torch.testing.assert_close(compiled(X * factor), program(X * factor))


def test_an_error_of_a_known_call_is_torchs():
    with pytest.raises(RuntimeError, match="non-negative"):
        dovetail.jit(lambda x: x + (counts() - 1).bincount().sum())(X)


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
