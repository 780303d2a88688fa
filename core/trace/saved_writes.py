"""Tensors that autograd saves for a backward and that the program writes before it: eager PyTorch raises there.

A pure program has no such writes, so its gradients would be those of what was saved.  `later_writes` lists the lines in question before writes
become values; the grad pass looks at those of them through which a gradient flows, and the front end knows what eager mode does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dovetail.prims import Symbol, Tag, memory
from dovetail.prims.op import register
from dovetail.trace.aliases import root_of, shares_history, views_in
from dovetail.trace.ir import BoundSymbol, prims_of
from dovetail.trace.proxies import Proxy, TensorProxy

OVERWRITTEN_MESSAGE = (
    "one of the variables needed for gradient computation has been modified by an inplace operation: {} saves a tensor for its backward that {} "
    "writes; write into a clone of it, or use an operation that is not in place"
)


@dataclass(frozen=True, eq=False)
class LaterWrites:
    """A line of the user's, and the later lines that write into the memory of tensors which it reads or computes.

    Attributes:
        line: the line.
        writers: for each of these tensors, the lines that write it, each with the argument that it writes.
    """

    line: BoundSymbol
    writers: dict[Proxy, tuple[tuple[BoundSymbol, Proxy], ...]]


def later_writes(lines: Sequence[BoundSymbol], repeated: Sequence[BoundSymbol] = ()) -> dict[int, LaterWrites]:
    """Map the ids of lines that compute what requires grad to later writes into what they may have saved.

    Nothing is saved by the lines in `repeated`, which the backward runs again.
    """
    writing = [i for i, line in enumerate(lines) if line.mutates]
    if not writing:
        return {}
    # A detached tensor of the user's has no part in this: `.data` is one, and autograd does not count what is written by it.
    bases = {view.out: view.args[0] for line in lines for view in views_in(line) if line.mutates or shares_history(view)}
    writes: dict[Proxy, list[tuple[int, BoundSymbol, Proxy]]] = {}
    for i in writing:
        targets = {root_of(inner.args[0], bases) for inner in prims_of([lines[i]]) if inner.symbol is memory.copy_}
        for p in lines[i].reads:
            if (root := root_of(p, bases)) in targets:
                writes.setdefault(root, []).append((i, lines[i], p))
    concerned: dict[int, LaterWrites] = {}
    saving_nothing = set(map(id, repeated))
    for i, line in enumerate(lines[: writing[-1]]):
        tensors = {p: None for p in (*line.reads, *line.writes) if isinstance(p, TensorProxy)}
        if id(line) in saving_nothing or not any([p.spec.requires_grad for p in tensors]):
            continue
        later = {p: tuple([(by, at) for j, by, at in writes.get(root_of(p, bases), ()) if j > i]) for p in tensors}
        if any(later.values()):
            concerned[id(line)] = LaterWrites(line, {p: by for p, by in later.items() if by})
    return concerned


def _refuse_saved(*gs: Any, message: str) -> None:
    """Raise RuntimeError in the backward of the cotangents `gs`: it needs a tensor that was overwritten."""


REFUSE_SAVED = register(Symbol("prims", "refuse_saved", _refuse_saved, tags={Tag.HOST, Tag.NO_GRAD}))


@REFUSE_SAVED.python
def _refuse_saved_python(target: str, *gs: str, message: str) -> str:
    return f"raise RuntimeError({message})"


def refusals(lines: Iterable[BoundSymbol]) -> list[BoundSymbol]:
    """Return the lines of a joint program that refuse cotangents."""
    return [line for line in lines if line.symbol is REFUSE_SAVED]


def check_saved(refusals: Iterable[BoundSymbol], absent: frozenset[Proxy]) -> None:
    """Raise RuntimeError where one of the `refusals` reads a cotangent that is not `absent`."""
    for line in refusals:
        if not absent.issuperset(line.reads):
            raise RuntimeError(line.kwargs["message"])
