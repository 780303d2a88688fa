"""A random program as data: how its inputs are drawn and laid out, and one line of Python for each step."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dovetail_conformance.layout import overlaps

INEXACT = ("float32", "float64", "bfloat16", "float16", "complex64", "complex128")
VALUES = {  # Python that draws `shape` with the generator `g`; {n} is a bound
    "normal": "torch.randn(shape, generator=g)",
    "offset": "torch.randn(shape, generator=g) + 5",
    "uniform": "torch.rand(shape, generator=g)",
    "scales": "torch.randn(shape, generator=g) * torch.randn(shape, generator=g).exp2() ** 3",
    "ties": "torch.randint(-3, 4, shape, generator=g)",
    "whole": "torch.randint(-9, 10, shape, generator=g)",
    "counts": "torch.randint(0, 10, shape, generator=g)",
    "large": "torch.randint(-2**40, 2**40, shape, generator=g)",
    "bits": "torch.randint(0, 2, shape, generator=g)",
    "index": "torch.randint(0, {n}, shape, generator=g)",
    "signed": "torch.randint(-{n}, {n}, shape, generator=g)",
    "permutation": "torch.randperm({n}, generator=g)[:shape.numel()].view(shape)",
    "special": "torch.where(torch.rand(shape, generator=g) < 0.1, torch.tensor([float('nan'), float('inf'), -float('inf'), 0.0, -0.0, 1e30, 1e-40])"
    "[torch.randint(0, 7, shape, generator=g)], torch.randn(shape, generator=g))",
}
LAYOUTS = {  # Python that lays out the values `v`
    "contiguous": "v",
    "transposed": "v.mT.contiguous().mT",
    "reversed": "v.permute(*range(v.dim())[::-1]).contiguous().permute(*range(v.dim())[::-1])",
    "channels_last": "v.contiguous(memory_format=torch.channels_last)",
    "every_second": "v.repeat_interleave(2, -1)[..., ::2]",
    "padded_rows": "torch.cat([v, v[..., :1]], -1)[..., :-1]",
    "second_rows": "v.repeat_interleave(2, 0)[1::2]",
    "misaligned": "torch.cat([v.flatten()[:1], v.flatten()])[1:].view(v.shape)",
    "expanded": "v[:1].expand(v.shape)",
    "expanded_last": "v[..., :1].expand(v.shape)",
}
NEEDS = {"transposed": 2, "reversed": 2, "channels_last": 4, "every_second": 1, "padded_rows": 2, "second_rows": 1, "misaligned": 0, "expanded": 1}
NEEDS |= {"expanded_last": 1, "contiguous": 0}
_FILES = count()


@dataclass(frozen=True)
class Input:
    """An input of a draft: what it looks like and how its values are drawn."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    values: str = "normal"  # a key of VALUES, with a bound behind it where one is needed: "index 63"
    layout: str = "contiguous"  # a key of LAYOUTS
    grad: bool = False

    @property
    def inexact(self) -> bool:
        """Whether it holds floating-point or complex numbers."""
        return self.dtype in INEXACT

    @property
    def discrete(self) -> bool:
        """Whether its values are few, so that some are equal."""
        return self.values in ("ties", "whole", "counts", "bits", "special")

    @property
    def drawing(self) -> str:
        """Python that draws the values."""
        kind, _, bound = self.values.partition(" ")
        return VALUES[kind].replace("{n}", bound)

    def make(self, seed: int, *, wide: bool = False) -> Tensor:
        """Return the tensor for a seed, in float64 or complex128 if `wide`; its values are those of its own dtype."""
        g = torch.Generator().manual_seed(seed)
        v = eval(self.drawing, {"torch": torch, "shape": torch.Size(self.shape), "g": g}).to(getattr(torch, self.dtype))
        v = v.to(torch.complex128 if v.is_complex() else torch.float64) if wide and self.inexact else v
        return eval(LAYOUTS[self.layout], {"torch": torch, "v": v})


@dataclass(frozen=True)
class Step:
    """One line: `text` with {0}, {1}, ... for its operands.

    An `exact` step rounds nothing.  Before one that `accumulates`, operands count as rounded, too.  `kinks` are expressions that are zero
    where a rounding of the operands may change the result or its gradient by more than a rounding.
    """

    text: str
    operands: tuple[str, ...]
    result: str
    exact: bool = False
    accumulates: bool = False
    kinks: tuple[str, ...] = ()
    writes: bool = False  # whether it writes to its first operand

    @property
    def line(self) -> str:
        """The step as a line of the program."""
        text = self.text.format(*self.operands)
        return text if self.assigns_item else f"{self.result} = {text}"

    @property
    def assigns_item(self) -> bool:
        """Whether the line is an assignment to a part of its first operand, which is its result then."""
        return self.writes and " = " in self.text


@dataclass(frozen=True)
class Draft:
    """A random program: its inputs, its steps, and the names of the values it returns."""

    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    results: tuple[str, ...]
    grad: bool = False

    @property
    def text(self) -> str:
        """The body of the program as Python source."""
        return "\n".join([*(step.line for step in self.steps), f"return [{', '.join(self.results)}]"])

    @property
    def source(self) -> str:
        """The program as a Python function."""
        body = "\n".join(f"    {line}" for line in self.text.splitlines())
        return f"def program({', '.join(x.name for x in self.inputs)}):\n{body}\n"

    def function(self) -> Callable[..., list[Tensor]]:
        """Return the program as a function with its own source file, so that errors can quote its lines."""
        name = f"<fuzz {next(_FILES)}>"
        space: dict[str, Any] = {"torch": torch, "F": F}
        exec(compile(self.source, name, "exec"), space)
        linecache.cache[name] = (len(self.source), None, self.source.splitlines(keepends=True), name)
        return space["program"]

    def make_inputs(self, seed: int, *, wide: bool = False) -> list[Tensor]:
        """Return new inputs for a seed."""
        values = [x.make(seed * 1009 + i, wide=wide) for i, x in enumerate(self.inputs)]
        return [value.detach().requires_grad_(self.grad and x.grad) for x, value in zip(self.inputs, values)]

    def live(self) -> Draft:
        """Return the draft without steps and inputs that no result depends on."""
        needed, kept = set(self.results), []
        for step in reversed(self.steps):
            if step.writes or step.result in needed:
                needed.update(step.operands)
                kept.append(step)
        inputs = tuple(x for x in self.inputs if x.name in needed)
        return replace(self, inputs=inputs, steps=tuple(reversed(kept)))


def evaluate(
    draft: Draft,
    inputs: Sequence[Tensor],
    *,
    wide: bool = False,
    before: Callable[[Step, dict[str, Any]], dict[str, Any]] | None = None,
    after: Callable[[Step, dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Run the steps one by one and return every value by name.

    `before` may replace operands of a step, `after` may change its result; `wide` computes in float64 what the program computes in less.
    """
    env: dict[str, Any] = {x.name: value for x, value in zip(draft.inputs, inputs)}
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if wide else usual)  # what integers become
    try:
        for step in draft.steps:
            run_step(step, env if before is None else {**env, **before(step, env)}, env, wide=wide)
            if after is not None:
                after(step, env)
    finally:
        torch.set_default_dtype(usual)
    return env


def run_step(step: Step, operands: dict[str, Any], env: dict[str, Any], *, wide: bool = False) -> None:
    """Run one step on `operands` and store its result in `env`."""
    line = widened(step.line) if wide else step.line
    space = {name: operands[name] for name in step.operands} | {"torch": torch, "F": F}
    exec(_compiled(line), space)
    env[step.result] = space[step.operands[0]] if step.assigns_item else space[step.result]


@lru_cache(4096)
def _compiled(line: str) -> Any:
    return compile(line, "<fuzz step>", "exec")


def widened(text: str) -> str:
    """Return source with dtypes of twice the precision; a cast that changes nothing there copies all the same."""
    wide = re.sub(r"torch\.complex64\b", "torch.complex128", re.sub(r"torch\.b?float(16|32)\b", "torch.float64", text))
    return wide.replace(".to(torch.float64)", ".to(torch.float64, copy=True)")


def refill(inputs: Sequence[Tensor], values: Sequence[Tensor]) -> Iterator[Tensor]:
    """Yield the inputs with new values in the same storage; where elements share memory, new tensors."""
    for x, value in zip(inputs, values):
        if overlaps(x):
            yield value
        else:
            with torch.no_grad():
                x.copy_(value)
            x.grad = None
            yield x
