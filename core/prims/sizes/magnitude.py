"""How large the value of a size may become: kernels and prologues compute with 64 bits."""

from __future__ import annotations

from collections import Counter

from dovetail.prims.sizes.size import Size

_DIMENSION, _ELEMENTS = 1 << 31, 1 << 40  # what a dimension of a tensor, and the product of several, stay below


def magnitude(size: Size) -> int:
    """Return what the absolute value of a size stays below at every call; dimensions are assumed to be those of tensors that fit into memory."""
    return sum([abs(c) * _product(size, Counter(monomial)) for monomial, c in size.terms.items()])


def _product(size: Size, powers: Counter[int]) -> int:
    bounded = {number: bound for number in powers if (bound := _bound(size, number)) is not None}
    product, dimensions = 1, 1
    for number, power in powers.items():
        if number in bounded:
            product *= bounded[number] ** power
        else:
            dimensions *= _DIMENSION**power
    squares = max([power for number, power in powers.items() if number not in bounded], default=0) <= 2  # as the scores of attention have
    return product * (min(dimensions, _ELEMENTS) if squares else dimensions)


def _bound(size: Size, number: int) -> int | None:
    """Return what an atom stays below, None for a dimension of a tensor."""
    form, parts = size.relations.forms.get(frozenset({((number,), 1)})), size.relations.atoms[number].parts
    if form is not None and form.high is not None:
        return form.high
    if parts is None or type(parts[0]) is not Size:
        return None
    return magnitude(parts[0]) // parts[1] + 1 if type(parts[1]) is int else magnitude(parts[0])
