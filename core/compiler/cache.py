"""The cache of one compiled function: which program fits a call, when one is compiled, and which calls are trials."""

from __future__ import annotations

import functools
import itertools
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Any, NamedTuple

from dovetail import options, prims
from dovetail.compiler.compilation import Pass
from dovetail.compiler.eager_calls import EagerCalls, kind_of
from dovetail.compiler.entry import GENERATE, Call, CallToCompile, Entry, unguarded
from dovetail.compiler.errors_at_run import name_of
from dovetail.compiler.function_compiler import FunctionCompiler, weakly
from dovetail.errors import EagerCall, TracedValueError, Unsupported
from dovetail.executors import Executor, Priority, resolve_executors
from dovetail.executors.discovery.configuration import WATCH
from dovetail.executors.ordering.key import difference
from dovetail.executors.ordering.resolve_order import remembered, requested_order
from dovetail.executors.trials.budget import NEVER, Account
from dovetail.executors.trials.judge import GradientDisagreement
from dovetail.frontend.guards.guard import Miss
from dovetail.frontend.guards.mismatch import warn_of_guard
from dovetail.frontend.interpreter.tracebacks import error_text
from dovetail.frontend.interpreter.tracking import PendingWrites
from dovetail.torch_internals import active_mode
from dovetail.trace.source_location import user_line, warn_caller


class Counts(NamedTuple):
    """How many calls ran a program that was compiled before, how many compiled one or a part of one, and how many programs there are."""

    hits: int
    misses: int
    programs: int


class CacheInfo(Counts):
    """How many calls ran a program that was compiled before, how many compiled one or a part of one, and how many programs there are.

    A call that runs eagerly, since its program could not be compiled, is neither.  Threads may lose a hit.

    Attributes:
        decisions: how many decisions the programs have together.
        segments: how many compiled segments lie between these; both are no part of the tuple.
    """

    decisions: int = 0
    segments: int = 0

    def __repr__(self) -> str:
        graphs = f", decisions={self.decisions}, segments={self.segments}" if self.segments else ""
        return f"{super().__repr__()[:-1]}{graphs})"


def not_compiled(args: tuple, kwargs: dict) -> Miss:
    """Return the miss of a function that has no current program."""
    return Miss("nothing was compiled yet")


PATIENCE = 32  # calls that a program with symbols runs before others that may be faster are tried once in as many
MANY = 4  # times the option recompile_limit: compilations from which calls are not compiled while most calls have been
REASONS = 8  # of those why a program was compiled that are remembered
OTHER_ORDER = Miss("the configuration is another")
OTHER_FITS = Miss("a program of plain sizes fits")
RETIRED = Miss("an executor disagreed with the reference")


class Cache:
    """The programs of one compiled function, the most recent first, and why calls missed them.

    A warm call runs `last`, the call of `entries[0]`; the call numbered `next_trial` runs `last_trial` in its place.  Where `last` misses,
    `slow_call` looks through the other entries, and compiles if none fits.
    """

    def __init__(
        self,
        fn: Callable,
        executors: Iterable[Executor | str] | str | None = None,
        passes: Iterable[Pass] = (),
        recompute: str = "balanced",
        interpretation: str | None = None,
        mode: str = "guards",
        dynamic: bool | None = None,
        decisions: str | None = None,
        unsupported: str | None = None,
    ):
        self.fn, self.passes, self.mode = fn, tuple(passes), mode
        self.compiler = FunctionCompiler(
            fn, recompute, interpretation, mode, dynamic, decisions, unsupported, weakly(self.retire), weakly(self.record_exploration)
        )
        self.calls, self.warned = 0, False
        self.requested_order = requested_order(executors, user_line())
        self.entries: tuple[Entry, ...] = ()
        self.last: Call = not_compiled
        self.last_trial: Call = not_compiled
        self.next_trial = NEVER
        self.retired: list[str] = []  # why programs were evicted since the last compilation
        self.retired_entry: Entry | None = None  # the program of the last call, where that gave it up
        self.trials_enabled = True
        self.explored: list[str] = []  # outcomes that decisions had first, and guards behind them that failed
        self.exploring: set[int] = set()  # the numbers of the calls that had them, but for those that compiled a program
        self.eager_calls, self.eager_warnings = EagerCalls(), set[str]()
        self.unlike = EagerCalls()  # calls that no program fits, once compiling them has been in vain
        self.compiled_at = 0  # the number of the last call that compiled a program
        self.misses: list[str] = []  # why each program was compiled
        self.profiled: dict[str, tuple[int, float]] | None = None  # calls and seconds of each executor, after `dovetail.profile`
        self.lock = RLock()
        if self.requested_order is not None:
            resolve_executors(self.requested_order)  # an unknown name is an error here, not at the first call
        WATCH.subscribe(self)

    def slow_call(self, args: tuple, kwargs: dict) -> Any:
        """Answer a call that the current program does not fit; eagerly under a mode that gives operations another meaning."""
        if active_mode() is not None:
            return self.call_eagerly(args, kwargs)
        generation, misses = WATCH.generation, []
        if self.entries:
            result = self.run_fitting(args, kwargs, remembered(self.requested_order), generation, misses)
            if type(result) is not Miss:
                return result
        if self.is_left_to_eager(args, kwargs):
            return self.call_eagerly(args, kwargs)
        seen = self.entries
        with self.lock:
            priority = resolve_executors(self.requested_order)
            if generation != WATCH.generation or seen is not self.entries:  # configuration has changed, or another thread was here: look again
                generation, misses = WATCH.generation, []
                result = self.run_fitting(args, kwargs, priority, generation, misses)
                if type(result) is not Miss:
                    return result
            loaded = len(sys.modules)
            try:
                entry = self.compile(args, kwargs, priority, self.passes, goes_on=True)
            except BaseException as error:
                self.calls -= 1  # neither a hit nor a miss
                refused = not isinstance(error, (PendingWrites, EagerCall))
                if refused and not (isinstance(error, (Unsupported, TracedValueError)) and self.compiler.runs_unsupported(self.passes)):
                    raise
                entry, raised = None, error_text(error.__cause__) if not refused else ""
                again = self.eager_calls.note(kind_of(self.fn, args, kwargs))
                why = str(error) if refused or (again and isinstance(error, EagerCall)) else ""
            else:
                self.record_miss([*self.retired, *(miss.reason for miss in misses)])
                self.retired.clear()
                self.make_current(entry, generation)
        if entry is None:
            if why and why not in self.eager_warnings:
                self.eager_warnings.add(why)
                warn_caller(f"{name_of(self.fn)}: calls like this one run in eager mode, since {why}")
            return _run_eagerly(self.fn, args, kwargs, raised)
        if options.debug():
            print(_report(self, entry), file=sys.stderr)
        return self.run_compiled(entry, args, kwargs, loaded)

    def run_compiled(self, entry: Entry, args: tuple, kwargs: dict, loaded: int) -> Any:
        """Run the program that was compiled for this call; where its own guards fail, evict it, and call the function eagerly with a warning.

        `loaded` is how many modules were imported before: what was imported meanwhile may have replaced what the program depends on.
        """
        result = self.run(entry, args, kwargs)
        if result is RETIRED:
            return self.slow_call(args, kwargs)
        if type(result) is not Miss:
            return result
        self.retire(entry, result.reason)
        if len(sys.modules) != loaded:
            return self.slow_call(args, kwargs)
        warn_of_guard(name_of(self.fn), entry.prologue_traces[-1], result, args, kwargs, user_line())
        return self.fn(*args, **kwargs)

    def call_eagerly(self, args: tuple, kwargs: dict) -> Any:
        """Call the function as it stands, which is neither a hit nor a miss."""
        self.calls -= 1
        return self.fn(*args, **kwargs)

    def is_left_to_eager(self, args: tuple, kwargs: dict) -> bool:
        """Return whether a call that no program fits is not compiled, since compiling those like it, or most of all, has been in vain."""
        if self.eager_calls.ended and self.eager_calls.passes(kind_of(self.fn, args, kwargs)):
            return True
        return self.in_vain() and self.unlike.passes(None)

    def compile(
        self, args: tuple, kwargs: dict, executors: Priority, passes: tuple[Pass, ...], *, symbolic: bool = True, goes_on: bool = False
    ) -> Entry:
        """Compile the function for calls like this one, as `FunctionCompiler.compile` does, without keeping the program."""
        account = Account() if self.trials_enabled else None
        call = CallToCompile(args, kwargs, executors, passes, account, self.entries)
        return self.compiler.compile(call, symbolic=symbolic, goes_on=goes_on)

    def run(self, entry: Entry, args: tuple, kwargs: dict) -> Any:
        """Run `entry`, beside the reference where a trial is due, and set when the next one is; a Miss where its guards fail."""
        current = bool(self.entries) and self.entries[0] is entry
        trial_call = entry.trial_call
        if trial_call is None:
            return entry.call(args, kwargs)
        left = self.next_trial - self.calls + 1 if current and self.next_trial < NEVER else trial_call.left
        try:
            result = trial_call(args, kwargs) if left <= 1 else entry.call(args, kwargs)
        except GradientDisagreement:
            return RETIRED
        if type(result) is not Miss:
            trial_call.left = trial_call.left if left <= 1 else left - 1
            if current:
                self.next_trial = self.calls + trial_call.left
        return result

    def run_trial(self, args: tuple, kwargs: dict) -> Any:
        """Run the current program beside the reference."""
        entries, last = self.entries, self.last
        trial_call = entries[0].trial_call if entries else None
        if trial_call is None or last is not_compiled:
            self.next_trial = NEVER
            if trial_call is not None:
                trial_call.left = 1
            return last(args, kwargs)
        try:
            result = self.last_trial(args, kwargs)
        except GradientDisagreement:
            return RETIRED
        if type(result) is not Miss and self.entries and self.entries[0] is entries[0]:
            self.next_trial = self.calls + trial_call.left
        return result

    def run_fitting(self, args: tuple, kwargs: dict, priority: Priority, generation: int, misses: list[Miss]) -> Any:
        """Run the first entry of this configuration that fits; where none does, return a Miss and add the misses of all to `misses`."""
        for entry in sorted(self.entries, key=_is_symbolic) if self.mode != "none" else ():  # programs of plain sizes first: they are faster
            if entry.key != priority.key:
                continue
            result = self.run(entry, args, kwargs)
            if type(result) is not Miss:
                self.make_current(entry, generation, ran=True)
                return result
            misses.append(result)
        misses += [Miss(difference(entry.key, priority.key, priority.sources)) for entry in self.entries if entry.key != priority.key]
        return OTHER_ORDER

    def in_vain(self) -> bool:
        """Return whether most calls have compiled a program, and many have."""
        misses = len(self.misses)
        enough = misses >= MANY * max(options.RECOMPILE_LIMIT.read(), 1) and self.mode != "none" and self.compiler.distribution is None
        return enough and self.calls < 2 * misses

    def record_miss(self, reasons: list[str]) -> None:
        """Record why a program was compiled; warn once when that has happened too often."""
        self.compiled_at = self.calls
        self.exploring.discard(self.calls)  # what compiling it has explored is the same miss
        reasons = sorted(dict.fromkeys(reasons), key=_is_of_another_form)
        self.misses.append("; ".join(reasons[:REASONS]) or "the first call")
        if self.in_vain():
            self.unlike.note(None)
        limit = options.RECOMPILE_LIMIT.read()
        if len(self.misses) <= limit or self.warned or self.mode == "none":
            return
        self.warned = True
        latest = [miss.split("; ")[0] for miss in self.misses[1:]]  # the guard of the program that ran last, of those called in the same form
        subjects = [re.split(" (?:is )?no longer | has become | now has | is not there", reason)[0] for reason in latest]
        subject, times = Counter(subjects).most_common(1)[0]
        last = latest[len(subjects) - 1 - subjects[::-1].index(subject)]
        warnings.warn(
            f"{name_of(self.fn)} was compiled {len(self.misses)} times, {times} times because of {subject} ({last}). A function is compiled for "
            "each value that it depends on: pass what changes as a tensor, or raise the option recompile_limit.  Once it has been compiled "
            f"{MANY * limit} times, and for most of its calls, calls that no program fits run in eager mode, all but a few",
            stacklevel=4,
        )

    def record_exploration(self, reason: str) -> None:
        """Record why a call compiled another part of its program."""
        self.explored.append(reason)
        if self.calls != self.compiled_at:
            self.exploring.add(self.calls)

    def info(self) -> CacheInfo:
        """Count hits, misses and programs."""
        misses = len(self.misses) + len(self.exploring)
        counts = CacheInfo(max(self.calls - misses, 0), misses, len(self.entries))
        graphs = [entry.graph for entry in self.entries if entry.graph is not None]
        counts.decisions, counts.segments = sum([len(graph.decisions) for graph in graphs]), sum([len(graph.programs) for graph in graphs])
        return counts

    def clear(self) -> None:
        """Forget every program; the next call compiles."""
        with self.lock:
            self.entries, self.retired_entry, self.calls, self.next_trial, self.warned = (), None, 0, NEVER, False
            self.misses.clear()
            self.explored.clear()
            self.exploring.clear()
            self.eager_calls.clear()
            self.unlike.clear()
            self.invalidate()

    @contextmanager
    def with_pass(self, step: Pass) -> Iterator[None]:
        """Compile with one more pass at the end and without trials while open; afterwards the programs are those from before."""
        with self.lock:
            before, passes, misses = self.entries, self.passes, list(self.misses)
            self.entries, self.passes, self.trials_enabled = (), (*passes, step), False
            self.invalidate()
        try:
            yield
        finally:
            with self.lock:
                self.entries, self.passes, self.misses[:], self.trials_enabled = before, passes, misses, True
                self.invalidate()

    def explain_miss(self, *args: Any, **kwargs: Any) -> list[str]:
        """Explain why a call with these arguments would compile: one sentence for each program, none where one of them fits."""
        reasons = []
        for entry in self.entries:
            result = entry.fits(args, kwargs)
            if type(result) is not Miss:
                return []
            reasons.append(result.reason)
        return reasons or ["nothing is compiled yet"]

    def make_current(self, entry: Entry, generation: int, *, ran: bool = False) -> None:
        """Put `entry` first; the next call runs it at once, unless configuration has changed since `generation`.

        `ran` says that this call has run it already.
        """
        with self.lock:
            if self.mode == "none":
                self.entries, self.next_trial = (entry,), NEVER
                return
            before, trial_call = self.entries[0] if self.entries else None, entry.trial_call
            if before is not entry:
                if before is not None and before.trial_call is not None:
                    before.trial_call.left = max(self.next_trial - self.calls + 1, 1)
                self.next_trial = self.calls + trial_call.left - (not ran) if trial_call is not None else NEVER
            others = [other for other in self.entries if other is not entry][: max(options.PROGRAM_LIMIT.read() - 1, 0)]
            self.entries, self.retired_entry = (entry, *others), None
            call = entry.call if self.mode == "guards" else entry.restarting(GENERATE(unguarded(entry.prologue_traces[-1])))
            if entry.symbolic:
                call = _unless([other for other in self.entries if not other.symbolic and other.key == entry.key], call)
            trial = functools.partial(trial_call, guarded=self.mode == "guards") if trial_call is not None else not_compiled
            self.last, self.last_trial = (_in_scope(call), _in_scope(trial)) if WATCH.scoped else (call, trial)
            if generation != WATCH.generation:
                self.invalidate()

    def retire(self, entry: Entry, reason: str) -> None:
        """Evict a program: the next call compiles another."""
        with self.lock:
            self.entries = tuple([other for other in self.entries if other is not entry])
            self.retired.append(reason)
            self.retired_entry = entry
            self.next_trial = NEVER
            self.invalidate()

    def invalidate(self) -> None:
        """Let the next call look for the entry that fits, since configuration has changed."""
        self.last = not_compiled


def _run_eagerly(fn: Callable, args: tuple, kwargs: dict, raised: str) -> Any:
    """Call a function whose traced run wrote to outside objects and then raised: the writes happen, and so does the exception."""
    result = fn(*args, **kwargs)
    if raised:
        warnings.warn(
            f"{name_of(fn)} raised {raised} while it was traced, and does not raise it when it runs eagerly; this call was not compiled. Please "
            "report it as a bug",
            stacklevel=5,
        )
    return result


def _is_symbolic(entry: Entry) -> bool:
    return entry.symbolic


def _is_of_another_form(reason: str) -> bool:
    """Return whether a program was for a call with more or fewer arguments: why it does not fit says little where there are others."""
    return reason.startswith("the call no longer has")


def _unless(others: Sequence[Entry], call: Call) -> Call:
    """Let `call` miss where the guards of one of the `others` hold: `slow_call` then runs that.

    After a while in which none did, they are checked now and then: calls that fit them run `call`, which does the same.
    """
    pure = [each for each in others if not any([line.symbol is prims.unpack_fresh for line in each.prologue_traces[-1].lines])]
    fits = [each.fits for each in pure]
    if not fits:
        return call
    misses = itertools.count()

    def guarded(args: tuple, kwargs: dict) -> Any:
        count = next(misses)
        if count < PATIENCE or count % PATIENCE == 0:
            for fit in fits:
                if type(fit(args, kwargs)) is not Miss:
                    return OTHER_FITS
        return call(args, kwargs)

    return guarded


def _in_scope(call: Call) -> Call:
    """Let `call` miss outside the `dovetail.use` that is open now.  Only processes that have used one pay for this."""
    current, scope = options.SCOPE.get, options.SCOPE.get()
    return lambda args, kwargs: call(args, kwargs) if current() is scope else OTHER_ORDER


def _report(cache: Cache, entry: Entry) -> str:
    """Return what DOVETAIL_DEBUG prints of a compilation: at 1 why and how long, at 3 the programs that run, at 4 every program."""
    level, groups = options.debug(), (entry.prologue_traces, entry.traces, entry.epilogue_traces, entry.backward_traces)
    seconds = ", ".join(f"{trace.name} {trace.made_by} {trace.took * 1e3:.1f} ms" for group in groups for trace in group)
    shown: Sequence = [] if level < 3 else [trace for group in groups for trace in (group if level >= 4 else group[-1:])]
    return "\n\n".join([f"dovetail: compiled {name_of(cache.fn)}: {cache.misses[-1]} ({seconds})", *map(str, shown)])
