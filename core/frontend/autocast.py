"""torch.autocast while tracing: an operation gets the casts that it gets in eager mode, read off torch itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from dovetail.dtypes import float32, int64, uint8
from dovetail.langs.torch import TO_TORCH, OpaqueSymbol, TorchSymbol, dtypes_of_results
from dovetail.prims import Symbol
from dovetail.trace import TensorProxy, leaves, tree_map

_DEVICES = ("cpu", "cuda")
# Operations with products that autocast casts, after sums or decompositions in the dtype of the arguments: their results have its dtype.
_MULTIPLYING = frozenset((torch.cov, torch.corrcoef, torch.linalg.pinv, torch.Tensor.cov, torch.Tensor.corrcoef))


def autocast_state() -> tuple:
    """Return the dtype that autocast casts to, for each kind of device where it is on."""
    return tuple([(device, torch.get_autocast_dtype(device)) for device in _DEVICES if torch.is_autocast_enabled(device)])


@contextmanager
def autocast_off() -> Iterator[None]:
    """Turn autocast off in this thread while open."""
    on = [device for device, _ in autocast_state()]
    for device in on:
        torch.set_autocast_enabled(device, False)
    try:
        yield
    finally:
        for device in on:
            torch.set_autocast_enabled(device, True)


def off(run: Callable) -> Callable:
    """Return `run` with autocast off, for a program that contains the casts."""

    def outside(*inputs: Any) -> Any:
        with autocast_off():
            return run(*inputs)

    return outside


def cast(symbol: Symbol, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """Return the arguments of a torch operation as autocast casts them.

    Which operations it casts, and how, shows in the dtype of their results on tensors without values, with autocast and without.
    """
    if not isinstance(symbol, (TorchSymbol, OpaqueSymbol)) or symbol.callable is None:
        return args, kwargs
    state = dict(autocast_state())
    floats = [x for x in leaves((args, kwargs)) if isinstance(x, TensorProxy) and x.spec.dtype.kind == "float" and x.spec.device.type in state]
    if not floats or any([x.spec.dtype.bytes > 4 for x in floats]):
        return args, kwargs
    probed = args, kwargs
    with_casts = dtypes_of_results(symbol.callable, *probed)
    if with_casts is None:
        probed = tree_map(_with_long_classes, probed)
        with_casts = dtypes_of_results(symbol.callable, *probed)
    with autocast_off():
        without = dtypes_of_results(symbol.callable, *probed)
    target = next((dtype for dtype in with_casts or () if dtype.is_floating_point), None)
    if target is None or (with_casts == without and not _casts_mixed(symbol.callable, args, kwargs, floats)):
        return args, kwargs
    chosen = set(floats)

    def cast(x: Any) -> Any:
        return x.to(target) if isinstance(x, TensorProxy) and x in chosen and TO_TORCH[x.spec.dtype] is not target else x

    return tree_map(cast, (args, kwargs))


def cast_results(symbol: Symbol, results: Any) -> Any:
    """Return the results of a torch operation as autocast leaves them where the operation multiplies what it computes of its arguments."""
    if getattr(symbol, "callable", None) not in _MULTIPLYING:
        return results
    state = dict(autocast_state())

    def cast(x: Any) -> Any:
        spec = x.spec if isinstance(x, TensorProxy) else None
        if spec is None or spec.dtype.kind != "float" or spec.dtype.bytes > 4 or spec.device.type not in state:
            return x
        return x.to(state[spec.device.type])

    return tree_map(cast, results)


def _with_long_classes(x: Any) -> Any:
    """Return a spec of int64 in place of uint8: torch computes nll_loss of classes in uint8, but not without values."""
    return x.spec.like(dtype=int64) if isinstance(x, TensorProxy) and x.spec.dtype is uint8 else x


def _casts_mixed(callable: Callable, args: tuple, kwargs: dict, floats: list[TensorProxy]) -> bool:
    """Return whether autocast casts arguments of several dtypes: whether it casts them where all are float32.

    Without values torch multiplies a bf16 matrix with a float32 one, which the real operation refuses.
    """
    if len({x.spec.dtype for x in floats}) == 1:
        return False
    chosen = set(floats)
    args, kwargs = tree_map(lambda x: x.spec.like(dtype=float32) if isinstance(x, TensorProxy) and x in chosen else x, (args, kwargs))
    with_casts = dtypes_of_results(callable, args, kwargs)
    with autocast_off():
        return with_casts is not None and with_casts != dtypes_of_results(callable, args, kwargs)
