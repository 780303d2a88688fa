"""Tensors that the user's code takes for NumPy's arrays."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

import numpy as np

from dovetail.errors import NotTracing, require
from dovetail.prims import recorder
from dovetail.trace import TensorProxy


class NumpyProxy(TensorProxy):
    """A traced tensor with np.ndarray's face: `isinstance(x, np.ndarray)` holds, and functions and attributes are NumPy's.

    For the user's code only; ours reads `.spec`.
    """

    __slots__ = ()
    __hash__ = object.__hash__

    @property
    def __class__(self) -> type:
        return np.ndarray

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return _environment().language["_ufunc"](ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: tuple, kwargs: dict) -> Any:
        return _environment().language["_function"](func, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        environment = _environment()
        if not name.startswith("_") and (found := environment.language.get(name)) is not None:
            return types.MethodType(found, self)
        return environment.attribute(self, name)

    def __len__(self) -> int:
        require(bool(self.spec.shape), "len() of unsized object", error=TypeError)
        return self.spec.shape[0]

    def __iter__(self) -> Iterator[Any]:
        require(bool(self.spec.shape), "iteration over a 0-d array", error=TypeError)
        return (self[i] for i in range(len(self)))

    def __contains__(self, item: Any) -> bool:
        return bool((self == item).any())

    def __format__(self, spec: str) -> str:
        return self.name

    def __array__(self, *_: Any, **__: Any) -> Any:
        require(False, "a traced array has no values to convert; use it as it is, np.asarray(x) of an array is x", error=TypeError)


def _environment() -> Any:
    try:
        return recorder.get().environment
    except AttributeError:
        raise NotTracing("a traced array was kept after dovetail.make_trace returned; return it from the function instead") from None
