"""Takes the sum out of a product with one, where a kernel reads the result: the kernel adds on its way.

>>> t3 = torch.nn.functional.linear(t0, t1, t2)
>>> t7 = torch.nn.functional.gelu(t3)

becomes

>>> t4 = prims.linear(t0, t1)
>>> t5 = prims.broadcast_in_dim(t2, shape=(256, 64), dims=(1,))
>>> t3 = prims.add(t4, t5)
>>> t7 = torch.nn.functional.gelu(t3)

PyTorch copies what is to be added to every row of the result, and the product then reads and writes that again.  It does so with the
wide floats; sums behind products of 16 bits are made before anything is rounded, so they stay where they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.dtypes import float32, float64
from dovetail.extend import BoundSymbol, Trace
from dovetail.extend.advanced import prims_of, symbol_for
from dovetail_llvm_exec.region.graph import VIEWS

PRODUCTS = frozenset(map(symbol_for, ("torch.nn.functional.linear", "torch.addmm")))
SHOWN = VIEWS | {"detach"}  # operations that compute nothing


def split_bias(trace: Trace, fuses: Callable[[BoundSymbol], bool], claimed_whole: Callable[[BoundSymbol], bool]) -> Trace:
    """Return the trace with such products and their sums as lines of their own.

    `fuses` says whether a line can be part of a kernel, `taken` whether somebody runs a product with its sum in a better way.
    """
    products = {id(line): line for line in trace.lines if _adds(line) and not claimed_whole(line)}
    if not products:
        return trace
    readers: dict[Any, list[BoundSymbol]] = {}
    for line in trace.lines:
        for p in dict.fromkeys(line.reads):
            readers.setdefault(p, []).append(line)
    split = {at for at, line in products.items() if _computed_with(line, readers, fuses)}
    if not split:
        return trace
    new = trace.derive("biases")
    new.lines = [part for line in trace.lines for part in (_parts(line) if id(line) in split else [line])]
    return new


def _adds(line: BoundSymbol) -> bool:
    """Return whether a line is a product of wide floats, and something is added to it."""
    return line.symbol in PRODUCTS and len(line.body) > 1 and line.body[-1].out is line.out and line.out.spec.dtype in (float32, float64)


def _computed_with(line: BoundSymbol, readers: dict[Any, list[BoundSymbol]], fuses: Callable[[BoundSymbol], bool]) -> bool:
    """Return whether a kernel computes with the result of a line, or with a view of it."""
    for reader in (r for p in line.writes for r in readers.get(p, ())):
        views = all(part.symbol.name in SHOWN for part in prims_of([reader]))
        if _computed_with(reader, readers, fuses) if views else fuses(reader):
            return True
    return False


def _parts(line: BoundSymbol) -> list[BoundSymbol]:
    return [part.replace(where=part.where or line.where) for part in line.body]
