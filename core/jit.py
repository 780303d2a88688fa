"""Everything together: acquire, functionalize, simplify, dispatch, run; and a cache of what came of it."""

from __future__ import annotations

import functools
import re
import sys
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from threading import RLock
from time import perf_counter
from typing import Any, NamedTuple

import torch

from dovetail import options, prims
from dovetail.errors import DovetailError, EagerCall, InvalidTrace, Unsupported
from dovetail.executors import Executor, blame, checked, dispatch, fast_call_for, in_place, prepared, resolve_executors
from dovetail.executors.discovery.configuration import WATCH
from dovetail.executors.ordering.resolve_order import Key, Priority, difference, remembered, requested_order
from dovetail.executors.trials.budget import NEVER, Account
from dovetail.executors.trials.judge import GradientDisagreement
from dovetail.executors.trials.reference import widened
from dovetail.executors.trials.tolerance import differs
from dovetail.executors.trials.trial import Trial, trial_of
from dovetail.frontend import bytecode, native
from dovetail.frontend.autocast import autocast_off, off
from dovetail.frontend.autograd.bridge import differentiable
from dovetail.frontend.autograd.nested_grad import compiling_with
from dovetail.frontend.compiled_module import CompiledModule
from dovetail.frontend.environment import Acquired, compiling
from dovetail.frontend.guards.guard import Miss
from dovetail.frontend.guards.mismatch import warn_of_guard
from dovetail.frontend.guards.runtime import overlap
from dovetail.frontend.interpreter.tracking import PendingWrites
from dovetail.torch_internals import active_mode
from dovetail.trace import (
    BoundSymbol,
    Proxy,
    Trace,
    Transform,
    compiled,
    cse,
    dce,
    functionalize,
    is_proxy,
    leaves,
    philox,
    release,
    requires_grad,
    schedule,
    timed,
    tree_map,
)
from dovetail.trace import written as written_by
from dovetail.trace.source_location import user_line

Pass = Callable[[Trace], Trace]
PIPELINE: dict[str, tuple[Pass, ...]] = {  # what a pure computation goes through before dispatch, by where its random numbers come from
    "generator": (dce, cse),
    "philox": (philox, dce, cse),
}
ACQUIRE: dict[str, Callable[[Callable, tuple, dict], Acquired]] = {"bytecode": bytecode.acquire, "native": native.acquire}


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
    trials: Sequence[Trial] = ()
    beside: Beside | None = None


class Beside:
    """The calls of a program that are its trials: the same guards before the program that runs beside the reference."""

    def __init__(self, trial: Trial, guarded: Trace, run: Callable[..., Any]):
        self.trial, self.guarded, self.run = trial, guarded, run
        self.calls: dict[bool, Callable[[tuple, dict], Any]] = {}

    @property
    def left(self) -> int:
        """How many calls it is to the next trial, that one included."""
        return max(self.trial.due - self.trial.count, 1)

    @left.setter
    def left(self, calls: int) -> None:
        self.trial.count = self.trial.due - calls

    def call(self, args: tuple, kwargs: dict, *, checked: bool = True) -> Any:
        """What the program gives, or a Miss where its guards do not hold."""
        if checked not in self.calls:
            guarded = _calling(self.guarded, self.run)
            self.calls[checked] = compiled(guarded if checked else _unguarded(guarded))
        return self.calls[checked](args, kwargs)


class CacheInfo(NamedTuple):
    """How many calls ran a program that was there, how many compiled one, and how many there are.

    A call whose program could not be compiled is neither.  Threads may lose a hit.
    """

    hits: int
    misses: int
    programs: int


def _nothing_yet(args: tuple, kwargs: dict) -> Miss:
    return Miss("nothing was compiled yet")


class Cache:
    """The programs of one compiled function, the last used first, and why calls missed them."""

    def __init__(
        self,
        fn: Callable,
        executors: Iterable[Executor | str] | str | None = None,
        passes: Iterable[Pass] = (),
        recompute: str = "balanced",
        interpretation: str | None = None,
        mode: str = "guards",
    ):
        self.fn, self.passes, self.recompute = fn, tuple(passes), recompute
        self.interpretation, self.mode = interpretation, mode
        self.calls, self.warned = 0, False
        self.wanted = requested_order(executors, user_line())
        self.entries: tuple[Entry, ...] = ()
        self.last: Callable[[tuple, dict], Any] = _nothing_yet  # the call of entries[0], where configuration is what it was
        self.beside: Callable[[tuple, dict], Any] = _nothing_yet  # the same for its trials
        self.due = NEVER  # the number of the call that is the next trial of entries[0]
        self.retired: list[str] = []  # why programs were given up
        self.trying = True  # whether programs are tried
        self.misses: list[str] = []
        self.lock = RLock()
        if self.wanted is not None:
            resolve_executors(self.wanted)  # an unknown name is an error here, not at the first call
        WATCH.subscribe(self)

    def slow_call(self, args: tuple, kwargs: dict) -> Any:
        """A call that the entry used last does not fit.  Under a mode that gives operations another meaning it runs in eager mode."""
        if active_mode() is not None:
            self.calls -= 1  # neither a hit nor a miss
            return self.fn(*args, **kwargs)
        generation, reasons = WATCH.generation, []  # the misses of the entries that there are
        if self.entries:
            result = self.earlier(args, kwargs, remembered(self.wanted), generation, reasons)
            if type(result) is not Miss:
                return result
        seen = self.entries
        with self.lock:
            priority = resolve_executors(self.wanted)
            if generation != WATCH.generation or seen is not self.entries:  # configuration has changed, or another thread was here: look again
                generation, reasons = WATCH.generation, []
                result = self.earlier(args, kwargs, priority, generation, reasons)
                if type(result) is not Miss:
                    return result
            try:
                entry = self.compile(args, kwargs, priority, self.passes)
            except BaseException as error:
                self.calls -= 1  # neither a hit nor a miss
                if not isinstance(error, (PendingWrites, EagerCall)):
                    raise
                entry, raised = None, error.__cause__
            else:
                self.missed([*self.retired, *(miss.reason for miss in reasons)])
                self.retired.clear()
                self.use(entry, generation)
        if entry is None:
            return _run_as_written(self.fn, args, kwargs, raised)
        if options.debug():
            print(_report(self, entry), file=sys.stderr)
        result = self.run(entry, args, kwargs)
        if result is _RETIRED:
            return self.slow_call(args, kwargs)
        if type(result) is Miss:
            self.retire(entry, result.reason)
            warn_of_guard(_name(self.fn), entry.prologue_traces[-1], result, args, kwargs, user_line())
            return self.fn(*args, **kwargs)
        return result

    def compile(self, args: tuple, kwargs: dict, executors: Sequence[Executor], passes: tuple[Pass, ...]) -> Entry:
        """The program for calls like this one."""
        account, began = Account(), perf_counter()
        tried = account if self.trying else None
        entry = compile(self.fn, args, kwargs, executors, passes, recompute=self.recompute, interpretation=self.interpretation, account=tried)
        account.seconds = perf_counter() - began
        account.retire = functools.partial(_retire, weakref.ref(self), entry)
        account.gradients = _gradients_differ
        return entry

    def run(self, entry: Entry, args: tuple, kwargs: dict) -> Any:
        """What `entry` gives for a call of which nothing is known; the number of its next trial is kept."""
        current = bool(self.entries) and self.entries[0] is entry
        beside = entry.beside
        if beside is None:
            return entry.call(args, kwargs)
        left = self.due - self.calls + 1 if current and self.due < NEVER else beside.left
        try:
            result = beside.call(args, kwargs) if left <= 1 else entry.call(args, kwargs)
        except GradientDisagreement:
            return _RETIRED
        if type(result) is not Miss:
            beside.left = beside.left if left <= 1 else left - 1
            if current:
                self.due = self.calls + beside.left
        return result

    def tried(self, args: tuple, kwargs: dict) -> Any:
        """A call that is the trial of the entry used last."""
        entries, last = self.entries, self.last
        beside = entries[0].beside if entries else None
        if beside is None or last is _nothing_yet:
            self.due = NEVER
            if beside is not None:
                beside.left = 1
            return last(args, kwargs)
        try:
            result = self.beside(args, kwargs)
        except GradientDisagreement:
            return _RETIRED
        if type(result) is not Miss and self.entries and self.entries[0] is entries[0]:
            self.due = self.calls + beside.left
        return result

    def earlier(self, args: tuple, kwargs: dict, priority: Priority, generation: int, reasons: list[str]) -> Any:
        """What an entry gives that fits the call and was compiled under this configuration; a Miss, and `reasons`, where none does."""
        result: Any = _ANOTHER
        for entry in self.entries if self.mode != "none" else ():
            if entry.key != priority.key:
                continue
            result = self.run(entry, args, kwargs)
            if type(result) is not Miss:
                self.use(entry, generation, ran=True)
                return result
            reasons.append(result)
        reasons += [Miss(difference(entry.key, priority)) for entry in self.entries if entry.key != priority.key]
        return _ANOTHER

    def missed(self, reasons: list[str]) -> None:
        """Note why a program was compiled; warn once when that has happened too often."""
        self.misses.append("; ".join(dict.fromkeys(reasons)) or "the first call")
        limit = options.RECOMPILE_LIMIT.read()
        if len(self.misses) <= limit or self.warned or self.mode == "none":
            return
        self.warned = True
        latest = [miss.split("; ")[0] for miss in self.misses[1:]]  # the guard of the program used last
        about = [re.split(" (?:is )?no longer | has become | now has | is not there", why)[0] for why in latest]
        what, times = Counter(about).most_common(1)[0]
        last = latest[len(about) - 1 - about[::-1].index(what)]
        warnings.warn(
            f"{_name(self.fn)} was compiled {len(self.misses)} times, {times} times because of {what} ({last}). A function is compiled for each "
            "value that it depends on: pass what changes as a tensor, or raise the option recompile_limit",
            stacklevel=4,
        )

    def info(self) -> CacheInfo:
        """How the calls so far were answered."""
        return CacheInfo(max(self.calls - len(self.misses), 0), len(self.misses), len(self.entries))

    def clear(self) -> None:
        """Forget every program; the next call compiles."""
        with self.lock:
            self.entries, self.calls, self.due, self.warned = (), 0, NEVER, False
            self.misses.clear()
            self.invalidate()

    def explain_miss(self, *args: Any, **kwargs: Any) -> list[str]:
        """Why a call with these arguments would compile a program: one sentence for each program that there is, none where one of them fits."""
        found = []
        for entry in self.entries:
            guards = entry.prologue_traces[-1]
            result = compiled(_calling(guards, lambda *inputs, found=(): None))(args, kwargs)
            if type(result) is not Miss:
                return []
            found.append(result.reason)
        return found or ["nothing is compiled yet"]

    def use(self, entry: Entry, generation: int, *, ran: bool = False) -> None:
        """Put `entry` first; the next call runs it at once, unless configuration has changed since `generation`.

        `ran` says that this call has run it already.
        """
        with self.lock:
            if self.mode == "none":
                self.entries, self.due = (entry,), NEVER
                return
            before = self.entries[0] if self.entries else None
            if before is not entry:
                if before is not None and before.beside is not None:
                    before.beside.left = max(self.due - self.calls + 1, 1)
                self.due = self.calls + entry.beside.left - (not ran) if entry.beside is not None else NEVER
            self.entries = (entry, *[other for other in self.entries if other is not entry])
            call = entry.call if self.mode == "guards" else compiled(_unguarded(entry.prologue_traces[-1]))
            beside = functools.partial(entry.beside.call, checked=self.mode == "guards") if entry.beside is not None else _nothing_yet
            self.last, self.beside = (_in_scope(call), _in_scope(beside)) if WATCH.scoped else (call, beside)
            if generation != WATCH.generation:
                self.invalidate()

    def retire(self, entry: Entry, why: str) -> None:
        """Give a program up: the next call compiles another."""
        with self.lock:
            self.entries = tuple([other for other in self.entries if other is not entry])
            self.retired.append(why)
            self.due = NEVER
            self.invalidate()

    def invalidate(self) -> None:
        """Configuration has changed: the next call looks which entry does."""
        self.last = _nothing_yet


def _run_as_written(fn: Callable, args: tuple, kwargs: dict, raised: BaseException | None) -> Any:
    """Call a function whose traced run wrote to outside objects and then raised: the writes happen, and so does the exception."""
    result = fn(*args, **kwargs)
    if raised is None or isinstance(raised, EagerCall):
        return result
    warnings.warn(
        f"{_name(fn)} raised {type(raised).__name__} ({raised}) while it was traced, and does not raise it when it runs as written; this call was "
        "not compiled. Please report it as a bug",
        stacklevel=5,
    )
    return result


_ANOTHER = Miss("the configuration is another")
_RETIRED = Miss("an executor disagreed with the reference")


def _gradients_differ(line: BoundSymbol, inputs: dict[Proxy, Any], ex: Executor, reference: Sequence[Executor]) -> str | None:
    """How `ex` differentiates `line` otherwise than the reference, for random cotangents; None where it does not."""

    def fn(*values: Any) -> Any:
        env = dict(zip(inputs, values, strict=True))
        args, kwargs = tree_map(lambda leaf: env[leaf] if is_proxy(leaf) else leaf, (line.args, line.kwargs))
        return line.symbol(*args, **kwargs)

    def gradients(executors: Sequence[Executor], wide: bool) -> list[Any]:
        cache = Cache(fn, executors, interpretation="native")
        cache.trying = False
        with torch.enable_grad():
            given = [widened(x.detach()).clone() if wide and isinstance(x, torch.Tensor) else x for x in inputs.values()]
            given = [x.detach().clone().requires_grad_(x.is_floating_point()) if isinstance(x, torch.Tensor) else x for x in given]
            results = [x for x in leaves(_compiled_function(fn, cache)(*given)) if isinstance(x, torch.Tensor) and x.requires_grad]
            seeded = torch.Generator().manual_seed(0)
            cotangents = [torch.randn(x.shape, generator=seeded).to(x) for x in results]
            return list(
                torch.autograd.grad(results, [x for x in given if isinstance(x, torch.Tensor) and x.requires_grad], cotangents, allow_unused=True)
            )

    got, expected = gradients([ex], False), gradients(reference, False)
    if (said := differs(got, expected)) is None:
        return None
    said = differs(got, expected, gradients(reference, True))
    return None if said is None else f"in its gradients, {said}"


def _retire(cache: weakref.ref[Cache], entry: Entry, why: str) -> None:
    if (kept := cache()) is not None:
        kept.retire(entry, why)


def _in_scope(call: Callable[[tuple, dict], Any]) -> Callable[[tuple, dict], Any]:
    """`call` where `dovetail.use` has set what it has set here.  Only programs in a process that used it pay for this."""
    current, scope = options.SCOPE.get, options.SCOPE.get()
    return lambda args, kwargs: call(args, kwargs) if current() is scope else _ANOTHER


def compile(
    fn: Callable,
    args: tuple,
    kwargs: dict,
    executors: Sequence[Executor],
    passes: tuple[Pass, ...],
    *,
    recompute: str = "balanced",
    interpretation: str | None = None,
    account: Account | None = None,
) -> Entry:
    """The program for calls like this one; a Priority among `executors` is remembered in its key, a plain sequence has none.

    `account` is what its trials may cost; without one it has none.
    """
    with compiling_with(executors):
        return _compile(fn, args, kwargs, executors, passes, recompute, interpretation, account)


def _compile(
    fn: Callable,
    args: tuple,
    kwargs: dict,
    executors: Sequence[Executor],
    passes: tuple[Pass, ...],
    recompute: str,
    interpretation: str | None,
    account: Account | None,
) -> Entry:
    acquired = ACQUIRE[interpretation or options.INTERPRETATION.read()](fn, args, kwargs)
    try:
        return _program(acquired, executors, passes, recompute, account)
    finally:
        acquired.forget()


def _program(acquired: Acquired, executors: Sequence[Executor], passes: tuple[Pass, ...], recompute: str, account: Account | None) -> Entry:
    """The passes over an acquired program, and what runs it."""
    contract = (checked,) if options.CHECK.read() else ()
    passes = (*passes, *contract)
    with compiling(), autocast_off():
        recorded = any([requires_grad(p) for line in acquired.trace.lines for p in line.writes])  # it may switch grad mode on itself
        history = torch.is_grad_enabled() or recorded
        pure, epilogue = timed(lambda trace: functionalize(trace, history=history), acquired.trace)
        written = written_by(epilogue)
        _no_overlap(acquired, written)
        guards = functools.partial(acquired.prologue, written=written)
        before, guarded = [], None
        if any([isinstance(step, Transform) for step in passes]):
            before, guarded = [pure], timed(lambda _: guards(run=_nothing_yet), pure)
            acquired.settle()
            guarded, pure, epilogue = _transformed(passes, (guarded, pure, epilogue))
        pipeline = PIPELINE[options.RANDOM.read()]
        claim = functools.partial(dispatch, executors=executors)
        training = None
        if history and any(map(requires_grad, pure.inputs)):
            made = _steps(pure, pipeline)
            training = differentiable(acquired, made[-1], executors, written=written, recompute=recompute, passes=passes, account=account)
        trials: list[Trial] = []
        if training is not None:
            compute, made, backward = training.run, made + training.traces, training.backward_traces
            trials, beside = training.trials, training.run_beside
        else:
            if not epilogue.lines:
                pure = replace(pure, outputs=epilogue.outputs)
            over = functools.partial(in_place, epilogue=epilogue, executors=executors)
            checking = contract or checked in passes  # sees what regions write
            seen = checking or not written or (history and any(map(requires_grad, written)))  # by who checks, or autograd
            made, backward = _steps(pure, pipeline), []
            made += prepared(made[-1], executors)
            made += _steps(made[-1], (claim, schedule, *(() if seen else (over,)), release, *passes))[1:]
            compute = compiled(made[-1])
            trials = [trial] if (trial := trial_of(made, executors, account)) is not None else []
            beside = trial.run if trial is not None else None
            if torch.is_grad_enabled() and any(map(requires_grad, pure.inputs)):
                compute = torch.no_grad()(compute)  # no result has a gradient, as under a no_grad of the user's own
                beside = torch.no_grad()(beside) if beside is not None else None
        finish = timed(claim, epilogue) if epilogue.lines or training else None
        finishing = compiled(checked(finish) if contract else finish) if finish else None
        if finishing is not None and recorded and not torch.is_grad_enabled():
            finishing = torch.enable_grad()(finishing)  # what was written with grad mode off is written to detached tensors
        run = _runner(acquired, compute, finishing)
        guarded = timed(lambda _: guards(run=run), pure) if guarded is None else _calling(guarded, run)
        along = Beside(trials[0], guarded, _runner(acquired, beside, finishing)) if beside is not None else None
        whole = made[-1] if training is None and finish is None and acquired.build is None and not acquired.casts else None
        call = fast_call_for(compiled(guarded), guarded, whole, [made[-1], *backward[-1:]], executors)
    key, steps = getattr(executors, "key", None), (acquired.trace, *before, *made)
    return Entry(call, key, steps, (guarded,), tuple(backward), (finish,) if finish else (), trials, along)


def _unguarded(guards: Trace) -> Trace:
    """A prologue that finds its inputs and checks nothing."""
    lines = [inner for line in guards.lines for inner in (line.body if line.symbol is prims.unpack_state else (line,))]
    return replace(guards, lines=[line for line in lines if not line.symbol.name.startswith("check_") or line.symbol is prims.check_modes])


def _name(fn: Callable) -> str:
    return getattr(fn, "__qualname__", type(fn).__name__)


def _report(cache: Cache, entry: Entry) -> str:
    """What DOVETAIL_DEBUG asks to be said of a compilation: why and how long, the programs that run, every program."""
    level, groups = options.debug(), (entry.prologue_traces, entry.traces, entry.epilogue_traces, entry.backward_traces)
    took = ", ".join(f"{trace.name} {trace.made_by} {trace.took * 1e3:.1f} ms" for group in groups for trace in group)
    name = _name(cache.fn)
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


def _runner(acquired: Acquired, compute: Callable[..., Any], finish: Callable[..., Any] | None) -> Callable[..., Any]:
    """A function of the inputs that gives what the user's function would have given."""
    if finish is None:
        run = compute
    else:

        def run(*inputs: Any) -> Any:
            return finish(*inputs, *compute(*inputs))

    if acquired.casts:
        run = off(run)
    if (build := acquired.build) is None:
        return run
    return lambda *inputs, found=(): build(run(*inputs), found)


def _compiled_function(fn: Callable, cache: Cache) -> Callable:
    """A function that runs the program used last where its guards hold; plain Python, since every call pays for it."""

    @functools.wraps(fn, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        cache.calls += 1
        try:
            result = cache.last(args, kwargs) if cache.calls < cache.due else cache.tried(args, kwargs)
            return cache.slow_call(args, kwargs) if type(result) is Miss else result
        except Exception as error:
            blame(error)
            raise

    call._cache = cache
    call.cache_info, call.clear_cache, call.explain_miss = cache.info, cache.clear, cache.explain_miss
    return call


def jit(
    fn: Callable | None = None,
    /,
    *,
    executors: Iterable[Executor | str] | str | None = None,
    passes: Iterable[Pass] = (),
    recompute: str = "balanced",
    interpretation: str | None = None,
    cache: str = "guards",
) -> Any:
    """`fn`, a function or a torch.nn.Module, compiled once for each kind of call.

    `executors` are asked in this order, executors of last resort behind them (None: as they are configured, else all that are installed);
    edits change the order that there is: "+name" puts one first, "-name" leaves it out, "a > b" puts a before b.
    `passes` run on the executed computation, last, and on its backward where there is one; a `dovetail.extend.Transform` among them is also
    given the prologue, the pure computation and the epilogue.  `recompute` says what the backward computes
    again rather than keep in memory: "none", "balanced" (what is cheap) or "all".  `interpretation` is how `fn` is traced: "bytecode" sees
    all that it reads, guards it, and does its writes at every call; "native" runs it once on traced tensors, and guards its arguments and
    the state of a module alone; None is the option of that name.  `cache` says which calls run a program again: "guards", those that it fits,
    "same input", every call, which is not checked, or "none", which compiles at each call.

    What comes back has `cache_info()`, `clear_cache()` and `explain_miss(*args, **kwargs)`, the guards that a call like this would fail.
    """
    again = functools.partial(jit, executors=executors, passes=passes, recompute=recompute, interpretation=interpretation, cache=cache)
    if fn is None:
        return again
    if isinstance(getattr(fn, "_cache", None), Cache):
        raise TypeError("the function is compiled already; pass jit the one it was made from")
    if not callable(fn):
        raise TypeError(f"jit compiles a function or a torch.nn.Module, not {type(fn).__name__}")
    if interpretation not in (None, *ACQUIRE):
        raise DovetailError(f"interpretation is {' or '.join(map(repr, ACQUIRE))}, not {interpretation!r}")
    if cache not in ("guards", "same input", "none"):
        raise DovetailError(f"cache is 'guards', 'same input' or 'none', not {cache!r}")
    kept = Cache(fn, executors, passes, recompute, interpretation, cache)
    call = _compiled_function(fn, kept)
    return CompiledModule(fn, kept, call, again) if isinstance(fn, torch.nn.Module) else call


def cache_of(fn: Any) -> Cache:
    """The cache of a compiled function or module."""
    cache = getattr(fn, "_cache", None)
    if not isinstance(cache, Cache):
        raise TypeError(f"expected what dovetail.jit returned, got {type(fn).__name__}")
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
