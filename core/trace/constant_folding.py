"""Values that a program computes from constants alone: tracing knows them, and a branch on one is no branch on data.

>>> def computation(t0):
...     t1 = prims.tensor_from_sequence(values=(3, 5))
...     t2 = prims.amax(t1, dims=(0,))
...     t3 = prims.mul(t0, 2.0)

The value of t2 follows from the first two lines; that of t3 is not known, since t0 is an input.
"""

from __future__ import annotations

from collections.abc import Collection

from dovetail.prims import Tag
from dovetail.prims.sizes import symbols_in
from dovetail.trace.aliases import root_of, view_bases
from dovetail.trace.ir import BoundSymbol, Trace, prims_of
from dovetail.trace.proxies import Proxy, TensorProxy

LARGEST = 1 << 16  # elements of a value that is computed while tracing
_UNKNOWN = {Tag.RANDOM, Tag.HOST, Tag.UNINITIALIZED}


def constant_lines(trace: Trace, p: Proxy, constants: Collection[Proxy] = ()) -> list[BoundSymbol] | None:
    """Return the lines recorded so far that compute `p`, in order; None where they draw a random number, or read an input.

    Inputs in `constants` are no inputs to it.
    """
    lines = [line for level in (*trace.enclosing, trace.lines) for line in level]
    known = {q for line in lines for q in line.writes}.union(constants)
    writes = _writes(lines)
    wanted, chosen = {p}, []
    for line in reversed(lines):
        if wanted.isdisjoint(line.writes) and (not writes or wanted.isdisjoint(writes.get(id(line), ()))):
            continue
        read = read_by(line)
        if not known.issuperset(read) or not _is_constant(line, trace):
            return None
        chosen.append(line)
        wanted.update(read)
    return chosen[::-1] or None


def read_by(line: BoundSymbol) -> set[Proxy]:
    """Return what a line reads, with the constants of the program that stand only in its decomposition."""
    inner = list(prims_of([line]))
    return {*line.reads, *[q for each in inner for q in each.reads]}.difference([q for each in inner for q in each.writes])


def _writes(lines: list[BoundSymbol]) -> dict[int, set[Proxy]]:
    """Map the id of each line that writes in place to the values that hold something else afterwards."""
    writing = [line for line in lines if line.mutates]
    if not writing:
        return {}
    bases = view_bases(lines)
    sharing: dict[Proxy, set[Proxy]] = {}
    for p in [p for line in lines for p in (*line.reads, *line.writes)]:
        sharing.setdefault(root_of(p, bases), set()).add(p)
    written: dict[int, set[Proxy]] = {}
    for line in writing:
        targets = [inner.args[0] for inner in prims_of([line]) if Tag.MEMORY in inner.symbol.tags]
        written[id(line)] = set().union(*[sharing.get(root_of(p, bases), {p}) for p in targets])
    return written


def _is_constant(line: BoundSymbol, trace: Trace) -> bool:
    """Return whether a line computes the same at every call from the same values, and little enough to compute it now."""
    if any([not _UNKNOWN.isdisjoint(inner.symbol.tags) for inner in prims_of([line])]):
        return False
    if trace.relations is not None and (symbols_in((line.args, line.kwargs)) or any([symbols_in(q.spec.shape) for q in _tensors(line)])):
        return False
    return all([q.spec.numel <= LARGEST for q in _tensors(line)])


def _tensors(line: BoundSymbol) -> list[TensorProxy]:
    return [q for q in line.writes if isinstance(q, TensorProxy)]
