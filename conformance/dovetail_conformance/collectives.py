"""Collectives: samples for any number of ranks, and the results of each rank, computed by NumPy from the operands of all.

A collective is a function of the operands of all ranks, and so is its gradient: the cotangents of all ranks determine those of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dovetail import dtypes
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.prims import Symbol, collectives, mul
from dovetail_conformance.opinfo import FULL_FLOATS, Directive, ErrorSample, no_errors

Arrays = list[np.ndarray]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class CollectiveSample:
    """The operands and keywords of one collective on every rank.

    Attributes:
        shapes: for each rank the shapes of its operands.
        keywords: for each rank its keywords, but for the group's.
        columns: whether matrices lie in memory column by column.
    """

    shapes: tuple[tuple[Shape, ...], ...]
    keywords: tuple[dict[str, Any], ...]
    columns: bool = False

    @property
    def ranks(self) -> int:
        return len(self.shapes)

    def __str__(self) -> str:
        shapes, words = (str(each[0] if len(set(map(str, each))) == 1 else list(each)) for each in (self.shapes, self.keywords))
        return f"operands {shapes}, keywords {words}" + (", column by column" if self.columns else "")


# (operands of all ranks, the sample, the rank) -> results of that rank; a gradient takes cotangents in place of operands
Reference = Callable[[Sequence[Arrays], CollectiveSample, int], Arrays]


@dataclass(frozen=True, eq=False)
class CollectiveInfo:
    """One operation of the family `dist`, as the conformance suite meets it.

    Attributes:
        symbol: the prim.
        samples: yields the samples of a dtype for a number of ranks.
        reference: returns the results of a rank from the operands of all.
        gradient: returns the gradients of a rank's operands from the cotangents of all; None where there is none.
        program: calls the prim with a rank's operands and keywords, and completes what it starts; returns the results.
    """

    symbol: Symbol
    samples: Callable[[DType, int], Iterator[CollectiveSample]]
    reference: Reference
    gradient: Reference | None
    program: Callable[..., Sequence[Any]]
    dtypes: tuple[DType, ...] = (*FULL_FLOATS, dtypes.int64)
    differentiable: Callable[[CollectiveSample], bool] = lambda sample: True
    directives: tuple[Directive, ...] = ()
    error_samples: Callable[[Device], Iterator[ErrorSample]] = field(default=no_errors)

    def __str__(self) -> str:
        return self.symbol.name

    @property
    def name(self) -> str:
        return self.symbol.id


# Programs: each completes what it starts, as every program does.


def _completed(start: Symbol) -> Callable[..., Sequence[Any]]:
    """Return a program that starts one collective and waits for it."""
    return lambda x, **keywords: (collectives.wait(start(x, **keywords)),)


def _two_at_once(x: Any, y: Any, *, group: str, ranks: int) -> Sequence[Any]:
    """Start two collectives, and wait for the second first."""
    total = collectives.all_reduce(x, op="sum", group=group, ranks=ranks)
    gathered = collectives.all_gather(y, group=group, ranks=ranks)
    second = collectives.wait(gathered)
    return collectives.wait(total), second


def _gathered(*parts: Any, **keywords: Any) -> Sequence[Any]:
    return (collectives.wait_shards(collectives.gather_shards(*parts, **keywords)),)


def _unpacked(*parts: Any, shapes: tuple[Shape, ...], **keywords: Any) -> Sequence[Any]:
    return collectives.unpack_shards(*_gathered(*parts, **keywords), shapes=shapes)


def _doubled(mark: Symbol) -> Callable[..., Sequence[Any]]:
    """Return a program that reads what a mark of parameters returns."""

    def program(*params: Any, **keywords: Any) -> Sequence[Any]:
        marked = mark(*params, **keywords)
        return tuple([mul(x, 2.0) for x in (marked if isinstance(marked, tuple) else (marked,))])

    return program


# Samples.


def _alike(ranks: int, *shapes: Shape, columns: bool = False, **keywords: Any) -> CollectiveSample:
    """Return a sample whose operands have these shapes on every rank."""
    return CollectiveSample((shapes,) * ranks, (keywords,) * ranks, columns)


def _reductions(dtype: DType, ranks: int) -> Iterator[CollectiveSample]:
    for op in _REDUCE if dtype.inexact else [op for op in _REDUCE if op != "avg"]:
        yield _alike(ranks, (2 * ranks, 3), op=op)
    yield _alike(ranks, (ranks, 5), op="sum", columns=True)
    yield _alike(ranks, (0, 3), op="sum")


def _tensors(dtype: DType, ranks: int) -> Iterator[CollectiveSample]:
    yield _alike(ranks, (3,))
    yield _alike(ranks, (2, 3), columns=True)
    yield _alike(ranks, (2, 1, 3))
    yield _alike(ranks, (0, 2))


def _sources(dtype: DType, ranks: int) -> Iterator[CollectiveSample]:
    for src in (0, ranks - 1):
        yield CollectiveSample((((3, 2),),) * ranks, tuple([{"src": src, "rank": rank} for rank in range(ranks)]), columns=src > 0)


def _exchanges(dtype: DType, ranks: int) -> Iterator[CollectiveSample]:
    """Yield an exchange of equal parts, and one in which rank i sends i + j rows to rank j, and none to itself."""
    yield _alike(ranks, (2 * ranks, 3), outputs=(2,) * ranks, inputs=(2,) * ranks)
    yield _alike(ranks, (ranks, 3), outputs=(1,) * ranks, inputs=(1,) * ranks, columns=True)
    rows = [[0 if i == j else i + j for j in range(ranks)] for i in range(ranks)]
    keywords = [{"outputs": tuple([rows[j][i] for j in range(ranks)]), "inputs": tuple(rows[i])} for i in range(ranks)]
    yield CollectiveSample(tuple([((sum(row), 2),) for row in rows]), tuple(keywords))


def _pairs(dtype: DType, ranks: int) -> Iterator[CollectiveSample]:
    yield _alike(ranks, (4, 3), (2,))
    yield _alike(ranks, (3, 2), (1, 2), columns=True)


PARAMETERS = ((5, 2), (4,), (3, 1, 2))  # shapes, of which some do not divide by the number of ranks


def _shards(dtype: DType, ranks: int) -> Iterator[CollectiveSample]:
    """Yield samples in which each rank has some rows of parameters, the last ranks fewer or none."""
    yield _parts(ranks, PARAMETERS[:1])
    yield _parts(ranks, PARAMETERS)
    yield _parts(ranks, ((2 * ranks, 3),), keep=True)


def _shards_of_shapes(dtype: DType, ranks: int) -> Iterator[CollectiveSample]:
    for shapes in (PARAMETERS, PARAMETERS[:1], ((2 * ranks, 3),)):
        yield _parts(ranks, shapes, shapes=shapes)


def _parts(ranks: int, parameters: tuple[Shape, ...], **keywords: Any) -> CollectiveSample:
    """Return the sample of parameters of these shapes, in parts."""
    rows = tuple([-(-shape[0] // ranks) for shape in parameters])
    shapes = [tuple([(max(0, min(n, shape[0] - rank * n)), *shape[1:]) for shape, n in zip(parameters, rows, strict=True)]) for rank in range(ranks)]
    return CollectiveSample(tuple(shapes), ({"rows": rows, **keywords},) * ranks)


def _copies(dtype: DType, ranks: int) -> Iterator[CollectiveSample]:
    yield _alike(ranks, (3, 2), (4,))
    yield _alike(ranks, (2, 3), columns=True)


def _one_copy(dtype: DType, ranks: int) -> Iterator[CollectiveSample]:
    yield _alike(ranks, (3, 2))
    yield _alike(ranks, (2, 3), columns=True)


# References, in NumPy.

_REDUCE: dict[str, Callable[[Arrays], np.ndarray]] = {
    "sum": lambda xs: np.sum(xs, 0),
    "avg": lambda xs: np.mean(xs, 0),
    "max": lambda xs: np.max(xs, 0),
    "min": lambda xs: np.min(xs, 0),
    "product": lambda xs: np.prod(xs, 0),
}


def _firsts(xs: Sequence[Arrays]) -> Arrays:
    return [operands[0] for operands in xs]


def _reduced(xs: Sequence[Arrays], sample: CollectiveSample, rank: int) -> Arrays:
    return [_REDUCE[sample.keywords[rank]["op"]](_firsts(xs))]


def _reduced_part(xs: Sequence[Arrays], sample: CollectiveSample, rank: int) -> Arrays:
    return [np.split(_reduced(xs, sample, rank)[0], sample.ranks)[rank]]


def _reduced_part_gradient(gs: Sequence[Arrays], sample: CollectiveSample, rank: int) -> Arrays:
    return [np.concatenate(_firsts(gs)) / (sample.ranks if sample.keywords[rank]["op"] == "avg" else 1)]


def _concatenated(xs: Sequence[Arrays], sample: CollectiveSample, rank: int) -> Arrays:
    return [np.concatenate(_firsts(xs))]


def _summed_part(gs: Sequence[Arrays], sample: CollectiveSample, rank: int) -> Arrays:
    return [np.split(np.sum(_firsts(gs), 0), sample.ranks)[rank]]


def _of_source(xs: Sequence[Arrays], sample: CollectiveSample, rank: int) -> Arrays:
    return [xs[sample.keywords[rank]["src"]][0]]


def _to_source(gs: Sequence[Arrays], sample: CollectiveSample, rank: int) -> Arrays:
    return [np.sum(_firsts(gs), 0) * (rank == sample.keywords[rank]["src"])]


def _exchanged(sent: str) -> Reference:
    """Return the reference of an exchange in which `sent` names how many rows a rank sends to each."""

    def reference(xs: Sequence[Arrays], sample: CollectiveSample, rank: int) -> Arrays:
        splits = [np.split(x, np.cumsum(sample.keywords[source][sent])[:-1]) for source, x in enumerate(_firsts(xs))]
        return [np.concatenate([parts[rank] for parts in splits])]

    return reference


def _both(xs: Sequence[Arrays], sample: CollectiveSample, rank: int) -> Arrays:
    return [np.sum(_firsts(xs), 0), np.concatenate([operands[1] for operands in xs])]


def _both_gradient(gs: Sequence[Arrays], sample: CollectiveSample, rank: int) -> Arrays:
    return [np.sum(_firsts(gs), 0), np.split(np.sum([each[1] for each in gs], 0), sample.ranks)[rank]]


def _flat(xs: Sequence[Arrays], sample: CollectiveSample, rank: int) -> Arrays:
    """Concatenate the parts of each rank, each padded with zeros to its number of rows."""
    rows = sample.keywords[rank]["rows"]
    return [np.stack([np.concatenate([np.pad(x, [(0, n - len(x)), *[(0, 0)] * (x.ndim - 1)]).ravel() for x, n in zip(xs_, rows)]) for xs_ in xs])]


def _flat_gradient(gs: Sequence[Arrays], sample: CollectiveSample, rank: int) -> Arrays:
    """Cut the mean of the ranks' cotangents of this rank's row into its parts: the gradient of a parameter is a mean."""
    mean, start, parts = np.mean([each[0][rank] for each in gs], 0), 0, []
    for shape, n in zip(sample.shapes[rank], sample.keywords[rank]["rows"], strict=True):
        parts.append(mean[start : start + int(np.prod(shape))].reshape(shape))
        start += n * int(np.prod(shape[1:]))
    return parts


def _joined(xs: Sequence[Arrays], sample: CollectiveSample, rank: int) -> Arrays:
    return [np.concatenate(parts) for parts in zip(*xs, strict=True)]


def _joined_gradient(gs: Sequence[Arrays], sample: CollectiveSample, rank: int) -> Arrays:
    starts = [n * rank for n in sample.keywords[rank]["rows"]]
    means = [np.mean(each, 0) for each in zip(*gs, strict=True)]
    return [mean[start : start + shape[0]] for mean, start, shape in zip(means, starts, sample.shapes[rank], strict=True)]


def _twice(xs: Sequence[Arrays], sample: CollectiveSample, rank: int) -> Arrays:
    return [2 * x for x in xs[rank]]


def _twice_the(reduce: Callable[..., np.ndarray]) -> Reference:
    return lambda gs, sample, rank: [2 * reduce(each, 0) for each in zip(*gs, strict=True)]


def _is_linear(sample: CollectiveSample) -> bool:
    return sample.keywords[0]["op"] in ("sum", "avg")


_reduce_scatter, _all_to_all = collectives.reduce_scatter, collectives.all_to_all
_of = CollectiveInfo
COLLECTIVES = (  # symbol, samples, reference, gradient, program
    _of(collectives.all_reduce, _reductions, _reduced, _reduced, _completed(collectives.all_reduce), differentiable=_is_linear),
    _of(collectives.all_gather, _tensors, _concatenated, _summed_part, _completed(collectives.all_gather)),
    _of(collectives.broadcast, _sources, _of_source, _to_source, _completed(collectives.broadcast)),
    _of(_reduce_scatter, _reductions, _reduced_part, _reduced_part_gradient, _completed(_reduce_scatter), differentiable=_is_linear),
    _of(_all_to_all, _exchanges, _exchanged("inputs"), _exchanged("outputs"), _completed(_all_to_all)),
    _of(collectives.wait, _pairs, _both, _both_gradient, _two_at_once),
    _of(collectives.gather_shards, _shards, _flat, _flat_gradient, _gathered, FULL_FLOATS),
    _of(collectives.wait_shards, _shards, _flat, _flat_gradient, _gathered, FULL_FLOATS),
    _of(collectives.unpack_shards, _shards_of_shapes, _joined, _joined_gradient, _unpacked, FULL_FLOATS),
    _of(collectives.replicas, _copies, _twice, _twice_the(np.mean), _doubled(collectives.replicas), FULL_FLOATS),
    _of(collectives.shared, _one_copy, _twice, _twice_the(np.sum), _doubled(collectives.shared), FULL_FLOATS),
)
