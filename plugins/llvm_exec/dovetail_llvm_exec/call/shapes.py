"""Sizes of a call: where its symbols are read, and the function that computes what a kernel and its launch need from them.

shapes(args, recipe, rows, count) gets the words of the call, of which only the symbols have to be there.  It sets the other sizes among them, and
then `count` rows: bytes of workspace, the cost, bytes of all memory, then for each output its dimensions, dtype, sizes and strides.  One function
serves all kernels; the recipe of a kernel is what differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import ceil
from typing import Any, NamedTuple

from dovetail.extend.advanced import CannotFuse
from dovetail.prims.sizes import Size
from dovetail_llvm_exec.ir.module import Module
from dovetail_llvm_exec.ir.sizes import SizeWords, write_polynomial
from dovetail_llvm_exec.ir.target import Target
from dovetail_llvm_exec.ir.values import Value
from dovetail_llvm_exec.loops.stage import Cost
from dovetail_llvm_exec.region.graph import Graph

NAME = "shapes"
HEAD = 3  # words of the rows before those of the outputs
ALIGNED = 64  # bytes that a workspace has more, so that it can start at a line of the cache
PARTS = 64  # of a nanosecond, in which costs are counted


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


class Recipe(NamedTuple):
    """What `shapes` gets for one kernel: `computed` sizes are set in the words of the call, and `rows` words in the rows.

    `words`: the place of the first size, how many there are, their rows; then for each word of the rows 1 and the place of a size, or 0 and a number.
    """

    computed: int
    rows: int
    words: tuple[int, ...]


def recipe(sizes: SizeWords, outputs: Sequence[Any], dtypes: Sequence[int], workspace: int, costs: Sequence[Cost]) -> Recipe:
    """Return the recipe of a kernel, and complete its `sizes`; `dtypes` are the numbers of the dtypes of its outputs."""
    room = workspace if type(workspace) is int and not workspace else workspace + ALIGNED
    rows = [room, total(costs, PARTS), sum([out.bytes for out in outputs]) + room]
    for out, dtype in zip(outputs, dtypes, strict=True):
        rows += [len(out.shape), dtype, *out.shape, *out.steps]
    pairs = [n for word in rows for n in ((1, sizes.place(word)) if type(word) is Size else (0, word))]
    return Recipe(len(sizes.rows), len(rows), (sizes.computed, len(sizes.rows), *[n for row in sizes.rows for n in row], *pairs))


def total(costs: Sequence[Cost], parts: float) -> Any:
    """Return the cost of all, in so many parts of a nanosecond, as an int or a size."""
    return sum([ceil(cost.each * parts) * cost.elements for cost in costs])


@cache
def written(target: Target) -> str:
    """Return the module of shapes(args, recipe, rows, count), which sets `count` words of the rows."""
    module = Module(target)
    b = module.function(NAME, "void", [("args", "ptr"), ("recipe", "ptr"), ("rows", "ptr"), ("count", "i64")])
    args, words, rows, count = b.params

    def word(at: Value | int) -> Value:
        return b.load("i64", b.address(words, "i64", at), align=8)

    def size(place: Value) -> Value:
        return b.load("i64", b.address(args, "i64", place), align=8)

    def quotient(at: Value) -> Sequence[Value]:
        return [b.udiv(size(word(b.add(at, 1))), size(word(b.add(at, 2)))), b.add(at, 3)]

    with b.loop(0, word(1), 1, [b.constant(2, "i64")]) as loop:
        (at,) = loop.carried
        value, end = b.branch(b.compare("eq", word(at), 0), lambda: quotient(at), lambda: write_polynomial(b, word, size, at))
        b.store(value, b.address(args, "i64", b.add(word(0), loop.index)), align=8)
        loop.update(end)
    (pairs,) = loop.results
    with b.loop(0, count) as loop:
        at = b.add(pairs, b.mul(loop.index, 2))
        number = b.address(words, "i64", b.add(at, 1))
        place = b.select(b.compare("ne", word(at), 0), b.address(args, "i64", b.load("i64", number, align=8)), number)
        b.store(b.load("i64", place, align=8), b.address(rows, "i64", loop.index), align=8)
    b.ret()
    return module.text()
