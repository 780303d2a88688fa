"""Everything together: acquire, functionalize, simplify, dispatch, run; and a cache of what came of it."""

from __future__ import annotations

import functools
import time
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from threading import RLock
from typing import Any

import torch

from dovetail.errors import DovetailError
from dovetail.executors import Executor, dispatch, refusals, resolve_executors
from dovetail.frontend.guards import prologue
from dovetail.frontend.module import CompiledModule
from dovetail.frontend.tracing import Acquired, acquire, compiling
from dovetail.trace import Trace, compiled, cse, dce, functionalize, release

Pass = Callable[[Trace], Trace]
PIPELINE: tuple[Pass, ...] = (dce, cse)  # what a pure computation goes through before dispatch


@dataclass(frozen=True)
class Entry:
    """One compiled program: right for every call that its prologue accepts."""

    prologue: Callable[[tuple, dict], Any]
    reasons: tuple[str, ...]
    run: Callable[..., Any]
    traces: tuple[Trace, ...]
    prologue_traces: tuple[Trace, ...]


class Cache:
    """The programs of one compiled function, the last used first, and why calls missed them."""

    def __init__(self, fn: Callable, executors: Iterable[Executor | str] | None, passes: Iterable[Pass]):
        self.fn, self.passes = fn, tuple(passes)
        self.wanted = None if executors is None else tuple(executors)
        self.entries: tuple[Entry, ...] = ()
        self.misses: list[str] = []
        self.lock = RLock()
        if self.wanted is not None:
            resolve_executors(self.wanted)  # an unknown name is an error here, not at the first call

    def call(self, args: tuple, kwargs: dict) -> Any:
        for entry in self.entries:
            inputs = entry.prologue(args, kwargs)
            if type(inputs) is tuple:
                return entry.run(*inputs)
            break
        return self.slow_call(args, kwargs)

    def slow_call(self, args: tuple, kwargs: dict) -> Any:
        """A call that the entry used last does not fit."""
        with self.lock:
            reasons = []
            for i, entry in enumerate(self.entries):
                inputs = entry.prologue(args, kwargs)
                if type(inputs) is tuple:
                    self.entries = (entry, *self.entries[:i], *self.entries[i + 1 :])
                    break
                reasons.append(entry.reasons[inputs])
            else:
                entry, inputs = compile(self.fn, args, kwargs, resolve_executors(self.wanted), self.passes)
                self.misses.append("; ".join(reasons) if reasons else "the first call")
                self.entries = (entry, *self.entries)
        return entry.run(*inputs)


def compile(fn: Callable, args: tuple, kwargs: dict, executors: tuple[Executor, ...], passes: tuple[Pass, ...]) -> tuple[Entry, tuple]:
    """The program for calls like this one, and its inputs in this call."""
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
        guards = prologue(fn, acquired, args, kwargs, written=written)
        run = _runner(acquired, traces[-1], finish)
        entry = Entry(compiled(guards.trace), tuple(guards.reasons), run, (*traces, *((finish,) if finish else ())), (guards.trace,))
    inputs = entry.prologue(args, kwargs)
    if type(inputs) is not tuple:
        raise DovetailError(f"the function cannot be compiled for these arguments: {entry.reasons[inputs]}")
    return entry, inputs


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


class CompiledFunction:
    """A function that is compiled once for each kind of call, and runs the program from then on."""

    def __init__(self, fn: Callable, cache: Cache):
        functools.update_wrapper(self, fn)
        self._cache = cache

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._cache.call(args, kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<compiled {self._cache.fn!r}>"


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
    if isinstance(fn, (CompiledFunction, CompiledModule)):
        raise TypeError("the function is compiled already; pass jit the one it was made from")
    if not callable(fn):
        raise TypeError(f"jit compiles a function or a torch.nn.Module, not {type(fn).__name__}")
    cache = Cache(fn, executors, passes)
    return CompiledModule(fn, cache) if isinstance(fn, torch.nn.Module) else CompiledFunction(fn, cache)


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
