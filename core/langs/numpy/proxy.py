"""Tensors that the user's code takes for NumPy's arrays."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dovetail.errors import NotTracing, TracedValueError, Unsupported, require
from dovetail.prims import recorder
from dovetail.trace import TensorProxy, user_line
from dovetail.trace.proxies import ASKING

_MEMORY = frozenset({"__array_struct__", "__array_interface__"})  # by which NumPy looks at memory, before it calls `__array__`


class NumpyProxy(TensorProxy):
    """A traced tensor with np.ndarray's face: `isinstance(x, np.ndarray)` holds, and functions and attributes are NumPy's.

    For the user's code only; ours reads `.spec`.
    """

    __slots__ = ("scalar",)
    __hash__ = object.__hash__

    def __init__(self, name: str, spec: Any = None):
        super().__init__(name, spec)
        self.scalar = False  # whether NumPy has a scalar here, as np.float64, and no array

    @property
    def __class__(self) -> type:
        return np.dtype(self.spec.dtype.name.rstrip("_")).type if self.scalar else np.ndarray

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return self._numpy("_ufunc")(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: tuple, kwargs: dict) -> Any:
        return self._numpy("_function")(func, args, kwargs)

    def _numpy(self, name: str) -> Any:
        """Return what the language does with a call of NumPy's; NumPy itself, which calls this, needs values elsewhere."""
        meaning = _environment().language.get(name)
        if meaning is None:
            raise no_values(self)
        return meaning

    def __getattr__(self, name: str) -> Any:
        if name in _MEMORY:
            raise AttributeError(name)
        environment = _environment()
        if not name.startswith("_") and (method := environment.language.get(name)) is not None:
            return types.MethodType(method, self)
        if name not in environment.language.properties and hasattr(np.ndarray, name):
            why = "the numpy language has no meaning for it; use another function, or read it outside the compiled function"
            raise Unsupported(f"numpy.ndarray.{name} is not traced: {why}\n  called at {user_line()}")
        return environment.attribute(self, name)

    def __len__(self) -> int:
        require(bool(self.spec.shape), "len() of unsized object", error=TypeError)
        return self.spec.shape[0]

    def __iter__(self) -> Iterator[Any]:
        require(bool(self.spec.shape), "iteration over a 0-d array", error=TypeError)
        return (self[i] for i in range(len(self)))

    def __contains__(self, item: Any) -> bool:
        return bool((self == item).any())

    def __copy__(self) -> Any:
        return _environment().language["copy"](self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return memo.setdefault(id(self), _environment().language["copy"](self))

    def __divmod__(self, other: Any) -> Any:
        return _environment().language["divmod"](self, other)

    def __rdivmod__(self, other: Any) -> Any:
        return _environment().language["divmod"](other, self)

    def __format__(self, spec: str) -> str:
        return self.name

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise no_values(self)


def no_values(proxy: Any) -> TracedValueError:
    """Return the error that says that Python needs the value of `proxy`, where, and the ways out."""
    return TracedValueError(
        f'the value of {proxy.name}: "{proxy.spec}" is needed at {user_line()}; tracing only knows shapes and dtypes, since the array is large or '
        "computed from a large one, or is written: choose with np.where, or compute the value outside and pass it as an argument",
        proxy,
    )


def _value_needed(question: str) -> Callable:
    """Return the method `question`, which depends on the value of an array."""

    def method(self: NumpyProxy, *others: Any) -> Any:
        environment = getattr(recorder.get(), "environment", None)
        if getattr(environment, "session", None) is None:
            raise no_values(self)
        return environment.value(self, question, others)  # a function of tensors, which is compiled piece by piece

    return method


def _truth(self: NumpyProxy) -> bool:
    if self.spec.numel != 1:
        words = "more than one element is ambiguous. Use a.any() or a.all()" if self.spec.numel else "no elements is ambiguous"
        require(False, "The truth value of an array with {}", words, error=ValueError)
    return _value_needed("__bool__")(self)


for _name in ASKING:
    setattr(NumpyProxy, _name, _value_needed(_name))
NumpyProxy.__bool__ = _truth


def _environment() -> Any:
    try:
        return recorder.get().environment
    except AttributeError:
        raise NotTracing("a traced array was kept after dovetail.make_trace returned; return it from the function instead") from None
