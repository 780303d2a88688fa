"""What one can see of values: a nest of tuples and tensors that is equal for values that no program could tell apart."""

from __future__ import annotations

import builtins
import collections
import functools
import random
import types
import weakref
from contextvars import ContextVar
from typing import Any

import torch

_PLAIN = (int, float, str, bool, type(None), complex, bytes, type(...), range, torch.dtype, torch.device, torch.Size)
_DEEPEST = 14
UNREADABLE = "unreadable"  # a tensor that eager mode cannot read, and a program may


class Observer:
    """Observes values one after another: an object that comes again is named by the number that it had first, and so is memory of tensors."""

    def __init__(self, module: types.ModuleType):
        self.seen: dict[int, tuple[int, Any]] = {}
        self.memory: dict[int, int] = {}
        self.module = module.__name__

    def of(self, x: Any, depth: int = 0) -> Any:
        """Return what one can see of a value."""
        kind = type(x)
        if depth > _DEEPEST:
            return "deep"
        if kind in _PLAIN:
            return kind.__name__, x
        if kind is slice or (isinstance(x, type) and x.__module__ != self.module):
            return kind.__name__, str(x)
        if isinstance(x, tuple):
            return kind.__name__, [self.of(item, depth + 1) for item in x]
        if id(x) in self.seen:
            return "again", self.seen[id(x)][0]
        self.seen[id(x)] = len(self.seen), x
        return kind.__name__, self.seen[id(x)][0], self._held(x, lambda part: self.of(part, depth + 1))

    def _held(self, x: Any, of: Any) -> Any:
        if isinstance(x, torch.Tensor):
            place = self.memory.setdefault(x.untyped_storage()._cdata, len(self.memory))
            if not _is_readable(x):
                of(vars(x))  # objects behind it have the numbers that they have beside one that can be read
                return UNREADABLE
            layout = place, x.storage_offset(), x.stride(), x.dtype, tuple(x.shape), x.requires_grad, x.is_leaf
            return layout, x.detach().clone(), of(x.grad) if x.is_leaf else None, of(vars(x))
        if isinstance(x, dict):
            return [(of(key), of(item)) for key, item in x.items()], of(getattr(x, "__dict__", None))
        if isinstance(x, (list, collections.deque)):
            return [of(item) for item in x], of(getattr(x, "__dict__", None))
        if isinstance(x, (set, frozenset)):
            return sorted(map(repr, x))
        if isinstance(x, BaseException):
            chained = [type(other).__name__ for other in (x.__cause__, x.__context__)]
            return of(x.args), chained, x.__suppress_context__, [of((name, part)) for name, part in vars(x).items()]
        if isinstance(x, type):
            parts = [(name, part) for name, part in sorted(vars(x).items()) if not name.startswith(("__", "_abc")) and not callable(part)]
            return [base.__name__ for base in x.__mro__], [of(part) for part in parts if not hasattr(type(part[1]), "__get__")]
        if isinstance(x, types.FunctionType):
            return [of(content(cell)) for cell in x.__closure__ or ()], of(x.__defaults__), of(x.__kwdefaults__), of(vars(x))
        if isinstance(x, torch.nn.Module):
            names = ("training", "_parameters", "_buffers", "_modules", "calls", "mode", "memo", "extra")
            return of({name: part for name, part in vars(x).items() if name in names})
        return _parts(x, of) or self._attributes(x, of)

    def _attributes(self, x: Any, of: Any) -> Any:
        slots = getattr(type(x), "__slots__", ()) if type(x).__module__ == self.module else ()
        own = object.__getattribute__(x, "__dict__") if type(x).__dictoffset__ else None
        return of(own), [of(getattr(x, name)) for name in slots if name != "__weakref__" and hasattr(x, name)]


def _is_readable(x: torch.Tensor) -> bool:
    """Return whether eager mode lets a program read a tensor: not one of several views of one call, once their base has been written."""
    try:
        _ = x.grad_fn
    except RuntimeError:
        return False
    return True


def _parts(x: Any, of: Any) -> Any:
    if isinstance(x, types.MethodType):
        return x.__func__.__name__, of(x.__self__)
    if isinstance(x, functools.partial):
        return of(x.func), of(x.args), of(x.keywords)
    if isinstance(x, weakref.ref):
        return of(x())
    if isinstance(x, random.Random):
        return hash(x.getstate())
    if isinstance(x, types.GeneratorType):
        return of(x.gi_frame.f_locals if x.gi_frame else None)
    if isinstance(x, ContextVar):
        return of(x.get())
    return None


def content(cell: types.CellType) -> Any:
    """Return what a cell holds."""
    try:
        return cell.cell_contents
    except ValueError:
        return "empty"


def kind_of(error: BaseException) -> str:
    """Return the class of an error that a program has raised, as eager mode knows it."""
    names = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins" or not kind.__module__.startswith(("torch", "dovetail"))]
    return next(name for name in names if hasattr(builtins, name) or name in ("Halt", "Deep"))


def differences(a: Any, b: Any, path: str = "") -> str:
    """Return where two observations differ, "" where they do not."""
    if a is UNREADABLE:
        return ""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return "" if torch.allclose(a, b.to(a.dtype), rtol=1e-6, atol=1e-9, equal_nan=True) else f"{path}: {a.tolist()} and {b.tolist()}"
    if isinstance(a, float) and isinstance(b, float):
        same = a == b or (a != a and b != b) or abs(a - b) < 1e-6 * max(1, abs(a))
        return "" if same else f"{path}: {a} and {b}"
    if type(a) is type(b) and isinstance(a, (tuple, list)) and len(a) == len(b):
        return next((found for i, (x, y) in enumerate(zip(a, b, strict=True)) if (found := differences(x, y, f"{path}.{i}"))), "")
    return "" if type(a) is type(b) and a == b else f"{path}: {a!r:.200} and {b!r:.200}"
