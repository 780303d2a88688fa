"""Collectives, by torch.distributed's functional ones; where this torch lacks those, by the public ones, which block.

A collective that fails says what failed: its error names the operation, the group and its ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor, distributed

from dovetail.extend.advanced import torch_internals
from dovetail.langs.torch import collective_failed, count, process_group
from dovetail.prims import Symbol, collectives

functional = torch_internals.functional_collective


def _started(name: str, group: str, ranks: int, x: Tensor, start: Callable[[], Tensor]) -> Tensor:
    """Start a collective; its result remembers what it is, for the error of a wait that fails."""
    try:
        out = start()
    except RuntimeError as error:
        raise collective_failed(error, name, group, ranks) from error
    out.collective = name, group, ranks
    count(name, group, ranks, x, out)
    return out


def wait(x: Tensor) -> Tensor:
    complete = functional("wait")
    try:
        return x if complete is None else complete(x)
    except RuntimeError as error:
        raise collective_failed(error, *getattr(x, "collective", ("a collective", "?", 0))) from error


def all_reduce(x: Tensor, *, op: str, group: str, ranks: int) -> Tensor:
    target, start = process_group(group), functional("all_reduce")

    def run() -> Tensor:
        if start is not None:
            return start(x, op, target.group_name)
        out = x.clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(out, getattr(distributed.ReduceOp, op.upper()), target)
        return out

    return _started("all_reduce", group, ranks, x, run)


def all_gather(x: Tensor, *, group: str, ranks: int) -> Tensor:
    target, start = process_group(group), functional("all_gather")

    def run() -> Tensor:
        if start is not None:
            return start(x.contiguous(), ranks, target.group_name)
        out = x.new_empty((x.shape[0] * ranks, *x.shape[1:]))
        distributed.all_gather_into_tensor(out, x.contiguous(), target)
        return out

    return _started("all_gather", group, ranks, x, run)


def reduce_scatter(x: Tensor, *, op: str, group: str, ranks: int) -> Tensor:
    target, start = process_group(group), functional("reduce_scatter")

    def run() -> Tensor:
        if start is not None:
            return start(x.contiguous(), op, ranks, target.group_name)
        out = x.new_empty((x.shape[0] // ranks, *x.shape[1:]))
        distributed.reduce_scatter_tensor(out, x.contiguous(), getattr(distributed.ReduceOp, op.upper()), target)
        return out

    return _started("reduce_scatter", group, ranks, x, run)


def broadcast(x: Tensor, *, src: int, rank: int, group: str, ranks: int) -> Tensor:
    target, start = process_group(group), functional("broadcast")

    def run() -> Tensor:
        if start is not None:
            return start(x, src, target.group_name)
        out = x.clone(memory_format=torch.contiguous_format)
        distributed.broadcast(out, group=target, group_src=src)
        return out

    return _started("broadcast", group, ranks, x, run)


def all_to_all(x: Tensor, *, outputs: tuple[int, ...], inputs: tuple[int, ...], group: str, ranks: int) -> Tensor:
    target, start = process_group(group), functional("all_to_all")

    def run() -> Tensor:
        if start is not None:
            return start(x.contiguous(), list(outputs), list(inputs), target.group_name)
        out = x.new_empty((sum(outputs), *x.shape[1:]))
        distributed.all_to_all_single(out, x.contiguous(), list(outputs), list(inputs), target)
        return out

    return _started("all_to_all", group, ranks, x, run)


def gather_shards(*parts: Tensor, rows: tuple[int, ...], group: str, ranks: int, keep: bool = False) -> Tensor:
    flat = []
    for x, n in zip(parts, rows, strict=True):
        flat.append(x.reshape(-1))
        if x.shape[0] < n:
            flat.append(x.new_zeros((n - x.shape[0]) * prod(x.shape[1:])))
    return all_gather(torch.cat(flat)[None], group=group, ranks=ranks)


def unpack_shards(x: Tensor, *, shapes: tuple[tuple[int, ...], ...]) -> tuple[Tensor, ...]:
    ranks, start, params = x.shape[0], 0, []
    for shape in shapes:
        rows, rest = -(-shape[0] // ranks), prod(shape[1:])
        part = x[:, start : start + rows * rest].reshape(ranks * rows, rest)[: shape[0]]
        params.append(part.reshape(shape).clone() if part.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() else part.reshape(shape))
        start += rows * rest
    return tuple(params)


def replicas(*params: Tensor, group: str, ranks: int) -> tuple[Tensor, ...]:
    return tuple([x.clone(memory_format=torch.contiguous_format) for x in params])


def shared(x: Tensor, *, group: str, ranks: int) -> Tensor:
    return x.clone(memory_format=torch.contiguous_format)


COLLECTIVES: dict[Symbol, Any] = {
    collectives.wait: wait,
    collectives.all_reduce: all_reduce,
    collectives.all_gather: all_gather,
    collectives.reduce_scatter: reduce_scatter,
    collectives.broadcast: broadcast,
    collectives.all_to_all: all_to_all,
    collectives.gather_shards: gather_shards,
    collectives.unpack_shards: unpack_shards,
    collectives.replicas: replicas,
    collectives.shared: shared,
    collectives.wait_shards: wait,
}
