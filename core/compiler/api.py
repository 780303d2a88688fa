"""The public function `dovetail.jit`, and the functions that inspect a compiled function."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import Any

import torch

from dovetail.compiler.cache import Cache
from dovetail.compiler.compilation import Distribution, Pass
from dovetail.compiler.entry import Entry
from dovetail.compiler.pipeline import ACQUIRE
from dovetail.errors import DovetailError, EagerCall, require
from dovetail.executors import Executor, blame
from dovetail.frontend.decisions.driver import printed
from dovetail.frontend.decisions.saved import PrintedDriver
from dovetail.frontend.guards.guard import Miss
from dovetail.frontend.modules.compiled_module import CompiledModule
from dovetail.frontend.modules.wrapped_modules import call_with, compiled_inside, innermost_sharded, is_data_parallel, is_sharded
from dovetail.torch_internals import keep_dynamo_out
from dovetail.trace import Trace, Transform
from dovetail.trace.passes.split import RECOMPUTE


def jit(
    fn: Callable | None = None,
    /,
    *,
    executors: Iterable[Executor | str] | str | None = None,
    passes: Iterable[Pass] = (),
    recompute: str = "balanced",
    interpretation: str | None = None,
    cache: str = "guards",
    dynamic: bool | None = None,
    decisions: str | None = None,
    unsupported: str | None = None,
) -> Any:
    """Compile `fn`, a function or a torch.nn.Module, once for each kind of call.

    The result is called like `fn`, and has `cache_info()`, `clear_cache()` and `explain_miss(*args, **kwargs)`, which lists the guards that
    such a call would fail.  Without `fn`, a decorator is returned.

    Args:
        executors: who runs operations, in priority order, executors of last resort behind them; None for the configured order, else all that
            are installed.  Edits change the order: "+name" puts one first, "-name" leaves it out, "a > b" puts a before b.
        passes: functions from trace to trace, run last on the computation, or on forward and backward.  A Transform (of
            `dovetail.extend.advanced`) among them also gets the prologue, the pure computation and the epilogue.
        recompute: what the backward computes again rather than save: "none", "balanced" (what is cheap) or "all".
        interpretation: how `fn` is traced.  "bytecode" guards everything that it reads, and does its writes at every call; "native" runs it
            once on traced tensors, and guards only its arguments and the state of a module.  None is the option of that name.
        cache: which calls run a program again: "guards", those that it fits; "same input", all of them, unchecked; "none" compiles each call.
        dynamic: which sizes are symbols, so that one program runs them all: True, the sizes and ints above 1 in the arguments; False, those alone
            that `dovetail.mark_dynamic` names; None is the option of that name.
        decisions: how to compile a function that needs the value of a tensor, as for an `if`: "graph" compiles it piece by piece, "eager" runs it
            in eager mode, "error" refuses it and names the line; None is the option of that name.
        unsupported: what becomes of a call with something that cannot be traced: "eager" runs it in eager mode, with a warning that says why;
            "error" raises Unsupported, which names the line and a way out; None is the option of that name.  It is an error anyway where the
            program has to be one: with `passes`, decisions="error", interpretation="native" or cache="same input".

    Raises:
        TypeError: `fn` is compiled already, or cannot be called.
        DovetailError: an argument has none of these values.
        ExecutorError: an executor is unknown, or cannot be used.
    """
    passes = _functions(passes)
    more = {"recompute": recompute, "interpretation": interpretation, "cache": cache, "dynamic": dynamic}
    more |= {"decisions": decisions, "unsupported": unsupported}
    again = functools.partial(jit, executors=executors, passes=passes, **more)
    if fn is None:
        return again
    if isinstance(getattr(fn, "_cache", None), Cache):
        raise TypeError("the function is compiled already; pass the original function to jit")
    if not callable(fn):
        raise TypeError(f"jit compiles a function or a torch.nn.Module, not {type(fn).__name__}")
    if isinstance(fn, type) and issubclass(fn, torch.nn.Module):
        raise TypeError(
            f"jit compiles a torch.nn.Module, and {fn.__name__} is a class of them; compile an instance: dovetail.jit({fn.__name__}(...))"
        )
    _check_synchronous(fn)
    _check_options(**more)
    if is_data_parallel(fn):
        compiled = again(fn.module)
        return CompiledModule(fn, compiled._cache, compiled_inside(fn, compiled), again)
    if is_sharded(fn) and not isinstance(fn, CompiledModule):
        forwards = {module: again(module.forward) for module in innermost_sharded(fn)}
        return CompiledModule(fn, next(iter(forwards.values()))._cache, call_with(fn, forwards), again)
    programs = Cache(fn, executors, passes, recompute, interpretation, cache, dynamic, decisions, unsupported)
    call = _compiled_function(fn, programs)
    return CompiledModule(fn, programs, call, again) if isinstance(fn, torch.nn.Module) else call


def _check_synchronous(fn: Callable) -> None:
    """Raise TypeError for a function, or a module with a forward, that is async."""
    called = getattr(fn, "forward", None) if isinstance(fn, torch.nn.Module) else fn
    if iscoroutinefunction(called) or isasyncgenfunction(called):
        raise TypeError(
            f"jit compiles functions that compute when they are called, and {called.__qualname__} is async; compile what it calls between awaits"
        )


def _check_options(
    recompute: str, interpretation: str | None, cache: str, dynamic: bool | None, decisions: str | None, unsupported: str | None
) -> None:
    """Raise an error that lists the values of an option where one has another."""
    if interpretation not in (None, *ACQUIRE):
        raise DovetailError(f"interpretation is {' or '.join(map(repr, ACQUIRE))}, not {interpretation!r}")
    if cache not in ("guards", "same input", "none"):
        raise DovetailError(f"cache is 'guards', 'same input' or 'none', not {cache!r}")
    require(recompute in RECOMPUTE, "recompute is {}, not {!r}", " or ".join(map(repr, RECOMPUTE)), recompute, error=ValueError)
    if decisions not in (None, "graph", "eager", "error"):
        raise DovetailError(f"decisions is 'graph', 'eager' or 'error', not {decisions!r}")
    if unsupported not in (None, "eager", "error"):
        raise DovetailError(f"unsupported is 'eager' or 'error', not {unsupported!r}")
    if dynamic not in (None, True, False):
        raise DovetailError(f"dynamic is None, True or False, not {dynamic!r}")
    if dynamic and (interpretation == "native" or cache != "guards"):
        raise DovetailError(
            'dynamic=True needs interpretation="bytecode" and cache="guards", the defaults; other programs are compiled for each size'
        )


def _functions(passes: Any) -> tuple[Pass, ...]:
    """Return passes as a tuple.  Raises TypeError where one cannot be called."""
    steps = tuple(passes) if isinstance(passes, Iterable) and not isinstance(passes, str) else (None,)
    if not all([callable(step) or isinstance(step, Transform) for step in steps]):
        raise TypeError(f"passes is a collection of functions from trace to trace, or of Transforms; got {passes!r}")
    return steps


def distributed(fn: Callable, distribution: Distribution, **options: Any) -> Any:
    """Compile a module or function for a rank, as `jit` does with these options."""
    compiled = jit(fn, **options)
    compiled._cache.compiler.distribution = distribution
    if isinstance(compiled, CompiledModule):
        vars(compiled)["_again"] = functools.partial(distributed, distribution=distribution, **options)
    return compiled


def _compiled_function(fn: Callable, cache: Cache) -> Callable:
    """Return a function that runs the current program where its guards hold; plain Python, since every call pays for it."""

    @functools.wraps(fn, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        calls = cache.calls = cache.calls + 1
        try:
            run = cache.last if calls < cache.next_trial else cache.run_trial  # cache.last(...) would look for a method first
            result = run(args, kwargs)
            return cache.slow_call(args, kwargs) if type(result) is Miss else result
        except EagerCall:
            return fn(*args, **kwargs)
        except Exception as error:
            blame(error)
            raise

    keep_dynamo_out(call, "it was compiled by dovetail.jit")
    call._cache = cache
    call.cache_info, call.clear_cache, call.explain_miss = cache.info, cache.clear, cache.explain_miss
    return call


def cache_of(fn: Any) -> Cache:
    """Return the cache of a compiled function or module.  Raises TypeError for anything else."""
    cache = getattr(fn, "_cache", None)
    if not isinstance(cache, Cache):
        raise TypeError(f"expected what dovetail.jit returned, got {type(fn).__name__}")
    return cache


def last_entry(fn: Any) -> Entry:
    """Return the program that the last call ran.  Raises DovetailError before the first call."""
    cache = cache_of(fn)
    entries = (cache.retired_entry,) if cache.retired_entry is not None else cache.entries
    if not entries and cache.eager_warnings:
        raise DovetailError(f"nothing is compiled: calls run in eager mode, since {'; '.join(sorted(cache.eager_warnings))}")
    if not entries:
        raise DovetailError("nothing is compiled yet; call the function first")
    return entries[0]


def last_traces(fn: Any) -> list[Trace]:
    """Return the programs of the last call, from the one that was traced to the one that runs, one for each pass."""
    return list(last_entry(fn).traces)


def last_backward_traces(fn: Any) -> list[Trace]:
    """Return the backward of the last call, pass by pass, to the one that runs; empty where nothing required grad."""
    return list(last_entry(fn).backward_traces)


def last_epilogue_traces(fn: Any) -> list[Trace]:
    """Return the epilogue of the last call, which writes inputs and creates views, pass by pass; empty where nothing aliases."""
    return list(last_entry(fn).epilogue_traces)


def last_prologue_traces(fn: Any) -> list[Trace]:
    """Return the guards of the last call, as programs."""
    return list(last_entry(fn).prologue_traces)


def last_driver(fn: Any) -> PrintedDriver:
    """Return the decisions of the last call as one Python function with a branch for each, and the programs that run between them.

    Once calls compile nothing new, this function runs: tracebacks and pdb show its lines.  The text has `save(path)`, which writes a file that
    runs on its own.
    Raises DovetailError for a function without decisions.
    """
    graph = last_entry(fn).graph
    if graph is None:
        raise DovetailError("the function needs no values, so it has no decisions; last_traces shows its program")
    driver = PrintedDriver(printed(graph))
    driver.graph = graph
    return driver


def cache_misses(fn: Any) -> list[str]:
    """Return why each program was compiled: the guard that failed, in each program there was, or the outcome that a decision had first."""
    cache = cache_of(fn)
    return [*cache.misses, *cache.explored]
