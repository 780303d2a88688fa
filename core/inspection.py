"""What became of a compiled function, and whether it can be trusted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from dovetail.compiler.api import cache_of, jit, last_entry
from dovetail.compiler.cache import Cache
from dovetail.compiler.entry import Entry, bound
from dovetail.dtypes import DType
from dovetail.errors import DovetailError
from dovetail.executors import Executor, Explanation, Priority, explanation, resolve_executors
from dovetail.executors.reports.verify import Comparison, Limited, Verification, bisect, ends_differ, private, same_numbers
from dovetail.executors.trials.profile import Profile
from dovetail.executors.trials.reference import referees, zeroed
from dovetail.langs.torch import TO_TORCH, torch_device
from dovetail.trace import Trace, Transform, to_callable


def explain(fn: Any) -> Explanation:
    """For each operation of the last call: who was asked to run it, who runs it, and the sentence of each that refused.

    str() is a table; `.rows`, `.to_json()` and `.to_html()` hold the same.  Run times are among it after `with dovetail.profile(fn)`.
    """
    cache = cache_of(fn)
    entry = last_entry(fn)
    return explanation(_name(cache), programs(entry), getattr(cache, "ran", None), entry.refusals, entry.trials)


def _name(cache: Cache) -> str:
    return getattr(cache.fn, "__qualname__", type(cache.fn).__name__)


def programs(entry: Entry) -> list[tuple[Trace, Trace]]:
    """(what dispatch made, what runs) for each program of `entry`."""
    groups = (entry.traces, entry.epilogue_traces, entry.backward_traces)
    return [(next(trace for trace in group if trace.dispatch_record is not None), group[-1]) for group in groups if group]


@contextmanager
def profile(fn: Any) -> Iterator[Profile]:
    """`with profile(fn) as times:` times every operation of the compiled `fn` that runs inside; print(times) afterwards.

    The function is compiled once more for it, with a clock around each operation, and runs without one again afterwards.
    """
    cache, found = cache_of(fn), Profile()
    with cache.lock:
        before, passes, misses = cache.entries, cache.passes, list(cache.misses)
        cache.entries, cache.passes, cache.trials_enabled = (), (*passes, found.timing), False
        cache.invalidate()
    try:
        yield found
    finally:
        with cache.lock:
            cache.entries, cache.passes, cache.misses[:], cache.trials_enabled = before, passes, misses, True
            cache.invalidate()
            cache.ran = found.executors


def verify(fn: Any, /, *args: Any, **kwargs: Any) -> Verification:
    """Compare each operation that an executor has claimed in fn(*args, **kwargs) with the reference, on the values that it really gets.

    The reference are the executors of last resort, on the operation or on what it decomposes to.  Where something requires grad, the
    backward is compared, too.  The first operation that differs is `first`; when only the results of the whole differ, executors and
    then their claims are left out one after the other until it is known who brings that in.  `fn` may be compiled or not; its
    arguments are copied, and nothing of what it writes is written.
    """
    cache = cache_of(fn) if isinstance(getattr(fn, "_cache", None), Cache) else cache_of(jit(fn))
    priority = resolve_executors(cache.requested_order)
    reference = referees(priority)
    if not reference:
        raise DovetailError("no executor of last resort is installed, so there is nothing to compare with; install dovetail-torch-exec")
    claimers = [ex for ex in priority if not any([ex is other for other in reference])]
    with same_numbers() as again:
        subject = _Program(cache, args, kwargs, priority)
        found, results = subject.compared(reference)
        end, culprit = "", ""
        if not any(each.random for each in found):
            again()
            expected = _Program(cache, args, kwargs, Limited(priority, {ex.name: 0 for ex in claimers})).run()

            def wrong(limits: dict[str, int]) -> tuple[str | None, Limited]:
                took = Limited(priority, limits)
                program = _Program(cache, args, kwargs, took)
                again()
                return ends_differ(program.run(), expected), took

            end = ends_differ(results, expected) or ""
            if end and not any(each.differences for each in found):
                culprit = bisect(claimers, wrong)
    differences = tuple(each for comparison in found for each in comparison.differences)
    skipped = tuple(dict.fromkeys(message for comparison in found for message in comparison.skipped))
    return Verification(sum(each.compared for each in found), differences, skipped, end, culprit, tuple(_claiming(subject, claimers)))


def _claiming(program: _Program, claimers: list[Executor]) -> list[str]:
    """The names of those that run something."""
    running = {line.implementation.executor for trace in program.traces for line in trace.lines if line.implementation is not None}
    return [ex.name for ex in claimers if ex.name in running]


class _Program:
    """A function compiled for one call by some executors, run on copies of its inputs up to its epilogue."""

    def __init__(self, cache: Cache, args: tuple, kwargs: dict, executors: Priority):
        transforms = tuple(step for step in cache.passes if isinstance(step, Transform))
        entry = cache.compile(args, kwargs, executors, transforms)
        found = {dispatched.name: dispatched for dispatched, _ in programs(entry)}
        self.backward = found.pop("backward", None)
        found.pop("epilogue", None)
        (self.forward,) = found.values()
        self.forward, self.backward = zeroed(self.forward), self.backward and zeroed(self.backward)
        self.traces = [trace for trace in (self.forward, self.backward) if trace is not None]
        guards = entry.prologue_traces[-1]
        self.inputs = private(to_callable(bound(guards, lambda *inputs, found=(): inputs))(args, kwargs))

    def compared(self, reference: Priority) -> tuple[list[Comparison], Any]:
        """The comparison of each program, and the results with the gradients behind them."""
        found = [Comparison(trace, reference) for trace in self.traces]
        runs = [each.run for each in found]
        return found, self._through(*runs)

    def run(self) -> Any:
        """The results, with the gradients behind them."""
        return self._through(*[lambda inputs, trace=trace: to_callable(trace)(*inputs) for trace in self.traces])

    def _through(self, forward: Any, backward: Any = None) -> Any:
        with torch.no_grad():
            if backward is None:
                return forward(self.inputs)
            results, saved, numbers = forward(self.inputs)
            return results, backward([*saved, *numbers, *self._cotangents()])

    def _cotangents(self) -> list[torch.Tensor]:
        """Random ones, the same every time."""
        generator = torch.Generator().manual_seed(0)
        found = []
        for p in self.backward.cotangents:
            dtype, device = TO_TORCH[p.spec.dtype], torch_device(p.spec.device)
            found.append(torch.randn(p.spec.shape, generator=generator, dtype=_drawn(p.spec.dtype)).to(dtype).to(device))
        return found


def _drawn(dtype: DType) -> torch.dtype:
    return torch.complex64 if dtype.kind == "complex" else torch.float32
