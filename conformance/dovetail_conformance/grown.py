"""Large samples of a cell: what runs first, and what resources are measured with."""

from __future__ import annotations

from collections.abc import Iterator

from dovetail_conformance.axes.sizes import resized
from dovetail_conformance.axes.values import within
from dovetail_conformance.axes.variants import Variants
from dovetail_conformance.case import Case
from dovetail_conformance.cell import Cell
from dovetail_conformance.draws import generator

BASES = 8  # samples that are grown, each with another number of dimensions


def first_call(cell: Cell) -> Case | None:
    """Run a sample of about 70,000 elements before all others; None where the level or the executor has none."""
    named = cell.subject.names(cell.info.symbol.id)
    case = next(grown(cell, "large"), None) if cell.level.calls and cell.first and named else None
    return case if case is not None and case.claimed else None


def large(cell: Cell) -> Case | None:
    """Return a sample of about 70,000 elements that the executor runs."""
    return cell.first_call or next((case for case in grown(cell, "large") if case.claimed), None)


def grown(cell: Cell, size: str) -> Iterator[Case]:
    """Yield samples with another size that eager takes: the largest of all first, and of each number of dimensions."""
    bases: dict[tuple[int, ...], Case] = {}
    for case in sorted(cell.all_cases, key=lambda case: -sum(x.numel() for x in case.program.inputs)):
        if case.sample is not None and case.program.eager:
            bases.setdefault(tuple(x.ndim for x in case.program.inputs), case)
    for base in list(bases.values())[:BASES]:
        variants = Variants(cell.subject, cell.info, cell.dtype, [base.sample])
        for sample in resized(base.sample, size, "first", generator(1)):
            if (case := variants.accepted(within(sample, cell.info))) is not None:
                yield case
