"""What a program assumes of numbers from outside that change, as that `rate > 0.5` is true: many values share one answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dovetail.frontend.guards.source import Source
from dovetail.prims.arithmetic_table import ARITHMETIC


class Computed(NamedTuple):
    """A number that an operation computes; each operand is a number, the source of one, or another that is computed."""

    op: str
    operands: tuple

    def __repr__(self) -> str:
        return ARITHMETIC[self.op][0].format(*[f"({x!r})" if type(x) is Computed else repr(x) for x in self.operands])


class Condition(NamedTuple):
    """A question about numbers: `ask` takes a value for each operand, which is as those of `Computed`; `form` writes it, with {} for each."""

    ask: Callable
    operands: tuple
    form: str

    @property
    def sources(self) -> tuple[Source, ...]:
        """What it reads."""
        return tuple(dict.fromkeys(_sources(self.operands)))

    def answer(self, values: Mapping[Source, Any]) -> Any:
        """Return the answer for the values that are at the sources; None where computing it raises an error."""
        try:
            return self.ask(*[_value(x, values) for x in self.operands])
        except (ArithmeticError, TypeError, ValueError):
            return None

    def __repr__(self) -> str:
        return self.form.format(*[f"({x!r})" if type(x) is Computed else repr(x) for x in self.operands])


class Answer:
    """A condition on one source or two, and the answer that a program depends on, a bool or an int."""

    def __init__(self, condition: Condition, answer: int):
        self.condition, self.answer = condition, answer
        self.sources = condition.sources

    def __repr__(self) -> str:
        if type(self.answer) is bool:
            return repr(self.condition) if self.answer else f"not ({self.condition})"
        return f"{self.condition} == {self.answer}"

    def holds(self, *values: Any) -> bool:
        """Return whether the numbers that lie at the sources have the same answer."""
        return self.condition.answer(dict(zip(self.sources, values, strict=True))) == self.answer


def _sources(operands: tuple) -> list[Source]:
    return [source for x in operands for source in ([x] if type(x) is Source else _sources(x.operands) if type(x) is Computed else [])]


def _value(x: Any, values: Mapping[Source, Any]) -> Any:
    if type(x) is Computed:
        return ARITHMETIC[x.op][1](*[_value(operand, values) for operand in x.operands])
    return values[x] if type(x) is Source else x
