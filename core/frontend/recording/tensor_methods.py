"""What classes of tensors have under the names that a program reads: torch's own methods, or what was put in their place."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path
from types import FunctionType, MethodDescriptorType
from typing import TYPE_CHECKING, Any

import torch

from dovetail.errors import Unsupported
from dovetail.frontend.class_lookup import NULL, address_of
from dovetail.frontend.interpreter.protocols import REFLECTED_COMPARISONS, dunder
from dovetail.torch_internals import TENSOR_BASE

if TYPE_CHECKING:
    from dovetail.frontend.interpreter.tracking.tracker import Tracker

_TORCH = str(Path(torch.__file__).parent)
_OWN = {cls: dict(vars(cls)) for cls in (torch.Tensor, torch.nn.Parameter)}
_FACTS = ("shape", "size", "stride", "dim", "dtype", "device", "layout", "requires_grad", "is_leaf", "data_ptr", "untyped_storage", "is_quantized")
_PROTOCOLS = {"get_item": "__getitem__", "set_item": "__setitem__", "contains": "__contains__", "len": "__len__", "iter": "__iter__"}


def _namespace(cls: type) -> dict[str, Any]:
    """Return the dictionary behind `cls.__dict__`."""
    return _NAMESPACES.get(cls) or next(value for value in gc.get_referents(cls.__dict__) if type(value) is dict)


_NAMESPACES: dict[type, dict[str, Any]] = {}
_NAMESPACES |= {cls: _namespace(cls) for cls in _OWN}


def check_facts() -> None:
    """Raise Unsupported where something replaces a property of tensors that Dovetail itself reads, and guards."""
    for name in _FACTS:
        if name in vars(torch.Tensor) and vars(torch.Tensor)[name] is not _OWN[torch.Tensor].get(name, NULL):
            raise Unsupported(f"torch.Tensor.{name} has been replaced, and compiled functions are guarded by what torch's own returns; restore it")


def _is_own(cls: type, name: str, raw: Any) -> bool:
    """Return whether torch itself has put `raw` into a class of tensors."""
    if type(raw) is FunctionType and not raw.__code__.co_filename.startswith(_TORCH):
        return False
    return _OWN[cls].get(name, NULL) is raw


def _is_derived(cls: type) -> bool:
    """Return whether a class of tensors is not torch's."""
    return issubclass(cls, torch.Tensor) and cls.__module__.partition(".")[0] != "torch"


def replaced(tracker: Tracker, cls: type, name: str) -> Any:
    """Return the attribute that replaces torch's own in a class of tensors, NULL where none does; either is guarded.

    A check of a dictionary costs a prologue in C some ten nanoseconds; TENSOR_BASE, which has most methods, cannot be changed.
    """
    for base in cls.__mro__:
        if base is TENSOR_BASE:
            break
        namespace = _namespace(base)
        source = tracker.sources.const(namespace)
        if source.path is None:
            source.path = tracker.sources.attr(tracker.sources.const(base), "__dict__")
        if name not in namespace:
            tracker.guard("hasnot", source, name)
            continue
        raw = namespace[name]
        tracker.guard("is", tracker.sources.item(source, name), raw)
        if _is_own(base, name, raw) if base in _OWN else not _is_derived(base):
            return NULL
        tracker.known.setdefault(address_of(raw), (raw, tracker.sources.const(raw)))
        return raw
    return NULL


def replaced_attribute(tracker: Tracker, owner: Any, cls: type, name: str) -> Any:
    """Return `owner.name` of a traced tensor where an attribute of its class replaces torch's own; else NULL."""
    raw = replaced(tracker, cls, name)
    if raw is NULL:
        return NULL
    if type(raw) is MethodDescriptorType and issubclass(raw.__objclass__, TENSOR_BASE):
        return getattr(owner, raw.__name__)
    return tracker.bound(raw, owner, cls, name)


def replaced_operator(tracker: Tracker, op: Any, operands: Sequence[tuple[Any, type | None]]) -> Any:
    """Return the result of an operator, where a method of a traced tensor replaces torch's own; else NULL.

    An operand has the class of a tensor, or None.
    """
    name = _PROTOCOLS.get(op) if isinstance(op, str) else dunder(op)
    values, kinds = [value for value, _ in operands], [kind for _, kind in operands]
    if len(kinds) == 2 and None not in kinds and kinds[0] is not kinds[1] and issubclass(kinds[1], kinds[0]) and not isinstance(op, str):
        raw = replaced(tracker, kinds[1], REFLECTED_COMPARISONS.get(name) or f"__r{name[2:]}")  # which goes first
        if raw is not NULL and (result := tracker.call(raw, values[::-1], {}, None)) is not NotImplemented:
            return result
    if (cls := operands[0][1]) is not None:
        if (raw := replaced(tracker, cls, name)) is NULL:
            return NULL
        result = tracker.call(raw, values, {}, None)
        if result is not NotImplemented:
            return result
    if len(operands) == 2 and (cls := operands[1][1]) is not None and not isinstance(op, str):
        reflected = REFLECTED_COMPARISONS.get(name) or f"__r{name[2:]}"
        if (raw := replaced(tracker, cls, reflected)) is not NULL:
            return tracker.call(raw, values[::-1], {}, None)
    return NULL
