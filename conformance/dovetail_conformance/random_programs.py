"""Random programs over what an executor runs: drawn and shrunk by hypothesis, compared with eager PyTorch, printed as a script.

Each step is a call of an operation with one of its samples, in which earlier values may replace tensors of the same shape and dtype.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import hypothesis
import torch
from hypothesis import strategies as st
from torch import Tensor

import dovetail
from dovetail import devices, dtypes
from dovetail.errors import Unsupported
from dovetail.extend.advanced import Symbol
from dovetail_conformance.case import SEED, Case, executed
from dovetail_conformance.cell import Outcome, whole
from dovetail_conformance.declared import has_room
from dovetail_conformance.levels import Level
from dovetail_conformance.opinfo import SampleInput
from dovetail_conformance.oracle import flat
from dovetail_conformance.plan import Task, opinfos
from dovetail_conformance.program import Program, calm, fresh, inexact, message, program_of, seed_generators, widened
from dovetail_conformance.script import Name, script, spelled_call
from dovetail_conformance.subject import Subject

STEPS, LARGEST, SAMPLES = 6, 200, 3  # calls in a program, elements of a tensor, samples of an operation
OPERATIONS = 12  # that programs are drawn from, for each program
RELATIVE, ABSOLUTE = 1e-3, 1e-4  # rounding errors accumulate through a program


@dataclass
class Call:
    """An operation with one of its samples."""

    symbol: Symbol
    program: Program

    @property
    def kinds(self) -> list[Any]:
        """For each tensor the shape and dtype that a replacement needs; None where there is none, as for indices."""
        return [kind_of(x) if inexact(x) else None for x in self.program.inputs]


def kind_of(x: Tensor) -> tuple[Any, ...]:
    return tuple(x.shape), x.dtype


@dataclass
class Drawn:
    """A program: calls, and for each of their tensors the number of an earlier value or of an input."""

    calls: list[Call] = field(default_factory=list)
    sources: list[list[int]] = field(default_factory=list)  # n >= 0: value n; n < 0: input -1 - n
    inputs: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)  # as eager computes them
    origin: list[tuple[int, int]] = field(default_factory=list)  # of each value: its call, and which of its results it is

    def run(self, *inputs: Any) -> Any:
        """Run the program; return every result that no later call uses, and the last."""
        results: list[list[Any]] = []
        for call, sources in zip(self.calls, self.sources):
            operands = [inputs[-1 - n] if n < 0 else results[self.origin[n][0]][self.origin[n][1]] for n in sources]
            results.append(flat(call.program.fn(*operands)))
        return [results[at][i] for at, i in self.ends()]

    def ends(self) -> list[tuple[int, int]]:
        """Return the values that the program returns, by call and result."""
        used = {n for sources in self.sources for n in sources if n >= 0}
        return [where for n, where in enumerate(self.origin) if n not in used or where[0] == len(self.calls) - 1]

    @property
    def text(self) -> str:
        """Its source, with x0, x1, ... for the inputs."""
        rows = []
        for i, (call, sources) in enumerate(zip(self.calls, self.sources)):
            names = [Name(f"x{-1 - n}") if n < 0 else Name(self.name(n)) for n in sources]
            args, kwargs = call.program.arguments(names)
            rows.append(f"v{i} = {spelled_call(call.symbol, args, kwargs)}")
        ends = [self.name(self.origin.index(where)) for where in self.ends()]
        return "\n".join([*rows, f"return [{', '.join(ends)}]"])

    def name(self, n: int) -> str:
        """Name a value as the program does."""
        at, i = self.origin[n]
        return f"v{at}" if sum(where[0] == at for where in self.origin) == 1 and i == 0 else f"v{at}[{i}]"


class Wrong(Exception):
    """A program whose result is not eager's."""


def random_programs(subject: Subject, level: Level, seed: int) -> Outcome:
    """Check that small random programs of operations that the executor runs compute what eager computes; shrink one that does not."""
    pool = claimed_calls(subject, OPERATIONS * level.programs, seed, parts=level.parts)
    if not pool:
        return Outcome("not-claimed", "it runs no operation that random programs can use")
    failures: list[tuple[Drawn, str]] = []
    counts = {"ran": 0, "drawn": 0}

    def try_one(data: st.DataObject) -> None:
        drawn = draw(data, pool)
        wrong = judged(subject, drawn, counts)
        if wrong is not None:
            failures.append((drawn, wrong))
            raise Wrong

    test = hypothesis.given(st.data())(try_one)
    test = hypothesis.seed(seed)(hypothesis.settings(max_examples=level.programs, **_QUIETLY)(test))
    try:
        with calm():
            test()
    except (Wrong, hypothesis.errors.Flaky, BaseExceptionGroup):
        drawn, wrong = failures[-1]
        replay = script(
            f"random program, seed {seed}\nfound by dovetail-conformance",
            drawn.text,
            drawn.inputs,
            subject.name,
            eager=all(call.program.eager for call in drawn.calls),
        )
        return Outcome("fail", f"a program of {len(drawn.calls)} operations: {wrong}", counts["ran"], counts["drawn"], replay=replay)
    return Outcome("pass" if counts["ran"] else "not-claimed", "", counts["ran"], counts["drawn"])


_QUIETLY: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "report_multiple_bugs": False,
    "print_blob": False,
    "suppress_health_check": list(hypothesis.HealthCheck),
    "phases": (hypothesis.Phase.generate, hypothesis.Phase.shrink),
}


def claimed_calls(subject: Subject, most: int, seed: int, *, parts: bool = True) -> list[Call]:
    """List calls in float32, of `most` operations, that the executor runs at least a line of; simple operations first, which shrinking prefers."""
    calls: list[Call] = []
    operations = 0
    for info in random.Random(seed).sample(list(opinfos().values()), len(opinfos())):
        if operations == most:
            break
        if dtypes.float32 not in info.dtypes or info.random or not info.is_decided(dtypes.float32, "cpu"):
            continue
        if not has_room(subject, Task(info.symbol.id, dtypes.float32), parts=parts):
            continue
        before = len(calls)
        for sample in islice(info.samples(dtypes.float32, devices.cpu), SAMPLES):
            call = _usable(subject, info, sample)
            if call is None:
                break
            calls.append(call)
        operations += len(calls) > before
    return sorted(calls, key=lambda call: len(call.program.inputs))


def _usable(subject: Subject, info: Any, sample: SampleInput) -> Call | None:
    """Return the call if the executor runs it, it runs in eager, and its tensors are few and small; else None."""
    case = Case(subject, info, program_of(info.symbol, sample), message(sample), sample)
    inputs = case.program.inputs
    if case.reference is None or not any(map(inexact, inputs)) or sum(x.numel() for x in inputs) > LARGEST:
        return None
    if case.expected.error is not None or case.ran.error is not None or not case.ran.lines[0]:
        return None
    return Call(info.symbol, case.program)


def draw(data: st.DataObject, pool: Sequence[Call]) -> Drawn:
    """Draw a program of one to STEPS calls; each after the first uses an earlier value where one fits."""
    drawn = Drawn()
    for _ in range(data.draw(st.integers(1, STEPS))):
        kinds = {kind_of(x) for x in drawn.values if inexact(x)}
        fitting = [call for call in pool if kinds.intersection(call.kinds)] if kinds else []
        call = data.draw(st.sampled_from(fitting or pool))
        sources, taken = [], []
        for x, kind in zip(call.program.inputs, call.kinds):
            having = [n for n, value in enumerate(drawn.values) if kind is not None and kind_of(value) == kind]
            n = data.draw(st.sampled_from(having[::-1])) if having and (not taken or data.draw(st.booleans())) else None
            if n is None:
                drawn.inputs.append(x)
                n = -len(drawn.inputs)
            taken.append(n)
            sources.append(n)
        drawn.calls.append(call)
        drawn.sources.append(sources)
        _eagerly(drawn)
    return drawn


def _eagerly(drawn: Drawn) -> None:
    """Run the program so far eagerly; reject it where that raises, or where its values grow too large."""
    inputs, results = fresh(drawn.inputs), []
    seed_generators(SEED)
    try:
        with torch.no_grad():
            for call, sources in zip(drawn.calls, drawn.sources):
                results.append(flat(call.program.fn(*[inputs[-1 - n] if n < 0 else drawn.values[n] for n in sources])))
    except Exception:
        hypothesis.reject()
    last = len(drawn.calls) - 1
    for i, x in enumerate(results[last]):
        if isinstance(x, Tensor):
            hypothesis.assume(x.numel() <= LARGEST and x.untyped_storage().nbytes() <= 64 * LARGEST)
            drawn.origin.append((last, i))
            drawn.values.append(x.detach().clone())


def judged(subject: Subject, drawn: Drawn, counts: dict[str, int]) -> str | None:
    """Describe what is wrong with a program as the executor runs it; None where nothing is, or where rounding decides the result."""
    if not drawn.origin:
        hypothesis.reject()
    runs = {"eager": fresh(drawn.inputs), "exact": widened(drawn.inputs), "ours": fresh(drawn.inputs)}
    eager = all(call.program.eager for call in drawn.calls)
    reference = drawn.run if eager else dovetail.jit(drawn.run, executors=list(subject.others), unsupported="error")
    seed_generators(SEED)
    try:
        with torch.no_grad():
            expected, exact = reference(*runs["eager"]), reference(*runs["exact"])
    except Exception:
        hypothesis.reject()
    expected, exact = [*expected, *runs["eager"]], [*exact, *runs["exact"]]
    if any(unlike(a, b, 0.1) for a, b in zip(expected, exact)):
        hypothesis.reject()  # a rounding more or less changes the result
    function = dovetail.jit(drawn.run, executors=[subject.executor], unsupported="error")
    counts["drawn"] += 1
    try:
        with torch.no_grad():
            got = [*function(*runs["ours"]), *runs["ours"]]
    except Unsupported:
        hypothesis.reject()
    except Exception as error:
        return whole(error)
    counts["ran"] += subject.lines(*executed(function))[0] > 0
    for i, (a, b) in enumerate(zip(got, expected)):
        if problem := unlike(a, b, 1.0) or _other_kind(a, b):
            return f"result {i}: {problem}" if i < len(got) - len(runs["ours"]) else f"an input afterwards: {problem}"
    return None


def _other_kind(a: Any, b: Any) -> str:
    if isinstance(a, Tensor) and isinstance(b, Tensor) and a.dtype != b.dtype:
        return f"{a.dtype} in place of {b.dtype}"
    return ""


def unlike(a: Any, b: Any, slack: float) -> str:
    """Describe how two results differ by more than `slack` times the tolerance; empty where they do not."""
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return "" if a == b or a != a else f"{a!r} in place of {b!r}"
    if a.shape != b.shape:
        return f"shape {list(a.shape)} in place of {list(b.shape)}"
    if not a.numel():
        return ""
    wide = torch.complex128 if a.is_complex() or b.is_complex() else torch.float64
    ours, theirs = a.detach().to(wide), b.detach().to(wide)
    loose = inexact(a)
    scale = float(theirs.abs().nan_to_num(posinf=0.0).max()) if loose else 0.0
    same = torch.isclose(
        ours, theirs, rtol=slack * RELATIVE if loose else 0.0, atol=slack * ABSOLUTE * max(1.0, scale) if loose else 0.0, equal_nan=True
    )
    if bool(same.all()):
        return ""
    at = int((~same).flatten().to(torch.int64).argmax())
    return (
        f"{int((~same).sum())} of {a.numel()} elements differ, one is {ours.flatten()[at].item():.6g} in place of {theirs.flatten()[at].item():.6g}"
    )
