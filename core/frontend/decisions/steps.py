"""What runs at a decision: each step takes the values that are needed, and returns the outcome and the values that come with it.

Steps are data, so that a saved driver can write them out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from dovetail.frontend.decisions.outcome import Outcome
from dovetail.frontend.decisions.outside import caller
from dovetail.prims.arithmetic_table import ARITHMETIC


def truth(x: Any) -> tuple[bool, tuple]:
    """Return whether a value is true."""
    return bool(x), ()


def number(x: Any) -> tuple[Outcome, tuple]:
    """Return a number as the outcome."""
    return Outcome.of_value(x), ()


@dataclass(frozen=True)
class Converted:
    """Ask for what `convert` returns of a tensor."""

    convert: Callable[[Any], Any]

    def __call__(self, x: torch.Tensor) -> tuple[Outcome, tuple]:
        return Outcome.of_value(self.convert(x)), ()


@dataclass(frozen=True)
class WholeNumber:
    """Ask for an integer that an operation takes; where it is `moving`, all from 2 on are one outcome."""

    moving: bool

    def __call__(self, x: Any) -> tuple[Outcome, tuple]:
        return Outcome.of_size(int(x)) if self.moving else (Outcome.of_value(int(x)), ())


@dataclass
class OutsideStep:
    """Call a function on values: `template` has slots for them among the arguments."""

    function: Callable
    template: tuple[Any, Any]
    count: int
    call: Callable = field(init=False)

    def __post_init__(self) -> None:
        self.call = caller(self.function, self.template, self.count)


@dataclass
class Operation(OutsideStep):
    """Call an operation with a result whose shape depends on values, with grad mode as it was.  `dims` are the dimensions that are symbols."""

    grad: bool
    dims: Mapping[int, Collection[int]]

    def __call__(self, *values: Any) -> tuple[Outcome, tuple]:
        if torch.is_grad_enabled() is self.grad:
            return Outcome.of_results(self.call(*values), self.dims)
        with torch.set_grad_enabled(self.grad):
            return Outcome.of_results(self.call(*values), self.dims)


@dataclass
class Predicate(OutsideStep):
    """Ask whether a function of numbers holds."""

    def __call__(self, *values: Any) -> tuple[bool, tuple]:
        return self.call(*values), ()


@dataclass(frozen=True)
class Arithmetic:
    """Compute with numbers as Python does: the outcome is the error that it raises, True for none."""

    op: str
    call: Callable
    template: Any

    @classmethod
    def of(cls, op: str, template: Any, count: int) -> Arithmetic:
        """Return the step for an operation on numbers, with slots for the values in `template`."""
        return cls(op, caller(ARITHMETIC[op][1], (template, {}), count), template)

    def __call__(self, *values: Any) -> tuple[Any, tuple]:
        try:
            return True, (self.call(*values),)
        except (ArithmeticError, ValueError) as error:
            return Outcome.of_value((type(error), error.args)), ()


@dataclass(frozen=True)
class Gradients:
    """Differentiate: the values are `count` outputs, as many cotangents, and the leaves, which `order` puts in the order of the gradients."""

    count: int
    order: Sequence[int]
    retain: bool
    create_graph: bool
    compute: Callable[..., list[torch.Tensor | None]]

    def __call__(self, *values: torch.Tensor) -> tuple[Outcome, tuple]:
        count, leaves = self.count, values[2 * self.count :]
        wanted = [leaves[i] for i in self.order]
        gradients = self.compute(values[:count], values[count : 2 * count], wanted, self.retain, self.create_graph)
        return Outcome.of_gradients(gradients), tuple([g for g in gradients if g is not None])
