"""Sizes that are known when a function is called: polynomials over words that its first parameter points to, computed once at its head."""

from __future__ import annotations

from typing import Any

from dovetail.prims.sizes import Atom, Size
from dovetail_llvm_exec.ir.values import Value


class HeadSizes:
    """The sizes of one function, which the builder `b` writes."""

    def __init__(self, b: Any):
        self.b, self.known = b, dict[str, Value]()

    def value(self, size: Size) -> Value:
        """Return a size as an i64."""
        key = str(size)
        if key not in self.known:
            total: str | None = None
            for monomial, c in size.terms.items():
                term = str(c)
                for number in monomial:
                    factor = self._atom(size.relations.atoms[number]).name
                    term = factor if term == "1" else self._number("mul", term, factor).name
                total = term if total is None else self._number("add", total, term).name
            self.known[key] = Value(total or "0", "i64")
        return self.known[key]

    def _atom(self, atom: Atom) -> Value:
        """Return a symbol, or a quotient, both of whose parts are at least 0."""
        if atom.parts is not None:
            return self._number("udiv", *[self.value(x).name if type(x) is Size else str(x) for x in atom.parts])
        if atom.name not in self.known:
            place = self.b.at_head("ptr", f"getelementptr i64, {self.b.params[0]}, i64 {self.b.module.sizes[atom.name]}")
            self.known[atom.name] = self.b.at_head("i64", f"load i64, {place}, align 8")
        return self.known[atom.name]

    def _number(self, op: str, a: str, b: str) -> Value:
        return self.b.at_head("i64", f"{op} i64 {a}, {b}")
