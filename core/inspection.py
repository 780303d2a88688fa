"""Questions about a compiled function: which executors run it, how long they take, and whether their results are right."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from dovetail.compiler.api import cache_of, jit, last_entry
from dovetail.compiler.cache import Cache
from dovetail.compiler.entry import Entry, bound
from dovetail.compiler.errors_at_run import name_of
from dovetail.dtypes import DType
from dovetail.errors import DovetailError
from dovetail.executors import Executor, Explanation, Priority, explanation, resolve_executors
from dovetail.executors.reports.verify import Comparison, Limited, Verification, bisect, ends_differ, private, same_numbers
from dovetail.executors.trials.profile import Profile
from dovetail.executors.trials.reference import referees, zeroed
from dovetail.frontend.decisions.driver import GoEager
from dovetail.frontend.decisions.graph import Graph
from dovetail.frontend.decisions.report import decision_rows, segment_programs, segment_trials
from dovetail.frontend.decisions.segments import Segment
from dovetail.frontend.interpreter.tracking import PendingWrites
from dovetail.langs.torch import TO_TORCH, torch_device
from dovetail.trace import Proxy, TensorProxy, Trace, Transform, to_callable


def explain(fn: Any) -> Explanation:
    """Explain which executor runs each operation of the last call, which others were tried, and why they refused.

    str() is a table; `.rows`, `.to_json()` and `.to_html()` hold the same.  After `with dovetail.profile(fn)` it has run times, too.
    Raises TypeError where `fn` is not compiled, DovetailError where it was not called yet.
    """
    cache = cache_of(fn)
    entry = last_entry(fn)
    decisions = () if entry.graph is None else decision_rows(entry.graph)
    trials = [(each.trace.name, each) for each in entry.trials] if entry.graph is None else segment_trials(entry.graph)
    return explanation(name_of(cache.fn), programs(entry), cache.profiled, entry.refusals, trials, decisions)


def programs(entry: Entry) -> list[tuple[Trace, Trace]]:
    """Return (as dispatched, as it runs) for each program of `entry`."""
    if entry.graph is not None:
        return list(segment_programs(entry.graph))
    groups = (entry.traces, entry.epilogue_traces, entry.backward_traces)
    return [(next(trace for trace in group if trace.dispatch_record is not None), group[-1]) for group in groups if group]


@contextmanager
def profile(fn: Any) -> Iterator[Profile]:
    """Time every operation of the compiled `fn` that runs inside `with profile(fn) as times:`; print(times) afterwards.

    The function is compiled once more for it, with a clock around each operation, and runs without one again afterwards.
    Raises TypeError where `fn` is not compiled.
    """
    cache, times = cache_of(fn), Profile()
    try:
        with cache.with_pass(times.timing):
            yield times
    finally:
        cache.profiled = times.executors


def verify(fn: Any, /, *args: Any, **kwargs: Any) -> Verification:
    """Compare each operation that an executor claims in fn(*args, **kwargs) with the reference, on the values that it gets in this call.

    The reference are the executors of last resort, on the operation or on its decomposition.  Where something requires grad, the backward
    is compared, too; in a function with decisions, that of each segment on the way of the call.  `first` is the first operation that
    differs; where only the results of the whole program differ, a bisection over executors and then over their claims finds the culprit.
    `fn` may be compiled or not; it runs on copies of its arguments, so they are not written.  Raises DovetailError where no executor of
    last resort is installed, or the call runs in eager mode after a decision.
    """
    cache = cache_of(fn) if isinstance(getattr(fn, "_cache", None), Cache) else cache_of(jit(fn))
    priority = resolve_executors(cache.requested_order)
    reference = referees(priority)
    if not reference:
        raise DovetailError("no executor of last resort is installed, so there is nothing to compare with; install dovetail-torch-exec")
    claimers = [ex for ex in priority if not any([ex is other for other in reference])]
    with same_numbers() as again:
        subject = _program(cache, args, kwargs, priority)
        comparisons, results = subject.compared(reference)
        end, culprit = "", ""
        if not any(each.random for each in comparisons):
            again()
            expected = _program(cache, args, kwargs, Limited(priority, {ex.name: 0 for ex in claimers})).run()

            def wrong(limits: dict[str, int]) -> tuple[str | None, Limited]:
                limited = Limited(priority, limits)
                program = _program(cache, args, kwargs, limited)
                again()
                return _ends_differ(program.run(), expected), limited

            end = _ends_differ(results, expected) or ""
            if end and not any(each.differences for each in comparisons):
                culprit = bisect(claimers, wrong)
    differences = tuple(each for comparison in comparisons for each in comparison.differences)
    skipped = tuple(dict.fromkeys(reason for comparison in comparisons for reason in comparison.skipped))
    return Verification(sum(each.compared for each in comparisons), differences, skipped, end, culprit, tuple(_claiming(subject, claimers)))


def _claiming(subject: _Straight | _Decided, claimers: list[Executor]) -> list[str]:
    """Return the names of those that run a line of the program."""
    running = {line.implementation.executor for trace in subject.traces for line in trace.lines if line.implementation is not None}
    return [ex.name for ex in claimers if ex.name in running]


def _program(cache: Cache, args: tuple, kwargs: dict, executors: Priority) -> _Straight | _Decided:
    """Compile a function for one call by some executors, to be run on copies of its inputs up to its epilogue."""
    transforms = tuple(step for step in cache.passes if isinstance(step, Transform))
    try:
        entry = cache.compile(args, kwargs, executors, transforms, symbolic=False)
    except PendingWrites as error:  # the call raises by itself, as with other arguments than the function has
        raise error.__cause__ from None
    return _Straight(entry, args, kwargs) if entry.graph is None else _Decided(entry.graph, args, kwargs)


class _Straight:
    """A program without decisions."""

    def __init__(self, entry: Entry, args: tuple, kwargs: dict):
        dispatched = {trace.name: zeroed(trace) for trace, _ in programs(entry) if trace.name != "epilogue"}
        self.backward = dispatched.pop("backward", None)
        (self.forward,) = dispatched.values()
        self.traces = [trace for trace in (self.forward, self.backward) if trace is not None]
        guards = entry.prologue_traces[-1]
        self.inputs = private(to_callable(bound(guards, lambda *inputs, objects=(): inputs))(args, kwargs))

    def compared(self, reference: Priority) -> tuple[list[Comparison], Any]:
        """Return the comparison of each program, and the results with the gradients behind them."""
        comparisons = [Comparison(trace, reference) for trace in self.traces]
        return comparisons, _through(self.inputs, self.backward, *[each.run for each in comparisons])

    def run(self) -> Any:
        """Return the results, with the gradients behind them."""
        return _through(self.inputs, self.backward, *[_runner(trace) for trace in self.traces])


class _Decided:
    """A program with decisions: the segments on the path of one call, each with its backward right behind it."""

    def __init__(self, graph: Graph, args: tuple, kwargs: dict):
        self.graph, self.args, self.kwargs = graph, args, kwargs
        self.compiler, graph.compiler, graph.finishes = graph.compiler, self, False
        self.prologue, self.epilogue = self.compiler.prologue, self.compiler.epilogue
        self.retire = self.compiler.retire
        self.make_run: Callable[[Trace], Callable] = _runner
        self.traces: list[Trace] = []
        self.gradients: list[Any] = []

    def compared(self, reference: Priority) -> tuple[list[Comparison], Any]:
        """Return the comparison of each program that ran, and the results with the gradients of each segment."""
        comparisons: list[Comparison] = []

        def compare(trace: Trace) -> Callable:
            name = f"segment {len(self.graph.programs)}" + (", backward" if trace.name == "backward" else "")

            def run(inputs: list[Any]) -> Any:
                comparisons.append(Comparison(replace(trace, name=name), reference))
                return comparisons[-1].run(inputs)

            return run

        self.make_run = compare
        return comparisons, self.run()

    def run(self) -> _Path:
        """Return the outcomes, the values at the end of the path, and the gradients of each segment."""
        for _ in range(_RESTARTS):
            self.graph.clear()
            self.traces.clear()
            self.gradients.clear()
            if (why := self.graph.begin(self.args, self.kwargs)) is not None:
                if why.raised is not None:
                    raise why.raised from None
                raise DovetailError(f"verify cannot follow this call: {why}")
            try:
                root = self.graph.root
                values = self.graph.finished(self.graph.started(root, root.check(self.args, self.kwargs), {}, self.args, self.kwargs))
            except GoEager as reason:
                if reason.raised is not None:
                    raise reason.raised from None
                if reason.lasting:
                    raise DovetailError(f"verify cannot follow this call: {reason}") from reason
            else:
                return _Path(self.graph.outcomes(), [values, list(self.gradients)])
        raise DovetailError("verify cannot follow this call, which runs in eager mode")

    def segment(self, program: Trace, acquired: Trace, written: Sequence[Proxy], constant: Collection[Proxy]) -> Segment:
        """Compile a segment so that its backward runs after it; its results require grad where they should."""
        segment = self.compiler.segment(program, acquired, written, constant)
        groups = [steps for steps in (segment.steps, segment.backward) if steps]
        traces = [zeroed(next(trace for trace in steps if trace.dispatch_record is not None)) for steps in groups]
        backward, runs = traces[1] if len(traces) > 1 else None, [self.make_run(trace) for trace in traces]
        self.traces += traces

        def run(*inputs: Any) -> tuple:
            results = _through(private(inputs), backward, *runs)
            if backward is not None:
                results, gradients = results
                self.gradients += gradients
            pairs = zip(program.outputs, results, strict=True)
            return tuple([x.detach().requires_grad_() if isinstance(p, TensorProxy) and p.spec.requires_grad else x for p, x in pairs])

        return Segment(run, segment.steps, segment.backward)


class _Path(NamedTuple):
    """What a call leaves behind: its outcomes, as `Graph.outcomes` returns them, and the values at its end."""

    outcomes: list[tuple[str, str, int]]
    ends: list[Any]


def _ends_differ(got: Any, expected: Any) -> str | None:
    """Return how the results of two programs differ, or the decisions on the way; None where they agree."""
    if not isinstance(got, _Path):
        return ends_differ(got, expected)
    if got.outcomes == expected.outcomes:
        return ends_differ(got.ends, expected.ends)
    changed = [f"{outcome} at {where}" for where, outcome, _ in set(got.outcomes) ^ set(expected.outcomes)]
    return f"not the same decisions were taken, as {min(changed)}"


_RESTARTS = 8  # how often a graph may be compiled anew while one call is followed


def _runner(trace: Trace) -> Callable[[list[Any]], Any]:
    """Return a function that runs a program on a list of its inputs."""
    compiled = to_callable(trace)
    return lambda inputs: compiled(*inputs)


def _through(inputs: list[Any], backward: Trace | None, run: Callable, run_backward: Callable | None = None) -> Any:
    """Return the results of a program, with the gradients behind them where there is a backward."""
    with torch.no_grad():
        if backward is None:
            return run(inputs)
        results, saved, numbers = run(inputs)
        return results, run_backward([*saved, *numbers, *_cotangents(backward)])


def _cotangents(backward: Trace) -> list[torch.Tensor]:
    """Return random cotangents, the same every time."""
    generator = torch.Generator().manual_seed(0)
    cotangents = []
    for p in backward.cotangents:
        dtype, device = TO_TORCH[p.spec.dtype], torch_device(p.spec.device)
        cotangents.append(torch.randn(p.spec.shape, generator=generator, dtype=_drawn(p.spec.dtype)).to(dtype).to(device))
    return cotangents


def _drawn(dtype: DType) -> torch.dtype:
    return torch.complex64 if dtype.kind == "complex" else torch.float32
