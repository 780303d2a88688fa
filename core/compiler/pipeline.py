"""Everything that happens to a program, from a call of a Python function to functions that run.  Read this file first.

    ACQUIRE         run the function on proxies: record a trace, and guards on what the function read
    FUNCTIONALIZE   turn writes and views into values: a pure computation, and an epilogue that writes inputs and creates views afterwards
    distribution    rewrite the program of one process to that of a rank
    transforms      those of `jit(passes=[...])` may change the prologue, which checks guards and finds inputs, computation and epilogue
    SIMPLIFY        remove dead code and common subexpressions
    DIFFERENTIATE   where a result needs a gradient, and `recorded.py` does not leave that to autograd, compute results and gradients in one
                    joint program
    SPLIT           split that into a forward and a backward
    LOWER           give each line of each program to an executor, then order lines and free memory
    GENERATE        print each program as Python, and compile that

`compile_programs` runs all but the first and the last; `entry.py` calls it, and joins prologue, computation and epilogue to one function.
A function that needs values of tensors, as for an `if`, has several such programs: `decisions.py` sends them through the pipeline one by one.
`training.py` connects forward and backward to eager autograd; the backwards that it compiles later go through `lower` as well.

To add a pass, write a function from trace to trace and name it in a tuple below.  A further parameter is filled with the field of that name
of `Compilation`: `def split(joint, *, recompute, written, fused)`.  Every program that a pass makes is kept, for `dovetail.last_traces`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch

from dovetail import options, prims
from dovetail.compiler.compilation import Compilation, apply, run
from dovetail.compiler.passes import check_contract, has_transforms, transformed, update_temporaries, updates_of, user_passes, write_in_place
from dovetail.compiler.recorded import is_recorded, may_be_recorded
from dovetail.errors import InvalidTrace, NoGradRule, Unsupported
from dovetail.executors import GradRules, dispatch, rewrite
from dovetail.frontend import bytecode, native
from dovetail.frontend.environment import Acquired
from dovetail.frontend.guards.overlap import memory_overlap
from dovetail.frontend.shards import layouts_of
from dovetail.prims import Tag
from dovetail.trace import (
    JointTrace,
    Proxy,
    Trace,
    constants_of,
    cse,
    dce,
    deliver,
    erase_replicas,
    functionalize,
    grad,
    overlap,
    philox,
    prefetch,
    proxies,
    release,
    requires_grad,
    run_pass,
    schedule,
    sizes,
    split,
    take_saved,
    to_callable,
    written_inputs,
)

COMPUTATION, FORWARD, BACKWARD, RECORDED, EPILOGUE = ALL = ("computation", "forward", "backward", "recorded", "epilogue")
MAIN = (COMPUTATION, FORWARD, BACKWARD, RECORDED)  # those that compute; the epilogue only copies and creates views

ACQUIRE = {  # by the option `interpretation`
    "bytecode": bytecode.acquire,  # interpret the function's bytecode, and guard all that it reads
    "native": native.acquire,  # call the function once on proxies
}

FUNCTIONALIZE = functionalize

SIMPLIFY = {  # by the option `random`
    "generator": (dce, cse),
    "philox": (philox, dce, cse),  # random numbers become functions of a seed and a counter
}

DIFFERENTIATE = (grad, erase_replicas, dce)

SPLIT = split

LOWER = (
    # a pass           and the programs that it runs on
    (erase_replicas, (COMPUTATION, RECORDED)),  # markers of parameters that ranks have copies of
    (prefetch, MAIN),  # parameters in parts are gathered one step ahead
    (rewrite, MAIN),  # each executor may rewrite the program before lines are offered
    (dispatch, ALL),  # each line goes to the first executor that claims it, and regions are fused
    (sizes, ALL),  # symbols of sizes are read off the inputs
    (schedule, MAIN),  # the order of lines that holds the least memory
    (overlap, MAIN),  # collectives run beside lines that do not need them
    (update_temporaries, (COMPUTATION, FORWARD, BACKWARD)),  # what changes places of a tensor writes into it, where that is the program's own
    (write_in_place, (COMPUTATION,)),  # regions write into inputs that are overwritten anyway
    (deliver, (BACKWARD,)),  # gradients are handed over while the backward still runs
    (take_saved, (BACKWARD,)),  # the backward alone holds what was saved for it
    (release, MAIN),  # values are deleted after their last use
    (user_passes, MAIN),  # jit(passes=[...])
    (check_contract, ALL),  # the option `check`
)

GENERATE = to_callable


@dataclass
class Programs:
    """The programs of one call, each with all steps from its first form to the one that runs.

    Attributes:
        prologue: checks the guards, unpacks the inputs, and runs the rest, which `entry.py` binds to it.
        computation: from the traced program to the computation that runs, or to the forward where there is a backward.
        epilogue: writes inputs and creates views; empty where there is nothing to do.
        trained: forward and backward with their joint program; None where no gradient is needed, or autograd records the computation.
        compilation: the arguments of the passes.
        recorded: whether autograd records the computation as it runs.
    """

    prologue: Trace
    computation: list[Trace]
    epilogue: list[Trace]
    trained: Trained | None
    compilation: Compilation
    recorded: bool = False


@dataclass
class Trained:
    """A computation with its gradient.

    Attributes:
        joint: results and gradients in one program.
        forward: the steps from the computation to the forward that runs.
        backward: the steps from what was split off to the backward that runs.
        rules: how lines were differentiated; None for a program that is differentiated by registered rules alone.
        twice: returns a joint program in which every line has a gradient, for gradients of gradients; None where `joint` is that.
    """

    joint: JointTrace
    forward: list[Trace]
    backward: list[Trace]
    rules: GradRules | None = None
    twice: Callable[[], JointTrace] | None = None


def compile_programs(acquired: Acquired, compilation: Compilation) -> Programs:
    """Run every pass over an acquired program.

    Raises Unsupported where the program writes an input that shares memory with another.
    """
    traced = acquired.trace
    computation, epilogue = apply(FUNCTIONALIZE, traced, compilation)
    compilation = replace(compilation, epilogue=epilogue, written=tuple(written_inputs(epilogue)))
    _refuse_overlap(acquired, compilation.written)

    steps, prologue = [traced], None
    if has_transforms(compilation.passes):
        steps, prologue = [traced, computation], _prologue(acquired, compilation)
        acquired.freeze_guards()
        prologue, computation, epilogue = transformed(compilation.passes, prologue, computation, epilogue)
        compilation = replace(compilation, epilogue=epilogue)

    if compilation.distribution is not None:
        if acquired.differentiates:
            raise Unsupported(
                "backward() of a distributed model inside a compiled function is not traced: the gradients would stay this process's own; "
                "compile the model alone, and call backward() and optimizer.step() outside"
            )
        tensors = dict(zip(traced.inputs, acquired.tensors, strict=True))
        steps = [*steps, *([computation] if computation not in steps else []), *compilation.distribution.rewrite(computation, tensors)]
        layouts = layouts_of(acquired.tensors)
        computation, compilation = steps[-1], replace(compilation, layouts=layouts, as_results=not layouts)

    trained, recorded = None, list[Trace]()
    constant, detached = {*constants_of(traced), *acquired.spent, *acquired.leaves}, _detached(epilogue)
    if compilation.history and _has_history(computation, constant, detached):
        compilation = replace(compilation, constant=constant, detached=detached, environment=traced.environment)
        recorded = record(_whole(computation, epilogue), compilation)
        trained = train(computation, compilation) if not recorded else None
    if trained is not None:
        steps += trained.forward
    elif recorded:
        steps += recorded
    else:
        steps += infer(_whole(computation, epilogue), compilation)

    ends = lower(EPILOGUE, epilogue, compilation) if epilogue.lines or trained is not None else []
    return Programs(prologue or _prologue(acquired, compilation), steps, ends, trained, compilation, bool(recorded))


def _whole(computation: Trace, epilogue: Trace) -> Trace:
    """Return a computation that returns what the function does, where nothing is left for the epilogue."""
    return computation if epilogue.lines else replace(computation, outputs=epilogue.outputs)


def _detached(epilogue: Trace) -> set[Proxy]:
    """Return the results of the computation that the epilogue only writes to storage behind autograd's back."""
    hidden = {line.out for line in epilogue.lines if line.symbol is prims.detach}
    hides = [line.symbol is prims.copy_ and line.args[0] in hidden for line in epilogue.lines]
    seen = {p for line, hide in zip(epilogue.lines, hides, strict=True) if not hide for p in line.reads} | set(proxies(epilogue.outputs))
    return {line.args[1] for line, hide in zip(epilogue.lines, hides, strict=True) if hide} - seen


def _has_history(computation: Trace, constant: Collection[Proxy], detached: Collection[Proxy]) -> bool:
    """Return whether a gradient may flow from a result that autograd sees to an input."""
    flowing = set(filter(requires_grad, computation.inputs))
    for line in computation.lines if flowing else ():
        if not flowing.isdisjoint(line.reads):
            flowing.update([p for p in line.writes if p not in constant])
    return any([p in flowing and p not in detached for p in proxies(computation.outputs)])


def infer(computation: Trace, compilation: Compilation) -> list[Trace]:
    """Return a pure program and the steps to the one that runs, without a gradient."""
    steps = simplify(computation, compilation)
    compilation = replace(compilation, updates=updates_of(steps[-1], compilation))
    return steps + lower(COMPUTATION, steps[-1], compilation)[1:]


def record(computation: Trace, compilation: Compilation) -> list[Trace]:
    """Return a pure program and the steps to the one that autograd records as it runs; none where it needs a backward of its own."""
    if not may_be_recorded(computation, compilation):
        return []
    steps = simplify(computation, compilation)
    steps += lower(RECORDED, steps[-1], compilation)[1:]
    return steps if is_recorded(steps[-1], compilation) else []


def train(computation: Trace, compilation: Compilation) -> Trained | None:
    """Return a pure program as a forward and a backward; None where no result needs a gradient."""
    steps = simplify(computation, compilation)
    rules = GradRules(steps[-1], compilation.executors, compilation.written)
    joint = differentiate(steps[-1], replace(compilation, rules=rules))
    if joint is None:
        return None
    trained = cut(joint, compilation)
    trained.forward, trained.rules = steps + trained.forward, rules
    if rules.once:
        trained.twice = _differentiable(steps[-1], joint[-1], compilation)
    return trained


def _differentiable(computation: Trace, joint: JointTrace, compilation: Compilation) -> Callable[[], JointTrace]:
    """Return a function that differentiates a computation by registered rules; it returns `joint` where an operation has none."""

    def twice(compilation: Compilation) -> JointTrace:
        with suppress(NoGradRule):  # an operation that only its executor can differentiate
            return (differentiate(computation, compilation) or [joint])[-1]
        return joint

    def later() -> JointTrace:
        with compilation.settled():
            return twice(compilation.later())

    if any([Tag.HISTORY in line.symbol.tags for line in joint.lines]):  # backwards of the user's can only be traced now
        now = twice(compilation)
        return lambda: now
    return later


def simplify(computation: Trace, compilation: Compilation) -> list[Trace]:
    """Return a pure program and the steps to a shorter one."""
    return run(SIMPLIFY[options.RANDOM.read()], computation, compilation)


def differentiate(computation: Trace, compilation: Compilation) -> list[JointTrace] | None:
    """Return the steps of the joint program of a pure one; None where no result needs a gradient."""
    with torch.no_grad():  # real tensors that grad rules compute with are part of no graph
        steps = run(DIFFERENTIATE, computation, compilation)[1:]
    return steps if steps[-1].cotangents else None


def cut(joint: list[JointTrace], compilation: Compilation) -> Trained:
    """Return the forward and the backward that a joint program is split into, with the steps to what runs."""
    forward, backward = apply(SPLIT, joint[-1], compilation)
    forwards, backwards = lower(FORWARD, forward, compilation), lower(BACKWARD, backward, compilation)
    return Trained(joint[-1], [*joint, *forwards], backwards)


def lower(program: str, trace: Trace, compilation: Compilation) -> list[Trace]:
    """Return `trace`, which is one of ALL, and the steps to what runs."""
    return run([step for step, programs in LOWER if program in programs], trace, compilation)


def _prologue(acquired: Acquired, compilation: Compilation) -> Trace:
    """Return the guards as a program that is not bound to a computation yet."""
    return run_pass(acquired.prologue, written=list(compilation.written), run=_unbound)


def _unbound(*inputs: Any, objects: tuple = ()) -> None:
    raise InvalidTrace("this prologue is not connected to a program; call the compiled function")


def _refuse_overlap(acquired: Acquired, written: Sequence[Proxy]) -> None:
    """Raise Unsupported where a written input shares memory with another: the computation would read a copy that lacks the write."""
    tensors = dict(zip(acquired.trace.inputs, acquired.tensors, strict=True)) | acquired.trace.constants
    tensors = {p: x for p, x in tensors.items() if isinstance(x, torch.Tensor)}
    writing = tuple([tensors[p] for p in written])
    names = ", ".join(p.name for p in written)
    if memory_overlap(writing, tuple([x for p, x in tensors.items() if p not in set(written)])):
        raise Unsupported(
            f"the function writes into an argument ({names}) that shares memory with another tensor it reads; pass a clone of one of them"
        )
    if writing and memory_overlap(writing, (), tuple(acquired.buffers)):
        raise Unsupported(
            f"the function writes into a tensor ({names}) that shares memory with a buffer whose content it reads; pass a copy of one of them"
        )
