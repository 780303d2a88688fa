"""Branches and loops on values: results as in eager mode, and how much is compiled for them.  Numbers are those of docs/decisions.md."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from decisions.helpers import agrees, compiled, graph_of

from dovetail.errors import TracedValueError


def branch(x):
    if x.sum() > 0:
        return x * 2
    return x - 1


def test_1_the_third_call_of_a_branch_compiles_nothing():
    fn = compiled(branch)
    for x in (torch.ones(3), -torch.ones(3)):
        agrees(fn, branch, x)
    explored = len(fn._cache.explored)
    agrees(fn, branch, torch.full((3,), 5.0))
    agrees(fn, branch, torch.full((3,), -5.0))
    assert explored == len(fn._cache.explored) == 2


def nested(x, y):
    if x.sum() > 0:
        a = x * y
        if y.sum() > 0:
            return a + 1
        return a - 1
    b = x / y
    if b.max() > 1:
        return b
    return x + b


CALLS = [(1.0, 1.0), (1.0, -1.0), (-1.0, -3.0), (-1.0, -0.5)]


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)])
def test_2_nested_branches_make_the_same_graph_in_any_order(order):
    fn = compiled(nested)
    for i in (*order, *order):
        agrees(fn, nested, *[torch.full((4,), value) for value in CALLS[i]])
    graph = graph_of(fn)
    assert len(graph.decisions) == 3
    assert sorted(len(d.edges) for d in graph.decisions) == [2, 2, 2]


def test_3_branches_in_a_row_are_as_many_decisions():
    def row(x, y):
        y = y * 1
        for value in x:
            if value > 0:
                y = y + 1
            else:
                y = y * 2
        return y

    fn = compiled(row)
    signs = torch.ones(12)
    for i in range(12):
        agrees(fn, row, signs.clone(), torch.tensor(2.0))
        signs[i] = -1.0
    agrees(fn, row, signs, torch.tensor(2.0))
    graph, explored = graph_of(fn), len(fn._cache.explored)
    assert len(graph.decisions) == explored - 1 == 12
    for seed in range(20):
        agrees(fn, row, torch.randn(12, generator=torch.Generator().manual_seed(seed)), torch.tensor(2.0))
    assert len(fn._cache.explored) == explored and len(graph.programs) <= 5
    assert max(len(decision.width) for decision in graph.decisions) <= 12 + 2  # the items, the condition, y


def newton(a, tolerance):
    x, error = torch.ones_like(a), torch.tensor(1.0)
    while error > tolerance:
        new = 0.5 * (x + a / x)
        error, x = (new - x).abs().max(), new
    return x


def test_4_a_loop_closes_on_itself():
    fn = compiled(newton)
    for value in (2.0, 1e6, 3.0, 50.0):
        agrees(fn, newton, torch.full((4,), value), 1e-5)
    graph = graph_of(fn)
    assert len(graph.decisions) == (1 if sys.version_info >= (3, 14) else 2)  # before 3.14 bytecode tests before the loop and at its end
    assert any(edge.target is d for d in graph.decisions for edges in d.edges.values() for edge in edges)


def test_5_a_loop_with_a_counter_compiles_its_body_once():
    def counted(x):
        n = 0
        while x.sum() < 10:
            x = x + 1
            n += 1
        return x, n

    fn = compiled(counted)
    for start in (0.0, 1.0, 2.0, 0.0):
        agrees(fn, counted, torch.full((2,), start))
    explored = len(fn._cache.explored)
    agrees(fn, counted, torch.full((2,), -500.0))
    assert len(fn._cache.explored) == explored and len(graph_of(fn).decisions) <= 3 and len(graph_of(fn).programs) <= 5


def test_6_a_loop_with_a_break():
    def broken(x):
        for step in range(3, 200, 2):  # noqa: B007
            x = x * 2
            if x.max() > 50:
                break
        return x, step

    fn = compiled(broken)
    for start in (1.0, 3.0, 0.01, 40.0):
        agrees(fn, broken, torch.full((2,), start))
    explored = len(fn._cache.explored)
    for start in (1e-20, 1e-5, 45.0, 0.0):
        agrees(fn, broken, torch.full((2,), start))
    assert graph_of(fn).eager_calls == 0 and len(fn._cache.explored) == explored + 1  # zero is the first that ends the range


def test_6_a_count_whose_value_is_needed_is_no_number_of_the_program():
    def indexed(x):
        total = x[0] * 0
        for i in range(len(x) - 1, -1, -1):
            if x[i] > 0:
                total = total * 2 + i
        return total

    fn = compiled(indexed)
    for signs in ([1.0, -1, 1], [1, 1, -1], [-1, -1, -1], [1, -1, 1], [1, 1, 1]):
        agrees(fn, indexed, torch.tensor(signs))
    assert len(graph_of(fn).decisions) == 3 and graph_of(fn).eager_calls == 0


def test_7_a_loop_that_appends_and_prints(capsys):
    def logged(x):
        seen = []
        while x.sum() < 6:
            seen.append(x)
            print("still", len(seen))
            x = x + 1
        return seen

    fn = compiled(logged)
    for start in (0.0, 1.0, 0.0):
        expected = logged(torch.full((2,), start))
        printed = capsys.readouterr().out
        torch.testing.assert_close(fn(torch.full((2,), start)), expected)
        assert capsys.readouterr().out == printed


def test_9_a_number_that_is_returned_or_printed_is_no_decision(capsys):
    def returned(x):
        total = x.sum().item()
        print(total)
        return x * total, total

    fn = compiled(returned)
    agrees(fn, returned, torch.ones(3))
    agrees(fn, returned, torch.full((3,), 2.0))
    assert fn._cache.entries[0].graph is None


def test_10_an_assertion_holds_fails_and_holds_again():
    def checked(x):
        if not torch.isfinite(x).all():  # pytest rewrites assertions, so that they write tensors out
            raise AssertionError("not finite")
        return x.exp()

    fn = compiled(checked)
    agrees(fn, checked, torch.ones(2))
    for _ in range(2):
        with pytest.raises(AssertionError, match="not finite") as error:
            fn(torch.tensor([float("nan"), 1.0]))
        assert error.traceback[-1].name == "checked"
    agrees(fn, checked, torch.zeros(2))
    assert len(fn._cache.explored) == 2  # the failing outcome is known: nothing is traced again


def test_17_equal_layers_of_an_early_exit_share_programs():
    class Exits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(4)])

        def forward(self, x):
            for block in self.blocks:
                x = block(x).relu() + x
                if x.max() > 2:
                    return x
            return x

    torch.manual_seed(0)
    module = Exits()
    fn = compiled(module)
    for scale in (0.1, 1.0, 3.0, 0.01, 0.1):
        torch.testing.assert_close(fn(torch.ones(2, 4) * scale), module(torch.ones(2, 4) * scale))
    graph = graph_of(fn)
    assert len(graph.decisions) == 4
    assert len(graph.programs) == 2  # the first layer reads x, which requires no grad


def test_26_threads_with_different_outcomes():
    fn = compiled(nested)
    inputs = [[torch.full((4,), value) for value in CALLS[i % 4]] for i in range(40)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda args: fn(*args), inputs))
    for args, result in zip(inputs, results, strict=True):
        torch.testing.assert_close(result, nested(*args))


def test_cond_and_while_loop_of_torch_are_a_branch_and_a_loop():
    def controlled(x):
        y = torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))
        return torch.while_loop(lambda y, n: y.sum() < 6, lambda y, n: (y + 1, n + 1), (y, torch.tensor(0)))

    def plain(x):
        y, n = x * 2 if x.sum() > 0 else x - 1, torch.tensor(0)
        while y.sum() < 6:
            y, n = y + 1, n + 1
        return y, n

    fn = compiled(controlled)
    for value in (1.0, -1.0, -5.0, 4.0):
        torch.testing.assert_close(fn(torch.full((2,), value)), plain(torch.full((2,), value)))
    assert len(graph_of(fn).decisions) <= 3
    with pytest.raises(TracedValueError, match=r"needed at .*test_branches.py:\d+"):
        compiled(controlled, decisions="error")(torch.ones(2))
