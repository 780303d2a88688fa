"""Integer polynomials as dictionaries from monomials to coefficients; a monomial is a sorted tuple of the numbers of its atoms.

2*s0*s1 + s0 - 3 is {(0, 1): 2, (0,): 1, (): -3}.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

Monomial = tuple[int, ...]
Terms = dict[Monomial, int]


def add(a: Mapping[Monomial, int], b: Mapping[Monomial, int], factor: int = 1) -> Terms:
    """Return a + factor * b."""
    total = dict(a)
    for monomial, c in b.items():
        total[monomial] = total.get(monomial, 0) + factor * c
    return {monomial: c for monomial, c in total.items() if c}


def multiply(a: Mapping[Monomial, int], b: Mapping[Monomial, int]) -> Terms:
    """Return a * b."""
    product: Terms = {}
    for left, c in a.items():
        for right, d in b.items():
            monomial = tuple(sorted(left + right)) if left and right else left + right
            product[monomial] = product.get(monomial, 0) + c * d
    return {monomial: c for monomial, c in product.items() if c}


def scale(a: Mapping[Monomial, int], factor: int) -> Terms:
    """Return factor * a."""
    return {monomial: factor * c for monomial, c in a.items()} if factor else {}


def without(monomial: Monomial, factors: Monomial) -> Monomial | None:
    """Return monomial / factors, None where that is no monomial: without((0, 0, 1), (0,)) == (0, 1)."""
    rest = list(monomial)
    for atom in factors:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def common_factor(a: Mapping[Monomial, int]) -> Monomial:
    """Return the largest monomial that divides each term."""
    first, *others = a
    common = list(first)
    for monomial in others:
        rest, kept = list(monomial), []
        for atom in common:
            if atom in rest:
                rest.remove(atom)
                kept.append(atom)
        common = kept
    return tuple(common)


def divide_exactly(a: Mapping[Monomial, int], b: Mapping[Monomial, int]) -> Terms | None:
    """Return the polynomial a / b, None where the division leaves a remainder."""
    lead = _leading(b)
    quotient: Terms = {}
    rest = dict(a)
    while rest:
        top = _leading(rest)
        monomial = without(top, lead)
        if monomial is None or rest[top] % b[lead]:
            return None
        part = {monomial: rest[top] // b[lead]}
        quotient, rest = add(quotient, part), add(rest, multiply(part, b), -1)
        if rest and _order(_leading(rest)) >= _order(top):
            return None
    return quotient


def lowest(a: Mapping[Monomial, int], low: Callable[[int], int], high: Callable[[int], int | None]) -> int | None:
    """Return a lower bound of `a` where each atom lies between its bounds, None where there is none.

    `low` of an atom is at least 0, `high` may be None.  With each atom written as low + t the terms in the t are at least 0, so that only those
    with a negative coefficient take away from the constant.
    """
    shifted: Terms = {}
    for monomial, c in a.items():
        part: Terms = {(): c}
        for atom in monomial:
            part = multiply(part, {(atom,): 1, (): low(atom)} if low(atom) else {(atom,): 1})
        shifted = add(shifted, part)
    bound = shifted.pop((), 0)
    for monomial, c in shifted.items():
        if c > 0:
            continue
        for atom in monomial:
            top = high(atom)
            if top is None:
                return None
            c *= top - low(atom)
        bound += c
    return bound


def _order(monomial: Monomial) -> tuple[int, Monomial]:
    return len(monomial), monomial


def _leading(a: Mapping[Monomial, int]) -> Monomial:
    return max(a, key=_order)
