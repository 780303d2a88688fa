"""Where an element lies: sums of digits of loop variables, which views shift, split and join.

A digit is `(base // div) % size` of a variable, or of another form where that cannot be said with digits of variables.  Digits that follow
one another are joined, so the position in a contiguous tensor of all its coordinates is the loop variable itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class Var:
    """A number from 0 to size - 1: a loop variable; or one that the kernel loads, where `value` is the expression that gives it."""

    name: str
    size: int
    value: Any = None

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Digit:
    """(base // div) % size."""

    base: Var | Form
    div: int
    size: int


@dataclass(frozen=True)
class Form:
    """const + the sum of coefficient * digit, the largest coefficients first."""

    const: int = 0
    terms: tuple[tuple[Digit, int], ...] = ()

    @property
    def low(self) -> int:
        """The least that it can be."""
        return self.const + sum(min(k * (d.size - 1), 0) for d, k in self.terms)

    @property
    def high(self) -> int:
        """The most that it can be."""
        return self.const + sum(max(k * (d.size - 1), 0) for d, k in self.terms)

    @property
    def reach(self) -> int:
        """The most that it, or a form within it, can be away from 0."""
        return max(self.high, -self.low, *(d.base.reach for d, _ in self.terms if isinstance(d.base, Form)), 0)

    def vars(self) -> frozenset[Var]:
        """Return the variables that it depends on."""
        variables: frozenset[Var] = frozenset()
        for digit, _ in self.terms:
            variables |= digit.base.vars() if isinstance(digit.base, Form) else {digit.base}
        return variables


ZERO = Form()


def whole(var: Var) -> Form:
    """Return the variable itself."""
    return ZERO if var.size == 1 else Form(0, ((Digit(var, 1, var.size), 1),))


def plus(*forms: Form) -> Form:
    """Return the sum of forms."""
    const, table = 0, dict[Digit, int]()
    for form in forms:
        const += form.const
        for digit, k in form.terms:
            table[digit] = table.get(digit, 0) + k
    return _opened(Form(const, _joined([(d, k) for d, k in table.items() if k])))


def _opened(form: Form) -> Form:
    """Return a form in which no digit is all of another form."""
    closed = [(d, k) for d, k in form.terms if isinstance(d.base, Form) and d.div == 1 and d.base.low >= 0 and d.base.high < d.size]
    if not closed:
        return form
    rest = Form(form.const, tuple(t for t in form.terms if t not in set(closed)))
    return plus(rest, *(times(d.base, k) for d, k in closed))


def times(form: Form, k: int) -> Form:
    """Return a form multiplied by a number."""
    return Form(form.const * k, _joined([(d, c * k) for d, c in form.terms])) if k else ZERO


def shifted(form: Form, by: int) -> Form:
    """Return a form plus a number."""
    return Form(form.const + by, form.terms)


def _joined(terms: list[tuple[Digit, int]]) -> tuple[tuple[Digit, int], ...]:
    """Sort terms, and join each digit that continues another one to it."""
    rows = sorted(terms, key=lambda t: (_rank(t[0].base), t[0].div))
    out: list[tuple[Digit, int]] = []
    for digit, k in rows:
        if out:
            last, c = out[-1]
            if last.base is digit.base and digit.div == last.div * last.size and k == c * last.size:
                out[-1] = (Digit(last.base, last.div, last.size * digit.size), c)
                continue
        out.append((digit, k))
    return tuple(sorted(out, key=lambda t: (-abs(t[1]), _rank(t[0].base), t[0].div)))


def _rank(base: Var | Form) -> str:
    return base.name if isinstance(base, Var) else f"~{base!r}"


def divmod_form(form: Form, k: int) -> tuple[Form, Form]:
    """Return form // k and form % k, by digits where they do not carry, else as digits of the whole form."""
    if k == 1:
        return form, ZERO
    upper: list[tuple[Digit, int]] = []
    lower: list[tuple[Digit, int]] = []
    for digit, c in form.terms:
        fits = k % c == 0 and (inner := k // c) > 1 and digit.size % inner == 0 if 0 < c < k else False
        if c % k == 0:
            upper.append((digit, c // k))
        elif fits and digit.size > inner:
            upper.append((Digit(digit.base, digit.div * inner, digit.size // inner), 1))
            lower.append((Digit(digit.base, digit.div, inner), c))
        else:
            lower.append((digit, c))
    rest = Form(form.const % k, _joined(lower))
    if rest.low >= 0 and rest.high < k:
        return Form(form.const // k, _joined(upper)), rest
    if (whole_digit := _single(form)) is not None:
        return _halves(whole_digit.base, whole_digit.div, whole_digit.size, k)
    return _halves(form, 1, form.high + 1, k)


def _single(form: Form) -> Digit | None:
    """Return the digit that a form is, when it is one."""
    if form.const == 0 and len(form.terms) == 1 and form.terms[0][1] == 1:
        return form.terms[0][0]
    return None


def _halves(base: Var | Form, div: int, size: int, k: int) -> tuple[Form, Form]:
    """Return the digit of `size` values divided by k, where k does not divide its size; its remainder reaches into what lies above when it is cut."""
    if isinstance(base, Var) and base.size > div * size:  # the cut digit first, then its parts
        base, div = Form(0, ((Digit(base, div, size), 1),)), 1
    quotient = Digit(base, div * k, max(-(-size // k), 1))
    return Form(0, ((quotient, 1),) if quotient.size > 1 else ()), Form(0, ((Digit(base, div, min(k, size)), 1),))


def linear(coords: Sequence[Form], steps: Sequence[int], offset: int = 0) -> Form:
    """Return offset + the sum of coordinate * step."""
    return shifted(plus(*(times(c, s) for c, s in zip(coords, steps, strict=True))), offset)


def split(position: Form, shape: Sequence[int]) -> tuple[Form, ...]:
    """Return the coordinates in a tensor of `shape` of the element at a row-major position."""
    coords: list[Form] = []
    for n in reversed(shape[1:]):
        position, inner = (position, ZERO) if n == 1 else divmod_form(position, n)
        coords.append(inner)
    if shape:
        coords.append(ZERO if shape[0] == 1 else position)
    return tuple(reversed(coords))


def regrouped(coords: Sequence[Form], old: Sequence[int], new: Sequence[int]) -> tuple[Form, ...]:
    """Return the coordinates in `new` of what lies at `coords` in `old`, both row-major and of one number of elements."""
    if tuple(old) == tuple(new):
        return tuple(coords)
    return split(linear(coords, _row_major(old)), new)


def _row_major(shape: Iterable[int]) -> list[int]:
    steps, step = [], 1
    for n in reversed(list(shape)):
        steps.append(step)
        step *= n
    return steps[::-1]


def evaluate(form: Form, values: dict[Var, int]) -> int:
    """Return what a form is where variables are `values`; what a kernel computes."""
    total = form.const
    for digit, k in form.terms:
        base = evaluate(digit.base, values) if isinstance(digit.base, Form) else values[digit.base]
        total += k * (base // digit.div % digit.size)
    return total
