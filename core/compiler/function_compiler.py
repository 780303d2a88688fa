"""Compiling calls of one function in the way that works for them: with symbols for sizes that change, with plain sizes, or with decisions."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import Any

from dovetail import options
from dovetail.compiler.compilation import Distribution, Pass
from dovetail.compiler.decisions import compile_graph, needed_value
from dovetail.compiler.entry import CallToCompile, Entry, compile_call
from dovetail.compiler.errors_at_run import name_of
from dovetail.compiler.gradient_trial import gradients_differ
from dovetail.errors import EagerCall, TracedValueError, Unsupported
from dovetail.executors import Priority
from dovetail.frontend.arrays.detection import has_arrays
from dovetail.frontend.decisions.requests import Need
from dovetail.frontend.guards.symbolic_sizes import ContentGuards, SizeHistory, SymbolicSizes, is_dynamic
from dovetail.frontend.modules.wrapped_modules import gradient_stage_bytes
from dovetail.trace import BoundSymbol, leaves
from dovetail.trace.source_location import warn_caller


class FunctionCompiler:
    """Compiles calls of one function, and remembers what that has shown of it.

    Attributes:
        recompute, interpretation, mode, dynamic, decisions, unsupported: as `jit` takes them; `mode` is its argument `cache`.
        retire: called with a program and the reason where an executor disagreed with the reference.
        on_explore: called with the reason where a program with decisions compiles another part.
        distribution: how parameters lie on the ranks of a mesh; None for one process.
        of_graph: whether the function runs a graph, which takes symbolic sizes as torch.SymInt where it is traced natively.
        sizes: what earlier compilations saw of the sizes.
        needed_values: whether a call has needed values: then it is tried first whether others do.
    """

    def __init__(
        self,
        fn: Callable,
        recompute: str,
        interpretation: str | None,
        mode: str,
        dynamic: bool | None,
        decisions: str | None,
        unsupported: str | None,
        retire: Callable[[Entry, str], Any],
        on_explore: Callable[[str], Any],
    ):
        self.fn, self.recompute, self.interpretation, self.mode = fn, recompute, interpretation, mode
        self.dynamic, self.decisions, self.retire, self.on_explore = dynamic, decisions, retire, on_explore
        self.unsupported = unsupported
        self.distribution: Distribution | None = None
        self.of_graph = False
        self.sizes, self.size_warnings = SizeHistory(), set[str]()
        self.needed_values = False

    def compile(self, call: CallToCompile, *, symbolic: bool = True, goes_on: bool = False) -> Entry:
        """Compile a call; for its very sizes unless `symbolic`.

        `goes_on`: a call of the entry with these very arguments follows; where the function needs values, compiling begins with it.
        """
        began, refused, decisions = perf_counter(), None, self.kind_of_decisions()
        if decisions == "error":
            self.sizes.content_guards = ContentGuards.REQUIRED
        need = needed_value(self.fn, call.args, call.kwargs, call.executors) if self.needed_values and decisions != "error" else None
        if need is not None and (decided := self.with_decisions(call, need, decisions, goes_on)) is not None:
            return decided
        try:
            entry = self.with_symbols(call) if symbolic and self.mode == "guards" and (not self.is_native() or self.of_graph) else self.straight(call)
        except (TracedValueError, Unsupported) as error:
            if decisions == "error" or (isinstance(error, Unsupported) and has_arrays(self.fn, call.args, call.kwargs)):
                raise
            refused = error
        if refused is not None:
            try:
                decided = self.with_decisions(call, None, decisions, goes_on)
                if decided is None:
                    raise refused
                return decided
            except (EagerCall, TracedValueError, Unsupported) as error:
                if not self.sizes.guards_contents:
                    self.sizes.content_guards = ContentGuards.REQUIRED
                    return self.compile(call, symbolic=symbolic, goes_on=goes_on)
                if isinstance(error, EagerCall):
                    raise EagerCall(str(error) or str(refused)) from None
                raise
            finally:
                refused = None  # its traceback has this frame
        if call.account is not None:
            call.account.seconds, call.account.gradients = perf_counter() - began, gradients_differ
            call.account.retire = self.retirement(entry)
        return entry

    def is_native(self) -> bool:
        """Return whether the function itself runs on traced tensors, and is not interpreted."""
        return (self.interpretation or options.INTERPRETATION.read()) == "native"

    def kind_of_decisions(self) -> str:
        """Return what becomes of a call that needs values: "graph", "eager" or "error"."""
        exact = self.is_native() or self.mode == "same input" or self.distribution is not None  # ranks could decide otherwise
        return "error" if exact else self.decisions or options.DECISIONS.read()

    def runs_unsupported(self, passes: tuple[Pass, ...]) -> bool:
        """Return whether a call with something that cannot be traced runs in eager mode; `passes` would not see it."""
        return not passes and self.kind_of_decisions() != "error" and (self.unsupported or options.UNSUPPORTED.read()) == "eager"

    def retirement(self, entry: Entry) -> Callable[[str], None]:
        """Return a function that evicts a program for a reason, and that does not keep the program alive, which holds it."""
        program, retire = weakref.ref(entry), self.retire

        def retire_program(reason: str) -> None:
            if (alive := program()) is not None:
                retire(alive, reason)

        return retire_program

    def straight(self, call: CallToCompile, sizes: SymbolicSizes | None = None) -> Entry:
        """Compile a call as one program without decisions; `sizes` says which are symbols, None that none is."""
        return compile_call(
            self.fn,
            call.args,
            call.kwargs,
            call.executors,
            call.passes,
            recompute=self.recompute,
            interpretation=self.interpretation,
            account=call.account,
            sizes=sizes,
            stage_bytes=gradient_stage_bytes(),
            distribution=self.distribution,
        )

    def with_decisions(self, call: CallToCompile, need: Need | None, decisions: str, goes_on: bool) -> Entry | None:
        """Compile a function that needs values up to the first of them, which `need` is where it is known; None where it needs none.

        `decisions`: "graph" compiles what follows the first value as well, where it `goes_on` with the call at hand; "eager" does not.
        """
        sizes, compiles = self.symbolic_sizes(call), decisions == "graph"
        entry = compile_graph(
            self.fn,
            call,
            recompute=self.recompute,
            need=need,
            on_explore=self.on_explore,
            on_pin=weakly(self.warn_of_sizes),
            sizes=sizes,
            goes_on=goes_on and compiles,
        )
        if entry is None:
            return None
        self.needed_values = True
        declared = self.dynamic or any([is_dynamic(x) for x in leaves((call.args, call.kwargs))])
        if compiles and declared and not entry.graph.sizes.active:
            where = (need or entry.graph.need).where
            self.warn_of_sizes(f"each size is compiled separately, since what it does before the value at {where} does not work on symbols")
        entry.graph.eager = None if compiles else 'decisions is "eager"'
        entry.graph.compiler.retire = self.retirement(entry)
        return entry

    def with_symbols(self, call: CallToCompile) -> Entry:
        """Compile a call with symbols for the sizes that change; with ints where the function does not work on symbols."""
        sizes = self.symbolic_sizes(call)
        failure: Exception | None = None
        try:
            entry = self.straight(call, sizes)
        except Exception as error:
            if not sizes:
                raise
            failure = error
        else:
            for sentence in self.sizes.note(sizes):
                self.warn_of_sizes(sentence)
            return self.with_own_lines(entry, sizes, call) if sizes.plain and sizes.floats else entry
        try:  # not where the error is handled: it would be the context of those that the function raises
            return self.with_fewer_symbols(call, sizes, failure)
        finally:
            failure = None  # its traceback has this frame

    def with_fewer_symbols(self, call: CallToCompile, sizes: SymbolicSizes, failure: Exception) -> Entry:
        """Compile a call without the symbols with which that has failed: those for floats, or where there are none, those for sizes."""
        if sizes.floats:
            with sizes.without_floats(failure.__cause__ or failure) as sentences:
                entry = self.with_symbols(call)
            for sentence in sentences:
                self.warn_of_sizes(sentence)
            return entry
        entry = self.straight(call)
        self.sizes.seen |= sizes.seen
        self.warn_of_sizes(f"each size is compiled separately, since tracing it with symbolic sizes raised {type(failure).__name__}: {failure}")
        return entry

    def with_own_lines(self, entry: Entry, sizes: SymbolicSizes, call: CallToCompile) -> Entry:
        """Return `entry`, or a program for the very numbers of this call where executors without support for symbols run more lines of it."""
        lines = len(_plain_lines(call.executors, [entry]))
        if lines >= max([len(_plain_lines(call.executors, [each])) for each in call.entries], default=0):
            return entry
        try:
            with self.sizes.pinning(sizes.floats):
                other = self.with_symbols(call)
                own = _plain_lines(call.executors, [other])
                if len(own) <= lines:
                    raise _NothingWonError
        except _NothingWonError:
            return entry
        names = ", ".join(sorted({line.implementation.executor for line in own}))
        self.warn_of_sizes(f"{', '.join(sizes.floats)} is compiled for each value, since {names} would run fewer operations for numbers that change")
        return other

    def symbolic_sizes(self, call: CallToCompile) -> SymbolicSizes:
        """Return the symbols of a compilation.

        Executors without support for symbolic sizes that run lines of a program of this function would lose them.
        """
        automatic = self.dynamic is None and options.DYNAMIC.read() == "automatic"
        plain = automatic and bool(_plain_lines(call.executors, call.entries))
        return SymbolicSizes(self.sizes, None if automatic and not plain else self.dynamic is True, plain)

    def warn_of_sizes(self, sentence: str) -> None:
        """Warn once that sizes which the user declared dynamic are not."""
        if sentence not in self.size_warnings:
            self.size_warnings.add(sentence)
            warn_caller(f"{name_of(self.fn)}: {sentence}")


def weakly(method: Callable) -> Callable[..., None]:
    """Return a function that calls a bound method as long as its object is alive, and does not keep it alive."""
    reference = weakref.WeakMethod(method)

    def call(*args: Any) -> None:
        if (alive := reference()) is not None:
            alive(*args)

    return call


class _NothingWonError(Exception):
    """A program for the very numbers of a call is no better than one for all of them."""


def _plain_lines(executors: Priority, entries: Iterable[Entry]) -> list[BoundSymbol]:
    """Return the lines of programs, as they run, that executors without support for symbolic sizes run."""
    plain = {ex.name for ex in executors if not ex.symbolic}
    steps: Sequence = [steps for entry in entries for steps in (entry.traces, entry.backward_traces) if steps]
    return [line for each in steps for line in each[-1].lines if line.implementation is not None and line.implementation.executor in plain]
