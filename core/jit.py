"""Everything together: acquire, functionalize, simplify, dispatch, run; and a cache of what came of it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from threading import RLock
from typing import Any

import torch

from dovetail import options, prims
from dovetail.errors import DovetailError, InvalidTrace, Unsupported
from dovetail.executors import Executor, blame, checked, dispatch, resolve_executors
from dovetail.executors.config import WATCH
from dovetail.executors.priority import Key, Priority, difference, remembered, wish
from dovetail.frontend.autograd import differentiable
from dovetail.frontend.guards import Miss, overlap, prologue
from dovetail.frontend.module import CompiledModule
from dovetail.frontend.tracing import Acquired, acquire, compiling
from dovetail.trace import Proxy, Trace, Transform, compiled, cse, dce, functionalize, release, requires_grad, timed
from dovetail.trace import written as written_by
from dovetail.trace.where import user_line

Pass = Callable[[Trace], Trace]
PIPELINE: tuple[Pass, ...] = (dce, cse)  # what a pure computation goes through before dispatch


@dataclass(frozen=True)
class Entry:
    """One compiled program: `call(args, kwargs)` gives its result, or a Miss where its guards do not hold.

    `key` is the configuration that it was compiled under: the executors, their versions, options and order.
    """

    call: Callable[[tuple, dict], Any]
    key: Key | None
    traces: tuple[Trace, ...]
    prologue_traces: tuple[Trace, ...]
    backward_traces: tuple[Trace, ...] = ()
    epilogue_traces: tuple[Trace, ...] = ()


def _nothing_yet(args: tuple, kwargs: dict) -> Miss:
    return Miss("nothing was compiled yet")


class Cache:
    """The programs of one compiled function, the last used first, and why calls missed them."""

    def __init__(self, fn: Callable, executors: Iterable[Executor | str] | str | None, passes: Iterable[Pass], recompute: str):
        self.fn, self.passes, self.recompute = fn, tuple(passes), recompute
        self.wanted = wish(executors, user_line())
        self.entries: tuple[Entry, ...] = ()
        self.last: Callable[[tuple, dict], Any] = _nothing_yet  # the call of entries[0], where configuration is what it was
        self.misses: list[str] = []
        self.lock = RLock()
        if self.wanted is not None:
            resolve_executors(self.wanted)  # an unknown name is an error here, not at the first call
        WATCH.tell(self)

    def slow_call(self, args: tuple, kwargs: dict) -> Any:
        """A call that the entry used last does not fit."""
        generation, reasons = WATCH.generation, []
        if self.entries:
            result = self.earlier(args, kwargs, remembered(self.wanted), generation, reasons)
            if type(result) is not Miss:
                return result
        with self.lock:
            priority = resolve_executors(self.wanted)
            if generation != WATCH.generation:  # a file, the environment or the executors have changed: look again
                generation, reasons = WATCH.generation, []
                result = self.earlier(args, kwargs, priority, generation, reasons)
                if type(result) is not Miss:
                    return result
            entry = compile(self.fn, args, kwargs, priority, self.passes, recompute=self.recompute)
            self.misses.append("; ".join(dict.fromkeys(reasons)) or "the first call")
            self.use(entry, generation)
        if options.debug():
            print(_report(self, entry), file=sys.stderr)
        result = entry.call(args, kwargs)
        if type(result) is Miss:
            raise DovetailError(f"the program does not fit the call that it was compiled for: {result.reason}; this is a bug in a guard")
        return result

    def earlier(self, args: tuple, kwargs: dict, priority: Priority, generation: int, reasons: list[str]) -> Any:
        """What an entry gives that fits the call and was compiled under this configuration; a Miss, and `reasons`, where none does."""
        result: Any = _ANOTHER
        for entry in self.entries:
            if entry.key != priority.key:
                continue
            result = entry.call(args, kwargs)
            if type(result) is not Miss:
                self.use(entry, generation)
                return result
            reasons.append(result.reason)
        reasons += [difference(entry.key, priority) for entry in self.entries if entry.key != priority.key]
        return _ANOTHER

    def use(self, entry: Entry, generation: int) -> None:
        """Put `entry` first; the next call runs it at once, unless configuration has changed since `generation`."""
        with self.lock:
            self.entries = (entry, *[other for other in self.entries if other is not entry])
            self.last = _in_scope(entry.call) if WATCH.scoped else entry.call
            if generation != WATCH.generation:
                self.reconsider()

    def reconsider(self) -> None:
        """Configuration has changed: the next call looks which entry does."""
        self.last = _nothing_yet


_ANOTHER = Miss("the configuration is another")


def _in_scope(call: Callable[[tuple, dict], Any]) -> Callable[[tuple, dict], Any]:
    """`call` where `dovetail.use` has set what it has set here.  Only programs in a process that used it pay for this."""
    current, scope = options.SCOPE.get, options.SCOPE.get()
    return lambda args, kwargs: call(args, kwargs) if current() is scope else _ANOTHER


def compile(
    fn: Callable, args: tuple, kwargs: dict, executors: Sequence[Executor], passes: tuple[Pass, ...], *, recompute: str = "balanced"
) -> Entry:
    """The program for calls like this one; a Priority among `executors` is remembered in its key, a plain sequence has none."""
    acquired = acquire(fn, args, kwargs)
    contract = (checked,) if options.CHECK.read() else ()
    passes = (*passes, *contract)
    with compiling():
        pure, epilogue = timed(lambda trace: functionalize(trace, history=torch.is_grad_enabled()), acquired.trace)
        written = written_by(epilogue)
        _no_overlap(acquired, written)
        guards = functools.partial(prologue, fn, acquired, args, kwargs, written=written)
        before, guarded = [], None
        if any([isinstance(step, Transform) for step in passes]):
            before, guarded = [pure], timed(lambda _: guards(run=_nothing_yet), pure)
            guarded, pure, epilogue = _transformed(passes, (guarded, pure, epilogue))
        claim = functools.partial(dispatch, executors=executors)
        training = None
        if torch.is_grad_enabled() and any(map(requires_grad, pure.inputs)):
            made = _steps(pure, PIPELINE)
            training = differentiable(acquired, made[-1], executors, written=written, recompute=recompute, passes=passes)
        if training is not None:
            compute, made, backward = training.run, made + training.traces, training.backward_traces
        else:
            if not epilogue.lines:
                pure = replace(pure, outputs=epilogue.outputs)
            made, backward = _steps(pure, (*PIPELINE, claim, release, *passes)), []
            compute = compiled(made[-1])
            if torch.is_grad_enabled() and any(map(requires_grad, pure.inputs)):
                compute = torch.no_grad()(compute)  # no result has a gradient, as under a no_grad of the user's own
        finish = timed(claim, epilogue) if epilogue.lines or training else None
        run = _runner(acquired, compute, checked(finish) if finish and contract else finish)
        guarded = timed(lambda _: guards(run=run), pure) if guarded is None else _calling(guarded, run)
    return Entry(
        compiled(guarded), getattr(executors, "key", None), (acquired.trace, *before, *made), (guarded,), tuple(backward), (finish,) if finish else ()
    )


def _report(cache: Cache, entry: Entry) -> str:
    """What DOVETAIL_DEBUG asks to be said of a compilation: why and how long, the programs that run, every program."""
    level, groups = options.debug(), (entry.prologue_traces, entry.traces, entry.epilogue_traces, entry.backward_traces)
    took = ", ".join(f"{trace.name} {trace.made_by} {trace.took * 1e3:.1f} ms" for group in groups for trace in group)
    name = getattr(cache.fn, "__qualname__", type(cache.fn).__name__)
    shown = [] if level < 3 else [trace for group in groups for trace in (group if level >= 4 else group[-1:])]
    return "\n\n".join([f"dovetail: compiled {name}: {cache.misses[-1]} ({took})", *map(str, shown)])


def _steps(trace: Trace, passes: Iterable[Pass]) -> list[Trace]:
    """`trace`, and what each pass makes of the one before."""
    made = [trace]
    for step in passes:
        made.append(timed(step, made[-1]))
    return made


def _transformed(passes: Iterable[Any], programs: tuple[Trace, Trace, Trace]) -> tuple[Trace, Trace, Trace]:
    """Prologue, computation and epilogue after the transforms among `passes`, in their order."""
    for step in passes:
        if isinstance(step, Transform):
            programs = step.programs(*programs)
    if not programs[0].lines or programs[0].lines[-1].symbol is not prims.call_program:
        raise InvalidTrace("a transform gave a prologue that does not end in prims.call_program, which runs the computation; keep its last line last")
    return programs


def _calling(guarded: Trace, run: Callable) -> Trace:
    """A prologue that was made before what it calls, with that."""
    return replace(guarded, constants=guarded.constants | {guarded.lines[-1].args[0]: run})


def _no_overlap(acquired: Acquired, written: list[Proxy]) -> None:
    """Refuse a program that writes an input which shares memory with another: its copy would not see the write."""
    tensors = dict(zip(acquired.trace.inputs, acquired.tensors, strict=True)) | acquired.trace.constants
    mine = tuple(tensors[p] for p in written)
    if overlap(mine, tuple(x for p, x in tensors.items() if p not in set(written))):
        names = ", ".join(p.name for p in written)
        raise Unsupported(
            f"the function writes into an argument ({names}) that shares memory with another tensor it reads; pass a clone of one of them"
        )


def _runner(acquired: Acquired, compute: Callable[..., Any], epilogue: Trace | None) -> Callable[..., Any]:
    """A function of the inputs that gives what the user's function would have given."""
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
        try:
            result = cache.last(args, kwargs)
            return cache.slow_call(args, kwargs) if type(result) is Miss else result
        except Exception as error:
            blame(error)
            raise

    call._cache = cache
    return call


def jit(
    fn: Callable | None = None,
    /,
    *,
    executors: Iterable[Executor | str] | str | None = None,
    passes: Iterable[Pass] = (),
    recompute: str = "balanced",
) -> Any:
    """`fn`, a function or a torch.nn.Module, compiled once for each kind of call.

    `executors` are asked in this order, executors of last resort behind them (None: as they are configured, else all that are installed);
    edits change the order that there is: "+name" puts one first, "-name" leaves it out, "a > b" puts a before b.
    `passes` run on the executed computation, last, and on its backward where there is one; a `dovetail.extend.Transform` among them is also
    given the prologue, the pure computation and the epilogue.  `recompute` says what the backward computes
    again rather than keep in memory: "none", "balanced" (what is cheap) or "all".  What `fn` reads besides its arguments, its parameters,
    buffers and its modules' plain attributes is read once, when it is compiled.
    """
    if fn is None:
        return functools.partial(jit, executors=executors, passes=passes, recompute=recompute)
    if isinstance(getattr(fn, "_cache", None), Cache):
        raise TypeError("the function is compiled already; pass jit the one it was made from")
    if not callable(fn):
        raise TypeError(f"jit compiles a function or a torch.nn.Module, not {type(fn).__name__}")
    cache = Cache(fn, executors, passes, recompute)
    call = _compiled_function(fn, cache)
    return CompiledModule(fn, cache, call) if isinstance(fn, torch.nn.Module) else call


def cache_of(fn: Any) -> Cache:
    """The cache of a compiled function or module."""
    cache = getattr(fn, "_cache", None)
    if not isinstance(cache, Cache):
        raise TypeError(f"wants what dovetail.jit returned, got {type(fn).__name__}")
    return cache


def last_entry(fn: Any) -> Entry:
    """The program that the last call ran."""
    entries = cache_of(fn).entries
    if not entries:
        raise DovetailError("nothing is compiled yet; call the function first")
    return entries[0]


def last_traces(fn: Any) -> list[Trace]:
    """The programs of the last call, from the one that was traced to the one that runs, one for each pass."""
    return list(last_entry(fn).traces)


def last_backward_traces(fn: Any) -> list[Trace]:
    """The backward of the last call, from the one that was split off to the one that runs; none where nothing required grad."""
    return list(last_entry(fn).backward_traces)


def last_epilogue_traces(fn: Any) -> list[Trace]:
    """What runs eagerly after the last call's computation, to write inputs and to make views; none where nothing aliases."""
    return list(last_entry(fn).epilogue_traces)


def last_prologue_traces(fn: Any) -> list[Trace]:
    """The guards of the last call, as programs."""
    return list(last_entry(fn).prologue_traces)


def cache_misses(fn: Any) -> list[str]:
    """Why each program was compiled: the guard that failed, in each program there was."""
    return list(cache_of(fn).misses)
