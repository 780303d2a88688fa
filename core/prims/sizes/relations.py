"""The known facts about the symbols of one trace, and the assumptions.

A comparison of sizes is a question about a polynomial: is it 0, is it at least 0?  Where the bounds of the symbols decide it, the answer holds at
every call.  Where they do not, the sizes of the traced call decide it, and the answer becomes a guard of the program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Any

from dovetail.prims.sizes.facts import Facts, Form, Pin, RelationsClosed
from dovetail.prims.sizes.polynomials import Monomial, Terms, add, common_factor, divide_exactly, lowest, multiply, scale, without
from dovetail.prims.sizes.size import Atom, Real, Size, symbols_in

_DEEPEST = 3  # most quotients that a proof replaces by their bounds
_MOST_NESTED = 12  # quotients of quotients: the text of such a size may double with each; a size of more is needed as a plain int


class Relations:
    """The symbols of one trace, the facts about them, and the sizes over them, each of which exists once.

    Args:
        locate: returns the line of the user's program that runs, for messages.
        operation: returns the name of the operation that it calls, or None.

    Attributes:
        atoms: symbols and quotients, by number; all are at least 0.
        forms: the known intervals of polynomials, those of single symbols among them.
        equal: symbols that equal a size over older symbols, or an int.
        pins: the sizes that were needed as plain ints.
        closed: whether the guards are generated, so that nothing more can be assumed.
        version: how often `equal` has grown; sizes then bring their terms up to date.
        memo: results of earlier operations and questions.
    """

    def __init__(self, locate: Callable[[], str | None] = lambda: None, operation: Callable[[], str | None] = lambda: None):
        self.locate, self.operation = locate, operation
        self.atoms: list[Atom] = []
        self.forms: dict[frozenset, Form] = {}
        self.equal: dict[int, Terms] = {}
        self.pins: list[Pin] = []
        self.closed = False
        self.version = 0
        self.memo: dict[tuple, tuple] = {}
        self._sizes: dict[frozenset, Size] = {}
        self._quotients: dict[tuple, Size] = {}
        self._rounded: dict[str, Size] = {}
        self._bounds: dict[tuple[Callable, int], int | None] = {}  # of atoms, while one question is answered

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"locate": _nowhere, "operation": _nowhere, "memo": {}, "closed": True, "_bounds": {}}

    # sizes

    def symbol(self, hint: int, *, low: int = 2, high: int | None = None, origin: str = "") -> Size:
        """Return a new symbol that is `hint` in this call and lies between `low`, at least 0, and `high` in all calls."""
        names = sum([atom.parts is None for atom in self.atoms])
        atom = Atom(len(self.atoms), f"s{names}", hint, origin=origin)
        self.atoms.append(atom)
        size = self.size({(atom.number,): 1})
        self.forms[_key(size.terms)] = Form(size, low, high)
        return size

    def rounded(self, real: Real) -> tuple[Any, Atom | None]:
        """Return a whole number that is computed of sizes: a symbol; an int where it is below 2 in this call.

        Also return the atom where that is new.
        """
        hint, text = real.hint, real.text()
        if hint < 0 or not symbols_in(real):
            return real.pinned(), None
        if text in self._rounded:
            return self.size(self._rounded[text].terms), None
        if self.closed:
            raise RelationsClosed(f"{text} is needed as a size, and the guards of the program are complete; compile with dynamic=False")
        names = {atom.number: atom.origin for atom in self.symbols()}
        size = self.symbol(hint, low=min(hint, 2), origin=real.text(names))
        atom, self._rounded[text] = self.atoms[-1], size
        atom.real = real
        if hint < 2:
            self.is_zero(size - hint)
        return self.size(size.terms), atom

    def size(self, terms: Terms) -> Any:
        """Return the size with these terms, an int where they are constant."""
        if self.equal:
            terms = self.substituted(terms)
        if not terms or (len(terms) == 1 and () in terms):
            return terms.get((), 0)
        key = _key(terms)
        size = self._sizes.get(key)
        if size is None:
            size = self._sizes[key] = Size(self, terms)
        return size

    def substituted(self, terms: Terms) -> Terms:
        """Return terms with symbols replaced by what they are known to equal, and quotients of ints computed."""
        while replaced := {i: value for monomial in terms for i in monomial if (value := self._replacement(i)) is not None}:
            total: Terms = {}
            for monomial, c in terms.items():
                part: Terms = {(): c}
                for i in monomial:
                    part = multiply(part, replaced.get(i, {(i,): 1}))
                total = add(total, part)
            terms = total
        return terms

    def _replacement(self, number: int) -> Terms | None:
        """Return what an atom is known to equal, None for most."""
        parts = self.atoms[number].parts
        if parts is None:
            known, real = self.equal.get(number), self.atoms[number].real
            if known is not None or real is None or symbols_in(real):
                return known
            return {(): real.hint} if real.hint else {}
        a, b = map(self._constant, parts)
        if type(a) is Size or type(b) is Size:
            return None
        return {(): a // b} if a // b else {}

    def symbols(self) -> list[Atom]:
        """Return the symbols in the order in which they were created."""
        return [atom for atom in self.atoms if atom.parts is None]

    def value_of(self, atom: Atom) -> Any:
        """Return what a symbol is known to equal: a size over older symbols, an int, or the symbol itself."""
        return self.size(self.substituted({(atom.number,): 1}))

    def least(self, atom: Atom) -> int:
        """Return the largest known lower bound of an atom."""
        return self._low(atom.number)

    # division

    def quotient(self, a: Any, b: Any) -> Any:
        """Return a // b.  Raises ZeroDivisionError where b is 0."""
        a, b = self._constant(a), self._constant(b)
        if type(b) is Size and not b > 0:
            if b == 0:
                raise ZeroDivisionError("integer division or modulo by zero")
            return self.quotient(-a, -b)
        if type(b) is Size:
            return self._by_size(a, b)
        if type(a) is int:
            return a // b
        if b == 0:
            raise ZeroDivisionError("integer division or modulo by zero")
        return self._by_int(a.terms, b) if b > 0 else self.quotient(-a, -b)

    def _constant(self, x: Any) -> Any:
        if type(x) is not Size:
            return int(x)
        known = x.known()
        return x if known is None else known

    def _by_int(self, terms: Terms, b: int) -> Any:
        """Divide by an int: the divisible terms, and the quotient of the rest, which is at least 0 so that C's division agrees."""
        if b == 1:
            return self.size(terms)
        if all([c < 0 for monomial, c in terms.items() if monomial]):
            return -self._by_int(add(scale(terms, -1), {(): b - 1}), b)
        even = {monomial: c // b for monomial, c in terms.items() if c // b}
        rest = {monomial: c % b for monomial, c in terms.items() if c % b}
        divisor = math.gcd(b, *[c for monomial, c in rest.items() if monomial])
        rest, b = {monomial: c // divisor for monomial, c in rest.items() if c // divisor}, b // divisor
        if b == 1 or not any(rest):
            return self.size(add(even, rest if b == 1 else {(): rest.get((), 0) // b}))
        if len(rest) == 1 and len(next(iter(rest))) == 1 and set(rest.values()) == {1}:
            inner = self.atoms[next(iter(rest))[0]].parts
            if inner is not None and type(inner[1]) is int:
                return self.size(even) + self.quotient(inner[0], inner[1] * b)
        return self.size(even) + self._atom(self.size(rest), b)

    def _by_size(self, a: Any, b: Size) -> Any:
        self._bounds.clear()
        terms = a.terms if type(a) is Size else {(): a} if a else {}
        if not terms:
            return 0
        exact = divide_exactly(terms, b.terms)
        if exact is not None:
            return self.size(exact)
        if not a >= 0:
            return -self.quotient(-a + b - 1, b)
        if self._proves(add(add(b.terms, terms, -1), {(): -1})):
            return 0
        shared = self._positive(common_factor({**terms, **b.terms}))
        divisor = math.gcd(*terms.values(), *b.terms.values())
        if shared or divisor > 1:
            top, bottom = [{without(m, shared): c // divisor for m, c in part.items()} for part in (terms, b.terms)]
            return self.quotient(self.size(top), self.size(bottom))
        return self._atom(a, b)

    def _atom(self, a: Any, b: Any) -> Any:
        key = (_operand(a), _operand(b))
        if key not in self._quotients:
            depth = 1 + max([atom.depth for part in (a, b) for atom in _atoms(part)], default=0)
            if depth > _MOST_NESTED:
                return (self.pin(a) if type(a) is Size else a) // (self.pin(b) if type(b) is Size else b)
            hint = (a.hint if type(a) is Size else a) // (b.hint if type(b) is Size else b)
            atom = Atom(len(self.atoms), "", hint, (a, b), depth=depth)
            self.atoms.append(atom)
            self._quotients[key] = self.size({(atom.number,): 1})
        return self._quotients[key]

    # questions

    def is_zero(self, difference: Any) -> bool:
        """Return whether `difference` is 0."""
        return self._answer(difference, "is zero") if type(difference) is Size else difference == 0

    def is_nonnegative(self, difference: Any) -> bool:
        """Return whether `difference` is at least 0."""
        return self._answer(difference, "is nonnegative") if type(difference) is Size else difference >= 0

    def _answer(self, difference: Size, question: str) -> bool:
        mark = (question, id(difference))
        known = self.memo.get(mark)
        if known is None:
            known = self.memo[mark] = self._decided(difference.terms, question), difference
        return known[0]

    def _decided(self, terms: Terms, question: str) -> bool:
        self._bounds.clear()
        if any(terms) and () not in terms and (shared := self._positive(common_factor(terms))) and any([monomial != shared for monomial in terms]):
            terms = {without(monomial, shared): c for monomial, c in terms.items()}
        elif any(terms) and len(terms) == 1 and (monomial := next(iter(terms))) == self._positive(monomial):
            terms = {(): terms[monomial]}  # a product of what is at least 1
        zero = question == "is zero"
        if not any(terms):
            value = terms.get((), 0)
            return value == 0 if zero else value >= 0
        low, high, form, possible = self._as_interval(terms, zero)
        if not possible:
            return False
        if (answer := self._by_bounds(form, low, high)) is None and (answer := self._by_proof(terms, zero)) is None:
            answer = self._record(form, low, high)
        return answer

    def _as_interval(self, terms: Terms, zero: bool) -> tuple[int | None, int | None, Form, bool]:
        """Return a question about `terms` as one about a form: whether its value lies between two bounds, and whether integers can."""
        form, c, k = self._form(terms)
        if zero:
            return (-k // c, -k // c, form, True) if k % c == 0 else (None, None, form, False)
        return (-(k // c), None, form, True) if c > 0 else (None, k // -c, form, True)

    def _form(self, terms: Terms) -> tuple[Form, int, int]:
        """Return the form, the factor and the constant that make up `terms`: factor * form + constant."""
        constant = terms.get((), 0)
        rest = {monomial: c for monomial, c in terms.items() if monomial}
        factor = math.gcd(*rest.values())
        if rest[min(rest)] < 0:
            factor = -factor
        rest = {monomial: c // factor for monomial, c in rest.items()}
        key = _key(rest)
        form = self.forms.get(key)
        return (Form(self.size(rest)) if form is None else form), factor, constant

    def _by_bounds(self, form: Form, low: int | None, high: int | None) -> bool | None:
        """Return whether the form lies between the bounds, by its known interval; None where that does not decide it."""
        above = low is None or (form.low is not None and form.low >= low)
        below = high is None or (form.high is not None and form.high <= high)
        if above and below:
            return True
        if low is not None and form.high is not None and form.high < low:
            return False
        if high is not None and form.low is not None and form.low > high:
            return False
        return False if low is not None and low == high and low in form.excluded else None

    def _by_proof(self, terms: Terms, zero: bool) -> bool | None:
        less = add(scale(terms, -1), {(): -1})
        if zero:
            return False if self._proves(add(terms, {(): -1})) or self._proves(less) else None
        return True if self._proves(terms) else False if self._proves(less) else None

    def _proves(self, terms: Terms, depth: int = 0) -> bool:
        """Return whether bounds show that `terms` is at least 0; False may be wrong."""
        bound = lowest(terms, self._low, self._high)
        if bound is not None and bound >= 0:
            return True
        if depth == _DEEPEST:
            return False
        quotients = [m for m in terms if len(m) == 1 and self.atoms[m[0]].parts is not None]
        alone = [m for m in quotients if not any([m[0] in other for other in terms if other != m])]
        return any([self._proves(self._with_bound(terms, m), depth + 1) for m in alone])

    def _with_bound(self, terms: Terms, monomial: Monomial) -> Terms:
        """Return b times `terms` with c * (a // b) replaced by its least value: b * (a // b) lies between a - b + 1 and a."""
        a, b = [part.terms if type(part) is Size else {(): part} for part in self.atoms[monomial[0]].parts]
        c = terms[monomial]
        rest = multiply({m: k for m, k in terms.items() if m != monomial}, b)
        return add(rest, a, c) if c < 0 else add(rest, add(add(a, b, -1), {(): 1}), c)

    def _low(self, number: int) -> int:
        return self._bound(Relations._least, number)

    def _high(self, number: int) -> int | None:
        return self._bound(Relations._most, number)

    def _bound(self, compute: Callable, number: int) -> Any:
        """Return a bound of an atom, which is computed once for each question: quotients of quotients ask for those of their parts many times."""
        if (compute, number) not in self._bounds:
            self._bounds[compute, number] = compute(self, number)
        return self._bounds[compute, number]

    def _least(self, number: int) -> int:
        parts = self.atoms[number].parts
        if parts is None:
            form = self.forms[frozenset({((number,), 1)})]
            return max(form.low or 0, 0)
        form = self.forms.get(frozenset({((number,), 1)}))
        (low, _), (_, high) = self._range(parts[0]), self._range(parts[1])
        return max(0 if high is None else low // high, form.low or 0 if form is not None else 0, 0)

    def _most(self, number: int) -> int | None:
        form, parts = self.forms.get(frozenset({((number,), 1)})), self.atoms[number].parts
        bound = form.high if form is not None else None
        if parts is None:
            return bound
        (_, high), (low, _) = self._range(parts[0]), self._range(parts[1])
        if high is None:
            return bound
        return high // max(low, 1) if bound is None else min(high // max(low, 1), bound)

    def _range(self, part: Any) -> tuple[int, int | None]:
        """Return bounds of a part of a quotient; the lower one is at least 0."""
        if type(part) is not Size:
            return part, part
        low = lowest(part.terms, self._low, self._high)
        least = lowest(scale(part.terms, -1), self._low, self._high)
        return max(low or 0, 0), None if least is None else -least

    def _positive(self, monomial: Monomial) -> Monomial:
        """Return the factors that are at least 1."""
        return tuple([i for i in monomial if self._low(i) >= 1])

    # assumptions

    def _record(self, form: Form, low: int | None, high: int | None) -> bool:
        """Answer by the hint, and narrow the form by the answer."""
        size = form.size
        if self.closed:
            raise RelationsClosed(
                f"the program depends on more of the sizes of this call than it was compiled for: {Form(size, low, high).text()}; "
                "compile with dynamic=False"
            )
        self.forms.setdefault(_key(size.terms), form)
        answer = (low is None or low <= size.hint) and (high is None or size.hint <= high)
        if answer:
            form.narrow(low, high)
        elif low is not None and low == high:
            form.narrow(None, None, [low])
        else:
            form.narrow(None if high is None else high + 1, None if low is None else low - 1)
        form.recorded = True
        if (where := self.locate()) is not None and where not in form.places:
            form.places.append(where)
        if form.low is not None and form.low == form.high:
            self._substitute(add(size.terms, {(): -form.low}))
        return answer

    def _substitute(self, terms: Terms) -> None:
        """Replace the youngest symbol of `terms`, which are 0, by what it equals, where that is a size over older symbols."""
        inside = {atom.number: atom for atom in self.size(terms).atoms()}
        symbols = [number for number, atom in inside.items() if atom.parts is None]
        if not symbols:
            return
        youngest = max(symbols)
        c = terms.get((youngest,), 0)
        rest = {monomial: k for monomial, k in terms.items() if monomial != (youngest,)}
        if abs(c) != 1 or youngest in {atom.number for atom in _atoms(self.size(rest))}:
            return
        self.equal[youngest] = scale(rest, -c)
        self.version += 1

    def pin(self, size: Size) -> int:
        """Return the value of `size` in this call, on which the program then depends."""
        known = size.known()
        if known is not None:
            return known
        if self.closed:
            raise RelationsClosed(f"the value of the size {size} is needed, and the program was compiled for any; compile with dynamic=False")
        symbols = symbols_in(size)
        operands = {operand: None for atom in symbols if atom.real is not None for operand in symbols_in(atom.real)}
        where = " at ".join(filter(None, (self.operation(), self.locate())))
        self.pins.append(Pin(size.text(), size.hint, where or None, (*symbols, *operands)))
        self.is_zero(size - size.hint)
        for operand in operands:
            self.is_zero(self.value_of(operand) - operand.hint)
        return size.hint

    def completed(self, values: Mapping[str, int]) -> dict[str, int]:
        """Return the values of symbols, by their names, with those that follow from them."""
        known = dict(values)
        for atom in self.symbols():
            meaning = self.value_of(atom) if atom.real is None else atom.real
            if atom.name not in known and _are_known(meaning, known):
                known[atom.name] = meaning.evaluate(known) if type(meaning) in (Size, Real) else meaning
        return known

    def move(self, values: Mapping[str, int]) -> None:
        """Take the hints of another call, for which all that is known holds too: `values` has them by the names of the symbols.

        What depends on other symbols besides keeps its hint.
        """
        known = self.completed(values)
        for atom in self.atoms:
            if atom.parts is None:
                atom.hint = known.get(atom.name, atom.hint)
            elif _are_known(atom.parts, known):
                top, bottom = [part.evaluate(known) if type(part) is Size else part for part in atom.parts]
                atom.hint = top // bottom
        for size in self._sizes.values():
            if _are_known(size, known):
                size.hint = size.evaluate(known)

    def close(self) -> None:
        """Refuse further assumptions: the guards of the program are generated."""
        self.closed = True

    def reopen(self) -> None:
        """Allow assumptions again, for which the program that follows has guards of its own."""
        self.closed = False

    def facts(self) -> Facts:
        """Return what is known now."""
        forms = {key: replace(form, excluded=set(form.excluded), places=list(form.places)) for key, form in self.forms.items()}
        return Facts(self.version, forms)

    @contextmanager
    def as_of(self, facts: Facts) -> Iterator[None]:
        """Forget while open what was learned since `facts`; nothing can be assumed meanwhile.

        Code for a segment of a program is generated so where that happens after later segments were traced, which assume more.
        """
        now = self.equal, self.version, self.forms, self.memo, self.closed
        self.equal, self.version, self.forms, self.memo, self.closed = (
            dict(islice(self.equal.items(), facts.version)),
            facts.version,
            facts.forms,
            {},
            True,
        )
        try:
            yield
        finally:
            self.equal, self.version, self.forms, self.memo, self.closed = now

    def guards(self) -> list[Form]:
        """Return the conditions that a call has to satisfy, on the symbols that remain once equal ones are replaced."""
        merged: dict[frozenset, Form] = {}
        for known in list(self.forms.values()):
            terms = known.size.terms
            if not any(terms):
                continue
            form, c, k = self._form(terms)
            kept = merged.setdefault(_key(form.size.terms), Form(form.size))
            low, high = [None if v is None else v - k for v in (known.low, known.high)]
            excluded = {(v - k) // c for v in known.excluded if (v - k) % c == 0}
            if c < 0:
                c, low, high = -c, (None if high is None else -high), (None if low is None else -low)
            kept.narrow(None if low is None else -(-low // c), None if high is None else high // c, excluded)
            kept.recorded |= known.recorded
            kept.places += [place for place in known.places if place not in kept.places]
        return [form for form in merged.values() if form.restricts]  # 2 * n != 1 restricts nothing

    def hold(self, values: Mapping[str, int]) -> bool:
        """Return whether symbols with these values, by name, satisfy all facts and assumptions."""
        for number, terms in self.equal.items():
            size = self.size(self.substituted(terms))
            if values[self.atoms[number].name] != (size.evaluate(values) if type(size) is Size else size):
                return False
        return all(form.admits(form.size.evaluate(values)) for form in self.guards())  # in order: later ones may divide by what earlier ones bound


def _are_known(size: Any, values: Mapping[str, int]) -> bool:
    """Return whether `values` has all symbols of sizes."""
    return values.keys() >= {atom.name for atom in symbols_in(size)}


def _nowhere() -> None:
    return None


def _key(terms: Terms) -> frozenset:
    return frozenset(terms.items())


def _operand(x: Any) -> Any:
    return _key(x.terms) if type(x) is Size else x


def _atoms(x: Any) -> Iterator[Atom]:
    return x.atoms() if type(x) is Size else iter(())
