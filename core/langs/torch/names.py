"""What torch's callables are called."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch.overrides import resolve_name

from dovetail.errors import Unsupported
from dovetail.langs.torch.symbol import resolve
from dovetail.trace import user_line

_PLACES = (
    *("torch", "torch.Tensor", "torch.nn.functional", "torch.linalg", "torch.fft", "torch.special", "torch.nn.init"),
    *("torch._VF", "torch._C._nn", "torch._C._linalg", "torch._C._fft", "torch._C._special", "torch._C._nested", "torch._C._VariableFunctions"),
)


@cache
def dotted(func: Callable) -> str:
    """The name under which a program that imports torch finds `func`: dotted(torch.Tensor.sin) == "torch.Tensor.sin"."""
    if isinstance(func, torch._ops.OpOverload):
        return f"torch.ops.{func._schema.name.replace('::', '.')}.{func._overloadname}"
    if isinstance(func, torch._ops.OpOverloadPacket):
        return f"torch.ops.{func._qualified_op_name.replace('::', '.')}"
    for name in _candidates(func):
        if resolve(name) is func:
            return name
    raise not_traced(func, "torch gives it no name that a program could call it by; call it outside the compiled function")


def _candidates(func: Any) -> list[str]:
    name = getattr(func, "__name__", "")
    owner = getattr(func, "__module__", None)
    known = resolve_name(func)
    return [*([known] if known else []), *([f"{owner}.{name}"] if owner else []), *(f"{place}.{name}" for place in _PLACES)]


def name_of(func: Any) -> str:
    """The dotted name of a torch callable for messages; always an answer."""
    if (known := resolve_name(func)) is not None:
        return known
    owner = getattr(func, "__module__", None) or "torch"
    return f"{owner}.{getattr(func, '__name__', func)}".replace("torch._C._nn", "torch.nn.functional").replace("torch._VF", "torch")


def not_traced(func: Any, why: str, where: str | None = None) -> Unsupported:
    """The error that says so, where, and the way out; `func` may be a partial of the torch callable."""
    while isinstance(func, partial):
        func = func.args[0]
    return Unsupported(f"{name_of(func)} is not traced: {why}\n  called at {where or user_line()}")
