"""torch.cond and torch.while_loop in a traced function: the Python that they stand for, which is interpreted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

_SOURCE = """
def cond(pred, true_fn, false_fn, operands=()):
    return true_fn(*operands) if pred else false_fn(*operands)

def while_loop(cond_fn, body_fn, carried_inputs):
    while cond_fn(*carried_inputs):
        carried_inputs = body_fn(*carried_inputs)
    return (*carried_inputs,)
"""
_FILE = str(Path(torch.__file__).parent / "control_flow")  # among those of torch, so that messages name the line of the call


def _programs() -> dict[Any, Callable]:
    functions: dict[str, Any] = {"__name__": "torch.control_flow"}
    exec(compile(_SOURCE, _FILE, "exec"), functions)
    return {getattr(torch, name): functions[name] for name in ("cond", "while_loop") if hasattr(torch, name)}


CONTROL_FLOW = _programs()
