"""Torch operations that nobody has decomposed: torch's fake tensors give the meta, torch's autograd the gradient."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from dovetail.langs.torch.bridge import TO_TORCH, spec_of, torch_device
from dovetail.prims import Symbol, TensorSpec
from dovetail.trace import swap


class OpaqueSymbol(Symbol):
    """One torch callable as a symbol."""

    __slots__ = ("callable",)


def opaque(func: Callable, args: tuple, kwargs: dict) -> Any:
    """Record `func` as one line."""
    return opaque_symbol(func)(*args, **kwargs)


@cache
def opaque_symbol(func: Callable) -> OpaqueSymbol:
    """`func` as a symbol."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode()

    def meta(*args: Any, **kwargs: Any) -> Any:
        with mode, torch._C.DisableTorchFunction():
            out = func(*swap(args, _fake), **swap(kwargs, _fake))
        return swap(tuple(out) if isinstance(out, (tuple, list)) else out, spec_of)

    symbol = OpaqueSymbol("opaque", func.__name__, meta, is_prim=True)
    symbol.callable = func
    return symbol


def _fake(x: Any) -> Any:
    if not isinstance(x, TensorSpec):
        return x
    return torch.empty_strided(x.shape, x.steps, dtype=TO_TORCH[x.dtype], device=torch_device(x.device))
