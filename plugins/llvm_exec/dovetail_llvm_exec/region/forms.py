"""Positions as sums: a constant, loop variables times steps, and positions that are read from memory.

An `Atom` is a loop variable that counts from 0 to its size; loops over several atoms that lie one after the other are merged later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple


class Atom:
    """A loop variable: 0, 1, ..., size - 1."""

    __slots__ = ("number", "size")

    def __init__(self, number: int, size: int):
        self.number, self.size = number, size

    def __repr__(self) -> str:
        return f"i{self.number}<{self.size}"


class CannotLower(Exception):
    """An expression cannot be computed in this loop nest; `node`, unless None, has to lie in memory first."""

    def __init__(self, reason: str, node: Any = None):
        super().__init__(reason)
        self.node = node


class Refine(Exception):
    """A loop over `atom` has to become two: an outer one, and one over `inner` elements."""

    def __init__(self, atom: Atom, inner: int):
        super().__init__(f"{atom} by {inner}")
        self.atom, self.inner = atom, inner


class Form(NamedTuple):
    """const + the sum of atom * step over `terms`, by number, + the sum of expression * step over `moving`."""

    const: int
    terms: tuple[tuple[Atom, int], ...] = ()
    moving: tuple[tuple[Any, int], ...] = ()

    @property
    def highest(self) -> int:
        """The largest value of a form without moving parts."""
        return self.const + sum((atom.size - 1) * step for atom, step in self.terms if step > 0)


ZERO = Form(0)


def known_equal(a: Any, b: Any) -> bool:
    """Return a == b for sizes, forms, and tuples of them; False for sizes that are equal at some calls only."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(known_equal, a, b))
    return a is b or (type(a) is int and type(b) is int and a == b)


def plus(*forms: Form) -> Form:
    """Return the sum of forms."""
    terms: dict[Atom, int] = {}
    moving: dict[Any, int] = {}
    for form in forms:
        for atom, step in form.terms:
            terms[atom] = terms.get(atom, 0) + step
        for expr, step in form.moving:
            moving[expr] = moving.get(expr, 0) + step
    return Form(sum([form.const for form in forms]), _ordered(terms), _ordered(moving))


def _ordered(steps: dict[Any, int]) -> tuple[tuple[Any, int], ...]:
    """Return the steps that are not 0, by the number of what they are of."""
    pairs = [(x, step) for x, step in steps.items() if step]
    if len(pairs) > 1:
        pairs.sort(key=lambda pair: pair[0].number)
    return tuple(pairs)


def times(form: Form, factor: int) -> Form:
    """Return the form with every step multiplied."""
    if factor == 0:
        return ZERO
    if type(factor) is int and factor == 1:
        return form
    return Form(form.const * factor, tuple([(a, s * factor) for a, s in form.terms]), tuple([(e, s * factor) for e, s in form.moving]))


def shifted(form: Form, by: int) -> Form:
    return form if type(by) is int and by == 0 else Form(form.const + by, form.terms, form.moving)


def dot(forms: Sequence[Form], steps: Iterable[int], offset: int = 0) -> Form:
    """Return offset + the sum of forms times steps: where an element lies."""
    return shifted(plus(*[times(form, step) for form, step in zip(forms, steps, strict=True) if form is not ZERO]), offset)


def divided(form: Form, by: int) -> tuple[Form, Form]:
    """Return (form // by, form % by), where that is a pair of forms; loops are refined where they straddle."""
    if by == 1:
        return form, ZERO
    if form.moving:
        raise CannotLower("a position that is read from memory has no known digits")
    whole, rest = [], []
    for atom, step in form.terms:
        if step % by == 0:
            whole.append((atom, step // by))
        elif by % step == 0 and step > 0:
            inner = by // step
            if atom.size <= inner:
                rest.append((atom, step))
            elif atom.size % inner == 0:
                raise Refine(atom, inner)
            else:
                raise CannotLower(f"{atom} does not split by {inner}")
        else:
            raise CannotLower(f"a step of {step} and a size of {by} do not nest")
    remainder = Form(form.const % by, tuple(rest))
    if form.const < 0 or remainder.highest >= by:
        raise CannotLower("positions carry from one digit to the next")
    return Form(form.const // by, tuple(whole)), remainder


def flat(forms: Sequence[Form], shape: Sequence[int]) -> Form:
    """Return the row-major position of an element."""
    total, step = [], 1
    for form, size in zip(reversed(forms), reversed(shape), strict=True):
        total.append(times(form, step))
        step *= size
    return plus(*total)


def inside(atoms: Sequence[Atom]) -> Form:
    """Return the row-major position within the loop over `atoms`, the innermost last."""
    terms, step = [], 1
    for atom in reversed(atoms):
        terms.append((atom, step))
        step *= atom.size
    return Form(0, tuple(reversed(terms)))


def digits(form: Form, shape: Sequence[int]) -> tuple[Form, ...]:
    """Return the coordinates in `shape` of a row-major position."""
    coords: list[Form] = []
    for i, size in enumerate(reversed(shape)):
        if size == 1:
            coords.append(ZERO)
        elif all(n == 1 for n in shape[: len(shape) - 1 - i]):
            coords.append(form)
            form = ZERO
        else:
            form, low = divided(form, size)
            coords.append(low)
    return tuple(reversed(coords))


def regrouped(coords: Sequence[Form], shape: Sequence[int], wanted: Sequence[int]) -> tuple[Form, ...]:
    """Return the coordinates in shape `wanted` of the element at `coords` of `shape`: dimensions in groups of equal product, each by its digits."""
    out: list[Form] = []
    i = j = 0
    while i < len(shape) or j < len(wanted):
        if j < len(wanted) and wanted[j] == 1:
            out.append(ZERO)
            j += 1
            continue
        if i < len(shape) and shape[i] == 1:
            i += 1
            continue
        first, into = i, j
        left, right = shape[i], wanted[j]
        i, j = i + 1, j + 1
        while left != right:
            if left < right:
                left *= shape[i]
                i += 1
            else:
                right *= wanted[j]
                j += 1
        if j - into == 1 and i - first == 1:
            out.append(coords[first])
        else:
            out += digits(flat(coords[first:i], shape[first:i]), wanted[into:j])
    return tuple(out)
