"""What a program assumes of numbers from outside that change, as that `rate > 0.5` is true: many values share one answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, NamedTuple

from dovetail.frontend.guards.source import Source
from dovetail.prims.arithmetic_table import ARITHMETIC


class Computed(NamedTuple):
    """A number that an operation computes; each operand is a number, the source of one, or another that is computed."""

    op: str
    operands: tuple

    def __repr__(self) -> str:
        return ARITHMETIC[self.op][0].format(*[f"({x!r})" if type(x) is Computed else repr(x) for x in self.operands])


class Condition:
    """A question about numbers: `ask` takes a value for each operand, which is as those of `Computed`; `form` writes it, with {} for each.

    Attributes:
        sources: what it reads.
    """

    def __init__(self, ask: Callable, operands: tuple, form: str):
        self.ask, self.operands, self.form = ask, operands, form
        self.sources = tuple(dict.fromkeys(_sources(operands)))
        places = {source: i for i, source in enumerate(self.sources)}
        self.computed = [_function(x, places) for x in operands]

    def answer(self, *values: Any) -> Any:
        """Return the answer for the values that are at the sources; None where computing it raises an error."""
        try:
            return self.ask(*[compute(values) for compute in self.computed])
        except (ArithmeticError, TypeError, ValueError):
            return None

    def __repr__(self) -> str:
        return self.form.format(*[f"({x!r})" if type(x) is Computed else repr(x) for x in self.operands])


class Answer:
    """A condition on one source or two, and the answer that a program depends on, a bool or an int."""

    def __init__(self, condition: Condition, answer: int):
        self.condition, self.answer, self.sources = condition, answer, condition.sources

    def __repr__(self) -> str:
        if type(self.answer) is bool:
            return repr(self.condition) if self.answer else f"not ({self.condition})"
        return f"{self.condition} == {self.answer}"

    def holds(self, *values: Any) -> bool:
        """Return whether the numbers that lie at the sources have the same answer."""
        return self.condition.answer(*values) == self.answer


def _sources(operands: tuple) -> list[Source]:
    return [source for x in operands for source in ([x] if type(x) is Source else _sources(x.operands) if type(x) is Computed else [])]


def _function(x: Any, places: Mapping[Source, int]) -> Callable[[tuple], Any]:
    """Return what computes an operand of the values at the sources."""
    if type(x) is Source:
        return itemgetter(places[x])
    if type(x) is not Computed:
        return lambda values: x
    compute, operands = ARITHMETIC[x.op][1], [_function(operand, places) for operand in x.operands]
    return lambda values: compute(*[operand(values) for operand in operands])
