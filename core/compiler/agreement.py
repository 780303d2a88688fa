"""Ranks agree on their collectives before a program runs: a difference is an error then, and not a program that hangs.

Each rank publishes the collectives of a program that it has compiled in the store that the ranks share, and reads what the others published.
A rank may compile alone, say for a batch of another size: collectives that the ranks agreed on once are not compared again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from typing import Any

from torch import distributed

from dovetail.errors import CollectiveError
from dovetail.langs.torch import default_store, is_distributed, process_group
from dovetail.prims import collectives
from dovetail.trace import TensorProxy, Trace
from dovetail.trace.passes.overlap import starts

_OWN = frozenset({"rank", "outputs", "inputs"})  # keywords that differ between ranks
_ROWS = frozenset({collectives.all_to_all, collectives.gather_shards})  # in which ranks may differ in their number of rows


def agree(programs: Iterable[Trace]) -> None:
    """Compare the collectives of a compiled program with those of the other ranks.  Raises CollectiveError where they differ."""
    if not is_distributed():
        return
    by_group: dict[str, list[str]] = {}
    for trace in programs:
        for line in trace.lines:
            if starts(line):
                by_group.setdefault(line.kwargs["group"], []).append(f"{trace.name}: {_described(line)}")
    store = default_store() if by_group else None
    if store is not None:
        for group, lines in by_group.items():
            _compare(store, group, lines)


def _described(line: Any) -> str:
    """Describe a collective as all ranks see it, and the user's line."""
    parts = [] if line.symbol in _ROWS else [str(p.spec.like(requires_grad=False)) for p in line.reads if isinstance(p, TensorProxy)]
    words = [*parts, *(f"{k}={v!r}" for k, v in line.kwargs.items() if k not in _OWN)]
    return f"{line.symbol.name}({', '.join(words)})" + (f"  # {os.path.basename(line.where)}" if line.where else "")


def _key(members: tuple[int, ...], rank: int, number: int) -> str:
    return f"dovetail/programs/{'-'.join(map(str, members))}/{rank}/{number}"


def _compare(store: Any, group: str, lines: list[str]) -> None:
    """Publish `lines`, and wait until each other rank of the group has published the same."""
    members, rank = tuple(distributed.get_process_group_ranks(process_group(group))), distributed.get_rank()
    agreed = f"dovetail/agreed/{'-'.join(map(str, members))}/{rank}/{hashlib.sha256(chr(10).join(lines).encode()).hexdigest()}"
    if store.check([agreed]):  # a program for a batch of another size, say, which other ranks need not compile
        return
    number = store.add(_key(members, rank, 0), 1)  # the store counts what each rank has published
    store.set(_key(members, rank, number), "\n".join(lines))
    for other in members:
        if other != rank:
            _compare_with(store, members, other, number, lines)
    store.set(agreed, "yes")


def _compare_with(store: Any, members: tuple[int, ...], other: int, number: int, lines: list[str]) -> None:
    """Look for `lines` among those that another rank has published: at the same user lines, or as its last."""
    at, rank, theirs = 1, distributed.get_rank(), list[str]()
    while True:
        key = _key(members, other, at)
        if not store.check([key]):
            if theirs and _code(theirs) == _code(lines):
                return
            if at > number:
                raise CollectiveError(_difference(rank, other, lines, theirs))
            try:
                store.wait([key])
            except RuntimeError as error:
                raise CollectiveError(
                    f"rank {other} compiled no program like that of rank {rank} in time: it hangs, has ended, or runs another program\n"
                    f"  rank {rank} waits before its first collective, {lines[0]}\n  torch.distributed says: {str(error).partition(chr(10))[0]}"
                ) from error
        theirs, at = store.get(key).decode().split("\n"), at + 1
        if theirs == lines:
            return


def _code(lines: list[str]) -> list[str]:
    """Return the collectives without user lines: ranks may run equal collectives from different branches."""
    return [line.partition("  # ")[0] for line in lines]


def _difference(rank: int, other: int, ours: list[str], theirs: list[str]) -> str:
    """Return the message that names the first collective in which two ranks differ."""
    i = next((i for i, (a, b) in enumerate(zip(_code(ours), _code(theirs), strict=False)) if a != b), min(len(ours), len(theirs)))
    mine, its = (lines[i] if i < len(lines) else "nothing" for lines in (ours, theirs))
    return (
        f"the programs of rank {rank} and rank {other} have different collectives, so that they would wait for each other forever\n"
        f"  number {i + 1} on rank {rank} is {mine}\n  number {i + 1} on rank {other} is {its}\n"
        "  make both run the same code: branch on the rank outside of collectives alone, and give all ranks tensors of the same shapes"
    )
