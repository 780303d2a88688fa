"""Errors in plugins' code: what their messages name, and which checkers are called no more."""

from __future__ import annotations

import linecache
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from dovetail import options, prims
from dovetail.errors import CollectiveError, ExecutorError, NoGradRule
from dovetail.executors.contract.declaration import InvalidVerdict, as_verdict
from dovetail.executors.contract.executor import CannotFuse, Executor, Verdict
from dovetail.executors.discovery.registry import REGISTRY
from dovetail.prims import Symbol, no_recorder, recorder
from dovetail.torch_internals import no_torch_function
from dovetail.trace import BoundSymbol, Trace, brief
from dovetail.trace.stepping import run_steps


class ExecutorWarning(UserWarning):
    """An executor's code failed where the program can go on without it."""


class ContractError(ExecutorError):
    """What an executor returned is not what the operation promises."""


QUARANTINE: WeakKeyDictionary[Executor, dict[Symbol, str]] = WeakKeyDictionary()  # the registry: executors with a checker that raised, and for what
BY_NAME: WeakValueDictionary[str, Executor] = WeakValueDictionary()  # the registry: the executor of each name that programs print


def distribution(ex: Executor) -> tuple[str, str] | None:
    """Return name and version of the distribution that `ex` came from, or a path and ""; None for one defined in this process."""
    origin = getattr(ex, "distribution", None)
    return (origin[0], origin[1] or "") if isinstance(origin, tuple) else None


def named(ex: Executor) -> str:
    """Name the executor for an error: `fast 1.2 (dovetail-fast 1.2.0)`."""
    origin = distribution(ex)
    return f"{ex.name} {ex.version} ({' '.join(filter(None, origin)) if origin else 'defined in this process'})"


def way_out(ex: Executor) -> str:
    """Return the line of configuration that goes on without `ex`; it cannot disable what a call of dovetail.jit names."""
    if ex.last_resort:
        return f"{ex.name} is an executor of last resort: put one that runs this operation before it"
    if REGISTRY.executors.get(ex.name) is ex:
        line = f'DOVETAIL_DISABLE={ex.name} in the environment, or disable = ["{ex.name}"] under [tool.dovetail] in pyproject.toml'
        return f"to go on without it: {line}; leave it out of executors=[...] where a call of dovetail.jit names it"
    return f"to go on without it: leave {ex.name} out of executors=[...] where dovetail.jit is called"


def call(line: BoundSymbol) -> str:
    """Format the operation with its arguments, tensors by their types."""
    words = [*map(brief, line.args), *(f"{k}={brief(v)}" for k, v in line.kwargs.items())]
    return f"{line.symbol}({', '.join(words)})"


def account(what: str, ex: Executor, line: BoundSymbol, error: Exception, where: str | None) -> str:
    """Return the message for an `error` in `what` ("the checker") of `ex` while it handled `line`."""
    return _account(f"{what} of {named(ex)} raised {type(error).__name__}: {error}", ex, line, where)


def _account(fault: str, ex: Executor, line: BoundSymbol, where: str | None) -> str:
    """Return the text of an error: the fault, the operation, the user's line, and how to go on without the executor."""
    at = line.where or where
    rows = [fault, f"in {call(line)}", f"called at {at}" if at else "", way_out(ex)]
    return "\n  ".join(row for row in rows if row)


def ask(ex: Executor, line: BoundSymbol, question: Callable[[BoundSymbol], Verdict], where: str | None) -> Verdict:
    """Call `question(line)`, the executor's own code; return True, a Claim, or a sentence.

    One that raises is not called again for this operation: one warning says so, and from then on that is its refusal.
    """
    kept = QUARANTINE.get(ex)
    if kept is not None and line.symbol in kept:
        return kept[line.symbol]
    try:
        return as_verdict(question(line) if recorder.get() is no_recorder else _beside_tracing(question, line))
    except InvalidVerdict as error:
        raise ExecutorError(_account(f"the checker of {named(ex)} {error}", ex, line, where)) from None
    except Exception as error:
        message = account("the checker", ex, line, error, where)
        if options.forbids("checker-error"):
            raise ExecutorError(f"{message}\n  the option `strict` makes that an error; without it the next executor is tried") from error
        refusal = f"its checker raised {type(error).__name__}: {error}; it is not offered {line.symbol} again"
        QUARANTINE.setdefault(ex, {})[line.symbol] = refusal
        _warn(f"{message}\n  {ex.name} is not offered {line.symbol} again in this process", line.where or where)
        return refusal


def _beside_tracing(question: Callable[[BoundSymbol], Verdict], line: BoundSymbol) -> Verdict:
    """Ask while a program is traced, as for a gradient inside it: a checker that measures runs what it measures, and records nothing."""
    token = recorder.set(no_recorder)
    try:
        with no_torch_function():
            return question(line)
    finally:
        recorder.reset(token)


def _warn(message: str, at: str | None) -> None:
    """A warning at the user's line, where that is known."""
    file, _, number = (at or "").rpartition(":")
    if number.isdecimal():
        warnings.warn_explicit(message, ExecutorWarning, file, int(number))
    else:
        warnings.warn(message, ExecutorWarning, stacklevel=3)


def quarantined() -> list[tuple[str, str, str]]:
    """Return (executor, operation, refusal) for each checker that is not called again."""
    return [(ex.name, str(symbol), message) for ex, kept in QUARANTINE.items() for symbol, message in kept.items()]


def guarded(what: str, ex: Executor, line: BoundSymbol, where: str | None, run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run a part of `ex` that compiles; what it raises becomes an ExecutorError that names the executor.

    A missing grad rule is no fault of the part that needed it, and a refusal none at all: both stay what they are.
    """
    try:
        return run(*args, **kwargs)
    except (NoGradRule, CannotFuse):
        raise
    except Exception as error:
        raise ExecutorError(account(what, ex, line, error, where)) from error


def blame(error: Exception) -> None:
    """Add a note to an error raised by a compiled program: the line that failed and the executor that ran it; the type stays.

    The failing line is identified by its number in the printed program, so that a program which does not fail pays nothing.
    """
    failed = None if isinstance(error, ContractError) else failing(error.__traceback__)
    if failed is None:
        return
    trace, line = failed
    ex = BY_NAME.get(line.implementation.executor)
    who = named(ex) if ex is not None else line.implementation.executor
    rows = [f"raised by {who} as it ran {call(line)}, {trace.name}'s {', '.join(p.name for p in line.writes) or 'line'}"]
    rows += [f"called at {line.where}" if line.where else "", way_out(ex) if ex is not None and not isinstance(error, CollectiveError) else ""]
    note = "\n  ".join(row for row in rows if row)
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def failing(at: TracebackType | None) -> tuple[Trace, BoundSymbol] | None:
    """Return the outermost line of a program that was running, and that an executor implements."""
    while at is not None:
        if at.tb_frame.f_code is run_steps.__code__:
            line = at.tb_frame.f_locals.get("line")
            if line is not None and line.implementation is not None:
                return at.tb_frame.f_locals["trace"], line
        trace = at.tb_frame.f_globals.get("__trace__")
        if isinstance(trace, Trace) and (line := line_at(trace, at.tb_frame.f_code.co_filename, at.tb_lineno)) is not None:
            return trace, line
        at = at.tb_next
    return None


def line_at(trace: Trace, file: str, number: int) -> BoundSymbol | None:
    """Return the line of `trace` that its printed program, registered as `file`, has at this number; None where no executor runs it."""
    after = not (trace.lines and trace.lines[-1].symbol is prims.call_program)  # the row that returns
    i = number - 1 - (len(linecache.getlines(file)) - len(trace.lines) - after)
    line = trace.lines[i] if 0 <= i < len(trace.lines) else None
    return line if line is not None and line.implementation is not None else None
