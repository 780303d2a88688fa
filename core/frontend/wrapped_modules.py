"""Modules that torch.distributed wraps: what is compiled of them, and how gradients reach the wrapper."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

from torch import nn

from dovetail.langs.torch import is_distributed
from dovetail.torch_internals import ACTIVE_DDP

FIRST_BUCKET = 1 << 20  # bytes of gradients that DistributedDataParallel waits for before it reduces the first of them


def gradient_stage_bytes() -> int | None:
    """Return how many bytes of gradients a backward hands over at once while it runs; None outside of DistributedDataParallel."""
    if not is_distributed() or ACTIVE_DDP.value is None:
        return None
    wrapper = ACTIVE_DDP.value()
    return None if wrapper is None else min(FIRST_BUCKET, wrapper.bucket_bytes_cap)


def is_data_parallel(module: Any) -> bool:
    """Return whether a module is torch's DistributedDataParallel."""
    return isinstance(module, nn.parallel.DistributedDataParallel)


class _Inner:
    """A wrapper with a compiled module in the place of its own: all else is the wrapper's."""

    def __init__(self, wrapper: nn.Module, compiled: Callable):
        vars(self).update(_wrapper=wrapper, module=compiled)

    def __getattr__(self, name: str) -> Any:
        function = getattr(type(self._wrapper), name, None)
        return MethodType(function, self) if type(function) is FunctionType else getattr(self._wrapper, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._wrapper, name, value)


def compiled_inside(wrapper: nn.Module, compiled: nn.Module) -> Callable[..., Any]:
    """Return the call of a wrapper whose own forward runs eagerly, around the compiled module."""
    inner = _Inner(wrapper, compiled)
    forward = type(wrapper).forward

    def call(*args: Any, **kwargs: Any) -> Any:
        return forward(inner, *args, **kwargs)

    call.cache_info, call.clear_cache, call.explain_miss = compiled.cache_info, compiled.clear_cache, compiled.explain_miss
    return call
