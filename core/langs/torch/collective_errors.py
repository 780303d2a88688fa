"""What a rank reports when a collective fails: which one, and which ranks did not take part."""

from __future__ import annotations

import time
from typing import Any

from torch import distributed

from dovetail.errors import CollectiveError, DovetailError
from dovetail.langs.torch.process_groups import process_group
from dovetail.torch_internals import STORE

PATIENCE = 3.0  # seconds in which the other ranks report that the collective failed for them, too


def default_store() -> Any:
    """Return the store that all ranks share; None where this torch does not show it."""
    return STORE.value() if STORE.value is not None else None


def collective_failed(error: RuntimeError, operation: str, group: str, ranks: int) -> CollectiveError:
    """Return the error for a collective that failed in this process: the message names the ranks that did not take part."""
    try:
        target = process_group(group)
        members, rank = distributed.get_process_group_ranks(target), distributed.get_rank()
    except (DovetailError, ValueError, RuntimeError):
        return CollectiveError(f"{operation} over the process group {group!r} failed: {error}")
    why = str(error).strip().partition("\n")[0]
    missing = _missing(operation, members, rank)
    if missing is None:
        blamed = "the store of the ranks cannot be reached, so the rank that holds it, rank 0, has ended"
    elif missing:
        names = ", ".join(map(str, missing))
        blamed = f"rank {names} did not take part: it has ended, hangs, or waits for another collective"
    else:
        blamed = "all ranks report a failure: they ran different programs, or the connection broke"
    return CollectiveError(
        f"{operation} over the process group {group!r} of {len(members)} ranks failed on rank {rank}: {blamed}\n  torch.distributed says: {why}\n"
        "  look at the output of that rank, and start all ranks again from the last checkpoint"
    )


def _missing(operation: str, members: list[int], rank: int) -> list[int] | None:
    """Report the failure of this rank, and return the ranks of the group that report none in time; None where the store fails."""
    try:
        store = default_store()
        if store is None:
            return []
        store.set(f"dovetail/failed/{rank}", operation)
        until = time.monotonic() + PATIENCE
        missing = [r for r in members if r != rank]
        while missing and time.monotonic() < until:
            missing = [r for r in missing if not store.check([f"dovetail/failed/{r}"])]
            time.sleep(0.05)
        return missing
    except RuntimeError:
        return None
