"""Arguments of a tracked run for code of torch's and of this package, which runs natively."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import torch

from dovetail.frontend.class_lookup import lookup
from dovetail.frontend.classify_calls import is_module_class, is_symbol_class, is_torch
from dovetail.frontend.recording.generators import guard_same
from dovetail.langs.torch.process_groups import names_ranks
from dovetail.prims import Symbol
from dovetail.trace import is_proxy

if TYPE_CHECKING:
    from dovetail.frontend.interpreter.tracking.tracker import Tracker

_OF_DATA = frozenset({"tensor", "as_tensor", "asarray"})  # they take any sequence
_SIZED = frozenset(  # of these, PyTorch takes objects with `__index__` as sizes and indices; other functions refuse them
    {
        "reshape",
        "view",
        "expand",
        "broadcast_to",
        "repeat",
        "tile",
        "narrow",
        "select",
        "select_scatter",
        "topk",
        "tril",
        "triu",
        "eye",
        "pad",
        "unflatten",
    }
    | {f"{prefix}{name}" for prefix in ("", "new_") for name in ("zeros", "ones", "empty", "full", "rand", "randn", "randint", "empty_strided")}
    | {
        "randperm",
        "interpolate",
        "as_strided",
        "permute",
        "resize_",
        "view_copy",
        "expand_copy",
        "constant_pad_nd",
        "split_with_sizes",
        "sparse_coo_tensor",
    }
)


def native_arguments(tracker: Tracker, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Return the arguments of a call for code of ours or of torch's."""
    args, kwargs = tuple([native_argument(tracker, x) for x in args]), {name: native_argument(tracker, x) for name, x in kwargs.items()}
    name = function.name if isinstance(function, Symbol) else getattr(function, "__name__", "")
    if (name := name.rpartition(".")[2]) in _OF_DATA and args:
        return (tracker.listed(args[0]), *args[1:]), kwargs
    if name in _SIZED:
        return tuple(map(tracker.as_sizes, args)), {name: tracker.as_sizes(x) for name, x in kwargs.items()}
    return args, kwargs


def native_argument(tracker: Tracker, value: Any) -> Any:
    """Return an argument for code of ours or of torch's: containers become plain, calls of functions return to the tracker."""
    kind = type(value)
    if kind is FunctionType or kind is MethodType:
        return tracker.native(value)
    if is_module_class(kind) or kind is partial or (type(lookup(kind, "__call__")) is FunctionType and not is_symbol_class(kind)):
        return value if isinstance(value, type) or is_torch(value) else tracker.reentrant(value)
    return held(tracker, tracker.plain(value))


def held(tracker: Tracker, value: Any) -> Any:
    """Return what lines of the program hold of an argument: for a generator the one that they draw from, and a group of ranks that is the same."""
    if is_proxy(value) or type(value) in tracker.atoms:
        return value
    if type(value) is torch.Generator:
        return tracker.recorder.generators.drawn_from(tracker, value)
    if names_ranks(value):
        guard_same(tracker, value)
    return value
