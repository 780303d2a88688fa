"""Knobs: single numbers of a call that a search turns, such as a size, a number of dimensions, an argument or an element."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor

from dovetail_conformance.axes.sizes import INDICES, grown, lists, mapped, tensors_of
from dovetail_conformance.layout import overlaps
from dovetail_conformance.opinfo import SampleInput

ELEMENTS = 1 << 20  # that a tensor of a candidate may have, unless a constant asks for more
DEEPEST = 9  # dimensions
MANY, MEMORY = 64, 1 << 16  # items of a list; elements in front of a tensor and in a row of its memory
FRONT = (2, 1, 3, 1, 2, 1, 1, 2)  # sizes of dimensions that are put in front
PLACES = ("first", "last", "every", "some")  # elements that get a value
Number = int | float


@dataclass
class Grow:
    """Gives tensors other shapes; positions keep values that their table has, unless those have to be `distinct`."""

    generator: torch.Generator
    distinct: bool = False

    def __call__(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Return a row-major tensor of a shape with values like those of `x`."""
        if x.dtype not in INDICES or self.distinct or not x.numel() or tuple(x.shape) == shape:
            return grown(x, shape, self.generator)
        return x.detach().flatten()[torch.arange(prod(shape)) % x.numel()].view(shape)


@dataclass(frozen=True)
class Knob:
    """One number of a call: its `kind`, and where it stands.

    "size": every dimension of size `at`; "dim": dimension `at[1]` of tensor `at[0]`; "count": the elements of tensor `at`, by its last dimension or
    by its first; "rank": the dimensions of the first tensor or of all; "argument": a number among the arguments, by its path; "named": an argument
    that is left out, as (name, default); "items": how many a list among the arguments has; "element": the elements of tensor `at[0]` at a place;
    "index": the same of a tensor of positions, whose table grows with it; "offset": where tensor `at` begins in its memory; "pitch": the step from
    one of its rows to the next.
    """

    kind: str
    at: Any

    def read(self, sample: SampleInput) -> Number | None:
        """Return the number that the sample has."""
        tensors = _tensors(sample)
        if self.kind == "size":
            return self.at
        if self.kind == "dim":
            return tensors[self.at[0]].shape[self.at[1]]
        if self.kind == "count":
            return tensors[self.at].numel()
        if self.kind == "rank":
            return max((x.ndim for x in tensors), default=0)
        if self.kind == "argument":
            return _read((sample.args, sample.kwargs), self.at)
        if self.kind == "named":
            return self.at[1]
        if self.kind == "items":
            return len(_read((sample.args, sample.kwargs), self.at))
        if self.kind in ("offset", "pitch"):
            x = tensors[self.at]
            return x.storage_offset() if self.kind == "offset" else x.stride(-2)
        x = tensors[self.at[0]]
        return None if not x.numel() or x.is_complex() else x.flatten()[-1 if self.at[1] == "last" else 0].item()

    def put(self, sample: SampleInput, value: Number, grow: Grow) -> Iterator[SampleInput]:
        """Yield the sample with another number, in the ways there are to do so; eager decides which it accepts."""
        if self.kind in ("size", "dim", "count"):
            yield from self._sized(sample, int(value), grow)
        elif self.kind == "rank":
            yield from _ranked(sample, int(value), self.at, grow)
        elif self.kind == "argument":
            args, kwargs = _written((sample.args, sample.kwargs), self.at, value)
            yield SampleInput(args, kwargs, sample.fixed)
        elif self.kind == "named":
            yield SampleInput(sample.args, {**sample.kwargs, self.at[0]: value}, sample.fixed)
        elif self.kind == "items":
            yield from self._with_items(sample, int(value))
        elif self.kind in ("offset", "pitch"):
            chosen = _tensors(sample)[self.at]
            laid = (_offset if self.kind == "offset" else _pitched)(chosen, int(value))
            if laid is not None:
                yield mapped(sample, lambda x: laid if x is chosen else x)
        elif self.kind == "index":
            yield from _indexed(sample, int(value), self.at, grow)
        else:
            chosen = _tensors(sample)[self.at[0]]
            if (changed := _with_element(chosen, value, self.at[1], grow.generator)) is not None:
                yield mapped(sample, lambda x: changed if x is chosen else x)

    def _with_items(self, sample: SampleInput, count: int) -> Iterator[SampleInput]:
        """Yield the sample with another length of a list, and of all lists that are as long."""
        nest: Any = (sample.args, sample.kwargs)
        alike = [path for path in _list_paths(nest) if len(path) == 2 and len(_read(nest, path)) == len(_read(nest, self.at))]
        for chosen in ([self.at], alike)[: len(alike)]:
            for path in chosen:
                nest = _with_items(nest, path, count)
            yield SampleInput(*nest, sample.fixed)

    def _sized(self, sample: SampleInput, value: int, grow: Grow) -> Iterator[SampleInput]:
        tensors = _tensors(sample)
        if self.kind == "count":
            chosen = tensors[self.at]
            for dim in dict.fromkeys((chosen.ndim - 1, 0)):
                rest = prod(n for d, n in enumerate(chosen.shape) if d != dim)
                if chosen.ndim and rest and (new := -(-value // rest)) != chosen.shape[dim]:
                    yield from Knob("size", chosen.shape[dim])._sized(sample, new, grow)
                    yield from Knob("dim", (self.at, dim))._sized(sample, new, grow)
            return

        def shape(i: int, x: Tensor) -> tuple[int, ...]:
            if self.kind == "size":
                return tuple(value if n == self.at else n for n in x.shape)
            return tuple(value if (i, d) == self.at else n for d, n in enumerate(x.shape))

        shapes = {id(x): shape(i, x) for i, x in enumerate(tensors)}
        if value < 0 or any(prod(new) > max(ELEMENTS, 2 * x.numel()) and prod(new) > 4 * value for x, new in zip(tensors, shapes.values())):
            return
        if max(map(prod, shapes.values()), default=0) > 4 * ELEMENTS:
            return
        yield mapped(sample, lambda x: grow(x, shapes[id(x)]))
        if self.kind == "size" and self.at in lists(sample):
            yield mapped(sample, lambda x: grow(x, shapes[id(x)]), lambda n: value if n == self.at else n)


def knobs_of(sample: SampleInput) -> list[Knob]:
    """Return the knobs of a call."""
    tensors = _tensors(sample)
    knobs = [Knob("size", n) for n in dict.fromkeys(n for x in tensors for n in reversed(x.shape))]
    knobs += [Knob("count", i) for i, x in enumerate(tensors) if x.ndim][:2]
    knobs += [Knob("rank", which) for which in (("all",) if len(tensors) == 1 else ("all", "first"))] if tensors else []
    knobs += [Knob("argument", path) for path in _paths((sample.args, sample.kwargs))]
    knobs += [Knob("items", path) for path in _list_paths((sample.args, sample.kwargs)) if len(path) == 2]
    mixed = len({x.dtype in INDICES for x in tensors}) > 1
    for i, x in enumerate(tensors):
        if x.numel() > 1 and x.dtype is not torch.bool:
            knobs += [Knob("offset", i), *([Knob("pitch", i)] if x.ndim > 1 else [])]
        if x.numel() and not x.is_complex():
            knobs += [Knob("index" if mixed and x.dtype in INDICES else "element", (i, place)) for place in PLACES]
    if len(tensors) > 1:
        knobs += [Knob("dim", (i, d)) for i, x in enumerate(tensors) for d in range(x.ndim)]
    return knobs


def _tensors(sample: SampleInput) -> list[Tensor]:
    return list(tensors_of((sample.args, sample.kwargs)))


def _paths(nest: Any, path: tuple = ()) -> Iterator[tuple]:
    """Yield the places of numbers among nested arguments."""
    if type(nest) in (int, float):
        yield path
    elif type(nest) in (tuple, list):
        for i, value in enumerate(nest):
            yield from _paths(value, (*path, i))
    elif type(nest) is dict:
        for key, value in nest.items():
            yield from _paths(value, (*path, key))


def _list_paths(nest: Any, path: tuple = ()) -> Iterator[tuple]:
    """Yield the places of lists that have items among nested arguments."""
    for key, value in nest.items() if type(nest) is dict else enumerate(nest):
        if type(value) in (tuple, list) and len(value) and path:
            yield (*path, key)
        if type(value) in (tuple, list, dict):
            yield from _list_paths(value, (*path, key))


def _with_items(nest: Any, path: Sequence[Any], count: int) -> Any:
    """Return nested arguments in which a list has another length: its last item is repeated, tensors with other values."""
    items = _read(nest, path)
    last = items[-1]
    more = [_turned(last, i + 1) if isinstance(last, Tensor) else last for i in range(min(count, MANY) - len(items))]
    return _replaced(nest, path, type(items)([*items[: max(count, 0)], *more]))


def _turned(x: Tensor, by: int) -> Tensor:
    """Return a row-major copy with its elements in another order."""
    return x.detach().resolve_conj().resolve_neg().flatten().roll(by).view(x.shape)


def shaped(sample: SampleInput, shape: tuple[int, ...], grow: Grow) -> Iterator[SampleInput]:
    """Yield the sample with tensors of a shape: each that has as many dimensions, or one of them; and with its arguments as that list."""
    tensors = [x for x in _tensors(sample) if x.ndim == len(shape)]
    if tensors and all(n >= 0 for n in shape) and prod(shape) <= ELEMENTS:
        for chosen in [tensors, *([x] for x in tensors if len(tensors) > 1)]:
            kept = {id(x) for x in chosen}
            yield mapped(sample, lambda x, kept=kept: grow(x, shape) if id(x) in kept else x)
    nest = (sample.args, sample.kwargs)
    for path in (*_paths(nest), *_list_paths(nest)):
        if len(path) == 2 and type(_read(nest, path)) is not float:
            args, kwargs = _replaced(nest, path, shape)
            yield SampleInput(args, kwargs, sample.fixed)


def _replaced(nest: Any, path: Sequence[Any], value: Any) -> Any:
    if not path:
        return value
    if type(nest) is dict:
        return {key: _replaced(each, path[1:], value) if key == path[0] else each for key, each in nest.items()}
    return type(nest)(_replaced(each, path[1:], value) if i == path[0] else each for i, each in enumerate(nest))


def _offset(x: Tensor, offset: int) -> Tensor | None:
    """Return a row-major copy that begins behind so many elements of its memory."""
    if not 0 <= offset < MEMORY:
        return None
    return x.new_empty(offset + x.numel())[offset:].view(x.shape).copy_(x.detach())


def _pitched(x: Tensor, pitch: int) -> Tensor | None:
    """Return a copy whose rows lie so many elements apart."""
    if not x.shape[-1] <= pitch < MEMORY or x.numel() // max(1, x.shape[-1]) * pitch > 4 * ELEMENTS:
        return None
    return x.new_empty((*x.shape[:-1], pitch))[..., : x.shape[-1]].copy_(x.detach())


def _read(nest: Any, path: Sequence[Any]) -> Any:
    for key in path:
        nest = nest[key]
    return nest


def _written(nest: Any, path: Sequence[Any], value: Number) -> Any:
    """Return nested arguments with another number at a place; one that is whole stays so where the number before was."""
    whole = type(_read(nest, path)) is int and float(value).is_integer()
    return _replaced(nest, path, int(value) if whole else float(value))


def _ranked(sample: SampleInput, rank: int, which: str, grow: Grow) -> Iterator[SampleInput]:
    """Yield the sample with dimensions put in front of its tensors, or behind the first, or with fewer of them."""
    if not 0 <= rank <= DEEPEST:
        return
    tensors = _tensors(sample)
    chosen = {id(x) for x in (tensors[:1] if which == "first" else tensors)}
    most = max((x.ndim for x in tensors), default=0)

    def in_front(x: Tensor) -> Tensor:
        extra = rank - (x.ndim if which == "first" else most)
        if id(x) not in chosen or (x.ndim == 0 and len(tensors) > 1):
            return x
        return grow(x, (*FRONT[:extra], *x.shape) if extra >= 0 else tuple(x.shape[-extra:]))

    yield mapped(sample, in_front)
    if rank > most and which == "all":
        yield mapped(sample, lambda x: grow(x, (*x.shape, *FRONT[: rank - most])) if x.ndim else x)


def _with_element(x: Tensor, value: Number, place: str, generator: torch.Generator) -> Tensor | None:
    """Return a copy with a value in some places; None where its dtype does not hold it, or where elements share memory."""
    if not x.numel() or (not x.is_floating_point() and not float(value).is_integer()):
        return None
    if not x.is_floating_point() and x.dtype is not torch.bool and not torch.iinfo(x.dtype).min <= value <= torch.iinfo(x.dtype).max:
        return None
    new = x.detach().clone() if not overlaps(x) else x.detach().clone(memory_format=torch.contiguous_format)
    value = int(value) if not x.is_floating_point() else value
    if place == "every":
        return new.fill_(value)
    if place == "some":
        chosen = torch.randint(4, tuple(x.shape), generator=generator) == 0
        return new.masked_fill_(chosen, value)
    new[tuple(0 if place == "first" else n - 1 for n in x.shape)] = value
    return new


def _indexed(sample: SampleInput, value: int, at: tuple[int, str], grow: Grow) -> Iterator[SampleInput]:
    """Yield the sample with a position in a tensor of positions: as it is, and with a table that is large enough for it."""
    chosen = _tensors(sample)[at[0]]
    changed = _with_element(chosen, value, at[1], grow.generator)
    if changed is None:
        return
    yield mapped(sample, lambda x: changed if x is chosen else x)
    needed = (value if value >= 0 else -value) + 3
    for size in dict.fromkeys(n for x in _tensors(sample) for n in x.shape if x.dtype not in INDICES and 1 < n < needed):

        def shape(x: Tensor, size: int = size) -> tuple[int, ...]:
            return tuple(needed if n == size else n for n in x.shape)

        if all(prod(shape(x)) <= 4 * ELEMENTS for x in _tensors(sample) if x.dtype not in INDICES):
            yield mapped(sample, lambda x, shape=shape: changed if x is chosen else x if x.dtype in INDICES else grow(x, shape(x)))
