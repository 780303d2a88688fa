"""Sizes: a sample with one of its sizes replaced by another wherever it stands, so that the arguments still fit each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from dovetail_conformance.layout import overlaps
from dovetail_conformance.opinfo import SampleInput

ROW, LONG = 1031, 4099  # elements of a row, of a long one
TOTAL = {"odd": 150, "block": 5_003, "round": 1 << 13, "large": 70_001, "huge": (1 << 20) + 7, "vast": (1 << 24) + 9}  # of the largest tensor
EQUAL = {1: 1024, 2: 32, 3: 16}  # every size of a sample of so many dimensions, 8 of one with more
MOST = 1 << 22  # elements that a sample may have
FRONT = {"deep": (5, (2, 1, 3, 1, 2)), "images": (4, (2, 3, 2, 3))}  # dimensions, and the sizes of those that are put in front
MANY, TIMES = 37, 3  # tensors of a long list; how often one of numbers is repeated
ALIKE = {"line": (37,), "cube": (5, 4, 3)}  # the shape of each tensor that has dimensions
WHICH = ("first", "second", "third", "fourth")
INDICES = (torch.int64, torch.int32)


def resized(sample: SampleInput, size: str, which: str, generator: torch.Generator) -> Iterator[SampleInput]:
    """Yield the sample with another size, the best choice first: eager decides which the operation accepts."""
    tensors = list(tensors_of((sample.args, sample.kwargs)))
    if size in FRONT:
        yield from _deep(sample, *FRONT[size], generator)
        return
    symbols = _symbols(tensors)
    if size == "odd" and symbols:
        least = 0 if symbols == [1] else 1
        yield mapped(sample, lambda x: grown(x, tuple(2 * n + 1 + 6 * (n == 1) if n > least else n for n in x.shape), generator))
    if size == "slab":
        yield from _slab(sample, generator)
        return
    if size in ALIKE:
        yield mapped(sample, lambda x: grown(x, ALIKE[size], generator) if x.ndim else x)
        return
    if size in ("equal", "square") and symbols:
        most = max(x.ndim for x in tensors)
        alike = EQUAL.get(most, 8) if size == "equal" else int(TOTAL["large"] ** (1 / most))
        for replaced in ([{*symbols, 1}] if size == "square" else []) + [set(symbols)]:

            def equal(x: Tensor, replaced: set[int] = replaced) -> tuple[int, ...]:
                return tuple(alike if n in replaced else n for n in x.shape)

            yield mapped(sample, lambda x, equal=equal: grown(x, equal(x), generator))
            if lists(sample) & replaced:
                yield mapped(sample, lambda x, equal=equal: grown(x, equal(x), generator), lambda n, replaced=replaced: alike if n in replaced else n)
        return
    at = WHICH.index(which)
    for symbol in [*symbols[at:], *symbols[:at]]:
        new = _new_size(tensors, symbol, size)
        if new is None or new == symbol:
            continue

        def shape(x: Tensor, symbol: int = symbol, new: int = new) -> tuple[int, ...]:
            return tuple(new if n == symbol else n for n in x.shape)

        if (reached := _reaching(sample, symbol, new)) is not None:
            yield mapped(reached, lambda x, shape=shape: grown(x, shape(x), generator))
        yield mapped(sample, lambda x, shape=shape: grown(x, shape(x), generator))
        if symbol in lists(sample):
            yield mapped(sample, lambda x, shape=shape: grown(x, shape(x), generator), lambda n, symbol=symbol, new=new: new if n == symbol else n)


def reaching(sample: SampleInput, size: str, generator: torch.Generator) -> Iterator[SampleInput]:
    """Yield the sample with one of its sizes replaced, for each with which its indices may grow up to the last element."""
    tensors = list(tensors_of((sample.args, sample.kwargs)))
    for symbol in _symbols(tensors):
        new = _new_size(tensors, symbol, size)
        if new is not None and (reached := _reaching(sample, symbol, new)) is not None:
            yield mapped(reached, lambda x, old=symbol, new=new: grown(x, tuple(new if n == old else n for n in x.shape), generator))


def _reaching(sample: SampleInput, symbol: int, new: int) -> SampleInput | None:
    """Return the sample with whole numbers spread from below `symbol` to below `new`, beside tensors of another dtype; None without any.

    Numbers that are arguments as well, such as an index to be ignored, stay what they are.
    """
    tensors = list(tensors_of((sample.args, sample.kwargs)))
    ints = [x for x in tensors if x.dtype in INDICES and x.numel() and -symbol <= int(x.min()) and int(x.max()) < symbol]
    if not ints or symbol < 2 or len({x.dtype in INDICES for x in tensors}) < 2:
        return None
    kept = [n for n in [*sample.args, *sample.kwargs.values()] if type(n) is int]
    chosen = {id(x) for x in ints}

    def spread(x: Tensor) -> Tensor:
        if id(x) not in chosen:
            return x
        last = max(int(x.max()), -1 - int(x.min()), 1)
        far = torch.where(x < 0, -1 - (-1 - x.long()) * (new - 1) // last, x.long() * (new - 1) // last).to(x.dtype)
        for number in kept:
            far = torch.where(x == number, x, far)
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype).copy_(far) if not overlaps(x) else far

    return mapped(sample, spread)


def lengthened(sample: SampleInput) -> Iterator[list[SampleInput]]:
    """Yield, for each whole number above 1 in the sample's arguments, the samples with a large one in its place, the largest first.

    Beside another size it is smaller: a plugin may lay out as many rows as columns.
    """
    lists = [(i, value) for i, value in enumerate(sample.args) if type(value) in (tuple, list)]
    numbers = [n for n in [*sample.arguments().values(), *(n for _, value in lists for n in value)] if type(n) is int and n > 1]
    new = (TOTAL["large"] if len(numbers) == 1 else TOTAL["block"], ROW)
    for key, value in sample.arguments().items():
        if type(value) is int and value > 1:
            yield [sample.with_argument(key, n) for n in new]
    for i, value in lists:
        for k, old in enumerate(value):
            if type(old) is int and old > 1:
                yield [sample.with_argument(i, type(value)((*value[:k], n, *value[k + 1 :]))) for n in new]


def with_long_lists(sample: SampleInput) -> Iterator[SampleInput]:
    """Yield the sample with many tensors in each list of tensors, and with each list of numbers repeated: alone, and all at once.

    The added tensors have the elements of those before, shifted, so that none stands for another.  Eager decides what it accepts.
    """
    arguments = sample.arguments()
    kinds = {key: kind for key, value in arguments.items() if (kind := _listed(value)) is not None}
    fixed = {id(x) for x in sample.fixed}
    for keys in ([key for key, kind in kinds.items() if kind is Tensor], [key for key, kind in kinds.items() if kind is int]):
        for chosen in dict.fromkeys([tuple(keys), *((key,) for key in keys)] if keys else []):
            longer, more = sample, list(sample.fixed)
            for key in chosen:
                old = list(arguments[key])
                new = old * TIMES if kinds[key] is int else [*old, *(_shifted(old[i % len(old)], i) for i in range(len(old), MANY))]
                more += [x for i, x in enumerate(new[len(old) :]) if isinstance(x, Tensor) and id(old[i % len(old)]) in fixed]
                longer = longer.with_argument(key, type(arguments[key])(new))
            yield SampleInput(longer.args, longer.kwargs, tuple(more))


def _listed(value: Any) -> type | None:
    """Return what a list holds: tensors or whole numbers, two at least; None where it holds something else."""
    if type(value) not in (tuple, list) or len(value) < 2:
        return None
    return next((kind for kind in (Tensor, int) if all(isinstance(x, kind) and type(x) is not bool for x in value)), None)


def _shifted(x: Tensor, places: int) -> Tensor:
    return x.detach().flatten().roll(places).reshape(x.shape)


def _slab(sample: SampleInput, generator: torch.Generator) -> Iterator[SampleInput]:
    """Yield the sample with equal sizes behind a first one of 1, of tensors with three dimensions or more."""
    if any(x.ndim > 2 for x in tensors_of((sample.args, sample.kwargs))):

        def shape(x: Tensor) -> tuple[int, ...]:
            return (1, *(EQUAL[3] for _ in x.shape[1:])) if x.ndim > 2 else tuple(EQUAL[3] for _ in x.shape)

        yield mapped(sample, lambda x: grown(x, shape(x), generator))


def _deep(sample: SampleInput, rank: int, front: tuple[int, ...], generator: torch.Generator) -> Iterator[SampleInput]:
    """Yield the sample with dimensions put in front of its first tensor, or of all, up to `rank`."""
    tensors = list(tensors_of((sample.args, sample.kwargs)))
    for chosen in (tensors[:1], tensors):
        kept = {id(x) for x in chosen}
        if chosen and all(x.ndim < rank for x in chosen):
            yield mapped(sample, lambda x, kept=kept: grown(x, front[: rank - x.ndim] + tuple(x.shape), generator) if id(x) in kept else x)


def _symbols(tensors: Sequence[Tensor]) -> list[int]:
    """Return the distinct sizes that may be replaced, last dimensions first: those above 1, or 1 where there is none."""
    sizes = [n for x in tensors for n in reversed(x.shape) if n > 1]
    return list(dict.fromkeys(sizes)) or [n for x in tensors for n in x.shape if n == 1][:1]


def _new_size(tensors: Sequence[Tensor], symbol: int, size: str) -> int | None:
    """Choose another size; None where the sample would get too large."""
    if size in ("one", "empty"):
        return int(size == "one")
    if size in ("rows", "long"):
        new = ROW if size == "rows" else LONG
    else:
        x = max((x for x in tensors if symbol in x.shape), key=Tensor.numel)
        times = sum(n == symbol for n in x.shape)
        rest = max(1, x.numel()) / symbol**times
        new = int((TOTAL[size] / rest) ** (1 / times)) + 1
        new = 1 << (new - 1).bit_length() if size == "round" else new + 1 - new % 2
    total = sum(x.numel() // symbol ** (k := sum(n == symbol for n in x.shape)) * new**k for x in tensors)
    return new if symbol < new and total <= (4 * TOTAL["vast"] if size == "vast" else MOST) else None


def grown(x: Tensor, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Return a row-major tensor of `shape` with values like those of `x`: in the same range, as distinct, as sorted."""
    if tuple(x.shape) == shape:
        return x
    count = torch.Size(shape).numel()
    values = x.detach().cpu().resolve_conj().resolve_neg().reshape(-1)
    if x.is_complex():
        parts = torch.view_as_real(values)
        return torch.complex(*(_like(part, count, generator) for part in parts.unbind(-1))).to(x.dtype).reshape(shape).to(x.device)
    return _like(values, count, generator).to(x.dtype).reshape(shape).to(x.device)


def _like(values: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return `count` values like these, in float64 or int64."""
    if not len(values) or count == 0:
        return torch.zeros(count, dtype=torch.float64)
    wide = values.to(torch.float64 if values.is_floating_point() else torch.int64)
    unique = wide.unique()
    ordered = wide.dim() == 1 and len(wide) > 2 and bool((wide.diff() >= 0).all())
    if len(unique) == len(wide) > 1 and not wide.is_floating_point():
        distinct = max(count, int(unique[-1] - unique[0]) + 1)
        return (torch.arange(count) * distinct // count if ordered else torch.randperm(distinct, generator=generator)[:count]) + int(unique[0])
    telling = len(unique) > 2 or len(unique) == len(wide)
    if wide.is_floating_point() and telling and bool(torch.isfinite(unique).all()) and not bool((wide == wide.round()).all()):
        drawn = torch.rand(count, generator=generator, dtype=torch.float64)
        least = unique[0] if len(unique) > 1 else unique[0] * 0.75  # copies of a single element would look the same in any order
        return least + ((drawn + torch.arange(count)) / count if ordered else drawn) * (unique[-1] - least)
    return unique[torch.arange(count) * len(unique) // count if ordered else torch.randint(len(unique), (count,), generator=generator)]


def tensors_of(nest: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested arguments, each once."""
    seen: set[int] = set()

    def walk(value: Any) -> Iterator[Tensor]:
        if isinstance(value, Tensor):
            if id(value) not in seen:
                seen.add(id(value))
                yield value
        elif type(value) in (tuple, list):
            for each in value:
                yield from walk(each)
        elif type(value) is dict:
            yield from walk(list(value.values()))
        elif isinstance(value, slice):
            yield from walk([value.start, value.stop, value.step])

    return walk(nest)


def lists(sample: SampleInput) -> set[int]:
    """Return the whole numbers in the lists of a sample: those that `mapped` changes."""
    numbers: set[int] = set()
    mapped(sample, lambda x: x, lambda n: numbers.add(n) or n)
    return numbers


def mapped(sample: SampleInput, change: Callable[[Tensor], Tensor], number: Callable[[int], int] = lambda n: n) -> SampleInput:
    """Return the sample with other tensors, one that appears twice replaced by one; `number` changes the whole numbers of its lists."""
    new: dict[int, Tensor] = {}

    def walk(value: Any, listed: bool) -> Any:
        if isinstance(value, Tensor):
            if id(value) not in new:
                new[id(value)] = change(value)
            return new[id(value)]
        if type(value) in (tuple, list):
            return type(value)(walk(each, True) for each in value)
        if type(value) is dict:
            return {key: walk(each, listed) for key, each in value.items()}
        if isinstance(value, slice):
            return slice(*(walk(each, False) for each in (value.start, value.stop, value.step)))
        return number(value) if listed and type(value) is int else value

    args = tuple(walk(each, False) for each in sample.args)
    kwargs = {key: walk(each, False) for key, each in sample.kwargs.items()}
    return SampleInput(args, kwargs, tuple(new.get(id(x), x) for x in sample.fixed))
