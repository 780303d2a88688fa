"""Programs with the executor under test in front, and in every position beside each other executor that is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

import dovetail
from dovetail.extend.advanced import Executor, checked, executors
from dovetail_conformance.case import SEED, cotangents, executed
from dovetail_conformance.cell import Outcome, whole
from dovetail_conformance.oracle import differs, flat
from dovetail_conformance.plan import Wanted
from dovetail_conformance.program import calm, fresh, inexact, seed_generators
from dovetail_conformance.programs import Example
from dovetail_conformance.report import Row
from dovetail_conformance.script import script
from dovetail_conformance.subject import Subject

SLACK = 10.0  # a program has several operations, each with a rounding of its own


def composition_rows(
    subject: Subject, program: Example, wanted: Wanted, doing: Callable[[str], None], missing: str, *, parts: bool = True
) -> Iterator[Row]:
    """Yield the row "programs" of a program, with the executor in front, and where `parts`, "composition", in all other arrangements."""
    front, *others = arrangements(subject) if parts else [[subject.executor]]
    alone: Outcome | None = None
    for check, chosen in (("programs", [front]), ("composition", others)):
        if wanted.check(check) and chosen:
            doing(check)
            began = perf_counter()
            if missing:
                outcome = Outcome("not-run", missing)
            elif alone is not None and alone.state == "not-claimed":
                outcome = alone  # an executor that runs nothing in front runs nothing behind others
            else:
                outcome = arranged(subject, program, chosen, check)
            alone = alone or outcome
            replay = outcome.replay if outcome.state not in ("pass", "partly") else ""
            yield Row(
                program.name,
                check,
                "",
                "cpu",
                outcome.state,
                outcome.ran,
                outcome.samples,
                outcome.lines,
                outcome.message,
                replay,
                seconds=perf_counter() - began,
            )


def arrangements(subject: Subject) -> list[list[Executor]]:
    """Return orders: the executor alone in front of those of last resort; before and behind each other; among all of them, at every place."""
    ex, orders = subject.executor, [[subject.executor]]
    others = [other for other in executors() if other.name != ex.name and not other.last_resort and other.available() is True]
    for other in others:
        orders += [[ex, other], [other, ex]]
    if len(others) > 1:
        orders += [[*others[:i], ex, *others[i:]] for i in range(len(others) + 1)]
    if not ex.last_resort and subject.others:
        orders.append([*subject.others, ex])
    return orders


def arranged(subject: Subject, program: Example, chosen: Sequence[Sequence[Executor]], check: str) -> Outcome:
    """Run a program with the executors in each of these orders."""
    expected, lines, ran = results(program, program.fn), (0, 0), 0
    for order in chosen:
        function = dovetail.jit(program.fn, executors=list(order), passes=[checked])
        names = " before ".join(ex.name for ex in order)
        replay = script(f"{program.name}: {check}, {names}", program.text, program.inputs(), subject.name)
        try:
            got = results(program, function)
        except Exception as error:
            return Outcome("error", f"{names}: {whole(error)}", ran, len(chosen), lines, replay)
        difference = differs(got, expected, results(program, program.fn, wide=True), slack=SLACK)
        if difference is not None:
            return Outcome("fail", f"{names}: {difference}", ran, len(chosen), lines, replay)
        own, every = subject.lines(*executed(function))
        lines, ran = (lines[0] + own, lines[1] + every), ran + (own > 0)
    state = "pass" if ran else "not-claimed"
    return Outcome(state, "" if ran else "other executors ran all of it", ran, len(chosen), lines)


def results(program: Example, fn: Callable[..., Any], *, wide: bool = False) -> list[Any]:
    """Run a program; return its results, what it leaves of its inputs, and the gradients where `grad`."""
    seed_generators(SEED)
    inputs = [x.double() if wide else x for x in fresh(program.inputs())]
    kept = [x.clone() for x in inputs]
    with calm(), torch.no_grad():
        values = [fn(*inputs), list(inputs)]
    if program.grad:
        leaves = [x.requires_grad_(inexact(x)) for x in kept]
        with calm():
            out = fn(*leaves)
            outs = [x for x in flat(out) if isinstance(x, Tensor) and x.requires_grad]
            values.append(list(torch.autograd.grad(outs, leaves, cotangents(outs), allow_unused=True)))
    return values
