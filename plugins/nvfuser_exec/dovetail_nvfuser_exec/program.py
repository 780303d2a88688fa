"""A region as nvFuser sees it: its steps, the values that it stores, and the views of those that it returns.

nvFuser allocates its results, without gaps.  Results that the region promises as views are created from those, or from inputs, outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch

from dovetail.extend import BoundSymbol, TensorSpec, Trace
from dovetail.extend.advanced import ExecutorError, prims_of
from dovetail_nvfuser_exec.translators import DTYPES, MOVES, NUMBERS, RESIZES, VIEWS

Maker = Callable[[tuple, list], torch.Tensor]  # (inputs, results) -> one output


class Step(NamedTuple):
    """A prim, and those of its results that are values of the region's lines: they are rounded to their dtype."""

    line: BoundSymbol
    shown: tuple[bool, ...]


class Stored(NamedTuple):
    """A value that gets memory, and the order of its dimensions there, slowest first; None for row-major.  `into` is an input to write."""

    proxy: Any
    order: tuple[int, ...] | None
    into: Any = None


class Program:
    """The live steps of a region, the inputs that they read, the values that are stored, and how each output is created."""

    def __init__(self, region: Trace):
        self.region = region
        self.bases: dict[Any, tuple[Any, int]] = {p: (p, 0) for p in region.inputs}  # the base and offset of each value that is a view
        steps = [step for line in region.lines for step in self._steps(line)]
        self._unread(steps)
        written = [(step.line.args[0], step.line.args[1]) for step in steps if step.line.symbol.name == "copy_"]
        input_places = {p: i for i, p in enumerate(region.inputs)}
        roots = dict.fromkeys(self.bases[p][0] for p in region.outputs)
        self.stored = [Stored(p, _order(p.spec)) for p in roots if p not in input_places]
        self.stored += [Stored(value, None, self._target(x, input_places)) for x, value in written]
        self.results = [s.proxy for s in self.stored if s.into is None]
        self.steps = _needed([step for step in steps if step.line.symbol.name != "copy_"], [s.proxy for s in self.stored])
        read = {p for step in self.steps for p in step.line.reads} | {p for s in self.stored for p in (s.proxy, s.into)}
        self.inputs = [i for i, p in enumerate(region.inputs) if p in read]
        result_places = {p: i for i, p in enumerate(self.results)}
        self.makers = [self._maker(p, input_places, result_places) for p in region.outputs]

    @property
    def static(self) -> bool:
        """Whether sizes are constants of the definition: where some step changes sizes, nvFuser needs to know which become 1."""
        return any([step.line.symbol.name in RESIZES for step in self.steps])

    def _steps(self, line: BoundSymbol) -> Iterator[Step]:
        shown = set(line.writes)
        for inner in prims_of([line]):
            for p in inner.writes:
                self.bases[p] = (p, 0)
            if inner.symbol.name in VIEWS:
                base, offset = self.bases[inner.args[0]]
                self.bases[inner.out] = (base, offset + _offset(inner))
            yield Step(inner, tuple([p in shown for p in inner.writes]))

    def _unread(self, steps: list[Step]) -> None:
        """Raise where a step reads an input after it was written: a definition reads its old value."""
        written = set()
        for step in steps:
            stale = [p.name for p in step.line.reads if self.bases.get(p, (p, 0))[0] in written]
            if stale:
                raise ExecutorError(f"nvfuser cannot read {stale[0]} in the region that writes it; leave the option `in_place` off")
            if step.line.symbol.name == "copy_":
                written.add(step.line.args[0])

    def _target(self, x: Any, input_places: dict[Any, int]) -> Any:
        if x not in input_places:
            raise ExecutorError(f"nvfuser writes into inputs of a region only, and {x.name} is computed inside it; leave the option `in_place` off")
        return x

    def _maker(self, p: Any, input_places: dict[Any, int], result_places: dict[Any, int]) -> Maker:
        """Return a function that creates an output: a result, or a view of one or of an input."""
        (base, offset), shape, steps = self.bases[p], p.spec.shape, p.spec.steps
        if base in input_places:
            at = input_places[base]
            return lambda inputs, results: inputs[at].as_strided(shape, steps, inputs[at].storage_offset() + offset)
        at = result_places[base]
        if p is base:
            return lambda inputs, results: results[at]
        return lambda inputs, results: results[at].as_strided(shape, steps, offset)

    def key(self, layouts: Iterable[tuple]) -> tuple:
        """Return a key that is equal where two regions share a definition: the same steps on inputs of these layouts, whatever the names are."""
        numbers: dict[Any, int] = {}

        def plain(value: Any) -> Any:
            if hasattr(value, "spec"):
                return ("t", numbers[value])
            if isinstance(value, (list, tuple)):
                return tuple(map(plain, value))
            return (type(value).__name__, repr(value))

        for i in self.inputs:
            numbers[self.region.inputs[i]] = len(numbers)
        rows: list[Any] = [self.static, tuple(layouts)]
        for step in self.steps:
            line = step.line
            rows.append((line.symbol.name, plain(line.args), tuple((k, plain(v)) for k, v in line.kwargs.items()), step.shown))
            numbers.update({p: len(numbers) + i for i, p in enumerate(line.writes)})
        ends = [
            (numbers[s.proxy], s.order, s.proxy.spec.rank, s.proxy.spec.dtype.name, None if s.into is None else numbers[s.into]) for s in self.stored
        ]
        return (*rows, tuple(ends))


def computing(region: Trace) -> int:
    """Count a region's prims that compute, rather than move elements."""
    return sum([line.symbol.name not in MOVES for line in prims_of(region.lines)])


def layout(spec: Any, describe: Callable[[list[int], list[int]], tuple], static: bool) -> tuple:
    """Describe an input to a definition: (dtype, shape, contiguity, stride order), or the dtype alone of a number.

    Sizes are -1 but for 1, which nvFuser broadcasts, unless they are static.  A dimension of size 1 or stride 0 has no contiguity.
    """
    if type(spec) is not TensorSpec:
        return (NUMBERS[spec.kind],)
    contiguity, order = describe(list(spec.shape), list(spec.steps))
    shape = tuple([n if static or n == 1 else -1 for n in spec.shape])
    return DTYPES[spec.dtype], shape, tuple(contiguity), tuple(order)


def _needed(steps: list[Step], ends: list[Any]) -> list[Step]:
    """Return the steps that `ends` depend on."""
    live, needed = set(ends), []
    for step in reversed(steps):
        if any([p in live for p in step.line.writes]):
            live.update(step.line.reads)
            needed.append(step)
    return needed[::-1]


def _offset(line: BoundSymbol) -> int:
    """Return the element of its base at which a view starts."""
    if line.symbol.name != "strided_slice":
        return 0
    return sum([start * step for start, step in zip(line.kwargs["starts"], line.args[0].spec.steps, strict=True)])


def _order(spec: TensorSpec) -> tuple[int, ...] | None:
    """Return the dimensions of a dense tensor, slowest first; None for row-major."""
    if spec.strides is None:
        return None
    return tuple(sorted(range(spec.rank), key=lambda d: (-spec.steps[d], spec.shape[d] == 1, d)))
