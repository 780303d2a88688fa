"""Everything together: acquire, functionalize, simplify, dispatch, run; and a cache of what came of it."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from threading import RLock
from typing import Any

import torch

from dovetail.errors import DovetailError, Unsupported
from dovetail.executors import Executor, dispatch, refusals, resolve_executors
from dovetail.frontend.guards import Miss, overlap, prologue
from dovetail.frontend.module import CompiledModule
from dovetail.frontend.tracing import Acquired, acquire, compiling
from dovetail.trace import Proxy, Trace, compiled, cse, dce, functionalize, release

Pass = Callable[[Trace], Trace]
PIPELINE: tuple[Pass, ...] = (dce, cse)  # what a pure computation goes through before dispatch


@dataclass(frozen=True)
class Entry:
    """One compiled program: `call(args, kwargs)` gives its result, or a Miss where its guards do not hold."""

    call: Callable[[tuple, dict], Any]
    traces: tuple[Trace, ...]
    prologue_traces: tuple[Trace, ...]


def _nothing_yet(args: tuple, kwargs: dict) -> Miss:
    return Miss("nothing was compiled yet")


class Cache:
    """The programs of one compiled function, the last used first, and why calls missed them."""

    def __init__(self, fn: Callable, executors: Iterable[Executor | str] | None, passes: Iterable[Pass]):
        self.fn, self.passes = fn, tuple(passes)
        self.wanted = None if executors is None else tuple(executors)
        self.entries: tuple[Entry, ...] = ()
        self.last: Callable[[tuple, dict], Any] = _nothing_yet  # the call of entries[0]
        self.misses: list[str] = []
        self.lock = RLock()
        if self.wanted is not None:
            resolve_executors(self.wanted)  # an unknown name is an error here, not at the first call

    def slow_call(self, args: tuple, kwargs: dict) -> Any:
        """A call that the entry used last does not fit."""
        reasons = []
        for entry in self.entries:
            result = entry.call(args, kwargs)
            if type(result) is not Miss:
                self.use(entry)
                return result
            reasons.append(result.reason)
        with self.lock:
            entry = compile(self.fn, args, kwargs, resolve_executors(self.wanted), self.passes)
            self.misses.append("; ".join(reasons) or "the first call")
            self.use(entry)
        result = entry.call(args, kwargs)
        if type(result) is Miss:
            raise DovetailError(f"the program does not fit the call that it was compiled for: {result.reason}; this is a bug in a guard")
        return result

    def use(self, entry: Entry) -> None:
        """Put `entry` first."""
        with self.lock:
            self.entries = (entry, *[other for other in self.entries if other is not entry])
            self.last = entry.call


def compile(fn: Callable, args: tuple, kwargs: dict, executors: tuple[Executor, ...], passes: tuple[Pass, ...]) -> Entry:
    """The program for calls like this one."""
    acquired = acquire(fn, args, kwargs)
    with compiling():
        pure, epilogue = timed(functionalize, acquired.trace)
        if not epilogue.lines:
            pure = replace(pure, outputs=epilogue.outputs)
        claim = functools.partial(dispatch, executors=executors)
        traces = [acquired.trace, pure]
        for step in (*PIPELINE, claim, release, *passes):
            traces.append(timed(step, traces[-1]))
        finish = timed(claim, epilogue) if epilogue.lines else None
        written = [p for line in epilogue.lines if line.mutates for p in line.reads[:1]]
        _no_overlap(acquired, written)
        run = _runner(acquired, traces[-1], finish)
        guards = timed(lambda trace: prologue(fn, acquired, args, kwargs, written=written, run=run), acquired.trace)
    return Entry(compiled(guards), (*traces, *((finish,) if finish else ())), (guards,))


def _no_overlap(acquired: Acquired, written: list[Proxy]) -> None:
    """Refuse a program that writes an input which shares memory with another: its copy would not see the write."""
    tensors = dict(zip(acquired.trace.inputs, acquired.tensors, strict=True))
    mine = tuple(tensors[p] for p in written if p in tensors)
    if overlap(mine, tuple(x for p, x in tensors.items() if p not in set(written))):
        names = ", ".join(p.name for p in written)
        raise Unsupported(f"the function writes into an argument ({names}) that shares memory with another argument; pass a clone of one of them")


def timed(step: Callable[[Trace], Any], trace: Trace) -> Any:
    """step(trace), with the seconds it took in the trace that it made."""
    began = time.perf_counter()
    made = step(trace)
    (made[0] if isinstance(made, tuple) else made).took = time.perf_counter() - began
    return made


def _runner(acquired: Acquired, computation: Trace, epilogue: Trace | None) -> Callable[..., Any]:
    """A function of the inputs that gives what the user's function would have given."""
    compute = compiled(computation)
    if epilogue is None:
        run = compute
    else:
        finish = compiled(epilogue)

        def run(*inputs: Any) -> Any:
            return finish(*inputs, *compute(*inputs))

    if acquired.out is None:
        return run
    build = acquired.out.build
    return lambda *inputs: build(list(run(*inputs)))


def _compiled_function(fn: Callable, cache: Cache) -> Callable:
    """A function that runs the program used last where its guards hold; plain Python, since every call pays for it."""

    @functools.wraps(fn, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        result = cache.last(args, kwargs)
        return cache.slow_call(args, kwargs) if type(result) is Miss else result

    call._cache = cache
    return call


def jit(
    fn: Callable | None = None,
    /,
    *,
    executors: Iterable[Executor | str] | None = None,
    passes: Iterable[Pass] = (),
) -> Any:
    """`fn`, a function or a torch.nn.Module, compiled once for each kind of call.

    `executors` are asked in this order, executors of last resort behind them (None: all that are installed, in their default order).
    `passes` run on the executed computation, last.  What `fn` reads besides its arguments, its parameters, buffers and its modules' plain
    attributes is read once, when it is compiled.
    """
    if fn is None:
        return functools.partial(jit, executors=executors, passes=passes)
    if isinstance(getattr(fn, "_cache", None), Cache):
        raise TypeError("the function is compiled already; pass jit the one it was made from")
    if not callable(fn):
        raise TypeError(f"jit compiles a function or a torch.nn.Module, not {type(fn).__name__}")
    cache = Cache(fn, executors, passes)
    call = _compiled_function(fn, cache)
    return CompiledModule(fn, cache, call) if isinstance(fn, torch.nn.Module) else call


def cache_of(fn: Any) -> Cache:
    """The cache of a compiled function or module."""
    cache = getattr(fn, "_cache", None)
    if not isinstance(cache, Cache):
        raise TypeError(f"wants what dovetail.jit returned, got {type(fn).__name__}")
    return cache


def _last(fn: Any) -> Entry:
    entries = cache_of(fn).entries
    if not entries:
        raise DovetailError("nothing is compiled yet; call the function first")
    return entries[0]


def last_traces(fn: Any) -> list[Trace]:
    """The programs of the last call, from the one that was traced to the one that runs, one for each pass."""
    return list(_last(fn).traces)


def last_prologue_traces(fn: Any) -> list[Trace]:
    """The guards of the last call, as programs."""
    return list(_last(fn).prologue_traces)


def cache_misses(fn: Any) -> list[str]:
    """Why each program was compiled: the guard that failed, in each program there was."""
    return list(cache_of(fn).misses)


def explain(fn: Any) -> str:
    """For each operation of the last call, who was asked to run it and what they said."""
    return "\n".join(said for trace in _last(fn).traces if (said := refusals(trace)))
