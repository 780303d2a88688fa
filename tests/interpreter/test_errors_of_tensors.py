"""What torch refuses to do with a tensor raises where the program does it, so that the program may handle it."""

from __future__ import annotations

import pytest
import torch

import dovetail

WRITES = {
    "add_": lambda x: x.add_(1),
    "an item": lambda x: x.__setitem__(0, 1),
    "a view": lambda x: x.view(-1).mul_(2),
    "an operator": lambda x: x.__imul__(2),
    "a row": lambda x: x[:1].zero_(),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("branches", [False, True])
def test_a_leaf_from_outside_is_not_written_in_grad_mode(write, branches):
    def f(log, x):
        log.append("before")
        if branches and x.sum() > 100:
            log.append("large")
        try:
            WRITES[write](x)
        except RuntimeError:
            log.append("refused")
        log.append("after")

    fn, found, wanted = dovetail.jit(f), [], []
    for needs_grad in (False, True, True, False):
        for log, call in ((found, fn), (wanted, f)):
            x = torch.zeros(2).requires_grad_(needs_grad)
            call(log, x)
            log.append(x.detach().tolist())
            with torch.no_grad():
                call(log, x)
            log.append(x.detach().tolist())
            y = x * 1
            call(log, y)
            log.append(y.detach().tolist())
    assert found == wanted


TRUTHS = {
    "if": lambda x: "yes" if x else "no",
    "not": lambda x: not x,
    "and": lambda x: (x and 1) is x,
    "bool": lambda x: bool(x),
    "lists": lambda x: [x + 0] == [x * 1],
    "index": lambda x: [x + 1, x].index(x),
    "in": lambda x: x + 0 in (x, 1),
    "dicts": lambda x: {"a": x} == {"a": x * 1},
    "any": lambda x: any([x]),
    "max": lambda x: max(x, x * 1) is x,
    "filter": lambda x: len(list(filter(None, [x]))),
    "tuples": lambda x: (x, 1) < (x + 1, 2),
}


@pytest.mark.parametrize("truth", TRUTHS)
def test_the_truth_of_several_elements_is_an_error_that_the_program_may_handle(truth):
    def f(x):
        try:
            return TRUTHS[truth](x)
        except RuntimeError as error:
            return str(error)

    fn = dovetail.jit(f)
    for values in ([1.0], [1.0, 2.0], [], [0.0], [3.0, 4.0, 5.0], [2.0]):
        x = torch.tensor(values)
        assert fn(x) == f(x)
