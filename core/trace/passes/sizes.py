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

from dovetail.prims.sizes import Atom, Size, is_symbol, symbols_in
from dovetail.trace.ir import Trace
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
    wanted = operands_first([*wanted, *named])
    known = set(trace.inputs)
    new = trace.derive("sizes")
    new.lines = [trace.size_line(atom) for atom in wanted if atom.proxy not in known]
    for line, atoms in zip(trace.lines, used, strict=True):
        new.lines.append(line.replace(reads=[*line.reads, *[atom.proxy for atom in atoms]]) if atoms else line)
    return new


def operands_first(atoms: Iterable[Atom]) -> dict[Atom, None]:
    """Return symbols in an order in which they can be defined: behind those that they are computed of."""
    ordered: dict[Atom, None] = {}
    for atom in atoms:
        if atom.real is not None:
            ordered |= operands_first(symbols_in(atom.real))
        ordered[atom] = None
    return ordered


def shown_symbols(tensors: Iterable[Any]) -> set[Atom]:
    """Return the symbols that are the size of a dimension of a tensor."""
    sizes = [n for p in tensors if isinstance(p, TensorProxy) for n in p.spec.shape if type(n) is Size]
    return {atom for n in sizes for atom in n.symbols() if is_symbol(n, atom)}
