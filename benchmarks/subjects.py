"""Who is compared, eager first: how each compiles a function, and what keeps it from being there."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import dovetail

BASELINE = "eager"
NAMES = (BASELINE, "torch.compile", "lightning-thunder", "dovetail")


@dataclass(frozen=True)
class Subject:
    """`compile` makes of a function one that is called like it; `modules` are imported first, and no time is taken of that."""

    name: str
    compile: Callable[[Callable], Callable]
    modules: tuple[str, ...] = ()


def subject(name: str) -> Subject:
    """Return the subject of that name; "dovetail:llvm+torch" is Dovetail with those executors, in that order.  Raises ValueError for other names."""
    kind, _, chosen = name.partition(":")
    if kind == "dovetail":
        executors = chosen.split("+") if chosen else None
        return Subject(name, lambda fn: dovetail.jit(fn, executors=executors), ("dovetail",))
    if name == "torch.compile":
        return Subject(name, torch.compile, ("torch._dynamo", "torch._inductor.compile_fx"))
    if name == "lightning-thunder":
        return Subject(name, lambda fn: importlib.import_module("thunder").jit(fn), ("thunder",))
    if name == BASELINE:
        return Subject(name, lambda fn: fn)
    raise ValueError(f"unknown subject {name}; expected one of {', '.join(NAMES)}, or dovetail:NAME+NAME with executors of your choice")


def absent(name: str) -> str:
    """Return why a subject cannot run, as a sentence; "" where it can."""
    if name != "lightning-thunder":
        return ""
    if importlib.util.find_spec("thunder") is None:
        return f"not installed; 0.2.6, the last that was tried, needs names that torch {torch.__version__} no longer has"
    try:
        importlib.import_module("thunder")
    except Exception as error:
        return f"installed, and cannot be imported with torch {torch.__version__}: {type(error).__name__}: {error}"
    return ""


def version(name: str) -> str:
    """Return the version of a subject."""
    if name.startswith("dovetail"):
        return dovetail.__version__
    return importlib.metadata.version("lightning-thunder") if name == "lightning-thunder" else torch.__version__


def executors() -> dict[str, str]:
    """Return Dovetail's executors that are available here, and their versions."""
    return {ex.name: str(ex.version or "") for ex in dovetail.extend.advanced.executors()}


def ran(compiled: Any) -> dict[str, int]:
    """Return how many lines of the last call's programs each executor of Dovetail ran; empty for other compilers."""
    if not hasattr(compiled, "_cache"):
        return {}
    groups = (dovetail.last_traces, dovetail.last_backward_traces, dovetail.last_epilogue_traces)
    lines = [line for group in groups for trace in group(compiled)[-1:] for line in trace.lines]
    return dict(Counter(line.implementation.executor for line in lines if line.implementation is not None))
