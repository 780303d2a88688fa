"""Programs that raise when they run: the call starts again in eager mode, so that all happens that the function does before the error.

A program computes first, and changes objects and tensors from outside at its end.  Where the computation raises, nothing has changed yet, while
eager mode has done what precedes the error in the function.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from operator import and_
from typing import Any

from dovetail import prims
from dovetail.compiler.pipeline import Programs
from dovetail.executors import blame
from dovetail.executors.trials.judge import GradientDisagreement
from dovetail.frontend.decisions.generators import Generators
from dovetail.frontend.environment import Acquired
from dovetail.frontend.interpreter.tracebacks import error_text
from dovetail.trace import BoundSymbol, Proxy
from dovetail.trace.aliases import root_of, view_bases
from dovetail.trace.passes.functionalize import written_inputs
from dovetail.trace.raising import fails_late, raises


def name_of(fn: Callable) -> str:
    """Return the name of a function or a module for messages."""
    return getattr(fn, "__qualname__", type(fn).__name__)


class Unfinished(Exception):
    """A program has raised its cause before it changed anything outside."""


def generators_of(acquired: Acquired, programs: Programs) -> Generators | None:
    """Return the random generators to set back before a call starts again; None where it could not, or would change nothing before an error."""
    changes = acquired.changes or (bool(programs.epilogue) and bool(written_inputs(programs.epilogue[-1])))
    lines = [line for line in programs.computation[-1].lines if line.symbol is not prims.delete]
    generators = Generators()
    inputs = programs.computation[-1].inputs
    if not changes or acquired.calls or programs.compilation.distribution is not None or not _may_end_early(lines, inputs):
        return None
    return generators if generators.note(lines) is None else None


def _may_end_early(lines: Sequence[BoundSymbol], inputs: Sequence[Proxy]) -> bool:
    """Return whether a program may raise, and has written none of its inputs then; one that writes none may, since anything can fail."""
    bases, outside = view_bases(lines), set(inputs)
    written = [() if line.implementation is None else line.implementation.writes for line in lines]
    writing = [any([root_of(p, bases) in outside for p in places]) for places in written]
    return not any(writing) or (any(map(raises, lines)) and not any(map(and_, writing, fails_late(lines))))


def before_changes(compute: Callable) -> Callable:
    """Return a computation that raises Unfinished from the errors of `compute`."""

    def run(*inputs: Any) -> Any:
        try:
            return compute(*inputs)
        except GradientDisagreement:
            raise
        except Exception as error:
            blame(error)
            raise Unfinished from error

    return run


def starting_again(fn: Callable, generators: Generators, call: Callable) -> Callable:
    """Return `call`, a compiled call of `fn`, such that it runs that in eager mode where the program ends unfinished."""

    def whole(args: tuple, kwargs: dict) -> Any:
        before = generators.state() if generators.any else {}
        try:
            return call(args, kwargs)
        except Unfinished as unfinished:
            raised = "\n  ".join([error_text(unfinished.__cause__), *getattr(unfinished.__cause__, "__notes__", ["please report it as a bug"])])
        generators.restore(before)
        result = fn(*args, **kwargs)
        warnings.warn(f"{name_of(fn)} raised as a compiled program what it does not in eager mode, in which this call ran: {raised}", stacklevel=4)
        return result

    return whole
