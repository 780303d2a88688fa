"""The check of side effects: process settings that a call changes, its output and its warnings."""

from __future__ import annotations

import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dovetail.extend import Tag
from dovetail_conformance.acts import acts
from dovetail_conformance.case import Case, Ran, cotangents
from dovetail_conformance.cell import Cell, Outcome
from dovetail_conformance.grown import large
from dovetail_conformance.noise import Noise, texts
from dovetail_conformance.oracle import tensors
from dovetail_conformance.program import fresh, inexact
from dovetail_conformance.state import Snapshot, as_before, recording_reads, unusual

OWN = (  # what names of variables of libraries begin with
    *("DOVETAIL", "TORCH", "PYTORCH", "PYTHON", "PYTEST", "OMP_", "KMP_", "MKL_", "CUDA", "TRITON", "NUMBA"),
    *("PATH", "HOME", "TMP", "TEMP", "XDG_", "LD_"),
)
ELSEWHERE = {"TZ": "Asia/Tokyo", "LANG": "de_DE.UTF-8", "LC_ALL": "C", "CI": "true", "DEBUG": "1", "USER": "somebody", "HOSTNAME": "elsewhere"}
WATCHED = 3  # samples that are watched; one at level quick


@dataclass
class Effects(Noise):
    """The side effects of a call: its output, its warnings, settings that changed, by name, and what it did outside the process."""

    changed: list[str] = field(default_factory=list)
    acts: list[str] = field(default_factory=list)


def surroundings(cell: Cell) -> Outcome | None:
    """A call changes no setting of the process, patches nothing, draws no numbers, prints nothing, warns of no more than eager, and stays inside."""

    if Tag.HOST in cell.info.symbol.tags:
        return None  # printing is its purpose

    def judge(case: Case) -> str | None:
        if case.ran.error is not None or case.reference is None:
            return None
        for grad in (False, True) if cell.info.grad and any(map(inexact, case.program.inputs)) else (False,):
            function = case.differentiated if grad else case.function
            input_sets = [fresh(case.program.inputs, grad=grad) for _ in range(3)]
            with unusual():
                _trained(partial(case.call, function), input_sets[0], grad)  # the first call compiles, which may load a library
            theirs = _effects_of(partial(_trained, case.eager, input_sets[1], grad, quiet=False), cell.subject.environment)
            ours = _effects_of(partial(_trained, partial(case.call, function), input_sets[2], grad, quiet=False), cell.subject.environment)
            if (difference := _difference(ours, theirs)) is not None:
                return difference
        if not cell.first or cell.level.dealt or case is not cell.claimed[0]:
            return None
        return _elsewhere(case, compared=cell.info.is_decided(cell.dtype, cell.device.type))

    if changed := cell.subject.effects.get(cell.info.name):
        return cell.each(lambda _: f"a call changed {', '.join(dict.fromkeys(changed))}", "surroundings", cell.claimed[:1])
    if cell.level.dealt:
        return cell.each(judge, "surroundings", cell.claimed[:1])
    chosen = cell.claimed[:: max(1, len(cell.claimed) // WATCHED)][:WATCHED]
    return cell.each(judge, "surroundings", [*chosen, *([case] if cell.first and (case := large(cell)) is not None else [])])


def _trained(call: Callable[..., Ran], inputs: Sequence[Tensor], grad: bool, **how: Any) -> None:
    """Call a function; with `grad`, compute the gradients of its results as well. Other checks report errors."""
    ran = call(inputs, grad=grad, **how)
    leaves = [x for x in inputs if x.requires_grad]
    ends = [x for x in tensors(ran.result) if x.requires_grad]
    if grad and ends:
        with suppress(RuntimeError):
            torch.autograd.grad(ends, leaves, cotangents(ran.result), allow_unused=True)


def _elsewhere(case: Case, *, compared: bool) -> str | None:
    """Describe how the result differs in another environment: with variables that the call asks for, in another time zone, language and folder."""
    noted: list[str] = []
    with recording_reads(noted):
        case.call(function := case.compiled(), fresh(case.program.inputs))
        case.call(function, fresh(case.program.inputs))
    variables = {name for name in noted if not name.startswith(OWN)}
    for value in ("1", "0"):
        with _environment({**ELSEWHERE, **dict.fromkeys(variables, value)}):
            ran = case.call(case.compiled(), fresh(case.program.inputs))
        if ran.error is not None:
            return f"in another environment ({', '.join(sorted(variables))}), a call raised {type(ran.error).__name__}: {ran.error}"
        if compared and not case.draws and (difference := case.wrong(ran, case.expected, case.program.inputs)) is not None:
            return f"in another environment ({', '.join(sorted({*variables, *ELSEWHERE}))}): {difference}"
    return None


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Set variables of the environment while open, and the time zone by them."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    _set_time_zone()
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        _set_time_zone()


def _set_time_zone() -> None:
    if hasattr(time, "tzset"):
        time.tzset()


def _difference(ours: Effects, theirs: Effects) -> str | None:
    changed = [name for name in ours.changed if name not in theirs.changed]
    if changed:
        return f"a call changed {', '.join(changed[:5])}"
    if ours.acts and not theirs.acts:
        return f"a call {ours.acts[0]}"
    return ours.beyond(theirs)


def _effects_of(call: Callable[[], Any], environment: dict[str, str]) -> Effects:
    effects = Effects()
    with _captured(effects), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        first = Snapshot(whole=False)
        as_before(environment)
        with unusual():
            before = Snapshot()
            with acts() as effects.acts:
                call()
            effects.changed = list(before.changes())
            before.restore()
        first.restore()
    effects.warned = texts(caught)
    return effects


@contextmanager
def _captured(effects: Effects) -> Iterator[None]:
    """Redirect standard output and error to a file while open; set `effects.printed` to its content afterwards."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    kept = [os.dup(1), os.dup(2)]
    streams = sys.stdout, sys.stderr
    with tempfile.TemporaryFile() as file, open(os.dup(file.fileno()), "w", encoding="utf-8", errors="replace") as text:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        sys.stdout = sys.stderr = text
        try:
            yield
        finally:
            text.flush()
            sys.stdout, sys.stderr = streams
            for number, old in enumerate(kept, 1):
                os.dup2(old, number)
                os.close(old)
            file.seek(0)
            effects.printed = file.read(2000).decode("utf-8", "replace")
