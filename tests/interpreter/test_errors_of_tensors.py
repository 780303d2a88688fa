"""What torch refuses to do with a tensor raises where the program does it, so that the program may handle it."""

from __future__ import annotations

import math

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


UNREAD = {  # a call that raises for some values, and its result is not read
    "cholesky": lambda x: torch.linalg.cholesky(torch.diag(x)),
    "inv": lambda x: torch.linalg.inv(torch.diag(x)),
    "an item": lambda x: x[(x * 2).long()],
    "embedding": lambda x: torch.nn.functional.embedding((x * 2).long(), torch.ones(4, 2)),
    "gather": lambda x: torch.gather(x, 0, (x * 2).long()),
    "an item of a copy": lambda x: x.clone().index_put_(((x * 2).long(),), x[:1]),
    "cross_entropy": lambda x: torch.nn.functional.cross_entropy(x[None], (x[:1] * 2).long()),
    "a division": lambda x: 1 / x[0].item(),
    "a floor division": lambda x: 7 // int(x.sum()),
    "a remainder": lambda x: 7 % int(x.sum()),
    "a power": lambda x: x[0].item() ** -1,
    "int": lambda x: int(1 / x[0]),
    "round": lambda x: round(float(1 / x[0])),
    "floor": lambda x: math.floor(1 / x[0]),
    "log": lambda x: math.log(x[0].item()),
    "exp": lambda x: math.exp(-1000 * x[0].item()),
}


@pytest.mark.parametrize("call", UNREAD)
@pytest.mark.parametrize("handles", [False, True])
@pytest.mark.parametrize("trained", [False, True])
def test_a_call_whose_result_is_not_read_raises_as_in_eager_mode(call, handles, trained):
    log = []

    def plain(x):
        log.append(1)
        UNREAD[call](x)
        return x * 2

    def handling(x):
        try:
            UNREAD[call](x)
        except (RuntimeError, IndexError, ArithmeticError, ValueError):
            return x * 3
        return x * 2

    f = handling if handles else plain
    fn = dovetail.jit(f)
    for value in (1.0, 0.0, 1.0, -1.0, 0.0, 3.0):
        results = []
        for each in (f, fn):
            x = torch.full((4,), value, requires_grad=trained)
            try:
                results.append(each(x).tolist())
            except (RuntimeError, IndexError, ArithmeticError, ValueError) as error:
                results.append(isinstance(error, (RuntimeError, IndexError)) or type(error))
        assert results[0] == results[1]
    assert len(log) == (0 if handles else 12)


DETACHED = {
    "view": lambda x: x.view(-1),
    "row": lambda x: x[1:],
    "view of a result": lambda x: (x * 1).view(-1),
    "reshape": lambda x: x.reshape(-1, 1),
    "result": lambda x: x * 1,
    "flat": lambda x: x.flatten(),
    "detached": lambda x: x.detach(),
    "itself": lambda x: x,
}


@pytest.mark.parametrize("needs_grad", [False, True])
@pytest.mark.parametrize("grad_mode", [False, True])
@pytest.mark.parametrize("name", DETACHED)
def test_views_are_not_detached_in_place(name, grad_mode, needs_grad):
    def program(x):
        y = DETACHED[name](x * 2 if needs_grad else x)
        try:
            return y.detach_().requires_grad
        except RuntimeError:
            return "refused"

    compiled, x = dovetail.jit(program), torch.ones(3, requires_grad=needs_grad)
    with torch.set_grad_enabled(grad_mode):
        for _ in range(2):
            assert compiled(x) == program(x)


@pytest.mark.parametrize("item", ["text", None, [1, 2], (1,), {}])
def test_only_numbers_and_tensors_are_looked_for_in_a_tensor(item):
    def found(x):
        try:
            return item in x
        except RuntimeError:
            return "raised"

    assert dovetail.jit(found)(torch.arange(3)) == found(torch.arange(3)) == "raised"
