"""The corpus of a search: calls that took new branches, and how the next ones are made from them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from math import inf
from typing import Any

import torch
from torch import Tensor

from dovetail_conformance.axes.arguments import named_arguments, parameters_of, with_arguments
from dovetail_conformance.axes.covering import AXES, Row
from dovetail_conformance.axes.sizes import INDICES, mapped, tensors_of
from dovetail_conformance.axes.variants import USUAL, Variants
from dovetail_conformance.guided.hints import Hints
from dovetail_conformance.guided.knobs import MANY, Grow, Knob, Number, knobs_of, shaped
from dovetail_conformance.opinfo import OpInfo, SampleInput
from dovetail_conformance.program import program_of
from dovetail_conformance.ties import TIES

BASES = 12  # calls of which each knob is turned to each constant
AVOIDED = ("autocast", "float64")  # modes that change what eager computes in
RANKS = (1, 2, 3, 4, 5, 6)  # dimensions that are tried without a constant
DRAWN = ("size", "layout", "values", "broadcast", "which", "place", "same", "grad", "mode")  # axes of which a change draws levels
TURNS, LARGEST = 6, 1 << 30  # calls that take all constants in turn; the largest element
SMALL = 40  # sizes up to this one are tried without a constant


@dataclass
class Candidate:
    """A call that may be tried: a sample, the levels of its row, and the variants of its dtype."""

    sample: SampleInput
    of: Variants = field(repr=False)
    row: Row = USUAL
    judged: bool = False  # whether it is judged whatever branches it takes


@dataclass
class Entry:
    """A call that took new branches: its edges, and both sides of its comparisons."""

    candidate: Candidate
    path: frozenset[int]
    sides: dict[int, tuple[float, float]]


class Mutations:
    """Makes new calls of an operation from earlier ones; a seeded generator draws them."""

    def __init__(self, info: OpInfo, hints: Hints, seed: int, *, values: bool = True, unordered: bool = False, anything: bool = False):
        self.info, self.hints, self.values, self.unordered, self.anything = info, hints, values, unordered, anything
        self.draw, self.grow = random.Random(9000 + seed), Grow(torch.Generator().manual_seed(9000 + seed), unordered)
        self.tied = info.name.rpartition(".")[2] in TIES
        self.parameters = parameters_of(info)
        self.names = [name for name, p in self.parameters.items() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]

    @staticmethod
    def tensors(candidate: Candidate) -> list[Tensor]:
        """Return the tensors of a call, each once."""
        return list(tensors_of((candidate.sample.args, candidate.sample.kwargs)))

    def style(self, candidate: Candidate) -> frozenset[str]:
        """Return which arguments a call passes."""
        return frozenset(named_arguments(self.names, candidate.sample))

    def knobs(self, sample: SampleInput) -> list[Knob]:
        """Return the knobs of a call that this search turns."""
        left = [] if self.values else ["element", "index"]
        left += ["index"] if self.unordered else []  # which of several values at one position stays is undetermined
        return [*(knob for knob in knobs_of(sample) if knob.kind not in left), *self._left_out(sample)]

    def _left_out(self, sample: SampleInput) -> Iterator[Knob]:
        """Yield a knob for each argument with a number as its default that the call leaves out."""
        named = named_arguments(self.names, sample)
        for name, parameter in self.parameters.items():
            if name not in named and type(parameter.default) in (int, float):
                yield Knob("named", (name, parameter.default))

    def offered(self, knob: Knob, sample: SampleInput) -> list[Number]:
        """Return the numbers that a knob is turned to: constants of the code and their neighbours."""
        whole = self.hints.around()
        if knob.kind in ("size", "dim"):
            numbers: list[Number] = [n for n in whole if 0 < n <= 1 << 22]
        elif knob.kind == "count":
            numbers = [n for n in whole if n > 8]
        elif knob.kind == "rank":
            numbers = [*RANKS, *(n for n in whole if 6 < n < 10)]
        elif knob.kind in ("argument", "named"):
            now = knob.read(sample)
            most = max((x.ndim for x in tensors_of((sample.args, sample.kwargs))), default=0)
            numbers = [*whole, *(-n for n in whole), *range(-most, most)] if type(now) is int else self.hints.values()
        elif knob.kind == "items":
            numbers = [n for n in dict.fromkeys((1, 2, 3, 4, *whole)) if 0 < n <= MANY]
        elif knob.kind in ("offset", "pitch"):
            numbers = [n // size for n in whole for size in dict.fromkeys((1, base_size(sample, knob))) if n >= 0 and n % size == 0]
        elif knob.kind == "index":
            numbers = [n for n in [*whole, *(-n for n in whole)] if abs(n) < 1 << 21]
        else:
            numbers = self._elements(knob, sample)
        now = knob.read(sample)
        return [n for n in dict.fromkeys(numbers) if n != now]

    def _elements(self, knob: Knob, sample: SampleInput) -> list[Number]:
        if self.tied and knob.at[1] in ("every", "some"):
            return []  # which of equal elements comes first is undetermined
        x = list(tensors_of((sample.args, sample.kwargs)))[knob.at[0]]
        return [0, 1] if x.dtype is torch.bool else self._held(x)

    def systematic(self, bases: Sequence[Candidate]) -> Iterator[Candidate]:
        """Yield calls in which one knob is turned to a constant, those of each kind of knob in turn; every constant as an element first."""
        if not self.tied:
            yield from self._every_value(bases)
        for base, numbers in product(bases, self.hints.tuples):
            yield from (replace(base, sample=sample, judged=False) for sample in shaped(base.sample, numbers, self.grow))
        queues: dict[str, list[tuple[Candidate, Any, Number]]] = {}
        for base in bases:
            for knob in self.knobs(base.sample):
                queues.setdefault(knob.kind, []).extend((base, knob, n) for n in self.offered(knob, base.sample))
        queues["pair"] = [(base, (one, other), n) for base in bases for one, other, n in self._pairs(base.sample)]
        for queue in queues.values():
            self.draw.shuffle(queue)
        while any(queues.values()):
            for kind in list(queues):
                if queues[kind]:
                    base, knob, number = queues[kind].pop()
                    yield from self.paired(base, *knob, number) if kind == "pair" else self.turned(base, knob, number)
            for kind in [kind for kind, queue in queues.items() if not queue]:
                del queues[kind]

    def _pairs(self, sample: SampleInput) -> Iterator[tuple[Knob, Knob, Number]]:
        """Yield a size and an argument that may both be a constant: a number of groups divides a size."""
        knobs = self.knobs(sample)
        for size, other in product([k for k in knobs if k.kind == "size"], [k for k in knobs if k.kind in ("argument", "named")]):
            yield from ((size, other, n) for n in self.hints.around() if 1 < n <= SMALL * SMALL and type(other.read(sample)) is int)

    def paired(self, base: Candidate, size: Knob, other: Knob, number: Number) -> Iterator[Candidate]:
        """Yield a call with a size and another knob at one number."""
        for sized in self.turned(base, size, number):
            yield from self.turned(sized, other, number)

    def _every_value(self, bases: Sequence[Candidate]) -> Iterator[Candidate]:
        """Yield calls whose tensors have all constants of the code, and values around them, among their elements."""
        for base in bases:
            every = self.tensors(base)
            positions = INDICES if len({x.dtype in INDICES for x in every}) > 1 else ()
            tensors = [x for x in every if x.numel() > 1 and x.dtype not in (*positions, torch.bool) and not x.is_complex()]
            offered = {id(x): self._held(x) for x in tensors}
            turns = max((-(-len(offered[id(x)]) // x.numel()) for x in tensors), default=0)
            for turn in range(min(turns, TURNS)):
                sample = mapped(base.sample, lambda x, turn=turn, offered=offered: self._filled(x, offered.get(id(x)), turn))
                yield Candidate(sample, base.of, base.row, judged=True)

    def _held(self, x: Tensor) -> list[Number]:
        """Return, in any order, the constants and values around them that a tensor's dtype holds."""
        low, high = (-inf, inf) if self.anything else self.info.domain if x.is_floating_point() else self.info.integers
        if not x.is_floating_point():
            low, high = max(low, torch.iinfo(x.dtype).min), min(high, torch.iinfo(x.dtype).max)
        values = [v for v in self.hints.values() if low <= v <= high and abs(v) <= LARGEST and (x.is_floating_point() or float(v).is_integer())]
        self.draw.shuffle(values)
        return values

    def _filled(self, x: Tensor, values: list[Number] | None, turn: int) -> Tensor:
        if not values:
            return x
        chosen = torch.tensor([values[(turn * x.numel() + i) % len(values)] for i in range(min(x.numel(), len(values)))], dtype=torch.float64)
        return chosen.repeat(-(-x.numel() // len(chosen)))[: x.numel()].to(x.dtype).view(x.shape)

    def around(self, base: Candidate, rows: Sequence[Row]) -> Iterator[Candidate]:
        """Yield a call with the levels of each row, which may take the same branches and be wrong all the same."""
        for row in rows:
            with suppress(RuntimeError, TypeError, ValueError, IndexError):
                if (sample := next(base.of.derived(base.sample, row), None)) is not None:
                    yield Candidate(sample, base.of, replace(row, size=USUAL.size, layout=USUAL.layout, same=USUAL.same))

    def turned(self, base: Candidate, knob: Knob, number: Number) -> Iterator[Candidate]:
        """Yield a call with a knob at a number."""
        try:
            samples = list(knob.put(base.sample, number, self.grow))
        except (RuntimeError, TypeError, ValueError, OverflowError, IndexError):
            return  # no tensor of this kind holds it
        for sample in samples:
            yield replace(base, sample=sample, judged=False)

    def changed(self, base: Candidate, others: Sequence[Candidate]) -> Iterator[Candidate]:
        """Yield a call that differs along one axis or two: levels of a row, a knob, a string, an argument of another call."""
        kind = self.draw.choice(("row", "row", "knob", "knob", "knob", "small", "words", "crossed"))
        if kind == "row":
            yield from self._with_levels(base)
        elif kind in ("knob", "small"):
            knobs = self.knobs(base.sample)
            knob = self.draw.choice(knobs) if knobs else None
            if knob is not None and (numbers := self.offered(knob, base.sample) if kind == "knob" else self._small(knob, base.sample)):
                yield from self.turned(base, knob, self.draw.choice(numbers))
        elif kind == "words":
            yield from self._worded(base)
        else:
            yield from self._crossed(base, self.draw.choice(others))

    def _small(self, knob: Knob, sample: SampleInput) -> list[Number]:
        now = knob.read(sample)
        if knob.kind in ("size", "dim", "count", "rank"):
            return list(range(1, SMALL if knob.kind != "rank" else 7))
        if knob.kind in ("items", "offset", "pitch"):
            return list(range(1, 17))
        if knob.kind == "argument" and type(now) is int:
            return [n for n in range(-6, 7) if n != now]
        return [-1.0, 0.0, 0.5, 1.0, 2.0, 10.0] if now is not None and knob.kind == "argument" else [-1, 0, 1, 2, 3]

    def _with_levels(self, base: Candidate) -> Iterator[Candidate]:
        axes = self.draw.sample(DRAWN, self.draw.choice((1, 1, 2)))
        levels = {axis: self.draw.choice([level for level in AXES[axis] if level not in AVOIDED]) for axis in axes}
        row = replace(base.row, **levels)
        for sample in base.of.derived(base.sample, replace(USUAL, **levels)):
            yield Candidate(
                sample, base.of, replace(USUAL, grad=row.grad, mode=row.mode, cotangent=row.cotangent, values=levels.get("values", USUAL.values))
            )
            return

    def _worded(self, base: Candidate) -> Iterator[Candidate]:
        named = named_arguments(self.names, base.sample)
        texts = [name for name, value in named.items() if isinstance(value, str)]
        if texts and self.hints.words:
            yield replace(base, sample=with_arguments(self.names, base.sample, {self.draw.choice(texts): self.draw.choice(self.hints.words)}))

    def _crossed(self, base: Candidate, other: Candidate) -> Iterator[Candidate]:
        """Yield a call with an argument of another one."""
        mine, theirs = (named_arguments(self.names, each.sample) for each in (base, other))
        names = [name for name, value in theirs.items() if name not in mine or mine[name] is not value]
        if names:
            name = self.draw.choice(names)
            yield replace(base, sample=with_arguments(self.names, base.sample, {name: theirs[name]}))

    def toward(self, knob: Knob, sides: tuple[float, float], now: Number, next_sides: tuple[float, float], step: Number) -> list[Number]:
        """Return numbers at which both sides of a comparison would be equal, as the line through two calls has it, and their neighbours."""
        before, after = sides[0] - sides[1], next_sides[0] - next_sides[1]
        if before == after:
            return []
        target = now - before * step / (after - before)
        if abs(target) > 1 << 24:
            return []
        if knob.kind == "element" or (knob.kind == "argument" and type(now) is float):
            near = max(abs(target) * 1e-3, 1e-6)
            return [target, target + near, target - near, target + 1, target - 1]
        return [n + d for n in (round(target),) for d in (0, 1, -1)]


def base_size(sample: SampleInput, knob: Knob) -> int:
    """Return the bytes of an element of the tensor that a knob is of."""
    return list(tensors_of((sample.args, sample.kwargs)))[knob.at].element_size()


def key_of(candidate: Candidate, *, values: bool) -> Any:
    """Return what two calls share that need not both be tried; without `values`, what their specs are."""
    program = program_of(candidate.of.info.symbol, candidate.sample)
    specs = tuple(
        (tuple(x.shape), tuple(x.stride()) if x.numel() < 1 << 12 else x.is_contiguous(), x.dtype, x.storage_offset()) for x in program.inputs
    )
    levels = (candidate.row.grad, candidate.row.mode)
    if not values:
        return program.template, specs, levels
    sums = tuple(float(x.detach().double().nan_to_num().sum()) if not x.is_complex() else 0.0 for x in program.inputs)
    return program.template, specs, levels, sums
