"""Run a line of a trial beside the reference, compare, and decide which result the program goes on with."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from threading import Lock
from typing import Any, NamedTuple

import torch

from dovetail.executors.contract.executor import Executor
from dovetail.executors.discovery.plugin_errors import ContractError, ExecutorWarning, call
from dovetail.executors.dispatching.check_contract import breached, broken, copies, paired, same_bits
from dovetail.executors.dispatching.codegen import identical, region_key
from dovetail.executors.dispatching.distrust import DISTRUST, digest, folder, structure
from dovetail.executors.ordering.resolve_order import Priority
from dovetail.executors.trials import case, guarded
from dovetail.executors.trials.budget import MEMORY, OVER, RATE, Account, Round, TriedLine, size_of
from dovetail.executors.trials.compare import LineComparison, Result, restore_written
from dovetail.executors.trials.profile import wait_for
from dovetail.executors.trials.reference import (
    draws,
    generators,
    has_state,
    is_region,
    is_unwritten,
    own_copy,
    parts,
    program,
    restore,
    uninitialized,
)
from dovetail.executors.trials.rows import Sample, choice, memory
from dovetail.executors.trials.stale import kept, on_new_values
from dovetail.executors.trials.tolerance import differs
from dovetail.prims.sizes import relations_in
from dovetail.trace import BoundSymbol, Proxy, TensorProxy, Trace, is_proxy, leaves, prims_of, tree_map

AGAIN = 2  # how often more a line is run in one trial, to see whether it computes the same; once in one that ran it on copies before
COPIED = 1 << 24  # bytes of arguments that are copied whatever the time, to see whether a line writes into them
MOST_BYTES = 1 << 30  # of memory that the reference may need for a line
MOST_CASE_BYTES = 1 << 32  # of inputs that are saved beside a script
MANY = 64  # random numbers that are not the same by chance
SLOWER = 3.0  # how many times as long as the executor the reference is expected to take
ROUND: ContextVar[Round | None] = ContextVar("trial", default=None)


class GradientDisagreement(Exception):
    """A gradient is wrong that a program is about to save for: the call begins anew, with a program compiled without it."""


class DisagreementWarning(ExecutorWarning):
    """An executor computed something else than the reference; `case` is the path of a script that replays it."""

    def __init__(self, message: str, case: str = ""):
        super().__init__(message)
        self.case = case


class Scope(NamedTuple):
    """How much of a line a trial compares: all of it, some rows, or nothing, with the reason."""

    excuse: str | None = None
    sample: Sample | None = None


class Judge:
    """Compares lines of one program with the reference, and excludes executors that disagree."""

    def __init__(self, reference: Priority, constants: Mapping[Proxy, Any], account: Account):
        self.reference, self.constants, self.account = reference, dict(constants), account
        self.programs: dict[Any, Callable[..., list[Any]]] = {}  # the reference of equal regions
        self.disagreed = False
        self.lock = Lock()

    def run_line(self, tried: TriedLine, line: BoundSymbol, fn: Callable, args: tuple, kwargs: dict, into: Sequence[Proxy]) -> Any:
        """Run a line by `fn`, and compare where it is its turn; `into` are the arguments that it may overwrite."""
        turn = ROUND.get()
        why = _exempt(line)
        if turn is not None and why is None and not tried.excluded:
            why = self._scope(tried, turn, 0.0).excuse
        if turn is None or why is not None:
            return self._run_untried(tried, line, fn, args, kwargs, into, why)
        inputs = dict(zip(_read(line), _values(line, args, kwargs)))
        if tried.excluded:
            return _filled(line, inputs, self._right(tried, inputs))
        wait = wait_for(line)
        written = set(into)

        def again(instead: Mapping[int, Any] | None = None) -> Any:
            if instead:
                values, named = tree_map(lambda x: instead.get(id(x), x), (args, kwargs))
                return fn(*values, **named)
            if not written:
                return fn(*args, **kwargs)
            return fn(*[own_copy(x) if is_proxy(p) and p in written else x for p, x in zip(line.args, args)], **kwargs)

        before, once = generators() if draws(line) else None, turn is not None and turn.runs_once(tried)
        copied = guarded.copies(inputs) if not tried.tries and before is None and not once else []
        first = _results(line, again({id(each.tensor): each.copy for each in copied})) if copied else None
        beside = guarded.wrote_beside(copied)
        if beside is not None:
            return _filled(line, inputs, self.judged(tried, inputs, first, breach=beside))
        were = copies(line, args, kwargs) if not written and not once and _may_copy(size_of(inputs), turn) else []
        wait()
        began = time.perf_counter()
        result = again()
        wait()
        tried.took = took = time.perf_counter() - began
        got = _results(line, result)
        if before is not None:
            return self._drawn(tried, inputs, result, got, before, again)
        breach = _with_history(line, result, inputs) or (broken(line, args, kwargs, result, were) if not written else None)
        restore_written(breach, args, kwargs, were)
        right = self.judged(tried, inputs, got, took, None if once else again, breach, first)
        return result if right is got else _filled(line, inputs, right)

    def _run_untried(
        self, tried: TriedLine, line: BoundSymbol, fn: Callable, args: tuple, kwargs: dict, into: Sequence[Proxy], why: str | None
    ) -> Any:
        """Run a line, and hold it to its contract in a trial; its values are not compared, for a reason, or because the trial is over."""
        tried.outcome = tried.outcome if tried.tries else why or OVER
        began = time.perf_counter()
        result = fn(*args, **kwargs)
        tried.took = time.perf_counter() - began
        if ROUND.get() is None or into or (breach := broken(line, args, kwargs, result, [])) is None:
            return result
        if _exempt(line) is not None:
            raise ContractError(breached(line, breach))
        inputs = dict(zip(_read(line), _values(line, args, kwargs)))
        return _filled(line, inputs, self.judged(tried, inputs, _results(line, result), breach=breach))

    def judged(
        self,
        tried: TriedLine,
        inputs: dict[Proxy, Any],
        got: list[Any],
        took: float = 0.0,
        again: Callable[[], Any] | None = None,
        breach: str | None = None,
        first: list[Any] | None = None,
    ) -> list[Any]:
        """Return `got`, or what the reference computes in its place where they disagree; `first` are the results of a run before.

        Raises ContractError for a `breach` of the contract where no reference runs the line: kernels behind it rely on what its meta promises.
        """
        turn = ROUND.get()
        scope = Scope(OVER) if turn is None else self._scope(tried, turn, took)
        if scope.excuse is not None and breach is None:
            tried.outcome = tried.outcome if tried.tries else scope.excuse
            return got
        right = None
        try:
            if scope.sample is not None:
                difference = breach or self._sampled(tried, scope.sample, inputs, got, turn)
            else:
                difference, right = self._compared(tried, inputs, got, breach, again, turn, took, first)
        except Exception as error:
            tried.outcome = _untried(error)
            if breach is not None:
                raise ContractError(breached(tried.operation, breach)) from error
            return got
        tried.tries += 1
        if difference is None:
            tried.complete = tried.complete or scope.sample is None
            tried.outcome = _agreed(tried, None if tried.complete else scope.sample)
            return got
        self._disagreed(tried, inputs, difference)
        return self._right(tried, inputs) if right is None else right

    def check_gradients(self, tried: TriedLine, inputs: dict[Proxy, Any]) -> None:
        """Compare the gradients that an executor's own rule gives an operation; raise GradientDisagreement where they are wrong."""
        turn = ROUND.get()
        if turn is None or self.account.gradients is None or (why := self._excuse(tried, turn, 0.0)) is not None:
            tried.outcome = tried.outcome if tried.tries else why
            return
        state, began = generators(), time.perf_counter()
        try:
            difference = self.account.gradients(tried.operation, inputs, tried.executor, self.reference)
        except Exception as error:
            tried.outcome = _untried(error)
            return
        finally:
            restore(state)
            tried.seconds = time.perf_counter() - began
        turn.spend(tried.seconds)
        tried.tries += 1
        if difference is None:
            tried.outcome = "agreed in its gradients"
            return
        self._disagreed(tried, inputs, difference)
        raise GradientDisagreement(difference)

    # --- how much is compared

    def _scope(self, tried: TriedLine, turn: Round, took: float) -> Scope:
        """How much of a line is compared in this trial, where the executor took `took` seconds."""
        excuse = self._excuse(tried, turn, took)
        if excuse not in (OVER, MEMORY) or tried.rows is None:
            return Scope(excuse)
        return Scope(None, tried.sample) if turn.affords_sample(tried, tried.sample) else Scope(excuse)

    def _excuse(self, tried: TriedLine, turn: Round, took: float) -> str | None:
        """Why a line is not compared whole in this trial."""
        if tried.excluded or tried.always:
            return None
        if not turn.affords(tried):
            return OVER
        expected = SLOWER * took + tried.work / RATE
        if not tried.complete and not turn.affords(tried, expected):
            tried.seconds = expected
            return OVER
        if memory(tried.operation) > MOST_BYTES:
            return MEMORY
        return "not tried: it draws random numbers" if tried.gradient and draws(tried.operation) else None

    # --- what the reference computes

    def _reference(self, tried: TriedLine, inputs: dict[Proxy, Any]) -> list[Any]:
        """What the reference computes from `inputs`."""
        if tried.reference is None:
            tried.reference = self._program(tried.operation, list(inputs))
        return tried.reference(*inputs.values())

    def _program(self, line: BoundSymbol, inputs: list[Proxy]) -> Callable[..., list[Any]]:
        """Return the reference of a line; regions that do the same share one."""
        tensors = [p for p in (*inputs, *line.writes) if isinstance(p, TensorProxy)]
        complete = is_region(line) and set(line.reads) <= set(inputs) and all([isinstance(p, TensorProxy) for p in inputs])
        if not complete or relations_in([p.spec.shape for p in tensors]) is not None:
            return program(line, inputs, self.reference, self.constants)
        alone = getattr(line.implementation, "region", None)
        if alone is None or not identical((*alone.inputs, *alone.outputs, *alone.lines), (*inputs, *line.writes, *line.body)):
            alone = Trace("region", inputs=inputs, outputs=tuple(line.writes), lines=list(line.body))
        key = tuple([part.symbol.id for part in prims_of(line.body)]), tuple([part.symbol.id for part in line.body]), region_key(alone)
        if key not in self.programs:
            self.programs[key] = program(line, inputs, self.reference, self.constants)
        return self.programs[key]

    def _right(self, tried: TriedLine, inputs: dict[Proxy, Any]) -> list[Any]:
        """What the reference computes, in blocks of rows where all of it would need too much memory."""
        if memory(tried.operation) <= MOST_BYTES or tried.rows is None:
            return self._reference(tried, inputs)
        blocks = tried.rows.sample(MOST_BYTES // 4, memory, most=tried.rows.total)
        run = program(blocks.line, blocks.line.reads, self.reference)
        return blocks.whole(self.constants | inputs, run)

    # --- comparison

    def _compared(
        self,
        tried: TriedLine,
        inputs: dict[Proxy, Any],
        got: list[Any],
        breach: str | None,
        again: Callable[[], Any] | None,
        turn: Round,
        took: float,
        first: list[Any] | None = None,
    ) -> tuple[str | None, list[Any]]:
        """How the results of a whole line differ from the reference's, and these."""
        began = time.perf_counter()
        expected = self._reference(tried, inputs)
        difference = breach or self._difference(tried, tried.operation, inputs, got, expected)
        if difference is None and again is not None:
            difference = self._repeated(tried, inputs, got, expected, again, turn, took, first) or self._stale(tried, inputs, got, expected, again)
        tried.seconds = time.perf_counter() - began
        turn.spend(tried.seconds)
        return difference, expected

    def _sampled(self, tried: TriedLine, sample: Sample, inputs: dict[Proxy, Any], got: list[Any], turn: Round) -> str | None:
        """How some rows of the results differ from those that the reference computes."""
        began = time.perf_counter()
        if tried.sample_reference is None:
            tried.sample_reference = program(sample.line, sample.line.reads, self.reference)
        chosen = choice(sample.total, sample.count, tried.tries)
        values = sample.inputs(self.constants | inputs, chosen)
        expected = tried.sample_reference(*values.values())
        rows = [sample.select(x, chosen) for x in got]
        difference = self._difference(tried, sample.line, values, rows, expected, [sample.positions(x, chosen) for x in got])
        tried.sample_seconds = time.perf_counter() - began
        turn.spend(tried.sample_seconds)
        return None if difference is None else f"compared in {sample.count:,} of {sample.total:,} rows, {difference}"

    def _difference(
        self,
        tried: TriedLine,
        line: BoundSymbol,
        inputs: dict[Proxy, Any],
        got: list[Any],
        expected: list[Any],
        positions: Sequence[torch.Tensor | None] = (),
    ) -> str | None:
        """How the results of `line` differ beyond rounding; None where they do not.  `positions` says where rows stand in the whole."""
        unwritten = uninitialized(parts(tried.operation))
        comparison = LineComparison(line, self.constants | inputs, self.reference)
        results = [
            Result(i, p.name, got[i], expected[i], positions[i] if positions else None)
            for i, p in enumerate(tried.operation.writes)
            if p not in unwritten
        ]
        difference = comparison.difference(results)
        tried.ulps = max(tried.ulps, comparison.ulps)
        return difference

    def _repeated(
        self,
        tried: TriedLine,
        inputs: dict[Proxy, Any],
        got: list[Any],
        expected: list[Any],
        again: Callable[[], Any],
        turn: Round,
        took: float,
        first: list[Any] | None,
    ) -> str | None:
        """How another run on the same inputs, or the `first` one, differs from the reference; None where none does, or there is no time."""
        for _ in range(AGAIN if first is None else 1):
            if first is None:
                if not tried.always and took > turn.left / 4 and not turn.is_free(tried, tried.work) and not turn.has_earned(tried, SLOWER * took):
                    return None
                new = _results(tried.operation, again())
            else:
                new = first
            if (i := _in_one_memory(new, got, [*inputs.values(), *self.constants.values()])) is not None:
                return f"{tried.results[i]} of two calls is in one memory: the second overwrites the first"
            if all([_same(a, b) for a, b in zip(new, got)]):
                continue
            if (difference := self._difference(tried, tried.operation, inputs, new, expected)) is not None:
                return f"run again on the same inputs, {difference}"
        return None

    def _stale(
        self, tried: TriedLine, inputs: dict[Proxy, Any], got: list[Any], expected: list[Any], again: Callable[[Mapping[int, Any]], Any]
    ) -> str | None:
        """How the results differ where other values lay in the memory of the inputs before; None where they do not."""
        copies, tried.copies = tried.copies, kept(inputs, self.account) if tried.tries == 0 else None
        result = None if copies is None else on_new_values(copies, inputs, again)
        if result is None:
            return None
        new = _results(tried.operation, result)
        if all([_same(a, b) for a, b in zip(new, got)]):
            return None
        difference = self._difference(tried, tried.operation, inputs, new, expected)
        return None if difference is None else f"run on inputs in whose memory others lay before, {difference}"

    def _drawn(self, tried: TriedLine, inputs: dict[Proxy, Any], result: Any, got: list[Any], before: Any, again: Callable[[], Any]) -> Any:
        """Return what a line that draws random numbers goes on with.

        It agrees where it draws the same as the reference.  One that did so once and does not now is wrong; one that never did has random
        numbers of its own.
        """
        line, after = tried.operation, generators()
        restore(before)
        try:
            expected = self._reference(tried, inputs)
            difference = differs(got, expected)
            drawn = generators()
            alike = difference is None and _same_generators(after, drawn)
            if tried.draws_alike and alike:
                for _ in range(AGAIN):
                    restore(before)
                    difference = difference or differs(_results(line, again()), expected)
        except Exception as error:
            tried.outcome = _untried(error)
            restore(after)
            return result
        restore(after)
        if alike and difference is None:
            tried.outcome = "agreed, drawing the same numbers"
            tried.draws_alike = tried.draws_alike or any([isinstance(x, torch.Tensor) and x.numel() >= MANY for x in got])
        elif not tried.draws_alike:
            tried.outcome = "not tried: draws random numbers of its own"
        else:
            restore(drawn)
            self._disagreed(tried, inputs, difference or "it draws more or fewer random numbers")
            return _filled(line, inputs, expected)
        return result

    # --- disagreement

    def _disagreed(self, tried: TriedLine, inputs: dict[Proxy, Any], difference: str) -> None:
        """Remember that the executor is out for this line, and warn once."""
        with self.lock:
            if tried.excluded:
                return
            tried.excluded, tried.outcome = True, f"disagreed: {difference}"
        ex, operation = tried.executor, tried.operation
        path = _case(ex, operation, inputs, difference)
        what = f"the region {', '.join(tried.results)}" if is_region(operation) else call(operation)
        DISTRUST.add(ex, operation, what, difference, path)
        self.disagreed = True
        if self.account.retire is not None:
            self.account.retire(f"{ex.name} disagreed with the reference in {what}")
        rows = [f"{ex.name} disagrees with the reference in {what}: {difference}"]
        rows += ["this call goes on with what the reference computes, which runs it from now on"]
        rows += [f"called at {tried.where}"] if tried.where else []
        rows += [f"a script that replays it: {path}"]
        warnings.warn(DisagreementWarning("\n  ".join(rows), path), stacklevel=2)


def _case(ex: Executor, operation: BoundSymbol, inputs: dict[Proxy, Any], difference: str) -> str:
    """Write the script that replays a disagreement; return its path, or in parentheses why there is none."""
    if size_of(inputs) > MOST_CASE_BYTES:
        return f"(no script was written: its inputs take {size_of(inputs) / (1 << 30):.1f} GiB)"
    try:
        return case.write(folder(), f"{ex.name}_{digest(ex, structure(operation))[:16]}", operation, inputs, ex, difference)
    except Exception as error:  # a full disk is no reason to stop
        return f"(no script could be written: {type(error).__name__}: {error})"


def _agreed(tried: TriedLine, sample: Sample | None) -> str:
    rows = f" on {sample.count:,} of {sample.total:,} rows" if sample is not None else ""
    ulps = f"{tried.ulps:.0f}" if tried.ulps >= 1 or tried.ulps == 0 else f"{tried.ulps:.1g}"
    return f"agreed{rows}, largest error {ulps} ulp"


def _exempt(line: BoundSymbol) -> str | None:
    """Why a line is not tried at all."""
    if has_state(line):
        return "not tried: it keeps state between calls"
    if line.mutates:
        return "not tried: it writes into its arguments"
    if line.effects and not draws(line):
        return "not tried: it has effects"
    if is_unwritten(line):
        return "not tried: its memory is uninitialised"
    return None


def _may_copy(size: int, turn: Round) -> bool:
    """Return whether arguments of `size` bytes are copied, to restore what a line writes into them."""
    return size <= COPIED or (size <= MOST_BYTES and turn.has_time(size / RATE))


def _results(line: BoundSymbol, returned: Any) -> list[Any]:
    """Return the results of a line in order, from the form in which it returns them."""
    values = {p: x for p, x in paired(line.out, returned) if is_proxy(p)}
    return [values.get(p) for p in line.writes]  # the contract says which of them are missing


def _with_history(line: BoundSymbol, returned: Any, inputs: dict[Proxy, Any]) -> str | None:
    """Return which result requires grad where no input does, as one that a kernel computes from a parameter of its own; None where none does."""
    if any([isinstance(x, torch.Tensor) and x.requires_grad for x in inputs.values()]):
        return None
    name = next((p.name for p, x in paired(line.out, returned) if is_proxy(p) and isinstance(x, torch.Tensor) and x.requires_grad), None)
    return f"{name} requires grad, and none of its arguments does; compute it under torch.no_grad()" if name is not None else None


def _filled(line: BoundSymbol, inputs: dict[Proxy, Any], results: list[Any]) -> Any:
    """The results of a line in the form in which it returns them."""
    values = inputs | dict(zip(line.writes, results))
    return tree_map(lambda leaf: values[leaf] if is_proxy(leaf) else leaf, line.out)


def _read(line: BoundSymbol) -> list[Proxy]:
    """The values that a line reads."""
    return [leaf for leaf in leaves((line.args, line.kwargs)) if is_proxy(leaf)]


def _values(line: BoundSymbol, args: tuple, kwargs: dict) -> list[Any]:
    """The same of one call."""
    pairs = zip(leaves((line.args, line.kwargs)), leaves((args, kwargs)), strict=True)
    return [x for p, x in pairs if is_proxy(p)]


def _same(a: Any, b: Any) -> bool:
    """Whether two results hold the same bits."""
    return same_bits(a, b) if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) else a == b


def _in_one_memory(new: list[Any], old: list[Any], known: Sequence[Any]) -> int | None:
    """Return which result of a call is in the memory of that of another call, which no input has; None if none is."""
    inputs = {_memory(x) for x in known}
    return next((i for i, (a, b) in enumerate(zip(new, old)) if (at := _memory(a)) and at == _memory(b) and at not in inputs), None)


def _memory(x: Any) -> int:
    """Return the address of a tensor's memory; 0 if it has none."""
    return x.untyped_storage().data_ptr() if isinstance(x, torch.Tensor) and x.layout is torch.strided else 0


def _untried(error: Exception) -> str:
    return f"not tried: the reference raised {type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _same_generators(a: tuple, b: tuple) -> bool:
    return all(torch.equal(x, y) for x, y in zip((a[0], *a[1]), (b[0], *b[1])))
