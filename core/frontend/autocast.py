"""torch.autocast while tracing: an operation gets the casts that it gets in eager mode, which torch itself is asked about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from dovetail.langs.torch import TO_TORCH, OpaqueSymbol, TorchSymbol, dtypes_of_results
from dovetail.prims import Symbol
from dovetail.trace import TensorProxy, leaves, tree_map

_DEVICES = ("cpu", "cuda")


def autocast_state() -> tuple:
    """For each kind of device whose autocast is on, the dtype that it casts to."""
    return tuple([(device, torch.get_autocast_dtype(device)) for device in _DEVICES if torch.is_autocast_enabled(device)])


@contextmanager
def autocast_off() -> Iterator[None]:
    """While open, autocast is off in this thread."""
    on = [device for device, _ in autocast_state()]
    for device in on:
        torch.set_autocast_enabled(device, False)
    try:
        yield
    finally:
        for device in on:
            torch.set_autocast_enabled(device, True)


def off(run: Callable) -> Callable:
    """`run` with autocast off: its program has the casts in it."""

    def outside(*inputs: Any) -> Any:
        with autocast_off():
            return run(*inputs)

    return outside


def cast(symbol: Symbol, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """The arguments of a torch operation as autocast gives them to it.

    torch says which operations it casts, and how, by the dtype of what they give on tensors without values, with autocast and without.
    """
    if not isinstance(symbol, (TorchSymbol, OpaqueSymbol)) or symbol.callable is None:
        return args, kwargs
    state = dict(autocast_state())
    mine = [x for x in leaves((args, kwargs)) if isinstance(x, TensorProxy) and x.spec.dtype.kind == "float" and x.spec.device.type in state]
    if not mine or any([x.spec.dtype.bytes > 4 for x in mine]):
        return args, kwargs
    with_casts = dtypes_of_results(symbol.callable, args, kwargs)
    with autocast_off():
        without = dtypes_of_results(symbol.callable, args, kwargs)
    target = next((dtype for dtype in with_casts or () if dtype.is_floating_point), None)
    if target is None or with_casts == without:
        return args, kwargs
    chosen = set(mine)

    def cast(x: Any) -> Any:
        return x.to(target) if isinstance(x, TensorProxy) and x in chosen and TO_TORCH[x.spec.dtype] is not target else x

    return tree_map(cast, (args, kwargs))
