"""Sizes that are known when a kernel is called: words that a call computes once, and that the functions of the kernel read.

The first parameter of a function points to the words of the call.  Behind the addresses of tensors stand the symbols, and then what is
computed from them, such as s0 * 3888: `rows` say how, one after the other.  A function only reads its sizes, so functions that differ in them are
compiled once.

The row of a polynomial: how many terms it has, then for each its coefficient, how many factors, and the places of those.
The row of a quotient: 0, the place of the numerator, which is at least 0, and that of the denominator, which is at least 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dovetail.prims.sizes import Atom, Size
from dovetail_llvm_exec.ir.values import Value

if TYPE_CHECKING:
    from dovetail_llvm_exec.ir.module import Builder


class SizeWords:
    """The words of one kernel that are sizes; `first` is the place of the first of its `symbols`."""

    def __init__(self, first: int, symbols: Sequence[str]):
        self.places = {name: first + i for i, name in enumerate(symbols)}
        self.computed = first + len(symbols)  # the place of the first word that has a row
        self.rows: list[list[int]] = []

    def place(self, size: int | Size) -> int:
        """Return the place of the word that holds a size, or a plain number."""
        name = str(size)
        if name not in self.places:
            row = polynomial_row(size, self._atom)
            self.places[name] = row[3] if is_atom(row) else self._append(row)
        return self.places[name]

    def _atom(self, atom: Atom) -> int:
        if atom.parts is None:
            return self.places[atom.name]
        top, bottom = map(self.place, atom.parts)
        name = f"word {top} // word {bottom}"
        if name not in self.places:
            self.places[name] = self._append([0, top, bottom])
        return self.places[name]

    def _append(self, row: list[int]) -> int:
        """Return the place of a new word."""
        self.rows.append(row)
        return self.computed + len(self.rows) - 1


class HeadSizes:
    """The sizes that one function reads at its head; the builder `b` writes it."""

    def __init__(self, b: Builder):
        self.b, self.known = b, dict[int, Value]()

    def value(self, size: Size) -> Value:
        """Return a size as an i64."""
        place = self.b.module.sizes.place(size)
        if place not in self.known:
            address = self.b.at_head("ptr", f"getelementptr i64, {self.b.params[0]}, i64 {place}")
            self.known[place] = self.b.at_head("i64", f"load i64, {address}, align 8")
        return self.known[place]


def polynomial_row(size: int | Size, place: Callable[[Atom], int]) -> list[int]:
    """Return the row of a size, or of a plain number; `place` gives that of an atom."""
    terms = size.terms if type(size) is Size else {(): size}
    row = [len(terms)]
    for monomial, c in terms.items():
        row += [c, len(monomial), *[place(size.relations.atoms[number]) for number in monomial]]
    return row if terms else [1, 0, 0]


def is_atom(row: list[int]) -> bool:
    """Return whether a row is that of an atom alone, which has its own place: row[3]."""
    return row[:3] == [1, 1, 1]


def write_polynomial(b: Builder, word: Callable[[Value], Value], number: Callable[[Value], Value], at: Value) -> tuple[Value, Value]:
    """Return what the row of a polynomial says, and where it ends: `word` reads a word of the row, which starts at `at`, `number` a factor."""
    with b.loop(0, word(at), 1, [b.constant(0, "i64"), b.add(at, 1)]) as terms:
        total, term = terms.carried
        count, first = word(b.add(term, 1)), b.add(term, 2)
        with b.loop(0, count, 1, [word(term)]) as factors:
            factors.update(b.mul(factors.carried[0], number(word(b.add(first, factors.index)))))
        terms.update(b.add(total, factors.results[0]), b.add(first, count))
    return terms.results[0], terms.results[1]
