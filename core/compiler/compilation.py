"""How passes are run: the arguments that a pass may request, and the runner for all programs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch

from dovetail import options
from dovetail.errors import DovetailError
from dovetail.executors import FusionExecutor, Priority
from dovetail.executors.trials.budget import Account
from dovetail.frontend.shards import Layout
from dovetail.trace import Environment, Proxy, Trace, run_pass
from dovetail.trace.passes.grad import registered

Pass = Callable[..., Any]  # from a trace, and fields of the compilation, to a trace; see `run`


class Distribution(Protocol):
    """How the parameters of a module lie on the ranks of a mesh, and what follows for its programs."""

    def owns(self, x: torch.Tensor) -> bool:
        """Return whether x is a DTensor that programs may take."""

    def rewrite(self, computation: Trace, tensors: Mapping[Proxy, torch.Tensor]) -> list[Trace]:
        """Return the steps from the program of one process to that of a rank; `tensors` are what the inputs stand for."""


@dataclass(frozen=True)
class Compilation:
    """The arguments of the passes over the programs of one call; a pass gets the fields that its parameters name.

    Attributes:
        executors: who runs operations, in priority order.
        passes: the user's, from `jit(passes=[...])`.
        recompute: which values the backward computes again: "none", "balanced" or "all".
        account: the budget of trials; None where nothing is tried.
        check: whether executors are held to the run-time contract.
        history: whether results may get a history, since grad mode is on or the program switches it on.
        epilogue: the program that runs eagerly after the computation.
        written: the inputs that the epilogue writes.
        updates: the results that differ in few places from large inputs, which they are written into.
        rules: which grad rules a line has.
        constant: the values that pass no gradient on.
        detached: the results without a history, since they are only written to storage behind autograd's back.
        environment: what grad rules record in; None for a plain one.
        stage_bytes: how many bytes of gradients the backward hands over at once while it runs; None where it returns all at its end.
        distribution: how parameters lie on the ranks of a mesh; None for the programs of one process.
        layouts: of the inputs that are DTensors, by their numbers.
        as_results: whether cotangents are laid out as the results are; those of DTensors are row-major.
        settled: opens the context of what is compiled later, such as gradients of gradients.
    """

    executors: Priority
    passes: tuple[Pass, ...] = ()
    recompute: str = "balanced"
    account: Account | None = None
    check: bool = field(default_factory=options.CHECK.read)
    history: bool = True
    epilogue: Trace | None = None
    written: tuple[Proxy, ...] = ()
    updates: Collection[Proxy] = ()
    rules: Callable[..., Iterable[Callable]] = registered
    constant: Collection[Proxy] = ()
    detached: Collection[Proxy] = ()
    environment: Environment | None = None
    stage_bytes: int | None = None
    distribution: Distribution | None = None
    layouts: Mapping[int, Layout] = field(default_factory=dict)
    as_results: bool = True
    settled: Callable[[], AbstractContextManager[None]] = nullcontext

    def later(self) -> Compilation:
        """Return the arguments for compilations after this one: the acquired program is gone by then."""
        return replace(self, environment=None, epilogue=None)

    @property
    def fused(self) -> bool:
        """Whether an executor fuses operations, which makes recomputing cheap ones cheaper."""
        return any([isinstance(ex, FusionExecutor) for ex in self.executors])


def parameters(step: Pass) -> tuple[str, ...]:
    """Return the names of what a pass takes besides its trace."""
    code = step.__code__
    return code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]


def apply(step: Pass, trace: Trace, compilation: Compilation) -> Any:
    """Return the result of one pass on `trace`, with the fields of `compilation` that it names.

    Raises DovetailError where a parameter is no field.
    """
    try:
        arguments = {name: getattr(compilation, name) for name in parameters(step)}
    except AttributeError as error:
        fields = ", ".join([*Compilation.__dataclass_fields__, "fused"])
        raise DovetailError(f"the pass {step.__name__} has a parameter {error.name!r}; a pass takes a trace, and any of {fields}") from None
    return run_pass(step, trace, **arguments)


def run(steps: Iterable[Pass], trace: Trace, compilation: Compilation) -> list[Trace]:
    """Return `trace` and the result of each pass, each run on the result of the one before.

    A pass returns a trace, or a list of traces, each of which is kept.  One that changes nothing returns its argument, which is kept
    once.
    """
    programs = [trace]
    for step in steps:
        result = apply(step, programs[-1], compilation)
        if isinstance(result, list):
            programs += result
        elif result is not programs[-1]:
            programs.append(result)
    return programs
