"""Questions about a compiled function: which executors run it, how long they take, and whether their results are right."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from dovetail.compiler.api import cache_of, jit, last_entry
from dovetail.compiler.cache import Cache, name_of
from dovetail.compiler.entry import Entry, bound
from dovetail.dtypes import DType
from dovetail.errors import DovetailError
from dovetail.executors import Executor, Explanation, Priority, explanation, resolve_executors
from dovetail.executors.reports.verify import Comparison, Limited, Verification, bisect, ends_differ, private, same_numbers
from dovetail.executors.trials.profile import Profile
from dovetail.executors.trials.reference import referees, zeroed
from dovetail.frontend.decisions.report import decision_rows, segment_programs
from dovetail.langs.torch import TO_TORCH, torch_device
from dovetail.trace import Trace, Transform, to_callable


def explain(fn: Any) -> Explanation:
    """Explain which executor runs each operation of the last call, which others were tried, and why they refused.

    str() is a table; `.rows`, `.to_json()` and `.to_html()` hold the same.  After `with dovetail.profile(fn)` it has run times, too.
    Raises TypeError where `fn` is not compiled, DovetailError where it was not called yet.
    """
    cache = cache_of(fn)
    entry = last_entry(fn)
    decisions = () if entry.graph is None else decision_rows(entry.graph)
    return explanation(name_of(cache.fn), programs(entry), cache.profiled, entry.refusals, entry.trials, decisions)


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
    is compared, too.  `first` is the first operation that differs; where only the results of the whole program differ, a bisection over
    executors and then over their claims finds the culprit.  `fn` may be compiled or not; it runs on copies of its arguments, so they are
    not written.  Raises DovetailError where no executor of last resort is installed.
    """
    cache = cache_of(fn) if isinstance(getattr(fn, "_cache", None), Cache) else cache_of(jit(fn))
    priority = resolve_executors(cache.requested_order)
    reference = referees(priority)
    if not reference:
        raise DovetailError("no executor of last resort is installed, so there is nothing to compare with; install dovetail-torch-exec")
    claimers = [ex for ex in priority if not any([ex is other for other in reference])]
    with same_numbers() as again:
        subject = _Program(cache, args, kwargs, priority)
        comparisons, results = subject.compared(reference)
        end, culprit = "", ""
        if not any(each.random for each in comparisons):
            again()
            expected = _Program(cache, args, kwargs, Limited(priority, {ex.name: 0 for ex in claimers})).run()

            def wrong(limits: dict[str, int]) -> tuple[str | None, Limited]:
                limited = Limited(priority, limits)
                program = _Program(cache, args, kwargs, limited)
                again()
                return ends_differ(program.run(), expected), limited

            end = ends_differ(results, expected) or ""
            if end and not any(each.differences for each in comparisons):
                culprit = bisect(claimers, wrong)
    differences = tuple(each for comparison in comparisons for each in comparison.differences)
    skipped = tuple(dict.fromkeys(reason for comparison in comparisons for reason in comparison.skipped))
    return Verification(sum(each.compared for each in comparisons), differences, skipped, end, culprit, tuple(_claiming(subject, claimers)))


def _claiming(program: _Program, claimers: list[Executor]) -> list[str]:
    """Return the names of those that run a line of the program."""
    running = {line.implementation.executor for trace in program.traces for line in trace.lines if line.implementation is not None}
    return [ex.name for ex in claimers if ex.name in running]


class _Program:
    """A function compiled for one call by some executors, run on copies of its inputs up to its epilogue."""

    def __init__(self, cache: Cache, args: tuple, kwargs: dict, executors: Priority):
        transforms = tuple(step for step in cache.passes if isinstance(step, Transform))
        entry = cache.compile(args, kwargs, executors, transforms, symbolic=False)
        if entry.graph is not None:
            raise DovetailError("verify compares functions that need no values; compile the parts between its decisions as functions of their own")
        dispatched = {trace.name: trace for trace, _ in programs(entry)}
        self.backward = dispatched.pop("backward", None)
        dispatched.pop("epilogue", None)
        (self.forward,) = dispatched.values()
        self.forward, self.backward = zeroed(self.forward), self.backward and zeroed(self.backward)
        self.traces = [trace for trace in (self.forward, self.backward) if trace is not None]
        guards = entry.prologue_traces[-1]
        self.inputs = private(to_callable(bound(guards, lambda *inputs, objects=(): inputs))(args, kwargs))

    def compared(self, reference: Priority) -> tuple[list[Comparison], Any]:
        """Return the comparison of each program, and the results with the gradients behind them."""
        comparisons = [Comparison(trace, reference) for trace in self.traces]
        return comparisons, self._through(*[each.run for each in comparisons])

    def run(self) -> Any:
        """Return the results, with the gradients behind them."""
        return self._through(*[lambda inputs, trace=trace: to_callable(trace)(*inputs) for trace in self.traces])

    def _through(self, forward: Any, backward: Any = None) -> Any:
        with torch.no_grad():
            if backward is None:
                return forward(self.inputs)
            results, saved, numbers = forward(self.inputs)
            return results, backward([*saved, *numbers, *self._cotangents()])

    def _cotangents(self) -> list[torch.Tensor]:
        """Return random cotangents, the same every time."""
        generator = torch.Generator().manual_seed(0)
        cotangents = []
        for p in self.backward.cotangents:
            dtype, device = TO_TORCH[p.spec.dtype], torch_device(p.spec.device)
            cotangents.append(torch.randn(p.spec.shape, generator=generator, dtype=_drawn(p.spec.dtype)).to(dtype).to(device))
        return cotangents


def _drawn(dtype: DType) -> torch.dtype:
    return torch.complex64 if dtype.kind == "complex" else torch.float32
