"""The passes that depend on what the user requested: their own passes and transforms, writes into inputs, and the run-time contract."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial
from typing import Any

from dovetail import prims
from dovetail.compiler.compilation import Compilation, Pass
from dovetail.errors import InvalidTrace
from dovetail.executors import Priority, checked, in_place, in_temporaries, updates
from dovetail.trace import Proxy, Trace, Transform, requires_grad, run_pass


def user_passes(trace: Trace, passes: Iterable[Pass]) -> list[Trace]:
    """Return the result of each pass of `jit(passes=[...])`, each run on the result of the one before."""
    programs: list[Trace] = []
    for step in passes:
        programs.append(run_pass(partial(_derived, step), programs[-1] if programs else trace))
    return programs


def _derived(step: Pass, trace: Trace) -> Trace:
    """Return step(trace).  Raises InvalidTrace where that is no program."""
    result = step(trace)
    if not isinstance(result, Trace):
        name = getattr(step, "__qualname__", type(step).__qualname__)
        raise InvalidTrace(f"the pass {name} returned {result!r}; return a Trace: trace.derive(name) begins a new one")
    return result


def check_contract(trace: Trace, check: bool) -> Trace:
    """Check the contract of every implementation as it runs, where the option `check` is on."""
    return checked(trace) if check else trace


def write_in_place(
    trace: Trace, executors: Priority, epilogue: Trace | None, written: Collection[Proxy], history: bool, check: bool, passes: Collection[Pass]
) -> Trace:
    """Let programs write results into the inputs that the epilogue would copy them to."""
    return in_place(trace, epilogue=epilogue, executors=executors) if _may_write(epilogue, written, history, check, passes) else trace


def update_temporaries(trace: Trace, executors: Priority, check: bool, passes: Collection[Pass]) -> Trace:
    """Let operations that change places of a tensor write into it, where the program has created it and no longer needs it."""
    return trace if check or checked in passes else in_temporaries(trace, executors)


def updates_of(trace: Trace, compilation: Compilation) -> Collection[Proxy]:
    """Return the results of `trace` that differ in few places from the inputs that `write_in_place` lets it write."""
    c = compilation
    return updates(trace, c.epilogue) if _may_write(c.epilogue, c.written, c.history, c.check, c.passes) else ()


def _may_write(epilogue: Trace | None, written: Collection[Proxy], history: bool, check: bool, passes: Collection[Pass]) -> bool:
    """Return whether a program may write into inputs: neither does autograd follow one of them, nor does a check compare them before and after."""
    if not written or check or checked in passes:
        return False
    return not (history and any([line.symbol is prims.copy_ and requires_grad(line.args[0]) for line in epilogue.lines]))


def has_transforms(passes: Iterable[Any]) -> bool:
    """Return whether one of the user's passes changes more than one program."""
    return any([isinstance(step, Transform) for step in passes])


def transformed(passes: Iterable[Any], prologue: Trace, computation: Trace, epilogue: Trace) -> tuple[Trace, Trace, Trace]:
    """Return the three programs after the transforms among `passes`, in their order.

    Raises InvalidTrace where the prologue no longer ends in the call of the computation.
    """
    for step in passes:
        if isinstance(step, Transform):
            prologue, computation, epilogue = step.programs(prologue, computation, epilogue)
    if not prologue.lines or prologue.lines[-1].symbol is not prims.call_program:
        raise InvalidTrace("a transform returned a prologue that does not end in prims.call_program, which runs the computation; keep that line last")
    return prologue, computation, epilogue
