"""Symbolic sizes in the guards of an entry: instructions that read and compute numbers, and how conditions become such instructions.

Numbers stand in registers of the call.  A size of a tensor is read into one, a polynomial is computed from others into one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.extend import BoundSymbol
from dovetail.prims.sizes import Atom, Size
from dovetail_llvm_exec.call.builtin import Builtin
from dovetail_llvm_exec.ir.sizes import is_atom, polynomial_row, write_polynomial
from dovetail_llvm_exec.ir.values import Value

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1


class SizeInstructions(Builtin):
    """The instructions on numbers; each method writes one, and its docstring names the operands."""

    slot: Callable[[Value], Value]
    read: Callable[[str, Value, str], Value]
    require_no_error: Callable[[Value], None]
    numbers: Value  # the registers

    def number(self, register: Value) -> Value:
        """Return what a register holds."""
        return self.b.load("i64", self.b.address(self.numbers, "i64", register), align=8)

    def set_number(self, register: Value, value: Value) -> None:
        """Set a register."""
        self.b.store(value, self.b.address(self.numbers, "i64", register), align=8)

    def tensor_of_rank(self, a: Value, x: Value, y: Value) -> None:
        """Require that slot a holds a tensor of exactly the type x, of y dimensions."""
        tensor = self.slot(a)
        self.require(self.b.compare("eq", self.kind(tensor), x))
        self.require(self.b.compare("eq", self.read("get_dim", self.b.address(tensor, "i8", self.field("offset")), "i64"), y))

    def read_size(self, a: Value, x: Value, y: Value) -> None:
        """Set register a to the size of dimension y of the tensor in slot x."""
        sizes = self.read("get_sizes", self.b.address(self.slot(x), "i8", self.field("offset")), "ptr")
        self.set_number(a, self.b.load("i64", self.b.address(sizes, "i64", y), align=8))

    def read_int(self, a: Value, x: Value, y: Value) -> None:
        """Set register a to the int in slot x, which is of exactly that class; one of more than 64 bits is left to the slow path."""
        value = self.b.call("PyLong_AsLongLong", "i64", self.slot(x))
        self.require_no_error(self.b.compare("ne", value, -1))
        self.set_number(a, value)

    def polynomial(self, a: Value, x: Value, y: Value) -> None:
        """Set register a to a polynomial.  Row x: how many terms, then for each its coefficient, how many factors, their registers."""
        self.set_number(a, write_polynomial(self.b, self.word, self.number, x)[0])

    def quotient(self, a: Value, x: Value, y: Value) -> None:
        """Set register a to that of x divided by that of y, which are at least 0 and 1."""
        top, bottom = self.number(x), self.number(y)
        self.require(self.b.compare("ge", top, 0))
        self.require(self.b.compare("gt", bottom, 0))
        self.set_number(a, self.b.udiv(top, bottom))

    def between(self, a: Value, x: Value, y: Value) -> None:
        """Require that register a is what row x admits: the least value, the largest, how many others are excluded, those."""
        b, value = self.b, self.number(a)
        self.require(b.and_(b.compare("ge", value, self.word(x)), b.compare("le", value, self.word(b.add(x, 1)))))
        with b.loop(0, self.word(b.add(x, 2))) as loop:
            self.require(b.compare("ne", value, self.word(b.add(b.add(x, 3), loop.index))))

    def same_number(self, a: Value, x: Value, y: Value) -> None:
        """Require that registers a and x hold the same number."""
        self.require(self.b.compare("eq", self.number(a), self.number(x)))


INSTRUCTIONS = (
    SizeInstructions.tensor_of_rank,
    SizeInstructions.read_size,
    SizeInstructions.read_int,
    SizeInstructions.polynomial,
    SizeInstructions.quotient,
    SizeInstructions.between,
    SizeInstructions.same_number,
)


class SizePlan:
    """The instructions on sizes of one entry; a part of its plan."""

    check: Callable[..., None]
    slot: Callable[[Any], int]
    pointer: Callable[[Any], int]
    known: Callable[[Any], Any]
    rows: list[tuple[list[int], list[int]]]
    checks: list[list[int]]

    def __init__(self) -> None:
        self.registers: dict[str, int] = {}

    def register(self, name: str) -> int:
        """Return the register of a symbol or a size, by its text."""
        return self.registers.setdefault(name, len(self.registers))

    def with_row(self, instruction: Callable[..., None], a: int, row: list[int]) -> None:
        """Append an instruction whose operand x is a row."""
        self.check(instruction, a)
        self.rows.append((row, self.checks[-1]))

    def rank(self, line: BoundSymbol, x: Any, *, type: Any, rank: int) -> None:
        """Check the class and the number of dimensions of a tensor, before its sizes are read."""
        self.check(SizeInstructions.tensor_of_rank, self.slot(x), self.pointer(self.known(type)), rank)

    def size(self, line: BoundSymbol, x: Any, *, dim: int) -> None:
        """Read a size of a tensor."""
        self.check(SizeInstructions.read_size, self.register(line.out.name), self.slot(x), dim)

    def condition(self, line: BoundSymbol, *, condition: Any) -> None:
        """Check a condition on symbols."""
        at = self.computed(condition.size)
        low, high = LOWEST if condition.low is None else condition.low, HIGHEST if condition.high is None else condition.high
        self.with_row(SizeInstructions.between, at, [low, high, len(condition.excluded), *sorted(condition.excluded)])

    def same_int(self, x: Any, size: Size) -> None:
        """Check that an int in a slot is a size."""
        self.check(SizeInstructions.same_number, self._int(x.name, x), self.computed(size))

    def computed(self, size: Any) -> int:
        """Return the register of a size, or of an int."""
        name = str(size)
        if name in self.registers:
            return self.registers[name]
        row = polynomial_row(size, self._atom)
        if is_atom(row):
            return row[3]
        self.with_row(SizeInstructions.polynomial, self.register(name), row)
        return self.registers[name]

    def _atom(self, atom: Atom) -> int:
        if atom.parts is None:
            return self.registers[atom.name] if atom.name in self.registers else self._int(atom.name, atom.proxy)
        top, bottom = map(self.computed, atom.parts)
        at = self.register(f"{top}//{bottom} in registers")
        self.check(SizeInstructions.quotient, at, top, bottom)
        return at

    def _int(self, name: str, proxy: Any) -> int:
        """Return the register of a symbol that is an int of the call."""
        if name not in self.registers:
            slot = self.slot(proxy)
            self.check(SizeInstructions.read_int, self.register(name), slot)
        return self.registers[name]

    def pair(self, n: Any) -> tuple[int, int]:
        """Return a number of a row: (1, its register) or (0, itself)."""
        return (1, self.computed(n)) if type(n) is Size else (0, n)
