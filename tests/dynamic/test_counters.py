"""Scenario 28: ints that a function reads from outside, as counters of modules, become symbols."""

from __future__ import annotations

import copy
import enum
import operator
import warnings

import pytest
import torch
from torch import nn

import dovetail


class Counting(nn.Module):
    """Counts its calls in an attribute, and the rows it has got in a dict."""

    def __init__(self):
        super().__init__()
        self.linear, self.calls, self.facts = nn.Linear(4, 3), 0, {"rows": 2}

    def forward(self, x):
        self.calls += 1
        self.facts["rows"] += len(x)
        decay = max(0.5, 1 - 0.01 * self.calls)
        return self.linear(x) * decay / self.facts["rows"], self.calls


def test_28_counters_that_a_module_advances_are_symbols():
    torch.manual_seed(0)
    module = Counting()
    eager, compiled = copy.deepcopy(module), dovetail.jit(module)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(12):
            x = torch.randn(5, 4)
            result, expected = compiled(x), eager(x)
            torch.testing.assert_close(result, expected)
            assert (module.calls, module.facts, type(result[1])) == (eager.calls, eager.facts, int)
    assert compiled.cache_info().programs <= 4


COUNT = 1


def test_28_counters_in_globals_and_closures_are_symbols():
    n = 1

    def fn(x):
        global COUNT
        nonlocal n
        COUNT, n = COUNT + 1, n + 2
        return x[:COUNT] * n

    compiled = dovetail.jit(fn)
    for i in range(2, 9):
        x = torch.randn(20)
        torch.testing.assert_close(compiled(x), x[:i] * (2 * i - 1))
        assert (COUNT, n) == (i, 2 * i - 1)
    assert compiled.cache_info().programs <= 3


AVERAGES = {
    "/": lambda total, n: total / n,
    "float": lambda total, n: total / float(n),
    "//": lambda total, n: total // n,
    "%": lambda total, n: total % n,
    "/=": lambda total, n: operator.itruediv(total, n),
    "text": lambda total, n: f"{total / n:.3f}",
}


@pytest.mark.parametrize("start", [0, -6], ids=["above zero", "through zero"])
@pytest.mark.parametrize("average", AVERAGES.values(), ids=AVERAGES)
def test_28_a_number_of_tensors_is_divided_by_a_counter(average, start):
    state = {"n": start, "total": 0.0}

    def step(x):
        state["n"] += 1
        state["total"] += x.sum().item()
        return average(state["total"], state["n"]), average(x.max().item(), state["n"] * len(x))

    def outcomes(fn):
        state.update(n=start, total=0.0)
        torch.manual_seed(0)
        results = []
        for _ in range(12):
            try:
                results.append(fn(torch.randint(9, (4,)).float()))  # the sums are exact
            except ZeroDivisionError as error:
                results.append(str(error))
        return results, dict(state)

    compiled = dovetail.jit(step)
    assert outcomes(compiled) == outcomes(step)
    assert compiled.cache_info().programs <= (3 if start == 0 else 6)


class Bits(enum.Flag):
    FIRST, SECOND, THIRD = 1, 2, 4


def test_28_numbers_of_several_objects_of_one_class_are_not_taken_for_each_other():
    state = {"flag": Bits.FIRST}

    def fn(x):
        return x * (state["flag"] | Bits.FIRST).value

    compiled, x = dovetail.jit(fn), torch.randn(3)
    for flag in (*Bits, Bits.FIRST | Bits.SECOND, Bits.SECOND | Bits.THIRD, *Bits):
        state["flag"] = flag
        torch.testing.assert_close(compiled(x), fn(x))


class Ring:
    """Rows that were added, the oldest of which are replaced."""

    def __init__(self, rows):
        self.rows, self.at, self.full = torch.zeros(rows, 3), 0, False

    def add(self, row):
        self.rows[self.at] = row
        self.at = (self.at + 1) % len(self.rows)
        self.full = self.full or self.at == 0

    def __len__(self):
        return len(self.rows) if self.full else self.at


def test_the_length_of_an_object_is_a_symbol():
    ours, eagers = Ring(16), Ring(16)

    def added(ring, row):
        ring.add(row)
        return len(ring), ring.rows[: len(ring)].sum(0)

    compiled = dovetail.jit(lambda row: added(ours, row))
    for i in range(20):
        row = torch.full((3,), float(i))
        result, expected = compiled(row), added(eagers, row)
        torch.testing.assert_close(result, expected)
        assert type(result[0]) is int
    assert compiled.cache_info().programs <= 8  # of 20 lengths

    class Wrong:
        count = 3

        def __len__(self):
            return -self.count

    wrong = Wrong()
    length = dovetail.jit(lambda x: x + len(wrong))
    for wrong.count in (3, 4, 5):
        with pytest.raises(ValueError, match="should return >= 0"):
            length(torch.ones(2))
