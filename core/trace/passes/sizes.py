"""Symbols of sizes become numbers that the program reads off its inputs.

>>> def computation(t0):
...     t1 = prims.broadcast_in_dim(t0, shape=(2, s0), dims=(1,))
...     return t1

becomes, where s0 is the size of t0,

>>> def computation(t0):
...     s0 = t0.shape[0]
...     t1 = prims.broadcast_in_dim(t0, shape=(2, s0), dims=(1,))
...     return t1

Until then symbols are ambient: they stand in specs and arguments, and no line reads them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dovetail import prims
from dovetail.errors import InvalidTrace
from dovetail.prims.sizes import Atom, Size, symbols_in
from dovetail.trace.ir import BoundSymbol, Trace
from dovetail.trace.proxies import TensorProxy, proxies


def sizes(trace: Trace) -> Trace:
    """Return the trace with a line at its head for each symbol that a line or a result names; a program of plain ints as it is.

    Raises InvalidTrace where a symbol is the size of no input.
    """
    if trace.relations is None:
        return trace
    used = [symbols_in((line.args, line.kwargs)) for line in trace.lines]
    wanted = dict.fromkeys([atom for atoms in used for atom in atoms])
    numbers = {*proxies(trace.outputs), *[p for line in trace.lines for p in line.reads]}
    named = [atom for atom in trace.relations.symbols() if atom.proxy in numbers]
    wanted |= dict.fromkeys([atom for each in named for atom in symbols_in(trace.relations.value_of(each))])
    wanted |= dict.fromkeys(named)
    known = set(trace.inputs)
    new = trace.derive("sizes")
    new.lines = [_definition(atom, trace) for atom in wanted if atom.proxy not in known]
    for line, atoms in zip(trace.lines, used, strict=True):
        new.lines.append(line.replace(reads=[*line.reads, *[atom.proxy for atom in atoms]]) if atoms else line)
    return new


def is_symbol(n: Any, atom: Atom) -> bool:
    """Return whether a size is this symbol and nothing else."""
    return type(n) is Size and n.terms == {(atom.number,): 1}


def shown_symbols(tensors: Iterable[Any]) -> set[Atom]:
    """Return the symbols that are the size of a dimension of a tensor."""
    sizes = [n for p in tensors if isinstance(p, TensorProxy) for n in p.spec.shape]
    return {atom for n in sizes for atom in symbols_in(n) if is_symbol(n, atom)}


def _definition(atom: Atom, trace: Trace) -> BoundSymbol:
    """Return the line that reads a symbol off an input; an int where an equality was recorded that names it."""
    value = trace.relations.value_of(atom)
    if not is_symbol(value, atom):
        return BoundSymbol(prims.integer, (), {"value": value}, atom.proxy, [other.proxy for other in symbols_in(value)])
    for p in trace.inputs:
        for dim, n in enumerate(p.spec.shape if isinstance(p, TensorProxy) else ()):
            if is_symbol(n, atom):
                return BoundSymbol(prims.size, (p,), {"dim": dim}, atom.proxy, [p])
    raise InvalidTrace(f"the trace made by {trace.made_by} is invalid: {atom.name} ({atom.origin}) is the size of no input of {trace.name}")
