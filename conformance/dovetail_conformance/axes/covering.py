"""Rows of levels, one for each axis, such that any two levels of two axes meet in one of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cache

PLAIN = "as sampled"


@dataclass(frozen=True)
class Row:
    """One level of each axis; levels that do not apply to an operation are dropped when its variant is created.

    `size` is how large the tensors are, `which` the dimension that grows; `layout` how they lie in memory, and `place` which of them do;
    `values` what is in them; `broadcast` in which dimension one of them has a single element; `mixed` which other dtype one of them has;
    `same` whether two arguments are one tensor, or parts of one;
    `grad` which inputs require a gradient; `cotangent` what flows back; `mode` what is switched on around the call.
    """

    size: str = PLAIN
    which: str = "first"
    layout: str = PLAIN
    place: str = "all"
    values: str = PLAIN
    broadcast: str = "no"
    same: str = "no"
    mixed: str = "no"
    grad: str = "all"
    cotangent: str = "dense"
    mode: str = "plain"

    def __str__(self) -> str:
        usual = Row()
        levels = [f"{f.name} {getattr(self, f.name)}" for f in fields(self) if f.name != "which" and getattr(self, f.name) != getattr(usual, f.name)]
        return ", ".join(levels) or "plain"

    def without(self, *axes: str) -> Row:
        """Return the row with the usual level on these axes."""
        usual = Row()
        return replace(self, **{axis: getattr(usual, axis) for axis in axes})


AXES: dict[str, tuple[str, ...]] = {
    "size": (PLAIN, "odd", "rows", "block", "long", "large", "deep", "one", "empty", "round", "equal"),
    "layout": (PLAIN, "offset", "column-major", "gapped", "repeated", "flagged", "channels-last", "row-major", "overlapping", "transposed"),
    "values": (PLAIN, "kinks", "moderate", "wide", "tiny", "extreme", "shifted", "constant", "zeros", "huge"),
    "broadcast": ("no", "outer", "second", "middle", "inner", "fewer", "scalar"),
    "which": ("first", "second", "third"),
    "place": ("all", "first", "last"),
    "same": ("no", "yes", "parts"),
    "grad": ("all", "first", "last", "but first"),
    "cotangent": ("dense", "repeated", "column-major", "gapped", "not finite", "ones", "zero", "of one result"),
    "mode": ("plain", "inference", "float64", "autocast", "deterministic", "one thread", "three threads"),
}


@cache
def rows() -> tuple[Row, ...]:
    """Return the covering array: every pair of levels, and the rows that cover most pairs first."""
    from allpairspy import AllPairs  # lazily: the levels below core do not need it

    pairs = AllPairs([list(levels) for levels in AXES.values()])
    return tuple(Row(**dict(zip(AXES, row))) for row in pairs)


def singles() -> Iterator[tuple[str, Row]]:
    """Yield a row for each level of each axis that is not the usual one, with the usual levels on the others."""
    for axis, levels in AXES.items():
        for level in levels:
            if level != getattr(Row(), axis):
                yield axis, replace(Row(), **{axis: level})
