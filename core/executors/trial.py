"""Trials: no executor but the reference is believed before it agreed with the reference on the user's own data.

On some calls of a program (the first, the second, then ever more rarely) each line that is not the reference's own is also run by the
reference, on the same inputs, and compared.  Where they disagree the call goes on with what the reference computes, the executor is not
offered that line again, and a warning names a script that replays it.

    t5 = mine_exec.fusion_t5(t0, t1)

runs on a trial call as a function that computes t5 as before, then as the reference does, and returns the one that is right.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

import torch

from dovetail import options, prims
from dovetail.executors import case
from dovetail.executors.contract import broken, copies, paired, same_bits, tensors
from dovetail.executors.dispatch import Notes
from dovetail.executors.distrust import DISTRUST, digest, folder, structure
from dovetail.executors.executor import Executor, Implementation
from dovetail.executors.faults import ExecutorWarning, call
from dovetail.executors.profile import wait_for
from dovetail.executors.reference import (
    draws,
    exact,
    generators,
    has_state,
    is_region,
    is_unwritten,
    own_copy,
    parts,
    program,
    referees,
    restore,
    rounded,
    uninitialized,
)
from dovetail.executors.regions import FusedRegion, RegionSymbol
from dovetail.executors.tolerance import agreement, differs
from dovetail.prims import Tag
from dovetail.trace import BoundSymbol, Proxy, TensorProxy, Trace, compiled, is_proxy, leaves, release, swap
from dovetail.trace.split import bytes_of

FIRST = (1, 2, 3, 5, 8, 13, 21, 34, 64)  # the calls of a program that are trials
RARER = 8  # how many times as far apart they are after these
NEVER = 1 << 62
AGAIN = 2  # how often more a line is run in one trial, to see whether it computes the same
SAMPLES = 4  # programs with other rounding that a difference is judged by
FEW = 1 << 16  # elements up to which there are more of them
SMALL = 1 << 23  # bytes of results up to which a line is tried whatever the clock says: on a busy machine it says little of little work
FREE = 16  # lines of that kind in one trial
FLOPS = 10  # products that take as long as writing a byte
COPIED = 1 << 24  # bytes of arguments up to which it is seen whether they are written into
MOST_BYTES = 1 << 30  # of memory that the reference may need for a line
RATE = 2e9  # bytes that the reference is expected to make in a second
SLOWER = 3.0  # how many times as long as the executor the reference is expected to take
UNTRIED = "not tried yet"
OVER = "not tried: over budget"


class GradientDisagreement(Exception):
    """A gradient is wrong that a program is about to save for: the call begins anew, with a program compiled without it."""


class DisagreementWarning(ExecutorWarning):
    """An executor computed something else than the reference; `case` is the path of a script that replays it."""

    def __init__(self, message: str, case: str = ""):
        super().__init__(message)
        self.case = case


@dataclass
class Account:
    """What the trials of one compiled program may cost: `seconds` its compilation took, and `share` of them each trial may take."""

    seconds: float = 0.0
    share: float = field(default_factory=options.TRIAL_BUDGET.read)
    programs: int = 1  # forward and backward share a trial's time
    retire: Callable[[str], None] | None = None  # called with what was said when lines disagreed
    gradients: Callable[..., str | None] | None = None  # how an executor differentiates a line otherwise than the reference

    def budget(self) -> float:
        """The seconds that a trial of one program may take."""
        return self.seconds * self.share / self.programs


@dataclass
class Tried:
    """What trials showed of one line, or of the lines that stand for one operation."""

    asked: BoundSymbol
    executor: Executor
    where: str | None
    always: bool
    said: str = UNTRIED
    tries: int = 0
    ulps: float = 0.0
    seconds: float = 0.0  # that the next trial is expected to take
    out: bool = False  # whether the reference runs it from now on
    gradient: bool = False  # whether it is the gradient that is tried
    reference: Callable[..., list[Any]] | None = None
    work: int = 0  # bytes that the reference writes, products counted in

    def __post_init__(self) -> None:
        self.work = sum(map(_work, parts(self.asked)))

    @property
    def results(self) -> tuple[str, ...]:
        """The names of what it computes."""
        return tuple(p.name for p in self.asked.writes)


@dataclass
class Round:
    """One trial: the lines that are its turn, and the time that is left."""

    chosen: set[int]
    left: float
    first: float  # what the first line may take, if it is more
    free: int = FREE  # how many more small lines are tried whatever the time
    used: bool = False

    def affords(self, tried: Tried, seconds: float = 0.0) -> bool:
        """Whether it is the turn of a line that is expected to take so long, and there is time."""
        if tried.always:
            return True
        if tried.work <= SMALL and self.free:
            return True
        left = self.left if self.used else max(self.left, self.first)
        return id(tried) in self.chosen and max(tried.seconds, seconds) <= left

    def spend(self, tried: Tried) -> None:
        """Note that a line was tried."""
        self.left, self.used, self.free = self.left - tried.seconds, True, self.free - (tried.work <= SMALL)


ROUND: ContextVar[Round | None] = ContextVar("trial", default=None)


class Trial:
    """The trials of one program: `trace` as it runs, of which `dispatched` says what each line stands for."""

    def __init__(
        self, trace: Trace, dispatched: Trace, executors: Sequence[Executor], account: Account, ruled: Sequence[tuple[BoundSymbol, Executor]] = ()
    ):
        self.trace, self.account, self.ruled = trace, account, ruled
        self.reference = referees(executors)
        self.asked = _asked(dispatched)
        self.env = dispatched.notes.env if isinstance(dispatched.notes, Notes) else {}
        self.modes = options.trial_modes()
        self.executors = {ex.name: ex for ex in executors}
        self.tried: list[Tried] = []
        self.trace_run = self._program()
        self.run_lines: Callable[..., Any] | None = None
        self.disagreed = False
        self.lock = Lock()
        self.count, self.due = 0, 1  # calls so far, and the call that is the next trial

    def __bool__(self) -> bool:
        return bool(self.tried)

    def run(self, *inputs: Any) -> Any:
        """Run the program, each line that is its turn beside the reference."""
        with self.lock:
            if self.run_lines is None:
                self.run_lines = compiled(self.trace_run)
            turn = self._round()
        token, before = ROUND.set(turn), generators() if self.ruled else None
        try:
            return self.run_lines(*inputs)
        except GradientDisagreement:
            restore(before)
            raise
        finally:
            ROUND.reset(token)
            self._counted()

    def _counted(self) -> None:
        self.count = max(self.count, self.due)
        always = self.disagreed or any([each.always for each in self.tried])
        self.due = self.count + 1 if always else following(self.count)

    def _round(self) -> Round:
        """The lines that were tried least come first, as many as there is time for; one at least, where compilation took as long."""
        left, chosen = self.account.budget(), set[int]()
        for each in sorted(self.tried, key=lambda each: each.tries):
            if each.seconds <= left or (not chosen and each.seconds <= self.account.seconds):
                chosen.add(id(each))
                left -= each.seconds
        return Round(chosen, self.account.budget(), self.account.seconds)

    # --- the program of a trial

    def _program(self) -> Trace:
        """The trace with every line that is tried run by a function that compares."""
        new = self.trace.derive("trial")
        units = self._units()
        lines: list[BoundSymbol] = []
        known = {*self.trace.inputs, *self.trace.constants}
        for line in self.trace.lines:
            known.update(line.writes)
            unit = units.get(_mark(line))
            if line.symbol is prims.delete:
                continue
            if unit is None:
                lines.append(line)
            elif unit[1] == 1:
                lines.append(self._beside(line, unit[0], len(self.tried)))
            else:
                unit[1] -= 1
                lines.append(line)
                if unit[1] == 1:
                    lines += self._behind(unit[0], line, known, len(self.tried))
        new.lines = lines + [
            self._gradient(line, ex, i) for i, (line, ex) in enumerate(self.ruled) if known.issuperset(line.reads) and self._mode(ex.name)
        ]
        return release(new)

    def _gradient(self, asked: BoundSymbol, ex: Executor, number: int) -> BoundSymbol:
        """The line that differentiates an operation by an executor's own rule and by the reference's, and compares."""
        tried, reads = self._new(asked, ex.name, asked.where), list(dict.fromkeys(asked.reads))
        tried.gradient = True

        def run(*values: Any) -> None:
            self._differentiated(tried, dict(zip(reads, values)))

        line = BoundSymbol(RegionSymbol(ex.name, f"gradient_{number}"), tuple(reads), {}, None, reads)
        line.implementation = Implementation(ex.name, f"gradient_trial_{number}", run)
        return line

    def _differentiated(self, tried: Tried, inputs: dict[Proxy, Any]) -> None:
        turn = ROUND.get()
        if turn is None or self.account.gradients is None or (why := self._excuse(tried, turn, 0.0)) is not None:
            tried.said = tried.said if tried.tries else why
            return
        state, began = generators(), time.perf_counter()
        try:
            difference = self.account.gradients(tried.asked, inputs, tried.executor, self.reference)
        except Exception as error:
            tried.said = _untried(error)
            return
        finally:
            restore(state)
            tried.seconds = time.perf_counter() - began
        turn.spend(tried)
        tried.tries += 1
        if difference is None:
            tried.said = "agreed in its gradients"
            return
        self._disagreed(tried, inputs, difference)
        raise GradientDisagreement(difference)

    def _units(self) -> dict[Any, list[Any]]:
        """For each line that is tried, the operation that it stands for, and one more than how many lines do so; 1 for a line alone."""
        shown = {_mark(line) for line in self.trace.lines}
        units: dict[Any, list[Any]] = {}
        several: dict[int, list[Any]] = {}
        for line in self.trace.lines:
            if line.implementation is None or not self._mode(line.implementation.executor):
                continue
            asked, marks = (line, ()) if is_region(line) else self.asked.get(_mark(line), (line, ()))
            if len(marks) > 1 and all([mark in shown for mark in marks]):
                unit = several.setdefault(id(asked), [asked, 1])
                unit[1] += 1
                units[_mark(line)] = unit
            else:
                units[_mark(line)] = [line, 1]
        return units

    def _mode(self, executor: str) -> str | None:
        """How an executor is tried; None where it is not."""
        ex = self.executors.get(executor)
        if ex is None or ex in self.reference:
            return None
        mode = self.modes.get(executor, self.modes["*"])
        return None if mode == "off" else mode

    def _new(self, asked: BoundSymbol, executor: str, where: str | None) -> Tried:
        tried = Tried(asked, self.executors[executor], asked.where or where, self._mode(executor) == "always")
        self.tried.append(tried)
        return tried

    def _beside(self, line: BoundSymbol, asked: BoundSymbol, number: int) -> BoundSymbol:
        """`line`, run by a function that compares."""
        made = line.implementation
        tried = self._new(asked, made.executor, line.where)
        into = made.writes if isinstance(made, FusedRegion) else ()

        def run(*args: Any, **kwargs: Any) -> Any:
            return self._line(tried, line, made.fn, args, kwargs, into)

        return line.replace(implementation=replace(made, name=f"{made.name}_trial_{number}", fn=run, path=None))

    def _behind(self, asked: BoundSymbol, last: BoundSymbol, known: set[Proxy], number: int) -> list[BoundSymbol]:
        """The line that compares the results of an operation which several lines stand for, after the last of them."""
        executor = last.implementation.executor
        tried = self._new(asked, executor, last.where)
        results = [_now(p, self.env) for p in asked.writes]
        reads = list(dict.fromkeys(asked.reads))
        if not all([p in known for p in (*reads, *results)]):
            tried.said = "not tried: parts of it are computed elsewhere"
            return []

        def run(*values: Any) -> tuple:
            inputs, got = values[: len(reads)], list(values[len(reads) :])
            return tuple(self._judged(tried, dict(zip(reads, inputs)), got, 0.0, None))

        args = (*reads, *results)
        line = BoundSymbol(RegionSymbol(executor, f"trial_{number}"), args, {}, tuple(results), list(args))
        line.writes = results
        line.implementation = Implementation(executor, f"trial_{number}", run)
        return [line]

    # --- what a line does in a trial

    def _line(self, tried: Tried, line: BoundSymbol, fn: Callable, args: tuple, kwargs: dict, into: Sequence[Proxy]) -> Any:
        """Run a line, and compare where it is its turn."""
        turn = ROUND.get()
        why = _exempt(line)
        if turn is None or why is not None or not (tried.out or turn.affords(tried)):
            tried.said = why or (tried.said if tried.tries else OVER)
            return fn(*args, **kwargs)
        inputs = dict(zip(_read(line), _values(line, args, kwargs)))
        if tried.out:
            return self._filled(line, inputs, self._reference(tried, inputs))
        wait = wait_for(line)
        written = set(into)

        def again() -> Any:
            if not written:
                return fn(*args, **kwargs)
            return fn(*[own_copy(x) if is_proxy(p) and p in written else x for p, x in zip(line.args, args)], **kwargs)

        before = generators() if draws(line) else None
        were = copies(line, args, kwargs) if not written and _bytes(inputs) <= COPIED else []
        wait()
        began = time.perf_counter()
        result = again()
        wait()
        took = time.perf_counter() - began
        found = {p: x for p, x in paired(line.out, result) if is_proxy(p)}
        got = [found[p] for p in line.writes]
        if before is not None:
            return self._drawn(tried, line, inputs, result, got, before)
        breach = broken(line, args, kwargs, result, were) if not written else None
        if breach is not None and breach.startswith("it wrote into"):
            for x, was in zip(tensors((args, kwargs)), were, strict=True):
                x.copy_(was)
        right = self._judged(tried, inputs, got, took, again, breach)
        return result if right is got else self._filled(line, inputs, right)

    def _filled(self, line: BoundSymbol, inputs: dict[Proxy, Any], results: list[Any]) -> Any:
        """The results of a line in the form in which it returns them."""
        values = inputs | dict(zip(line.writes, results))
        return swap(line.out, lambda leaf: values[leaf] if is_proxy(leaf) else leaf)

    def _drawn(self, tried: Tried, line: BoundSymbol, inputs: dict[Proxy, Any], result: Any, got: list[Any], before: Any) -> Any:
        """`result` of a line that draws random numbers: it agrees where it draws the same as the reference."""
        after = generators()
        restore(before)
        try:
            expected = self._reference(tried, inputs)
            same = _same_generators(after, generators()) and differs(got, expected) is None
            tried.said = "agreed, drawing the same numbers" if same else "not tried: draws random numbers of its own"
        except Exception as error:
            tried.said = _untried(error)
        finally:
            restore(after)
        return result

    def _judged(
        self, tried: Tried, inputs: dict[Proxy, Any], got: list[Any], took: float, again: Callable[[], Any] | None, breach: str | None = None
    ) -> list[Any]:
        """`got`, or what the reference computes in its place."""
        turn = ROUND.get()
        if turn is None or (why := self._excuse(tried, turn, took)) is not None:
            tried.said = tried.said if tried.tries else why
            return got
        try:
            self._prepare(tried, inputs)
            began = time.perf_counter()
            expected = self._reference(tried, inputs)
            difference = breach or self._difference(tried, inputs, got, expected)
            if difference is None and again is not None:
                difference = self._repeated(tried, inputs, got, expected, again, turn, took)
        except Exception as error:
            tried.said = _untried(error)
            return got
        tried.seconds = time.perf_counter() - began
        turn.spend(tried)
        tried.tries += 1
        if difference is None:
            tried.said = f"agreed, largest error {_rounded(tried.ulps)} ulp"
            return got
        self._disagreed(tried, inputs, difference)
        return expected

    def _excuse(self, tried: Tried, turn: Round, took: float) -> str | None:
        """Why a line is not tried in this trial."""
        if tried.out or tried.always:
            return None
        if not turn.affords(tried):
            return OVER
        expected = SLOWER * took + tried.work / RATE
        if not tried.tries and not turn.affords(tried, expected):
            tried.seconds = expected
            return OVER
        if sum(bytes_of(p) for part in parts(tried.asked) for p in part.writes) > MOST_BYTES:
            return "not tried: the reference would need too much memory"
        return "not tried: it draws random numbers" if tried.gradient and draws(tried.asked) else None

    def _prepare(self, tried: Tried, inputs: dict[Proxy, Any]) -> None:
        """Compile what the reference runs."""
        if tried.reference is None:
            tried.reference = program(tried.asked, list(inputs), self.reference, self.trace.constants)

    def _reference(self, tried: Tried, inputs: dict[Proxy, Any]) -> list[Any]:
        """What the reference computes from `inputs`."""
        self._prepare(tried, inputs)
        return tried.reference(*inputs.values())

    def _difference(self, tried: Tried, inputs: dict[Proxy, Any], got: list[Any], expected: list[Any]) -> str | None:
        """How the results differ beyond rounding; None where they do not."""
        wide: tuple[list[Any] | None, list[list[Any]]] | None = None
        unwritten = uninitialized(parts(tried.asked))
        for i, p in enumerate(tried.asked.writes):
            if p in unwritten:
                continue
            found = agreement(got[i], expected[i])
            if found.difference is None:
                tried.ulps = max(tried.ulps, found.ulps)
                continue
            if wide is None:
                wide = self._wide(tried, inputs)
            exactly, samples = wide
            said = differs(got[i], expected[i], exactly[i] if exactly else None, rounded=[each[i] for each in samples])
            if said is not None:
                return f"{p.name}: {said}"
        return None

    def _wide(self, tried: Tried, inputs: dict[Proxy, Any]) -> tuple[list[Any] | None, list[list[Any]]]:
        line, values = tried.asked, self.trace.constants | inputs
        size = max([x.numel() for x in inputs.values() if isinstance(x, torch.Tensor)], default=0)
        return exact(line, values, self.reference), rounded(line, values, self.reference, SAMPLES if size > FEW else 2 * SAMPLES)

    def _repeated(
        self, tried: Tried, inputs: dict[Proxy, Any], got: list[Any], expected: list[Any], again: Callable[[], Any], turn: Round, took: float
    ) -> str | None:
        """How another run on the same inputs differs from the reference; None where none does, or there is no time."""
        for _ in range(AGAIN):
            if not tried.always and took > turn.left / 4 and not (tried.work <= SMALL and turn.free):
                return None
            found = {p: x for p, x in paired(tried.asked.out, again()) if is_proxy(p)}
            new = [found[p] for p in tried.asked.writes]
            if all([_same(a, b) for a, b in zip(new, got)]):
                continue
            if (said := self._difference(tried, inputs, new, expected)) is not None:
                return f"run again on the same inputs, {said}"
        return None

    def _disagreed(self, tried: Tried, inputs: dict[Proxy, Any], said: str) -> None:
        """Remember that the executor is out for this line, and say so once."""
        with self.lock:
            if tried.out:
                return
            tried.out, tried.said = True, f"disagreed: {said}"
        ex, asked = tried.executor, tried.asked
        mark = digest(ex, structure(asked))
        try:
            path = case.write(folder(), f"{ex.name}_{mark[:16]}", asked, inputs, ex, said)
        except Exception as error:  # a full disk is no reason to stop
            path = f"(no script could be written: {type(error).__name__}: {error})"
        what = f"the region {', '.join(tried.results)}" if is_region(asked) else call(asked)
        DISTRUST.add(ex, asked, what, said, path)
        self.disagreed = True
        if self.account.retire is not None:
            self.account.retire(f"{ex.name} disagreed with the reference in {what}")
        rows = [f"{ex.name} disagrees with the reference in {what}: {said}"]
        rows += ["this call goes on with what the reference computes, which runs it from now on"]
        rows += [f"called at {tried.where}"] if tried.where else []
        rows += [f"a script that replays it: {path}"]
        warnings.warn(DisagreementWarning("\n  ".join(rows), path), stacklevel=2)


def following(count: int) -> int:
    """The call that is the next trial after call `count`."""
    found = next((n for n in FIRST if n > count), None)
    if found is not None:
        return found
    n = FIRST[-1]
    while n <= count:
        n *= RARER
    return n


def trial_of(
    traces: Sequence[Trace], executors: Iterable[Executor], account: Account | None, ruled: Sequence[tuple[BoundSymbol, Executor]] = ()
) -> Trial | None:
    """Return the trials of a program, given what its passes made of it; None where there is nothing to try."""
    modes = options.trial_modes()
    if account is None or set(modes.values()) == {"off"}:
        return None
    trace = traces[-1]
    running = {line.implementation.executor for line in trace.lines if line.implementation is not None}
    executors = tuple(executors)
    reference = referees(executors)
    names = {ex.name for ex in executors if ex not in reference and modes.get(ex.name, modes["*"]) != "off"}
    if not reference or not (running & names or ruled):
        return None
    dispatched = next(made for made in traces if isinstance(made.notes, Notes))
    return Trial(trace, dispatched, executors, account, ruled) or None


def _asked(dispatched: Trace) -> dict[Any, tuple[BoundSymbol, tuple[Any, ...]]]:
    """For each line the outermost operation that it stands for, and all lines that do so."""
    found: dict[Any, tuple[BoundSymbol, tuple[Any, ...]]] = {}
    for made in dispatched.notes.decisions if isinstance(dispatched.notes, Notes) else ():
        marks = tuple(_mark(line) for line in made.runs)
        for mark in marks:
            found.setdefault(mark, (made.line, marks))
    return found


def _mark(line: BoundSymbol) -> Any:
    """What a line is known by, whatever passes made of it: its results."""
    return tuple(map(id, line.writes)) or id(line)


def _now(p: Proxy, env: dict[Proxy, Proxy]) -> Proxy:
    """What stands for a result in the program that runs."""
    while p in env:
        p = env[p]
    return p


def _exempt(line: BoundSymbol) -> str | None:
    """Why a line is not tried at all."""
    if has_state(line):
        return "not tried: it keeps state between calls"
    if line.mutates:
        return "not tried: it writes into its arguments"
    if line.effects and not draws(line):
        return "not tried: it has effects"
    if is_unwritten(line):
        return "not tried: its memory is uninitialised"
    return None


def _read(line: BoundSymbol) -> list[Proxy]:
    """The values that a line is given."""
    return [leaf for leaf in leaves((line.args, line.kwargs)) if is_proxy(leaf)]


def _values(line: BoundSymbol, args: tuple, kwargs: dict) -> list[Any]:
    """The real ones."""
    pairs = zip(leaves((line.args, line.kwargs)), leaves((args, kwargs)), strict=True)
    return [x for p, x in pairs if is_proxy(p)]


def _work(line: BoundSymbol) -> int:
    """The bytes that a line writes, and what its products take besides."""
    if line.body:
        return sum(map(_work, line.body))
    written = sum(map(bytes_of, line.writes))
    if Tag.MATMUL not in line.symbol.tags:
        return written
    sizes = [p.spec.numel for p in (*line.reads, *line.writes) if isinstance(p, TensorProxy)]
    return written + int(math.prod(sizes[:3]) ** 0.5) // FLOPS  # of (n, k), (k, m) and (n, m) that is n k m


def _bytes(inputs: dict[Proxy, Any]) -> int:
    """The memory of the tensors among `inputs`."""
    return sum(x.numel() * x.element_size() for x in inputs.values() if isinstance(x, torch.Tensor))


def _same(a: Any, b: Any) -> bool:
    """Whether two results hold the same bits."""
    return same_bits(a, b) if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) else a == b


def _rounded(ulps: float) -> str:
    return f"{ulps:.0f}" if ulps >= 1 or ulps == 0 else f"{ulps:.1g}"


def _untried(error: Exception) -> str:
    why = str(error).partition("\n")[0]
    return f"not tried: the reference raised {type(error).__name__}: {why}"


def _same_generators(a: tuple, b: tuple) -> bool:
    return all(torch.equal(x, y) for x, y in zip((a[0], *a[1]), (b[0], *b[1])))
