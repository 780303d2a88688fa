"""What Dynamo and Inductor know of the compilation they are in."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cache
from types import CodeType, FunctionType
from typing import Any

import torch

from dovetail.torch_internals.internal import Internal

CURRENT_COMPILE_ID = Internal(
    "torch._guards.CompileContext.current_compile_id",
    purpose="name graphs as Dynamo's own logs do",
    fallback="graphs are numbered in the order in which they come",
    probe=lambda ask: ask() is None,
)
COUNTERS = Internal(
    "torch._dynamo.utils.counters",
    purpose="report graph breaks before which there is no graph, and count graphs in benchmarks",
    fallback="only breaks that end a graph are reported",
    probe=lambda counters: isinstance(counters["graph_break"], Counter),
    costly=True,
)
FAKE_CONTEXT = Internal(
    "torch._guards.TracingContext",
    purpose="tell Inductor which fake tensors a graph has",
    fallback="no region is compiled by Inductor",
    probe=callable,
)
TRACING = Internal(
    "torch._guards.tracing",
    purpose="tell Inductor which fake tensors a graph has",
    fallback="no region is compiled by Inductor",
)
COMPILE_FX_INNER = Internal(
    "torch._inductor.compile_fx.compile_fx_inner",
    purpose="compile a graph by Inductor",
    fallback="no region is compiled by Inductor",
    probe=callable,
    costly=True,
)
SELECT_DECOMPOSITIONS = Internal(
    "torch._inductor.decomposition.select_decomp_table",
    purpose="take a graph apart before Inductor compiles it",
    fallback="no region is compiled by Inductor",
    probe=callable,
    costly=True,
)
SET_STRATEGY = Internal(
    "torch._C._dynamo.eval_frame.set_code_exec_strategy",
    purpose="keep Dynamo out of compiled functions that run inside torch.compile",
    fallback="Dynamo traces the code around a compiled program, and breaks the graph in it",
    probe=callable,
)
STRATEGY = Internal(
    "torch._C._dynamo.eval_frame._FrameExecStrategy",
    purpose="keep Dynamo out of compiled functions that run inside torch.compile",
    fallback="Dynamo traces the code around a compiled program, and breaks the graph in it",
    probe=callable,
)
ACTION = Internal(
    "torch._C._dynamo.eval_frame._FrameAction",
    purpose="keep Dynamo out of compiled functions that run inside torch.compile",
    fallback="Dynamo traces the code around a compiled program, and breaks the graph in it",
    probe=lambda action: hasattr(action, "SKIP"),
)
INLINES_PARAMETERS = "torch._dynamo.config.inline_inbuilt_nn_modules"  # the setting that an error names


def current_compile_id() -> Any:
    """Return Dynamo's name for what it is compiling, None outside of Dynamo."""
    ask = CURRENT_COMPILE_ID.value
    return None if ask is None else ask()


def graph_break_counts() -> Counter[str]:
    """Return how often Dynamo broke a graph, by reason; empty while Dynamo has not been imported."""
    module = sys.modules.get("torch._dynamo.utils")
    return Counter(getattr(module, "counters", {}).get("graph_break", ()))


def graph_count() -> int:
    """Return how many graphs Dynamo has given to backends in this process."""
    module = sys.modules.get("torch._dynamo.utils")
    return getattr(module, "counters", {}).get("stats", {}).get("unique_graphs", 0)


def notes_module(function: Callable) -> bool:
    """Return whether a function is Dynamo's note that a module was created."""
    return function.__module__ == "torch._dynamo.mutation_guard" and function.__name__ == "tag"


def is_set_grad_enabled(function: Any) -> bool:
    """Return whether a node of a graph switches grad mode."""
    return function is not None and function in (getattr(torch._C, "_set_grad_enabled", None), torch.set_grad_enabled)


def inductor_problem() -> str | None:
    """Return why Inductor cannot compile a graph, None where it can; imports it, which takes seconds."""
    return next((part.problem for part in (COMPILE_FX_INNER, SELECT_DECOMPOSITIONS, FAKE_CONTEXT, TRACING) if part.problem), None)


def tracing_fakes(mode: Any) -> AbstractContextManager[Any]:
    """Return a context in which Inductor finds the fake tensors of `mode`."""
    return TRACING.value(FAKE_CONTEXT.value(mode))


def compile_fx_inner(graph: Any, fakes: Sequence[Any]) -> Any:
    """Compile a graph of ATen's operations by Inductor."""
    return COMPILE_FX_INNER.value(graph, fakes)


def select_decompositions() -> dict[Any, Callable]:
    """Return Inductor's decompositions of ATen's operations."""
    return SELECT_DECOMPOSITIONS.value()


DISABLE = Internal(
    "torch._disable_dynamo",
    purpose="trace functions of torch that keep Dynamo out, such as Optimizer.zero_grad, without Dynamo's own bookkeeping",
    fallback="the bookkeeping is traced, and guarded at every call",
    probe=lambda disable: disable(len).__wrapped__ is len,
)


@cache
def _wrapper_code() -> CodeType | None:
    return None if DISABLE.usable is None else DISABLE.usable(len).__code__


def undisabled(function: FunctionType) -> Callable[..., Any] | None:
    """Return the function that `torch._disable_dynamo` has wrapped, None where `function` is no such wrapper."""
    return function.__wrapped__ if function.__code__ is _wrapper_code() else None


def compiled_by_dynamo(function: FunctionType) -> Callable[..., Any] | None:
    """Return the function that torch.compile has wrapped, None where `function` is no such wrapper."""
    attributes = function.__dict__
    return None if "_torchdynamo_disable" in attributes else attributes.get("_torchdynamo_orig_callable")


def scripted(function: torch.jit.ScriptFunction) -> Callable[..., Any] | None:
    """Return the function in Python that torch.jit.script compiled, None for one that torch.jit.trace recorded: that may compute something else."""
    is_script = getattr(function, "__name__", "") == "ScriptFunction"
    return getattr(function, "_torchdynamo_inline", None) if is_script else None


def keep_dynamo_out(function: FunctionType, reason: str) -> None:
    """Let Dynamo run `function`, and all that it calls, as it is: a graph breaks before it, and its frames are not compiled."""
    function._torchdynamo_disable = True
    function._torchdynamo_disable_msg = reason
    if (skip := _skip()) is not None:
        SET_STRATEGY.usable(function.__code__, skip)


@cache
def _skip() -> Any:
    """Return the strategy "neither this frame nor those below it", None where this torch has no such thing."""
    if SET_STRATEGY.usable is None or STRATEGY.usable is None or ACTION.usable is None:
        return None
    return STRATEGY.usable(ACTION.usable.SKIP, ACTION.usable.SKIP)
