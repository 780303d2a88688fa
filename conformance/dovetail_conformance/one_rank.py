"""The part of one rank in a check of a collective: it runs a sample with the executor under test and compares the results with the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dovetail.dtypes import DType
from dovetail.extend.advanced import checked
from dovetail.langs.torch import TO_TORCH
from dovetail_conformance.case import Case, Ran, executed
from dovetail_conformance.cell import whole
from dovetail_conformance.collectives import COLLECTIVES, Arrays, CollectiveInfo, CollectiveSample
from dovetail_conformance.opinfo import unlike
from dovetail_conformance.oracle import flat, same_bits
from dovetail_conformance.program import Program, calm, fresh
from dovetail_conformance.subject import Subject

ROUNDINGS = 8  # units in the last place that a result may be off by, for each rank
FIRST, OTHER, COTANGENTS = range(3)  # purposes of random values
GROUP = "world"


@dataclass
class Seen:
    """The results of a sample on one rank: a sentence for each check, None where it passed, and counts of lines in the executed programs."""

    problems: dict[str, str | None] = field(default_factory=dict)
    lines: tuple[int, int] = (0, 0)
    taken: bool = False  # whether a line of the executor's is the operation itself
    ran: frozenset[str] = frozenset()


class Stopped(Exception):
    """A sample raised an error in one check; as the other ranks may wait for this one, all stop."""

    def __init__(self, check: str, problem: str, seen: Seen):
        super().__init__(check, problem, seen)
        self.check, self.problem, self.seen = check, problem, seen


@cache
def subject_of(source: tuple[str, str | None]) -> Subject:
    return Subject.of(*source)


def run_sample(source: tuple[str, str | None], operation: str, dtype: DType, index: int, checks: Sequence[str], seed: int) -> Seen:
    """Run a sample on this rank and hold it to `checks`.  Raises Stopped where the program raises an error."""
    info = next(info for info in COLLECTIVES if info.symbol.id == operation)
    ranks, subject = torch.distributed.get_world_size(), subject_of(source)
    sample = list(info.samples(dtype, ranks))[index]
    rehearsal = Rehearsal(subject, info, sample, dtype, torch.distributed.get_rank(), seed)
    subject.ran.clear()
    seen = Seen()
    with subject.configured():
        for check, run in CHECKS.items():
            if check in checks and (check != "backward" or has_gradient(info, sample, dtype)):
                try:
                    seen.problems[check] = run(rehearsal)
                except Exception as error:
                    raise Stopped(check, whole(error), seen) from error
    seen.lines, seen.taken, seen.ran = rehearsal.lines, rehearsal.taken, frozenset(subject.ran)
    return seen


def has_gradient(info: CollectiveInfo, sample: CollectiveSample, dtype: DType) -> bool:
    return info.gradient is not None and dtype.inexact and info.differentiable(sample)


def case_of(subject: Subject, info: CollectiveInfo, sample: CollectiveSample, dtype: DType, rank: int, seed: int = 0) -> Case:
    """Return the case that a rank runs for a sample."""
    keywords = {**sample.keywords[rank], "group": GROUP, "ranks": sample.ranks}

    def program(*operands: Any) -> Any:
        return info.program(*operands, **keywords)

    inputs = placed(drawn(sample.shapes, dtype, seed, FIRST)[rank], sample, dtype)
    return Case(subject, info, Program(program, inputs, info.symbol.id, program, eager=False), str(sample))


def drawn(shapes: Sequence[Sequence[tuple[int, ...]]], dtype: DType, seed: int, purpose: int) -> list[Arrays]:
    """Draw the operands of all ranks; each rank draws the same.  Values are exact in `dtype`, in double precision."""

    def draw(rank: int, i: int, shape: tuple[int, ...]) -> np.ndarray:
        generator = np.random.default_rng([seed, purpose, rank, i])
        if not dtype.inexact:
            return generator.integers(-5, 6, shape)
        return torch.from_numpy(generator.standard_normal(shape)).to(TO_TORCH[dtype]).double().numpy()

    return [[draw(rank, i, shape) for i, shape in enumerate(of_rank)] for rank, of_rank in enumerate(shapes)]


def placed(arrays: Arrays, sample: CollectiveSample, dtype: DType) -> list[Tensor]:
    """Make tensors of arrays, laid out as the sample says."""
    tensors = [torch.from_numpy(np.ascontiguousarray(x)).to(TO_TORCH[dtype]) for x in arrays]
    return [x.mT.contiguous().mT if sample.columns and x.dim() > 1 else x for x in tensors]


class Rehearsal:
    """One sample on one rank; each check is a method that returns a sentence, or None where it passes."""

    def __init__(self, subject: Subject, info: CollectiveInfo, sample: CollectiveSample, dtype: DType, rank: int, seed: int):
        self.info, self.sample, self.dtype, self.rank, self.seed = info, sample, dtype, rank, seed
        self.case = case_of(subject, info, sample, dtype, rank, seed)
        self.lines, self.taken = (0, 0), False

    def call(self, function: Callable[..., Any], inputs: Sequence[Tensor], *, grad: bool = False) -> Ran:
        """Call a compiled function; raise what it raises."""
        ran = self.case.call(function, inputs, grad=grad)
        if ran.error is not None:
            raise ran.error
        return ran

    def note(self, function: Callable[..., Any]) -> None:
        """Count the lines of the programs that ran."""
        traces = executed(function)
        own, every = self.case.subject.lines(*traces)
        self.lines = self.lines[0] + own, self.lines[1] + every
        mine = [line for trace in traces for line in trace.lines if line.implementation is not None]
        name = self.case.subject.name
        self.taken = self.taken or any([line.symbol is self.info.symbol and line.implementation.executor == name for line in mine])

    def unlike(self, results: Any, purpose: int) -> str | None:
        """Compare results with the reference for the operands drawn for `purpose`."""
        return self.differ(results, self.info.reference(drawn(self.sample.shapes, self.dtype, self.seed, purpose), self.sample, self.rank), "result")

    def differ(self, got: Sequence[Any], want: Arrays, word: str) -> str | None:
        """Describe the first tensor that differs from the reference."""
        eps = torch.finfo(TO_TORCH[self.dtype]).eps if self.dtype.inexact else 0.0
        for i, (x, y) in enumerate(zip(got, want, strict=True)):
            if not isinstance(x, Tensor) or x.dtype != TO_TORCH[self.dtype]:
                return f"{word} {i} is {getattr(x, 'dtype', type(x).__name__)}, and the operand is {TO_TORCH[self.dtype]}"
            if (problem := unlike(x, np.ascontiguousarray(y), ROUNDINGS * self.sample.ranks * eps)) is not None:
                return f"{word} {i} is not that of the reference: {problem}"
        return None

    def reference(self) -> str | None:
        """The results are those that NumPy computes from the operands of all ranks."""
        ran = self.call(self.case.function, fresh(self.case.program.inputs))
        self.note(self.case.function)
        return self.unlike(flat(ran.result), FIRST)

    def meta(self) -> str | None:
        """Every line returns what its meta function promises, and requires grad where it should."""
        ran = self.call(self.case.compiled(passes=[checked]), fresh(self.case.program.inputs))
        wrong = any([x.requires_grad for x in flat(ran.result)])
        return "the result requires grad, and none of its inputs does" if wrong else None

    def inputs(self) -> str | None:
        """Operands stay as they were."""
        operands = fresh(self.case.program.inputs)
        self.call(self.case.function, operands)
        changed = [i for i, (x, was) in enumerate(zip(operands, self.case.program.inputs, strict=True)) if not same_bits(x, was)]
        return f"it wrote into operand {changed[0]}, which it only reads" if changed else None

    def determinism(self) -> str | None:
        """Two calls return the same bits."""
        first, second = [self.call(self.case.function, fresh(self.case.program.inputs)).result for _ in range(2)]
        return None if same_bits(first, second) else "a second call with the same operands returned different bits"

    def repeat(self) -> str | None:
        """A second call is right for other values, and leaves the results of the first as they were."""
        first = self.call(self.case.function, fresh(self.case.program.inputs)).result
        before = [x.clone() for x in flat(first)]
        others = placed(drawn(self.sample.shapes, self.dtype, self.seed, OTHER)[self.rank], self.sample, self.dtype)
        second = self.call(self.case.function, others).result
        if not same_bits(first, before):
            return "a second call changed the result of the first"
        problem = self.unlike(flat(second), OTHER)
        return f"in a second call with other values, {problem}" if problem is not None else None

    def backward(self) -> str | None:
        """The results of a training call are right, and the gradients are those that the cotangents of all ranks determine."""
        function, operands = self.case.compiled(), fresh(self.case.program.inputs, grad=True)
        results = flat(self.call(function, operands, grad=True).result)
        if not all([x.requires_grad for x in results]):
            raise RuntimeError("a result does not require grad, and its operand does")
        firsts = drawn(self.sample.shapes, self.dtype, self.seed, FIRST)
        shapes = [[y.shape for y in self.info.reference(firsts, self.sample, rank)] for rank in range(self.sample.ranks)]
        cotangents = drawn(shapes, self.dtype, self.seed, COTANGENTS)
        with calm():  # also where the results are wrong: the other ranks take part
            grads = torch.autograd.grad(results, operands, placed(cotangents[self.rank], self.sample, self.dtype))
        self.note(function)
        if (problem := self.unlike(results, FIRST)) is not None:
            return f"in training, {problem}"
        return self.differ(grads, self.info.gradient(cotangents, self.sample, self.rank), "gradient")


CHECKS: dict[str, Callable[[Rehearsal], str | None]] = {
    "reference": Rehearsal.reference,
    "inputs": Rehearsal.inputs,
    "determinism": Rehearsal.determinism,
    "repeat": Rehearsal.repeat,
    "backward": Rehearsal.backward,
    "meta": Rehearsal.meta,
}
