"""Sizes of a call: where its symbols are read, and the function of a kernel that computes what a launch needs from them.

shapes(args, rows) gets the words of `run`, of which only the symbols have to be there, and fills the rows: bytes of workspace, whether other
Python threads may run meanwhile, bytes of the largest tensor, then for each output its dimensions, dtype, sizes and strides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dovetail.extend.advanced import CannotFuse
from dovetail.prims.sizes import Size
from dovetail_llvm_exec.ir.module import Builder, Module
from dovetail_llvm_exec.ir.values import Value
from dovetail_llvm_exec.loops.program import total_cost
from dovetail_llvm_exec.loops.stage import Cost
from dovetail_llvm_exec.region.graph import Graph

HEAD = 3  # words of the rows before those of the outputs
ALIGNED = 64  # bytes that a workspace has more, so that it can start at a line of the cache


class Place(NamedTuple):
    """Where a call has a symbol: dimension `dim` of the input number `input` is factor * symbol + constant; that input itself where dim is -1."""

    name: str
    input: int
    dim: int
    constant: int
    factor: int

    def read(self, inputs: Sequence[Any]) -> int:
        """Return the value of the symbol."""
        if self.dim < 0:
            return inputs[self.input]
        return (inputs[self.input].shape[self.dim] - self.constant) // self.factor


def places_of(graph: Graph) -> tuple[Place, ...]:
    """Return where the symbols of a region are read; none for a region whose sizes are ints.

    Raises CannotFuse where one is the size of no input.
    """
    if graph.sizes is None:
        return ()
    by_number: dict[int, Place] = {}
    for number, node in enumerate(graph.inputs):
        for dim, n in enumerate(node.shape):
            place = _place(n, number, dim)
            if place is not None and (place[0] not in by_number or place[1].factor < by_number[place[0]].factor):
                by_number[place[0]] = place[1]
    for number, size in enumerate(graph.numbers, len(graph.inputs)):
        place = _place(size, number, -1)
        if place is not None:
            by_number.setdefault(*place)
    for atom in graph.sizes.symbols():
        if atom.number not in by_number and atom.number not in graph.sizes.equal:
            raise CannotFuse(f"needs {atom.origin or atom.name}, which is the size of no tensor that the kernel reads")
    return tuple([by_number[number] for number in sorted(by_number)])


def _place(n: Any, input: int, dim: int) -> tuple[int, Place] | None:
    """Return the symbol that a size is a linear function of, by number, and its place; None for other sizes."""
    terms = dict(n.terms) if type(n) is Size else {}
    constant = terms.pop((), 0)
    if len(terms) != 1 or len(monomial := next(iter(terms))) != 1 or (atom := n.relations.atoms[monomial[0]]).parts is not None:
        return None
    return atom.number, Place(atom.name, input, dim, constant, terms[monomial])


def write_shapes(module: Module, outputs: Sequence[Any], dtypes: Sequence[int], workspace: int, costs: Sequence[Cost], released: float) -> int:
    """Write `shapes` for outputs with the numbers of their `dtypes`; return how many words the rows have."""
    b = module.function("shapes", "void", [("args", "ptr"), ("rows", "ptr")])
    rows = b.params[1]
    room = b.constant(workspace, "i64")
    nothing = b.compare("eq", room, 0)
    words: list[Value] = [b.select(nothing, b.constant(0, "i64"), b.add(room, ALIGNED)), _releases(b, costs, released)]
    largest = room
    for out in outputs:
        largest = b.call("llvm.smax.i64", "i64", largest, b.constant(out.bytes, "i64"))
    words.append(largest)
    for out, dtype in zip(outputs, dtypes, strict=True):
        words += [b.constant(n, "i64") for n in (len(out.shape), dtype, *out.shape, *out.steps)]
    for i, word in enumerate(words):
        b.store(word, b.address(rows, "i64", i), align=8)
    b.ret()
    return len(words)


def _releases(b: Builder, costs: Sequence[Cost], released: float) -> Value:
    cost = total_cost(b, costs)
    if not isinstance(cost, Value):
        return b.constant(int(cost >= released), "i64")
    return b.cast("zext", b.compare("ge", cost, released), "i64")
