"""Drawing a program: steps are tried eagerly on real values, and those that raise or leave the ordinary range are dropped."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import torch
from torch import Tensor

from dovetail_conformance.fuzz.draft import LAYOUTS, NEEDS, Draft, Input, Step, run_step
from dovetail_conformance.fuzz.kinks import close_to_kink
from dovetail_conformance.layout import overlaps

SHAPES = {  # sizes as users have them
    "tiny": [(1,), (2,), (3,), (7,), (2, 3), (1, 5), (5, 1), (3, 1, 4), (4, 4), (2, 3, 5), (1, 1), (1, 2, 2, 4), (2, 2, 4, 3), ()],
    "empty": [(0,), (0, 5), (3, 0), (2, 0, 4)],
    "small": [(16,), (33,), (64,), (100,), (8, 64), (10, 12), (31, 33), (64, 65), (4, 8, 16), (2, 3, 8, 8), (2, 16, 10, 3), (100, 63), (3, 130)],
    "medium": [(1000,), (4097,), (10007,), (500, 10), (128, 257), (2, 2046), (1, 16384), (16, 31, 33), (8, 1, 2048), (4, 16, 14, 14), (2, 9, 65, 7)],
    "large": [(100000,), (131072,), (7, 10003), (1000, 100), (10003, 7), (4, 128, 256), (64, 3, 7, 7), (2, 64, 56, 56), (32, 128, 49), (300, 301)],
    "huge": [(1000000,), (3000000,), (1000, 1000), (7, 100003), (32, 128, 768), (8, 64, 56, 56), (2048, 513), (100003, 9)],
}  # fmt: skip
SIZES = {"tiny": 5, "empty": 1, "small": 8, "medium": 8, "large": 5, "huge": 1}  # how often each is drawn
DTYPES = {
    "float32": 60,
    "bfloat16": 10,
    "float16": 6,
    "float64": 8,
    "int64": 5,
    "int32": 4,
    "uint8": 2,
    "int8": 1,
    "int16": 1,
    "bool": 2,
    "complex64": 1,
}
LAYOUT_ODDS = {"contiguous": 60} | dict.fromkeys([name for name in LAYOUTS if name != "contiguous"], 5)
LARGEST, DIMS, MAGNITUDE = 3_200_000, 5, 1000.0  # elements, dimensions and absolute value that a step may give
TOTAL = 16_000_000  # elements of all values together
STEPS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16)
KINKED = 4096  # elements of a rounded operand of a step with kinks, where gradients are compared


class Impossible(Exception):
    """A family of operations has nothing to offer for the values that there are."""


@dataclass(eq=False)
class Value:
    """A value of the program so far: as eager computes it, and whether no step before it rounded."""

    name: str
    tensor: Tensor
    exact: bool = True

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    @property
    def dim(self) -> int:
        return self.tensor.dim()

    @property
    def real(self) -> bool:
        """Whether it holds floating-point numbers."""
        return self.tensor.is_floating_point()

    @property
    def integral(self) -> bool:
        """Whether it holds integers; booleans are none."""
        return not (self.real or self.tensor.is_complex() or self.tensor.dtype is torch.bool)


@dataclass
class Drawing:
    """A program while it is drawn; `families` are what its steps are drawn from."""

    rng: random.Random
    dtype: str
    grad: bool
    shape: tuple[int, ...]
    special: bool = False
    inputs: list[Input] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    writes_inputs: bool = False

    def maybe(self, odds: float) -> bool:
        """Return True this often."""
        return self.rng.random() < odds

    def choice(self, options: Sequence[Any]) -> Any:
        """Return one of the options; Impossible if there are none."""
        if not options:
            raise Impossible
        return self.rng.choice(options)

    def pick(self, suits: Callable[[Value], bool] = lambda value: value.real) -> Value:
        """Return a value that suits, a late one more often; a new input if there is none."""
        suiting = [value for value in self.values if suits(value)]
        if not suiting:
            raise Impossible
        return self.choice(suiting[-3:]) if self.maybe(0.7) else self.choice(suiting)

    def real(self) -> Value:
        """Return a value of floating-point numbers."""
        return self.pick()

    def exact(self, suits: Callable[[Value], bool] = lambda value: True) -> Value:
        """Return a value that no step rounded."""
        return self.pick(lambda value: value.exact and suits(value))

    def smooth(self) -> Value:
        """Return a value for a step with kinks: rounded values must be few where gradients are compared."""
        return self.pick(lambda value: value.real and (value.exact or not self.grad or value.tensor.numel() <= KINKED))

    def new_input(self, shape: Sequence[int], dtype: str, values: str = "", layout: str | None = None) -> Value:
        """Add an input; Impossible where it would be larger than what a step may give."""
        if prod(shape) > LARGEST:
            raise Impossible
        if layout is None:
            odds = {name: weight for name, weight in LAYOUT_ODDS.items() if self._fits(name, shape)}
            layout = self.rng.choices([*odds], [*odds.values()])[0]
        new = Input(f"x{len(self.inputs)}", tuple(shape), dtype, values or self._drawn_values(dtype), layout)
        new = replace(new, grad=self.grad and new.inexact and self.maybe(0.85))
        self.inputs.append(new)
        self.values.append(Value(new.name, new.make(self.rng.randrange(2**31))))
        return self.values[-1]

    @staticmethod
    def _fits(layout: str, shape: Sequence[int]) -> bool:
        dims = len(shape)
        return dims == 4 if layout == "channels_last" else dims >= NEEDS[layout]

    def _drawn_values(self, dtype: str) -> str:
        kinds = {"bool": ["bits"], "uint8": ["counts"], "int64": ["whole", "whole", "large"]}
        odds = ["special"] if self.special else ["normal"] * 6 + ["uniform", "offset", "ties", "scales"]
        return self.choice(
            odds if dtype.startswith(("float", "bfloat")) else ["normal"] if dtype.startswith("complex") else kinds.get(dtype, ["whole"])
        )

    def index(self, size: int, shape: Sequence[int] | None = None) -> Value:
        """Return indices into a dimension of `size`: often an input that is there already."""
        having = [x.name for x in self.inputs if x.values == f"index {size}" and (shape is None or x.shape == tuple(shape))]
        having = [value for value in self.values if value.name in having]
        if having and self.maybe(0.75):
            return self.choice(having)
        if not size:
            raise Impossible
        if shape is None:
            shape = self.choice([(size,), (1,), (5,), (2, 3), (max(1, size // 2),), (min(2 * size, 5000),), (min(size, 300),)])
        if len(shape) == 1 and shape[0] <= size and self.maybe(0.2):
            return self.new_input(shape, "int64", f"permutation {size}", "contiguous")
        return self.new_input(shape, self.choice(["int64"] * 5 + ["int32"]), f"index {size}")

    def other(self, value: Value, suits: Callable[[Value], bool] | None = None) -> Value:
        """Return a value that broadcasts with `value`: one that is there, or a new input."""
        dtype = value.tensor.dtype
        suits = suits or (lambda new: new.tensor.dtype == dtype)
        having = [new for new in self.values if suits(new) and _broadcasts(new.shape, value.shape)]
        if having and self.maybe(0.75):
            return self.choice(having)
        shape = list(value.shape)
        kind = self.rng.random()
        if kind < 0.25:
            shape = shape[-1:]
        elif kind < 0.5:
            shape = [1 if self.maybe(0.4) else size for size in shape]
        elif kind < 0.58:
            shape = []
        return self.new_input(shape, str(dtype).removeprefix("torch."))

    def add(self, step: Step) -> bool:
        """Run a step eagerly and keep it if its result is an ordinary tensor."""
        named = {value.name: value for value in self.values}
        operands = [named[name] for name in step.operands]
        rounded = any(not value.exact for value in operands)
        if step.writes and not self._writable(operands[0]):
            return False
        env = {value.name: value.tensor for value in self.values}
        if elements_of(step, env) > LARGEST:
            return False
        if step.kinks and rounded and self.grad and close_to_kink(step, env):
            return False
        before = operands[0].tensor.clone() if step.writes else None
        with torch.no_grad():
            try:
                run_step(step, env, env)
            except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError):
                return False
        got = env[step.result]
        if not self._ordinary(got):
            if before is not None:
                with torch.no_grad(), suppress(RuntimeError):
                    operands[0].tensor.copy_(before)
            return False
        new = Value(step.result, got, step.exact and not rounded)
        if step.writes and not new.exact:
            for value in self.values:
                if value.tensor.untyped_storage().data_ptr() == got.untyped_storage().data_ptr():
                    value.exact = False
        self.steps.append(step)
        if not step.assigns_item:
            self.values.append(new)
        return True

    def _writable(self, value: Value) -> bool:
        place = value.tensor.untyped_storage().data_ptr()
        inputs = {each.tensor.untyped_storage().data_ptr() for each in self.values[:] if each.name.startswith("x")}
        return not overlaps(value.tensor) and (place not in inputs or (self.writes_inputs and not self.grad))

    def _ordinary(self, got: Any) -> bool:
        if not isinstance(got, Tensor) or got.numel() + sum(value.tensor.numel() for value in self.values) > TOTAL:
            return False
        if got.numel() > LARGEST or got.dim() > DIMS or got.layout is not torch.strided:
            return False
        if self.special or not (got.is_floating_point() or got.is_complex()) or not got.numel():
            return True
        largest = float(got.abs().max())
        return largest <= MAGNITUDE  # NaN is not

    def draft(self) -> Draft:
        """Return the program: every value that no other step reads is a result, and the last."""
        read = {name for step in self.steps for name in step.operands[step.writes :]}
        computed = dict.fromkeys(value.name for value in self.values if value.name not in {x.name for x in self.inputs})
        results = [name for name in computed if name not in read or self.maybe(0.1)]
        grad = self.grad and any(x.grad for x in self.inputs)
        return Draft(tuple(self.inputs), tuple(self.steps), tuple(results), grad).live()


def elements_of(step: Step, env: dict[str, Any]) -> int:
    """Return how many elements the result of a step has, without memory for them; 0 where that depends on values."""
    with suppress(Exception), torch.no_grad():
        run_step(step, {name: env[name].detach().to("meta") for name in step.operands}, shapes := {})
        return shapes[step.result].numel()
    return 0


def _broadcasts(shape: Sequence[int], other: Sequence[int]) -> bool:
    try:
        return tuple(torch.broadcast_shapes(shape, other)) in (tuple(shape), tuple(other))
    except RuntimeError:
        return False
