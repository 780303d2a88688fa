"""Sizes that are known when the program runs, with the operators of integers."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dovetail.prims.arithmetic_table import ARITHMETIC
from dovetail.prims.sizes.polynomials import Monomial, Terms, add, multiply, scale

if TYPE_CHECKING:
    from dovetail.prims.sizes.relations import Relations


_ALONE = re.compile(r"[\w.\[\]]+")  # an operand that needs no parentheses


@dataclass(eq=False)
class Atom:
    """A symbol, or the quotient of two sizes that is no polynomial.

    Attributes:
        number: its position among the atoms of its Relations; a later one is younger.
        name: the name of a symbol in programs; empty for a quotient.
        hint: its value in the call that is traced.
        parts: numerator and denominator of a quotient, at least 0 and at least 1; None for a symbol.
        origin: where a symbol is read, such as "args[0].shape[1]".
        proxy: the number that a program reads for a symbol; the front end sets it.
        real: what a symbol is that programs compute of other sizes; None for those that they read.
        depth: how many quotients are nested in a quotient; 0 for a symbol.
    """

    number: int
    name: str
    hint: int
    parts: tuple[Any, Any] | None = None
    origin: str = ""
    proxy: Any = None
    real: Real | None = None
    depth: int = 0


@dataclass(frozen=True, eq=False)
class Real:
    """A number that is computed of sizes, such as `s0 ** 0.5`.

    Attributes:
        op: the operation, a key of ARITHMETIC.
        operands: sizes, other such numbers, and plain numbers.
    """

    op: str
    operands: tuple[Any, ...]

    @property
    def hint(self) -> Any:
        """The number in the call that is traced."""
        return self._computed(hint_of)

    def pinned(self) -> Any:
        """Return the number in the call that is traced, on which the program then depends."""
        return self._computed(int)

    def evaluate(self, values: Mapping[str, int]) -> Any:
        """Return the number where the symbols have the `values` of their names."""
        return self._computed(lambda size: size.evaluate(values))

    def _computed(self, value_of: Callable[[Size], int]) -> Any:
        values = [x._computed(value_of) if type(x) is Real else value_of(x) if type(x) is Size else x for x in self.operands]
        return ARITHMETIC[self.op][1](*values)

    def text(self, names: Mapping[int, str] | None = None) -> str:
        """Return the number as a Python expression; `names` has other names for atoms, by number."""
        form, words = ARITHMETIC[self.op][0], [x.text(names) if type(x) in (Real, Size) else repr(x) for x in self.operands]
        if form.endswith("({})"):
            return form.format(*words)
        return form.format(*[text if _ALONE.fullmatch(text) else f"({text})" for text in words])

    __str__ = __repr__ = text


class Size:
    """An integer that the program knows when it runs: a polynomial over atoms, never a constant when it is created.

    Operators give other sizes, or ints where the result is constant.  Comparisons give bools: by what is known of the symbols, else by the
    hint, and then `relations` records what the program depends on.  What needs a plain int, such as `range(n)`, pins the size: it records that
    the size is what it is in this call.  An int subclass would let C code read the hint unseen.
    """

    __slots__ = ("_created", "_symbols", "_terms", "_text", "_version", "hint", "relations")

    def __init__(self, relations: Relations, terms: Terms):
        self.relations, self._created, self._terms, self._version = relations, terms, terms, relations.version
        self._text: tuple[int, str] | None = None
        self._symbols: tuple[int, tuple[Atom, ...]] | None = None
        atoms = relations.atoms
        self.hint: int = sum([c * math.prod([atoms[i].hint for i in monomial]) for monomial, c in terms.items()])

    @property
    def terms(self) -> Terms:
        """The polynomial, with symbols replaced by what they are known to equal."""
        if self._version != self.relations.version:
            self._terms, self._version = self.relations.substituted(self._created), self.relations.version
        return self._terms

    def known(self) -> int | None:
        """Return the value of a size that has become constant by what was recorded since, None for others."""
        terms = self.terms
        return terms.get((), 0) if not terms or (len(terms) == 1 and () in terms) else None

    def evaluate(self, values: Mapping[str, int]) -> int:
        """Return the value where the symbols have the `values` of their names."""
        return sum([c * math.prod([self._value(i, values) for i in monomial]) for monomial, c in self.terms.items()])

    def _value(self, number: int, values: Mapping[str, int]) -> int:
        atom = self.relations.atoms[number]
        if atom.parts is None:
            return values[atom.name]
        numerator, denominator = [part.evaluate(values) if type(part) is Size else part for part in atom.parts]
        return numerator // denominator

    def atoms(self) -> Iterator[Atom]:
        """Yield the atoms of the polynomial and of the quotients in it."""
        for number in dict.fromkeys([i for monomial in self.terms for i in monomial]):
            atom = self.relations.atoms[number]
            yield atom
            for part in atom.parts or ():
                if type(part) is Size:
                    yield from part.atoms()

    def symbols(self) -> tuple[Atom, ...]:
        """Return the atoms that are symbols."""
        terms = self.terms  # which brings the version up to date
        if self._symbols is None or self._symbols[0] != self._version:
            self._symbols = self._version, tuple([atom for atom in self.atoms() if atom.parts is None])
        return self._symbols[1] if terms else ()

    # text

    def text(self, names: Mapping[int, str] | None = None) -> str:
        """Return the size as a Python expression; `names` has other names for atoms, by number."""
        rows = sorted(self.terms.items(), key=lambda item: (item[1] < 0, not item[0], item[0]))
        words = [(c < 0, self._term(monomial, abs(c), names or {})) for monomial, c in rows] or [(False, "0")]
        (negative, first), *others = words
        first = f"-({first})" if negative and "//" in first else "-" * negative + first
        return "".join([first, *[f"{' - ' if negative else ' + '}{text}" for negative, text in others]])

    def _term(self, monomial: Monomial, c: int, names: Mapping[int, str]) -> str:
        factors = [self._factor(i, names) for i in monomial]
        if len(factors) == 1 and c == 1:
            return factors[0]
        factors = [f"({words})" if "//" in words else words for words in factors]
        return "*".join(factors if c == 1 and factors else [str(c), *factors])

    def _factor(self, number: int, names: Mapping[int, str]) -> str:
        atom = self.relations.atoms[number]
        if atom.parts is None:
            return names.get(number, atom.name)
        top, bottom = [part.text(names) if type(part) is Size else str(part) for part in atom.parts]
        return "//".join([words if words.isidentifier() or words.isdigit() else f"({words})" for words in (top, bottom)])

    def __str__(self) -> str:
        if self._text is None or self._text[0] != self.relations.version:
            self._text = self.relations.version, self.text()
        return self._text[1]

    __repr__ = __str__

    # arithmetic

    def __add__(self, other: Any) -> Any:
        return self._combined("+", other) if isinstance(other, (Size, int)) else NotImplemented

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._combined("-", other) if isinstance(other, (Size, int)) else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return (-self) + other if isinstance(other, int) else NotImplemented

    def __mul__(self, other: Any) -> Any:
        return self._combined("*", other) if isinstance(other, (Size, int)) else NotImplemented

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        return self._combined("//", other) if isinstance(other, (Size, int)) else NotImplemented

    def __rfloordiv__(self, other: Any) -> Any:
        return self.relations.quotient(int(other), self) if isinstance(other, int) else NotImplemented

    def __mod__(self, other: Any) -> Any:
        return self - other * (self // other) if isinstance(other, (Size, int)) else NotImplemented

    def __rmod__(self, other: Any) -> Any:
        return other - self * (other // self) if isinstance(other, int) else NotImplemented

    def __divmod__(self, other: Any) -> Any:
        return (self // other, self % other) if isinstance(other, (Size, int)) else NotImplemented

    def __rdivmod__(self, other: Any) -> Any:
        return (other // self, other % self) if isinstance(other, int) else NotImplemented

    def __lshift__(self, other: Any) -> Any:
        return self * 2**other if type(other) is int and other >= 0 else self.__index__() << other

    def __rshift__(self, other: Any) -> Any:
        return self // 2**other if type(other) is int and other >= 0 else self.__index__() >> other

    def __pow__(self, other: Any) -> Any:
        if type(other) is int and 0 <= other <= 8:
            return math.prod([self] * other)
        return self.__index__() ** other

    def __rpow__(self, other: Any) -> Any:
        return other ** self.__index__()

    def __truediv__(self, other: Any) -> Any:
        return self.__index__() / other if isinstance(other, (Size, int, float)) else NotImplemented

    def __rtruediv__(self, other: Any) -> Any:
        return other / self.__index__() if isinstance(other, (int, float)) else NotImplemented

    def __neg__(self) -> Any:
        return self.relations.size(scale(self.terms, -1))

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def _combined(self, sign: str, other: Any) -> Any:
        """Return the result of an operator; equal operations on equal operands are computed once."""
        relations = self.relations
        mark = (sign, id(self), id(other)) if type(other) is Size else (sign, id(self), None, other)
        known = relations.memo.get(mark)
        if known is None:
            terms = other.terms if type(other) is Size else {(): int(other)} if other else {}
            if sign == "//":
                result = relations.quotient(self, other)
            elif sign == "*":
                result = relations.size(multiply(self.terms, terms))
            else:
                result = relations.size(add(self.terms, terms, 1 if sign == "+" else -1))
            known = relations.memo[mark] = result, self, other
        return known[0]

    # comparisons

    def _compared(self, sign: str, other: Any) -> Any:
        """Return the answer to a comparison with a number; equal questions are decided once."""
        kind = type(other)
        if kind is not Size and kind is not int:
            if isinstance(other, float):
                return self._compared_with_float(sign, other)
            if not isinstance(other, int):
                return NotImplemented
        memo = self.relations.memo
        mark = (sign, id(self), id(other)) if kind is Size else (sign, id(self), None, other)
        known = memo.get(mark)
        if known is None:
            known = memo[mark] = self._decided(sign, other), self, other  # the operands stay alive, and so do their ids
        return known[0]

    def _decided(self, sign: str, other: Any) -> bool:
        if sign == "==":
            return self.relations.is_zero(self - other)
        difference = other - self if sign in ("<", "<=") else self - other
        return self.relations.is_nonnegative(difference if sign in ("<=", ">=") else difference - 1)

    def _compared_with_float(self, sign: str, other: float) -> bool:
        if not math.isfinite(other):
            return sign != "==" and (other > 0 if sign in ("<", "<=") else other < 0)
        if sign == "==":
            return other.is_integer() and self == int(other)
        return self._compared(sign, math.ceil(other) if sign in ("<", ">=") else math.floor(other))

    def __eq__(self, other: object) -> Any:
        return True if self is other else self._compared("==", other)

    def __ne__(self, other: object) -> Any:
        equal = True if self is other else self._compared("==", other)
        return equal if equal is NotImplemented else not equal

    def __ge__(self, other: Any) -> Any:
        return self._compared(">=", other)

    def __gt__(self, other: Any) -> Any:
        return self._compared(">", other)

    def __le__(self, other: Any) -> Any:
        return self._compared("<=", other)

    def __lt__(self, other: Any) -> Any:
        return self._compared("<", other)

    def __bool__(self) -> bool:
        return not self._compared("==", 0)

    def __hash__(self) -> int:
        known = self.known()
        return hash(frozenset(self.terms.items())) if known is None else hash(known)

    # what pins

    def __index__(self) -> int:
        return self.relations.pin(self)

    __int__ = __trunc__ = __index__

    def __float__(self) -> float:
        return float(self.__index__())

    def __complex__(self) -> complex:
        return complex(self.__index__())

    def __floor__(self) -> Any:
        return self

    __ceil__ = conjugate = __floor__

    def __round__(self, digits: Any = None) -> Any:
        return self if digits is None else round(self.__index__(), digits)


def hint_of(x: Any) -> int:
    """Return a size in the call that is traced, for decisions that cost time and nothing else where they are wrong."""
    return x.hint if type(x) is Size else x


def index_of(x: Any) -> Any:
    """Return operator.index(x), and a Size as it is."""
    return x if type(x) is Size else operator.index(x)


def float_of(x: Any) -> Any:
    """Return float(x), and a Size as it is: an operand of a floating operation."""
    return x if type(x) is Size else float(x)


def is_symbolic(tree: Any) -> bool:
    """Return whether nested tuples, lists and dicts hold a Size."""
    kind = type(tree)  # isinstance would also ask a proxy which class it stands for
    if kind is Size:
        return True
    if kind is slice:
        return is_symbolic((tree.start, tree.stop, tree.step))
    if not issubclass(kind, (tuple, list, dict)):
        return False
    for item in tree.values() if issubclass(kind, dict) else tree:
        inner = type(item)
        if inner is Size or ((inner is slice or issubclass(inner, (tuple, list, dict))) and is_symbolic(item)):
            return True
    return False


def symbols_in(tree: Any) -> dict[Atom, None]:
    """Return the symbols of the sizes in nested tuples, lists and dicts, those inside of quotients too."""
    if type(tree) is Real:
        tree = tree.operands
    if type(tree) is Size:
        return dict.fromkeys(tree.symbols())
    if type(tree) is slice:
        tree = (tree.start, tree.stop, tree.step)
    atoms: dict[Atom, None] = {}
    if issubclass(kind := type(tree), (tuple, list, dict)):  # isinstance would also ask a proxy which class it stands for
        for item in tree.values() if issubclass(kind, dict) else tree:
            if issubclass(type(item), (Size, Real, tuple, list, dict, slice)):
                atoms |= symbols_in(item)
    return atoms


def relations_in(tree: Any) -> Relations | None:
    """Return what is known of the sizes in nested tuples, lists and dicts; None where all are ints."""
    if type(tree) is Size:
        return tree.relations
    if type(tree) is Real:
        tree = tree.operands
    kind = type(tree)
    if not issubclass(kind, (tuple, list, dict)):
        return None
    for item in tree.values() if issubclass(kind, dict) else tree:
        inner = type(item)
        if inner is Size or inner is Real or issubclass(inner, (tuple, list, dict)):
            known = relations_in(item)
            if known is not None:
                return known
    return None


def is_symbol(n: Any, atom: Atom) -> bool:
    """Return whether a size is this symbol and nothing else."""
    return type(n) is Size and n.terms == {(atom.number,): 1}


def same_shape(a: tuple, b: tuple) -> bool:
    """Return a == b for two shapes; the ranks come first, since a comparison of tuples would compare sizes before it compares lengths."""
    return len(a) == len(b) and a == b
