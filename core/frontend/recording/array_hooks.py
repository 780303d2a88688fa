"""Where a tracked run of a function of tensors meets NumPy arrays; what is then done is in `inside`, and imported when it is first needed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dovetail.frontend.class_lookup import NULL
from dovetail.frontend.classify_calls import is_tensor_class, package_of
from dovetail.frontend.interpreter.tracking import Recorder
from dovetail.frontend.recording.array_choices import ArrayChoices
from dovetail.trace import Proxy, TensorProxy, is_proxy, leaves

if TYPE_CHECKING:
    from dovetail.frontend.guards.source import Source
    from dovetail.frontend.interpreter.frame import Frame
    from dovetail.frontend.interpreter.tracking.tracker import Tracker

_ARRAY = "NumpyProxy"  # the class of traced arrays, by name, since NumPy may be missing
_CREATION = ("zeros", "ones", "empty", "full")  # functions that return new arrays, which may have to be traced


def is_traced_array(value: Any) -> bool:
    """Return whether a value is a traced array."""
    return type(value).__name__ == _ARRAY


def has_arrays(tree: Any) -> bool:
    """Return whether there is an array among nested arguments, traced or real."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and any([type(x) is numpy.ndarray or type(x).__name__ == _ARRAY for x in leaves(tree)])


class ArrayHooks(Recorder):
    """The part of a recorder of tensors that looks for arrays."""

    returns_tensors = True  # whether it is one of functions of tensors
    environment: Any
    results: dict[Proxy, int]

    def __init__(self, choices: ArrayChoices | None):
        self.choices, self.inside = choices or ArrayChoices(), None

    @property
    def arrays(self) -> Any:
        """What is done with arrays."""
        if self.inside is None:
            self.inside = importlib.import_module("dovetail.frontend.arrays.inside").Arrays(self)
            self.environment.arrays, self.environment.array_inputs = self.inside, self.inside.inputs.arrays
        return self.inside

    def array(self, tracker: Tracker, drawn: Any, sample: Any) -> Any:
        return self.arrays.drawn(drawn, sample)

    def is_input(self, value: Any) -> bool:
        return is_tensor_class(type(value)) or (bool(self.choices.inputs) and id(value) in self.choices.inputs)

    def original(self, tracker: Tracker, tensor: Any) -> Source | None:
        """Return where an array from outside lies that is a result: NumPy returns the object itself."""
        return tracker.source(tensor) if self.inside is not None and tensor in self.inside.inputs.arrays else None

    def check_written(self, written: list[Proxy]) -> None:
        """Refuse inputs that the program writes and cannot write."""
        if self.inside is not None:
            self.inside.inputs.check_written(written)

    def meets(self, tracker: Tracker, target: Any, value: Any) -> None:
        if type(target).__name__ == "ndarray" and self.returns_tensors and any(map(is_proxy, leaves(value))):
            self.arrays.need(tracker, target)

    def items(self, tracker: Tracker, owner: Any, key: Any) -> Any:
        """Return owner[key] for a real array and a key with traced arrays or tensors in it; NULL for others."""
        if (
            type(owner).__name__ != "ndarray"
            or not self.returns_tensors
            or not any([isinstance(x, TensorProxy) and x.spec.shape for x in leaves(key)])
        ):
            return NULL
        return self.arrays.items(tracker, owner, key)

    def on_arrays(self, tracker: Tracker, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function that gets arrays of NumPy's; NULL where it gets none."""
        return self.arrays.on_torch(tracker, function, args, kwargs) if has_arrays((args, kwargs)) else NULL

    def call_numpy(self, tracker: Tracker, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
        """Call C code of NumPy's that gets traced values; NULL for other code, and where it gets none."""
        if "numpy" not in sys.modules or not self.returns_tensors or package_of(function) != "numpy":
            return NULL
        if not self.choices.creates and not any([isinstance(x, Proxy) for x in leaves(([getattr(function, "__self__", None), *args], kwargs))]):
            self.choices.created |= getattr(function, "__name__", "") in _CREATION
            return NULL
        args, kwargs = [tracker.plain(x) for x in args], {name: tracker.plain(x) for name, x in kwargs.items()}
        args, kwargs = self.arrays.operands_of(function, args, kwargs)
        session = self.environment.session
        if session is None:
            return self.arrays.inside_only(tracker, function, args, kwargs, frame)
        if session.is_open and (result := self.arrays.outside(tracker, function, args, kwargs, frame)) is not NULL:
            return result

        def call(*known: Any, **named: Any) -> Any:
            result = self.arrays.on_numpy(tracker, function, list(known), named, frame)
            if result is NULL and any(map(is_proxy, leaves((args, kwargs)))) and not any(map(is_proxy, leaves((known, named)))):
                return tracker.call(function, list(known), named, frame)  # all of its numbers are known by now
            return result

        return session.attempt(call, args, kwargs)
