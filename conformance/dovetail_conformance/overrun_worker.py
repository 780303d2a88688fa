"""The process of the check of overruns: it runs samples with one element more than whole vectors, where kernels handle a remainder."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress

import torch
from torch import Size, Tensor

from dovetail.devices import cpu
from dovetail_conformance.axes.sizes import grown, mapped
from dovetail_conformance.axes.values import within
from dovetail_conformance.case import Case, cotangents
from dovetail_conformance.cell import Cell
from dovetail_conformance.draws import generator, seeded
from dovetail_conformance.levels import LEVELS
from dovetail_conformance.opinfo import SampleInput
from dovetail_conformance.oracle import tensors
from dovetail_conformance.overruns import EAGER, OWN
from dovetail_conformance.plan import opinfos
from dovetail_conformance.program import fresh, message, program_of
from dovetail_conformance.run import import_opinfos
from dovetail_conformance.subject import Subject

SIZE = 65  # whole vectors of 8, 16, 32 or 64 elements and one more, and so are its powers
MOST = 1 << 20  # elements of a tensor


def run(subject: Subject, operations: Sequence[str], seed: int) -> int:
    """Run samples of every operation, each after eager mode's; print what runs, and return how many eager mode took."""
    import_opinfos()
    with subject.configured(), seeded(seed):
        infos = [opinfos()[id] for id in operations]
        cells = [Cell(subject, info, dtype, cpu, LEVELS["smoke"], seed=seed) for info in infos for dtype in info.dtypes if not dtype.storage_only]
        declared = [cell for cell in cells if subject.coverage(cell.info.symbol.id, cell.dtype, "cpu") != "no"]
        return sum(_called(cell, sample) for cell in declared for sample in _samples(cell))


def _samples(cell: Cell) -> Iterator[SampleInput]:
    """Yield the claimed samples of a cell with all sizes replaced, and with the last one alone."""
    values = generator(8)
    for base in {case.program.template: case for case in cell.claimed if case.sample is not None}.values():
        sizes = [n for x in base.program.inputs for n in reversed(x.shape) if n > 1]
        for replaced in {frozenset(sizes), frozenset(sizes[:1])}:

            def shape(x: Tensor, replaced: frozenset[int] = replaced) -> tuple[int, ...]:
                return tuple(SIZE if n in replaced else n for n in x.shape)

            if sizes and max(Size(shape(x)).numel() for x in base.program.inputs) <= MOST:
                yield within(mapped(base.sample, lambda x, shape=shape: grown(x, shape(x), values)), cell.info)


def _called(cell: Cell, sample: SampleInput) -> bool:
    """Run a sample, and its backward; what they allocate is freed when this returns.  Return whether eager mode takes the sample."""
    case = Case(cell.subject, cell.info, program_of(cell.info.symbol, sample), message(sample), sample)
    called = f"{cell.info.symbol.id} of {cell.dtype.name} {case}"
    print(EAGER, called, flush=True)
    if case.eager(fresh(case.program.inputs)).error is not None:
        return False
    print(OWN, called, flush=True)
    case.call(case.function, fresh(case.program.inputs))
    inputs = fresh(case.program.inputs, grad=cell.info.grad)
    leaves = [x for x in inputs if x.requires_grad]
    results = [x for x in tensors(case.call(case.differentiated, inputs, grad=True).result) if x.requires_grad] if leaves else []
    if results:
        with suppress(Exception):  # other checks report it
            torch.autograd.grad(results, leaves, cotangents(results), allow_unused=True)
    return True


if __name__ == "__main__":
    wanted, file, number, *names = sys.argv[1:]
    print(run(Subject.of(wanted, file or None), names, int(number)), flush=True)
