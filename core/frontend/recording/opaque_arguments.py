"""Objects that code gets which is not traced: the same ones at each call, which the program neither writes before nor reads after a change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import torch

from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.errors import EagerCall
from dovetail.frontend.class_lookup import HEAP, attributes_of
from dovetail.frontend.classify_calls import is_torch
from dovetail.frontend.interpreter.tracking.constants import is_member
from dovetail.frontend.recording.generators import guard_same
from dovetail.trace import is_proxy, leaves, user_line

if TYPE_CHECKING:
    from dovetail.frontend.guards.source import Source
    from dovetail.frontend.interpreter.tracking.tracker import Tracker


class OpaqueArguments:
    """The objects of Python classes that opaque functions, and operations of executors, get."""

    def __init__(self) -> None:
        self.changed: list[Any] = []  # those that a function has changed while it was tried on fake tensors

    @contextmanager
    def lent(self, tracker: Tracker, name: str, arguments: Any) -> Iterator[None]:
        """Guard that the objects among arguments are the same ones at each call; in the block, the function `name` is recorded."""
        objects = [x for leaf in leaves(arguments) for x in _parts(leaf) if _is_object(tracker, x)]
        for x in objects:
            self._check(tracker, name, x)
        before = list(map(attributes_of, objects))
        yield
        for x, attributes in zip(objects, before):
            if _put_back(x, attributes):
                self.changed.append(x)

    def finish(self, tracker: Tracker) -> None:
        """Raise EagerCall where the program also reads parts of what opaque code has changed."""
        for x in self.changed:
            source = tracker.source(x)
            if any([_is_below(guard.source, source) for guard in tracker.guards.values()]):
                raise EagerCall(f"a function that is not traced changes a {type(x).__name__}, which the program reads")

    @staticmethod
    def _check(tracker: Tracker, name: str, x: Any) -> None:
        kind, source = type(x).__name__, tracker.source(x)
        if source is None:
            raise EagerCall(
                f"{name}, which is not traced, may change the {kind} that it gets, which the program creates; create it outside, or pass its parts\n"
                f"  called at {user_line()}"
            )
        guard_same(tracker, x)
        owners = [tracker.source(write.owner) for write in tracker.effects.log]
        if any([owner is source or (owner is not None and _is_below(owner, source)) for owner in owners]):
            raise EagerCall(f"{name}, which is not traced, gets a {kind} that the program has written to\n  called at {user_line()}")


def _parts(x: Any) -> tuple:
    return (x.__func__, x.__self__) if type(x) is MethodType else (x,)


def _is_object(tracker: Tracker, x: Any) -> bool:
    """Return whether x is a function, or an object of a class that may keep something, and no tensor, array or number."""
    kind = type(x)
    if kind is FunctionType:
        return not is_torch(x)
    if not (kind.__flags__ & HEAP or hasattr(x, "__dict__")) or kind in tracker.atoms or is_proxy(x) or is_member(x):
        return False
    recorder = tracker.recorder
    known = recorder.is_tensor(x) or recorder.is_symbolic(x) or recorder.is_buffer(x) or recorder.is_element_type(x)
    return not known and not isinstance(x, (type, torch.Generator, BuiltinFunctionType)) and not _is_constant(tracker, x)


def _is_constant(tracker: Tracker, x: Any) -> bool:
    """Return whether the program has created x, and it never changes."""
    if tracker.source(x) is not None:
        return False
    frozen = is_dataclass(x) and type(x).__dataclass_params__.frozen
    return isinstance(x, (DType, Device)) or (frozen and all([type(value) in tracker.atoms for value in attributes_of(x).values()]))


def _put_back(x: Any, before: dict[str, Any]) -> bool:
    """Give x the attributes that it had before; return whether others have been set or deleted."""
    now = attributes_of(x)
    changed = [name for name in {**before, **now} if name not in before or name not in now or now[name] is not before[name]]
    for name in changed:
        if name in before:
            object.__setattr__(x, name, before[name])
        else:
            object.__delattr__(x, name)
    return bool(changed)


def _is_below(source: Source, other: Source) -> bool:
    """Return whether a source is a part of another one."""
    while (source := source.parent) is not None:
        if source is other:
            return True
    return False
