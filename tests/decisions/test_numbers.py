"""Loops over ranges of traced numbers close; numbers are rounded, asked for NaN, and used as ranges without a state for each value."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from decisions.helpers import agrees, compiled, graph_of


def positive(x):
    return (x > 0).sum().item()


def upwards(x):
    y = x
    for i in range(positive(x)):
        y = y * 0.9 + i
    return y


def downwards(x):
    n = positive(x)
    for i in range(n, 0, -1):
        x = x + i
        if x.sum() > 40:
            break
    else:
        x = x - 100
    return x, i, n


def nested(x):
    for i in range(int((x > 0).sum())):
        for j in range(i):
            x = x + 0.1 * j
    return x


def inputs(count):
    return [torch.cat([torch.full((n,), 0.5 + n), torch.full((9 - n,), -1.0)]) for n in range(1, count + 1)]


@pytest.mark.parametrize("program", [upwards, downwards, nested])
def test_a_loop_over_a_range_of_a_number_closes(program):
    fn = compiled(program)
    for x in inputs(9):
        agrees(fn, program, x)
    graph = graph_of(fn)
    assert len(graph.decisions) <= 5 and graph.eager_calls == 0 and fn.cache_info().misses <= 4


def indexed(x):
    y = x * 0
    for i in range(positive(x)):
        y = y + x[i]
    return y


def listed(x):
    kept = []
    for i in range(positive(x)):
        kept.append(x * i)
    return kept


@pytest.mark.parametrize("program", [indexed, listed, lambda x: list(range(positive(x)))])
def test_a_range_whose_loop_cannot_close_has_an_outcome_for_each_number(program):
    fn = compiled(program)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for x in (*inputs(9)[::-2], *inputs(9)[::-2]):
            agrees(fn, program, x)
    (decision,) = graph_of(fn).decisions
    assert decision.what == "a number" and graph_of(fn).eager_calls <= 1


def test_gradients_through_a_range_of_a_number():
    fn = compiled(upwards)
    for x in inputs(5):
        a, b = (x.clone().requires_grad_() for _ in range(2))
        upwards(a).sum().backward()
        fn(b).sum().backward()
        torch.testing.assert_close(b.grad, a.grad)


def test_whether_a_number_is_finite_has_two_outcomes():
    def checked(x):
        loss = x.sum()
        if not math.isfinite(loss.item()):
            return torch.zeros(2)
        return x * (2 if math.isnan(loss.item()) else 3)

    fn = compiled(checked)
    for value in (1.0, 2.0, 3.0, math.inf, math.nan, 4.0):
        agrees(fn, checked, torch.full((2,), value))
    assert [len(each.edges) for each in graph_of(fn).decisions] == [2, 1] and graph_of(fn).eager_calls == 0


def test_numbers_are_rounded_by_the_program():
    def rounded(x):
        total = x.sum().item()
        return math.floor(total), math.ceil(total), round(total), math.trunc(total), int(x.sum()), int(total) + 1

    fn = compiled(rounded)
    for value in (0.4, -0.4, 2.5, 1.25, -3.75, 1e20):
        agrees(fn, rounded, torch.full((2,), value))
    assert (fn.cache_info().decisions, fn.cache_info().misses) == (0, 1)
    with pytest.raises(OverflowError):
        fn(torch.full((2,), math.inf))


def test_a_tensor_stands_for_a_number_that_an_operation_takes():
    ends = torch.tensor([0.5, 2.0])

    def drawn(x):
        crop = torch.empty(1).uniform_(ends[0], ends[1]).item()
        return x * crop, torch.empty(2).normal_(ends[0], ends[1]), torch.clamp(x, ends[0], ends[1])

    fn = compiled(drawn)
    for seed in range(4):
        x = torch.randn(3)
        torch.manual_seed(seed)
        ours = fn(x)
        torch.manual_seed(seed)
        torch.testing.assert_close(ours, drawn(x))
    assert fn.cache_info() == (3, 1, 1) and graph_of(fn).eager_calls == 0


def test_masks_that_are_assigned_and_classes_that_are_counted():
    def scattered(x):
        picked = x > 0
        y = x * 0
        y[picked] = x[picked] * 2
        x[~picked] = 7
        classes = torch.nn.functional.one_hot(picked.long().cumsum(0))
        return y, classes, x.repeat_interleave(picked.long() + 1), torch.repeat_interleave(picked.long())

    fn = compiled(scattered)
    for x in (*inputs(3), *inputs(3)):
        agrees(fn, scattered, x)
    assert graph_of(fn).eager_calls == 0


def test_gradients_through_an_assigned_mask():
    def assigned(x, w):
        y = x * 1
        y[x > 0] = w[x > 0] * x[x > 0]
        return y.sum()

    fn = compiled(assigned)
    for x in inputs(3):
        grads = []
        for call in (assigned, fn):
            leaves = [x.clone().requires_grad_(), torch.full((9,), 3.0).requires_grad_()]
            call(*leaves).backward()
            grads.append([leaf.grad for leaf in leaves])
        torch.testing.assert_close(grads[1], grads[0])


def test_what_else_lies_in_the_module_of_a_function_is_no_part_of_its_state():
    namespace = {"math": math, "torch": torch}
    exec("def f(x):\n    for i in range(int((x > 0).sum())):\n        x = x * 0.5\n    return x", namespace)
    namespace["compiled"] = fn = compiled(namespace["f"])
    for x in inputs(4):
        agrees(fn, namespace["f"], x)
    assert [each.problem for each in graph_of(fn).decisions] == [None, None]
