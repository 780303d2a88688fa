"""Collectives: samples for any number of ranks, and what each rank gets, computed by NumPy from the arguments of all ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dovetail.prims import Symbol, collectives

Arrays = list[np.ndarray]


@dataclass(frozen=True)
class CollectiveInfo:
    """What a collective computes.

    Attributes:
        symbol: the prim that starts it.
        samples: yields for a number of ranks the shape of the argument at each rank, and the keywords but for the group's.
        reference: returns the result of a rank from the arguments of all.
        linear: whether it has a gradient, which is then the transposed map.
    """

    symbol: Symbol
    samples: Callable[[int], Iterator[tuple[tuple[int, ...], dict[str, Any]]]]
    reference: Callable[..., np.ndarray]
    linear: Callable[[dict[str, Any]], bool] = lambda kwargs: True

    def __str__(self) -> str:
        return self.symbol.name


_REDUCE = {
    "sum": lambda xs: np.sum(xs, 0),
    "avg": lambda xs: np.mean(xs, 0),
    "max": lambda xs: np.max(xs, 0),
    "min": lambda xs: np.min(xs, 0),
    "product": lambda xs: np.prod(xs, 0),
}


def _is_sum(kwargs: dict[str, Any]) -> bool:
    return kwargs["op"] in ("sum", "avg")


def _reductions(ranks: int) -> Iterator[tuple[tuple[int, ...], dict[str, Any]]]:
    for op in _REDUCE:
        yield (2 * ranks, 3), {"op": op}
    yield (0, 3), {"op": "sum"}


def _shapes(ranks: int) -> Iterator[tuple[tuple[int, ...], dict[str, Any]]]:
    yield from (((3,), {}), ((2, 1, 3), {}), ((0, 2), {}))


def _rows(ranks: int) -> Iterator[tuple[tuple[int, ...], dict[str, Any]]]:
    yield (3, 2), {"rows": (3,)}


def _sources(ranks: int) -> Iterator[tuple[tuple[int, ...], dict[str, Any]]]:
    yield from (((3, 2), {"src": src}) for src in (0, ranks - 1))


def _exchanges(ranks: int) -> Iterator[tuple[tuple[int, ...], dict[str, Any]]]:
    yield (2 * ranks, 3), {"outputs": (2,) * ranks, "inputs": (2,) * ranks}


def _exchanged(xs: Arrays, rank: int, *, outputs: tuple[int, ...], inputs: tuple[int, ...]) -> np.ndarray:
    start = sum(inputs[:rank])
    return np.concatenate([x[start : start + inputs[rank]] for x in xs])


COLLECTIVES = (
    CollectiveInfo(collectives.all_reduce, _reductions, lambda xs, rank, *, op: _REDUCE[op](xs), _is_sum),
    CollectiveInfo(collectives.all_gather, _shapes, lambda xs, rank: np.concatenate(xs)),
    CollectiveInfo(collectives.reduce_scatter, _reductions, lambda xs, rank, *, op: np.split(_REDUCE[op](xs), len(xs))[rank], _is_sum),
    CollectiveInfo(collectives.broadcast, _sources, lambda xs, rank, *, src: xs[src]),
    CollectiveInfo(collectives.all_to_all, _exchanges, _exchanged),
    CollectiveInfo(collectives.gather_shards, _rows, lambda xs, rank, *, rows: np.stack([np.resize(x, x.size) for x in xs])),
)
