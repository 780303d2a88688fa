"""Modules that torch.distributed wraps: what is compiled of them, and how gradients reach the wrapper."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


def is_sharding(kind: type) -> bool:
    """Return whether torch's `fully_shard` derived a class, that of a sharded module; its package is not imported for the question."""
    return any([base.__name__ == "FSDPModule" and base.__module__.startswith("torch.distributed.") for base in kind.__mro__])


def is_sharded(module: Any) -> bool:
    """Return whether torch's `fully_shard` has sharded a module."""
    return is_sharding(type(module))


def innermost_sharded(module: nn.Module) -> list[nn.Module]:
    """Return the modules below `module`, and the module itself, that are sharded and have no sharded ones in them."""
    return [m for m in module.modules() if is_sharded(m) and not any([is_sharded(other) for other in m.modules() if other is not m])]


def call_with(module: nn.Module, forwards: Mapping[nn.Module, Callable]) -> Callable[..., Any]:
    """Return the call of a module in which some modules have these forwards; their hooks run eagerly."""

    def call(*args: Any, **kwargs: Any) -> Any:
        before = {m: vars(m).get("forward") for m in forwards}
        for m, forward in forwards.items():
            vars(m)["forward"] = forward
        try:
            return module(*args, **kwargs)
        finally:
            for m, forward in before.items():
                vars(m).pop("forward") if forward is None else vars(m).update(forward=forward)

    first = next(iter(forwards.values()))
    call.cache_info, call.clear_cache, call.explain_miss = first.cache_info, first.clear_cache, first.explain_miss
    return call


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
