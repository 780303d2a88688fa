"""Passes from the program of one process to that of a rank: what they insert is differentiated like every other line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dovetail.errors import Unsupported
from dovetail.prims import TensorSpec, collectives
from dovetail.prims.spec import ceildiv
from dovetail.trace import Proxy, Trace, proxies, recording, substitute
from dovetail.trace.passes.split import bytes_of

Insertion = Callable[[], Mapping[Proxy, Proxy]]  # records lines, and returns what stands for parameters from there on


def first_uses(trace: Trace, params: Iterable[Proxy]) -> dict[Proxy, int]:
    """Return the first line that reads each parameter, of those that are read, in the order of the lines."""
    left, uses = set(params), dict[Proxy, int]()
    for i, line in enumerate(trace.lines):
        for p in dict.fromkeys(line.reads):
            if p in left:
                left.discard(p)
                uses[p] = i
    return uses


def inserted(trace: Trace, made_by: str, insertions: Mapping[int, Sequence[Insertion]], inputs: Mapping[Proxy, Proxy] | None = None) -> Trace:
    """Return the trace with `insertions` before the lines of these numbers, and with other inputs in the place of those in `inputs`."""
    new, env = trace.derive(made_by), dict[Proxy, Proxy]()
    new.inputs = [(inputs or {}).get(p, p) for p in trace.inputs]
    with recording(new):
        for i, line in enumerate(trace.lines):
            for insert in insertions.get(i, ()):
                env.update(insert())
            new.lines.append(substitute(line, env))
    returned = [p.name for p in proxies(trace.outputs) if p in (inputs or {})]
    if returned:
        raise Unsupported(f"the function returns a parameter that lies in parts on the ranks ({returned[0]}); return a computed value")
    new.outputs = substitute(trace.outputs, env)
    return new


def replicate(trace: Trace, params: Sequence[Proxy], *, group: str, ranks: int, bucket_bytes: int) -> Trace:
    """Return the program of a rank that has a copy of each parameter: gradients are averaged, bucket by bucket, as they are computed."""
    uses = first_uses(trace, [p for p in params if p.spec.requires_grad])
    insertions: dict[int, list[Insertion]] = {}
    for bucket in _buckets(list(uses), bucket_bytes):

        def insert(bucket: list[Proxy] = bucket) -> Mapping[Proxy, Proxy]:
            return dict(zip(bucket, collectives.replicas(*bucket, group=group, ranks=ranks), strict=True))

        insertions.setdefault(min(uses[p] for p in bucket), []).insert(0, insert)  # so that the backward reaches the last bucket first
    return inserted(trace, "data_parallel", insertions)


def _buckets(params: list[Proxy], most: int) -> list[list[Proxy]]:
    """Return the parameters in groups of one dtype and at most so many bytes; their gradients are computed from the last to the first."""
    buckets: list[list[Proxy]] = []
    for p in reversed(params):
        last = buckets[-1] if buckets else None
        fits = last is not None and last[0].spec.dtype is p.spec.dtype and sum(map(bytes_of, last)) + bytes_of(p) <= most
        buckets[-1].append(p) if fits else buckets.append([p])
    return buckets


def shard(trace: Trace, units: Sequence[Sequence[Proxy]], local: Mapping[Proxy, TensorSpec], *, group: str, ranks: int, keep: bool) -> Trace:
    """Return the program of a rank that has some rows of each parameter: those of a unit are gathered before they are first read.

    `local` has the spec of what lies on this rank.  Gradients are averaged, and each rank gets its rows; with `keep`, parameters are
    gathered once and held for the backward.
    """
    inputs = {p: trace.tensor(local[p]) for unit in units for p in unit}
    uses = first_uses(trace, inputs)
    insertions: dict[int, list[Insertion]] = {}
    for part in [part for unit in units for part in _alike([p for p in unit if p in uses])]:
        insertions.setdefault(min(uses[p] for p in part), []).append(_gathering(part, inputs, {"group": group, "ranks": ranks, "keep": keep}))
    return inserted(trace, "fully_sharded", insertions, inputs)


def _alike(unit: Sequence[Proxy]) -> list[list[Proxy]]:
    """Return the parameters of a unit in groups that one collective gathers: of one dtype, with gradients or without."""
    groups: dict[Any, list[Proxy]] = {}
    for p in unit:
        groups.setdefault((p.spec.dtype, p.spec.requires_grad), []).append(p)
    return list(groups.values())


def _gathering(part: list[Proxy], inputs: Mapping[Proxy, Proxy], named: Mapping[str, Any]) -> Insertion:
    def insert() -> Mapping[Proxy, Proxy]:
        rows = tuple([ceildiv(p.spec.shape[0], named["ranks"]) for p in part])
        gathered = collectives.wait_shards(collectives.gather_shards(*[inputs[p] for p in part], rows=rows, **named))
        return dict(zip(part, collectives.unpack_shards(gathered, shapes=tuple([p.spec.shape for p in part])), strict=True))

    return insert
