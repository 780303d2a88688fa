"""Variants of an operation's samples: one for each row of the covering array that applies to it."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from math import log2
from time import process_time

import torch
from torch import Tensor

from dovetail import devices, prims
from dovetail.dtypes import DType
from dovetail.extend import Tag
from dovetail_conformance.axes.arguments import changed_arguments, combined, with_large_numbers, with_other_values
from dovetail_conformance.axes.covering import PLAIN, Row, rows, singles
from dovetail_conformance.axes.edges import beside_edges
from dovetail_conformance.axes.gradients import gradients
from dovetail_conformance.axes.layouts import in_one, laid_out, with_usual_steps
from dovetail_conformance.axes.mixed import LEVELS, converted
from dovetail_conformance.axes.modes import mode
from dovetail_conformance.axes.sizes import INDICES, WHICH, lengthened, mapped, reaching, resized, tensors_of, with_long_lists
from dovetail_conformance.axes.values import crossed, filled, with_one_of_each, within
from dovetail_conformance.case import Case
from dovetail_conformance.footprint import fits
from dovetail_conformance.opinfo import OpInfo, SampleInput
from dovetail_conformance.oracle import flat
from dovetail_conformance.program import calm, fresh, message, program_of
from dovetail_conformance.subject import Subject
from dovetail_conformance.ties import TIES

SLOW = 0.15  # seconds of all processors that eager may take for a call of a sample, however busy the machine is
TABLES, INDEXED = ("rows", "huge"), 3  # sizes of tables; templates with indices into them
LISTED, FAR = 3, 601  # templates with longer lists or larger numbers; such a number, below the size of a row
TURNS = 6  # templates that a level is tried on
RANGES = ("wide", "tiny")  # levels of values that reach to the end of a domain
RESULTS = 40  # results that a sample may have
DROPPED = (
    *((), ("mixed",), ("broadcast",), ("values",), ("layout", "place"), ("same",), ("values", "layout", "place", "same", "broadcast")),
    *(("size", "which"), ("size", "which", "values", "broadcast")),
)
PRODUCTS, GATHERS = {prims.prod, prims.cumprod}, {prims.take_along_axis, prims.scatter_add}
LAST_WINS = {prims.scatter, prims.index_copy, prims.index_put}  # which of several values stays at an index is undetermined
UPDATING = ("batch_norm", "instance_norm", "_native_batch_norm_legit_functional")  # they write a mean and a variance, which are two tensors
HUGE, SPECIAL, USUAL = Row(size="huge"), Row(size="odd", values="extreme"), Row()
IMAGES = tuple(Row(size="images", layout=layout) for layout in (PLAIN, "channels-last"))
MIXED = (*(Row(size="odd", mixed=level) for level in LEVELS), Row(size="odd", mixed="other", place="first"))
WIDE = Row(size="odd", values="wide")
CROSSED = Row(size="odd", values="crossed")
RANGED = tuple(Row(size="long", which=which, values="wide") for which in ("first", "second"))  # blocks of a row with values of other ranges
EXACT = tuple(Row(size="large", which=which, values="kinks") for which in ("first", "second"))  # terms that add up without an error
SUMMED = tuple(Row(size="large", which=which, values="shifted") for which in ("first", "second"))  # terms that 16 bits cannot add up
DRIFTING = tuple(Row(size="large", which=which, values="alike", cotangent="ones") for which in ("first", "second"))  # terms of one sign and size
SPREAD_OUT = replace(DRIFTING[0], broadcast="scalar", place="last")  # the gradient of a number is such a sum
STRIDED = ("column-major", "transposed", "gapped", "channels-last", "overlapping")
UNLIKE = tuple(
    Row(size="square", layout=layout, place=place) for layout in ("column-major", "transposed") for place in ("first", "last")
)  # operands that lie in different ways
ALONE = (Row(grad="first"), Row(grad="last"))
EVEN = tuple(Row(size=size, grad=grad) for size in ("line", "square") for grad in ("first", "last"))  # a transposed gradient fits as well
SHAPED = (
    Row(size="slab"),
    Row(size="line"),
    Row(size="cube"),
)  # equal sizes behind one of 1; tensors of one shape, with one dimension and with three
EQUALS = (Row(size="odd", values="extreme", same="yes"), Row(size="odd", values="shifted"))
ONES = tuple(Row(size="one", which=which) for which in ("second", "third"))  # the level alone makes the last size 1
STEPPED = ("repeated", "gapped", "offset", "column-major")  # layouts that are tried with each number of dimensions
BLOCKS = tuple(Row(size="block", which=which) for which in WHICH)
LAID = tuple(Row(size="odd", layout="row-major", cotangent=kind) for kind in ("column-major", "gapped", "repeated"))  # beside row-major inputs
BATCHED = tuple(Row(size="images", broadcast="second", place=place) for place in ("first", "last"))  # of two dimensions of a batch, one
SINGLE = {"outer": (0, 1), "second": (1, 2), "middle": (1, -1), "inner": (-1, None)}  # dimensions, as a slice of all, that have one element


def laid_in(sample: SampleInput) -> tuple[object, ...]:
    """Describe the tensors of a sample: their sizes and strides."""
    return tuple((tuple(x.shape), x.stride()) for x in tensors_of((sample.args, sample.kwargs)))


@dataclass
class Variant:
    """A variant of a sample, and the levels of the row that could be applied."""

    row: Row
    case: Case

    def __str__(self) -> str:
        return f"{self.case} ({self.row})" if self.row != Row() else str(self.case)


@dataclass
class Variants:
    """Makes the variants of one operation with one dtype."""

    subject: Subject
    info: OpInfo
    dtype: DType
    samples: Sequence[SampleInput]
    seed: int = 0
    covered: set[tuple[str, str]] = field(default_factory=set)
    visited: set[int] = field(default_factory=set)  # templates of which there is a variant
    special: set[int] = field(default_factory=set)  # those of which there is one with infinities, NaN and zeros
    preferred: Container[object] = ()  # ways of passing arguments that the executor takes
    taken: Container[object] = ()  # the layouts of tensors that it takes, as `laid_in` describes them

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(1000 + self.seed)
        self.writes = Tag.MEMORY in self.info.symbol.tags or self.info.symbol.id.endswith(("_", "_scatter", "setitem"))
        self.templates = self._templates()

    def _templates(self) -> list[SampleInput]:
        """Return a sample for each way of passing the other arguments and number of dimensions: of several, the one with the most elements.

        One with tensors that the executor takes is preferred to a larger one.
        """
        largest: dict[object, SampleInput] = {}
        changed = (*with_other_values(self.info, self.samples, self._takes), *combined(self.info, self.samples, self._takes))
        for sample in (*self.samples, *map(self._freed, changed)):
            program = program_of(self.info.symbol, sample)
            key = (program.template, tuple(x.ndim for x in program.inputs))
            if key not in largest or self._weight(largest[key]) < self._weight(sample):
                largest[key] = sample
        return [largest[key] for key in sorted(largest, key=lambda key: key[0] not in self.preferred)]

    def _weight(self, sample: SampleInput) -> tuple[bool, int]:
        elements = _elements(sample)
        return elements > 1 and self._takes(sample), elements

    def _takes(self, sample: SampleInput) -> bool:
        """Return whether the executor takes such tensors, perhaps with fewer behind them."""
        layouts = laid_in(sample)
        return any(layouts[:n] in self.taken for n in range(len(layouts) + 1))

    def _freed(self, sample: SampleInput) -> SampleInput:
        """Return a sample without its `fixed` tensors where eager has gradients of them: they were fixed for an argument that has been changed."""
        if not sample.fixed or not self.info.grad:
            return sample
        free = SampleInput(sample.args, sample.kwargs)
        case = Case(self.subject, self.info, program_of(self.info.symbol, free), "", free)
        with calm():
            outcome = gradients(case.eager, fresh(case.program.inputs), case.differentiable, "dense")
        has_all = outcome is not None and outcome.error is None and all(x is not None for x in outcome.values or ())
        return free if has_all else sample

    def chosen(self, most: int, start: int = 0, *, complete: bool = False) -> list[Variant]:
        """Return about `most` variants, from row `start` of the covering array on, each template in turn.

        `complete` ones have every level of every axis in one of them at least, and a tensor of more than a million elements.
        """
        array = rows()
        selected = [self._variant(array[(start + i) % len(array)], i) for i in range(min(most, len(array)) if self.templates else 0)]
        if complete and self.templates:
            selected += self.every_style()
            selected += [variant for axis, row in singles() for variant in self._single(axis, row)]
            selected.append(self._variant(HUGE, 0))
            selected += [
                self._variant(row, i) for i in self._widest() for row in (*SHAPED, *ONES, *UNLIKE, *BATCHED, *(ALONE if self.info.grad else ()))
            ]
            fullest = max(range(len(self.templates)), key=lambda i: _elements(self.templates[i]))  # one number has one value when it grows
            selected += [self._variant(row, fullest) for row in (*IMAGES, *(LAID if self.info.grad else ()))]
            selected += [self._variant(IMAGES[0], i) for i, each in enumerate(self.templates) if _counts_back(each)]
            ranged = (self._variant(row, i) for i in range(min(TURNS, len(self.templates))) for row in (*RANGED, *EXACT, *DRIFTING))
            selected += [variant for variant in ranged if variant is not None and not variant.case.pointwise]
            selected += [self._in_line(each) for each in self.templates]
            selected += [self._variant(Row(size="odd", layout=layout), i) for i in self._ranks() for layout in STEPPED]
            selected += [
                self._variant(row, i) for i in dict.fromkeys((fullest, *self._widest()[:1])) for row in (*EQUALS, *(EVEN if self.info.grad else ()))
            ]
            selected += [self._repeated(each) for each in self.templates]
            selected += self._with_each_argument()
            selected += self._with_large_numbers()
            selected += self._tables()
            selected += self._with_long_lists()
            selected += self.wide_beside_numbers()
            selected += self._crossed()
            selected += [self._variant(SPREAD_OUT, i) for i in self._widest()[:1] if self.info.grad]
        return [variant for variant in selected if variant is not None]

    def of_dtype(self) -> list[Variant]:
        """Return variants that every dtype has: one of each kind of values that none has so far, and of each other dtype beside its own."""
        values = [variant for axis, row in singles() if axis == "values" for variant in self._single(axis, row)]
        several = [i for i, each in enumerate(self.templates) if len(list(tensors_of((each.args, each.kwargs)))) > 1]
        long = [self._variant(row, i) for i in range(min(TURNS, len(self.templates))) for row in SUMMED] if self.dtype.bytes == 2 else []
        values += [v for v in long if v is not None and not v.case.pointwise]
        mixed = [self._variant(row, i) for n, row in enumerate(MIXED) for i in several[n % len(several) :][:1]] if several else []
        mixed = [variant for variant in mixed if variant is not None and variant.row.mixed != "no" and _is_recorded(variant.case)]
        return [*values, *mixed, *self._lengthened(), *islice(self._beside_edges(), TURNS)]

    def _beside_edges(self) -> Iterator[Variant]:
        """Yield variants of elementwise templates of one tensor of floats, with the numbers beside which the result becomes infinite, 0 or NaN."""
        for template in self.templates:
            tensors = list(tensors_of((template.args, template.kwargs)))
            if len(tensors) != 1 or not tensors[0].is_floating_point() or tensors[0].dtype.itemsize == 1:
                continue
            case = Case(self.subject, self.info, program_of(self.info.symbol, template), "", template)
            if not case.pointwise:
                return
            numbers = beside_edges(lambda x, case=case: case.eager([x]).result, tensors[0].dtype, self._whole_domain)
            accepted = None if numbers is None else self.accepted(mapped(template, lambda x, numbers=numbers: numbers))
            if accepted is not None:
                yield Variant(Row(values="edges"), accepted)

    def _lengthened(self) -> Iterator[Variant]:
        """Yield variants of templates without tensors, of which numbers decide how long the result is: with a large one in place of each."""
        for template in self.templates:
            if any(True for _ in tensors_of((template.args, template.kwargs))):
                continue
            for samples in lengthened(template):
                case = next((case for sample in samples if (case := self.accepted(sample)) is not None), None)
                if case is not None:
                    yield Variant(Row(), case)

    def _with_each_argument(self) -> Iterator[Variant]:
        """Yield large variants for each optional argument, in turn of each of their sizes: what a kernel of blocks makes of it shows there alone."""
        largest: dict[str, int] = {}
        for i, each in enumerate(self.templates):
            for name in sorted(changed_arguments(self.info, each)):
                if name not in largest or self._weight(self.templates[largest[name]]) < self._weight(each):
                    largest[name] = i
        seen = set()
        for variant in (self._variant(row, i) for i in dict.fromkeys(largest.values()) for row in BLOCKS):
            if variant is not None and str(variant) not in seen:
                seen.add(str(variant))
                yield variant

    def _with_large_numbers(self) -> Iterator[Variant]:
        """Yield variants of a few templates with a count, an end or an index of some hundreds, in a dimension of more."""
        count, seen = 0, set()
        for template in self.templates:
            before = len(seen)
            for which in WHICH:
                for sized in islice(resized(template, "rows", which, self.generator), 1):
                    for sample in with_large_numbers(self.info, sized, FAR):
                        if message(sample) not in seen and (case := self.accepted(within(sample, self.info))) is not None:
                            seen.add(message(sample))
                            yield Variant(Row(size="rows"), case)
            count += len(seen) > before
            if count == LISTED:
                return

    def _with_long_lists(self) -> Iterator[Variant]:
        """Yield variants of a few templates with longer lists: code for two tensors or dimensions may not be right for many."""
        count = 0
        for template in self.templates:
            variants = [Variant(Row(), case) for sample in with_long_lists(template) if (case := self.accepted(sample)) is not None]
            yield from variants
            count += bool(variants)
            if count == LISTED:
                return

    def wide_beside_numbers(self) -> list[Variant]:
        """Return a variant with values of the whole range for each template that has a number: of one such number, a quotient may be large."""
        selected = [self._variant(WIDE, i) for i, each in enumerate(self.templates) if _has_number(each)]
        return [variant for variant in selected if variant is not None]

    def _crossed(self) -> Iterator[Variant]:
        """Yield variants of elementwise templates with several float tensors, in which each special value meets each of the others."""
        for i, template in enumerate(self.templates):
            if len([x for x in tensors_of((template.args, template.kwargs)) if x.is_floating_point()]) > 1:
                variant = self._variant(CROSSED, i)
                if variant is not None and variant.case.pointwise and variant.row.values == CROSSED.values:
                    yield variant

    def _tables(self) -> Iterator[Variant]:
        """Yield variants of the first few templates with indices: of large and of huge tables, whose last rows they reach."""
        count = 0
        for template in self.templates:
            for size in TABLES:
                accepted = (self.accepted(sample) for sample in reaching(template, size, self.generator))
                variants = [Variant(Row(size=size), case) for case in accepted if case is not None]
                yield from variants
                count += size == TABLES[0] and bool(variants)
            if count == INDEXED:
                return

    def _widest(self) -> list[int]:
        """Return, for the numbers of dimensions of several tensors, the template with the most elements, of one shape where there is one."""
        widest: dict[tuple[int, ...], tuple[bool, int, int]] = {}
        for i, each in enumerate(self.templates):
            shapes = [x.shape for x in tensors_of((each.args, each.kwargs))]
            ranks = tuple(map(len, shapes))
            if len(shapes) > 1 and max(ranks) > 1:
                widest[ranks] = max(widest.get(ranks, (False, -1, 0)), (len(set(shapes)) < len(shapes), _elements(each), i))
        return [i for _, _, i in widest.values()]

    def _ranks(self) -> list[int]:
        """Return, for each number of dimensions of the first tensor, the template with the most elements."""
        largest: dict[int, tuple[int, int]] = {}
        for i, each in enumerate(self.templates):
            first = next(tensors_of((each.args, each.kwargs)), None)
            if first is not None and first.ndim:
                largest[first.ndim] = max(largest.get(first.ndim, (0, 0)), (_elements(each), i))
        return [i for _, i in largest.values()]

    def _in_line(self, template: SampleInput) -> Variant | None:
        """Return the template with tensors of one dimension and one size; None where eager refuses that."""
        sample = next(resized(template, "line", "first", self.generator))
        case = self.accepted(within(sample, self.info))
        return None if case is None else Variant(Row(size="line"), case)

    def _repeated(self, template: SampleInput) -> Variant | None:
        """Return the template with indices that are all the same, so that what is written there adds up; None where it has none."""
        tensors = list(tensors_of((template.args, template.kwargs)))
        if len({x.dtype in INDICES for x in tensors}) < 2:
            return None
        sample = mapped(template, lambda x: torch.zeros_like(x) + x.flatten()[-1] if x.dtype in INDICES and x.numel() > 1 else x)
        case = self.accepted(sample)
        return None if case is None or LAST_WINS & set(case.prims) else Variant(Row(values="constant"), case)

    def every_style(self) -> list[Variant]:
        """Return a variant of each template that has none with infinities, NaN and zeros among its values."""
        left = [i for i, each in enumerate(self.templates) if id(each) not in self.special]
        return [variant for i in left if (variant := self._variant(SPECIAL, i)) is not None]

    def some(self, wanted: Sequence[Row]) -> list[Variant]:
        """Return a variant of each of these rows, of one template after another."""
        selected = [self._variant(row, i) for i, row in enumerate(wanted)] if self.templates else []
        return [variant for variant in selected if variant is not None]

    def _single(self, axis: str, row: Row) -> Iterator[Variant]:
        """Yield a variant with a level that no variant has so far, from the first few templates to which it applies."""
        for turn in range(min(len(self.templates), TURNS)):
            if (axis, getattr(row, axis)) in self.covered:
                return
            variant = self._variant(row, turn)
            if variant is not None and (axis, getattr(row, axis)) in self.covered:
                yield variant

    def _variant(self, row: Row, turn: int) -> Variant | None:
        """Return the variant of a row; where eager refuses it, one without some of its levels."""
        tried = [self.templates[(turn + i) % len(self.templates)] for i in range(2)]
        for dropped in DROPPED:
            left = row.without(*dropped)
            if dropped and left == row:
                continue
            for template in tried:
                for sample in self.derived(template, left):
                    if (case := self.accepted(sample, left)) is not None:
                        self.visited.add(id(template))
                        self.special.update([id(template)] if left.values == "extreme" else ())
                        kept = _kept(left, template, sample, case)
                        trained = kept.grad == "all" and kept.mode not in ("inference", "float64")
                        telling = {"broadcast": trained, "values": kept.same != "yes"}  # equal operands are equal whatever their values are
                        self.covered.update((axis, getattr(kept, axis)) for axis in kept.__dataclass_fields__ if telling.get(axis, True))
                        return Variant(kept, case)
        return None

    def accepted(self, sample: SampleInput, row: Row = USUAL) -> Case | None:
        """Return the sample as a case; None where eager refuses it or takes long, where the results are too large, or they are unknown."""
        program = program_of(self.info.symbol, sample)
        case = Case(self.subject, self.info, program, message(sample), sample)
        if not fits(case) or _order_decides(case) or _reads_outside(case) or (row.values == "huge" and not case.pointwise):
            return None
        began = process_time()
        with mode(row.mode):
            fine = case.expected.error is None and len(flat(case.expected.result)) <= RESULTS
        return case if fine and process_time() - began < SLOW else None

    def derived(self, sample: SampleInput, row: Row) -> Iterator[SampleInput]:
        """Yield the sample with the levels of a row."""
        sized = resized(sample, row.size, row.which, self.generator) if row.size != PLAIN else iter([sample])
        for each in sized:
            filled_sample = self._mixed(self._broadcast(self._filled(within(each, self.info), row), row), row)
            parts = row.same == "parts"  # these have a layout of their own, and come last
            laid = self._same(self._laid(filled_sample, row), row) if parts else self._laid(self._same(filled_sample, row), row)
            yield mapped(laid, with_usual_steps)

    def _filled(self, sample: SampleInput, row: Row) -> SampleInput:
        if row.values == "extreme" and self.info.name.rpartition(".")[2] in TIES:
            return mapped(sample, with_one_of_each)
        if row.values == PLAIN or (row.values in ("extreme", "crossed") and "inf" not in self.info.extremes):
            return sample
        if row.values == "crossed":
            return crossed(sample)
        if row.values == "kinks" and self.info.name.rpartition(".")[2] in TIES:
            return sample
        if row.values == "constant":
            return self._constant(sample)
        numbers = tuple(float(x) for x in [*sample.args, *sample.kwargs.values()] if type(x) in (int, float) and abs(x) < 1e3)
        domain = self._whole_domain if row.values in RANGES else self.info.domain
        return mapped(sample, lambda x: _or(filled(x, row.values, replace(self.info, domain=domain), numbers, self.generator), x))

    @cached_property
    def _whole_domain(self) -> tuple[float, float]:
        """The domain, from 0 on where samples of an elementwise operation keep away from it: their results may be large or steep there."""
        low, high = self.info.domain
        first = next(iter(self.templates), None) if low > 0 else None
        pointwise = first is not None and Case(self.subject, self.info, program_of(self.info.symbol, first), "", first).pointwise
        return (0.0 if pointwise else low, high)

    def _constant(self, sample: SampleInput) -> SampleInput:
        """Return the sample with its masks all false, or else with a first tensor of one value, negative infinity where it may be."""
        masks = [x for x in tensors_of((sample.args, sample.kwargs)) if x.dtype is torch.bool]
        floats = [x for x in tensors_of((sample.args, sample.kwargs)) if x.is_floating_point() and x.dtype.itemsize > 1]
        value = -torch.inf if "inf" in self.info.extremes and self.info.domain[0] == -torch.inf else None
        chosen = {id(x): False for x in masks} or {id(x): value for x in floats[:1]}

        def filled_with(x: Tensor) -> Tensor:
            if id(x) not in chosen or not x.numel():
                return x
            constant = x.flatten()[0] if chosen[id(x)] is None else chosen[id(x)]
            return torch.zeros_like(x.detach(), memory_format=torch.contiguous_format) + constant if x.is_floating_point() else torch.zeros_like(x)

        return mapped(sample, filled_with)

    def _broadcast(self, sample: SampleInput, row: Row) -> SampleInput:
        """Return the sample with one of several tensors cut to a single element, in some dimensions or without any, or without its first one."""
        tensors = list(tensors_of((sample.args, sample.kwargs)))
        if row.broadcast == "no" or len(tensors) < 2:
            return sample
        chosen = tensors[0] if row.place == "first" else tensors[-1]

        def cut(x: Tensor) -> Tensor:
            if x is not chosen or not x.numel():
                return x
            if row.broadcast == "fewer":
                return x[0] if x.ndim else x
            if row.broadcast == "scalar":
                return x.flatten()[0].clone()
            dims = range(x.ndim)[slice(*SINGLE[row.broadcast])]
            single = x[tuple(slice(0, 1) if d in dims else slice(None) for d in range(x.ndim))]
            return single.clone(memory_format=torch.contiguous_format)

        return mapped(sample, cut)

    def _mixed(self, sample: SampleInput, row: Row) -> SampleInput:
        """Return the sample with the first or the last of several tensors in another dtype."""
        tensors = list(tensors_of((sample.args, sample.kwargs)))
        if row.mixed == "no" or len(tensors) < 2:
            return sample
        chosen = tensors[0] if row.place == "first" else tensors[-1]
        return mapped(sample, lambda x: converted(x, row.mixed) if x is chosen else x)

    def _same(self, sample: SampleInput, row: Row) -> SampleInput:
        """Return the sample with a later tensor replaced by an earlier one of its dtype, or with parts of one tensor."""
        if row.same == "no" or self.info.name.rpartition(".")[2] in UPDATING:
            return sample
        tensors = list(tensors_of((sample.args, sample.kwargs)))
        if row.same == "parts":
            parts = in_one(tensors)
            return mapped(sample, lambda x: parts.get(id(x), x))
        pairs = [(first, other) for i, first in enumerate(tensors) for other in tensors[i + 1 :] if first.dtype == other.dtype]
        pairs.sort(key=lambda pair: pair[0].shape != pair[1].shape)  # eager decides whether it takes another shape
        if not pairs:
            return sample
        first, other = pairs[0]
        return mapped(sample, lambda x: first if x is other else x)

    def _laid(self, sample: SampleInput, row: Row) -> SampleInput:
        if row.layout == PLAIN:
            return sample
        tensors = list(tensors_of((sample.args, sample.kwargs)))
        if self.writes and row.layout in ("repeated", "overlapping"):
            tensors = [x for x in tensors if x is not tensors[0]]  # what is written needs a place for every element
        chosen = {"first": tensors[:1], "last": tensors[-1:], "all": tensors}[row.place]
        kept = {id(x) for x in chosen}
        return mapped(sample, lambda x: _or(laid_out(x, row.layout), x) if id(x) in kept else x)


def _is_recorded(case: Case) -> bool:
    """Return whether the language takes the call: eager accepts some mixed dtypes on one device alone, which it refuses."""
    try:
        case.specs(devices.cpu)
    except Exception:
        return False
    return True


def _has_number(sample: SampleInput) -> bool:
    """Return whether a number stands where operands do."""
    return any(type(x) in (int, float) for x in sample.args[:2])


def _or(x: Tensor | None, otherwise: Tensor) -> Tensor:
    return otherwise if x is None else x


def _counts_back(sample: SampleInput) -> bool:
    """Return whether a dimension is counted from the end and is not the last: which one that is depends on how many there are."""
    return any(type(x) is int and x < -1 for x in [*sample.args, *sample.kwargs.values()])


def _elements(sample: SampleInput) -> int:
    return sum(x.numel() for x in tensors_of((sample.args, sample.kwargs)))


def _kept(row: Row, template: SampleInput, sample: SampleInput, case: Case) -> Row:
    """Return the levels of a row that changed the sample."""
    before, after = (list(tensors_of((each.args, each.kwargs))) for each in (template, sample))
    lost = []
    if [x.shape for x in before] == [x.shape for x in after]:
        lost += ["size", "which", "broadcast"]
    if len(before) < 2:
        lost.append("broadcast")
    if [x.dtype for x in before] == [x.dtype for x in after]:
        lost.append("mixed")
    if row.same == "yes" and len(before) == len(after):
        lost.append("same")
    if row.same == "parts" and len({x.untyped_storage().data_ptr() for x in after if x.numel()}) == len([x for x in after if x.numel()]):
        lost.append("same")
    if max((x.numel() for x in after), default=0) < 2:  # a level of values takes several
        lost.append("values")
    if row.layout == "flagged" and not any(x.is_conj() or x.is_neg() for x in after):
        lost.append("layout")
    if row.layout == "repeated" and not any(0 in x.stride() for x in after):
        lost.append("layout")
    if row.layout in STRIDED and all(x.is_contiguous() for x in after):
        lost.append("layout")
    if len(case.differentiable) < 2:
        lost.append("grad")
    results = [x for x in flat(case.expected.result) if isinstance(x, Tensor)]
    if row.cotangent == "column-major" and not any(x.ndim > 1 and x.numel() > 1 for x in results):
        lost.append("cotangent")
    if row.cotangent == "of one result" and len(results) < 2:
        lost.append("cotangent")
    return row.without(*lost)


def _order_decides(case: Case) -> bool:
    """Return whether products of its elements may overflow or vanish, so that the order of the factors decides on the result."""
    if not PRODUCTS & set(case.prims):
        return False
    for x in case.program.inputs:
        if x.is_floating_point() or x.is_complex():
            size = x.detach().abs().to(torch.float64)
            exponents = size[torch.isfinite(size) & (size > 0)].log2()
            limit = -log2(torch.finfo(x.dtype).smallest_normal)
            if max(float(exponents.clamp_min(0).sum()), -float(exponents.clamp_max(0).sum())) > limit:
                return True
    return False


def _reads_outside(case: Case) -> bool:
    """Return whether an index lies outside of what it counts in, by the reference: PyTorch's gather of repeated indices does not look."""
    if case.info.reference is None or not GATHERS & set(case.prims):
        return False
    try:
        with calm():
            case.info.reference(*case.sample.args, **case.sample.kwargs)
    except IndexError:
        return True
    except Exception:
        return False
    return False
