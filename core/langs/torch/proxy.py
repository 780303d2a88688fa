"""Tensors that the user's code takes for torch's."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

import torch

from dovetail.errors import NotTracing, require
from dovetail.prims import recorder
from dovetail.trace import TensorProxy


class TorchProxy(TensorProxy):
    """A traced tensor with torch.Tensor's face: `isinstance(x, torch.Tensor)` holds, and its attributes are torch's.

    For the user's code only; ours reads `.spec`.
    """

    __slots__ = ("__weakref__",)  # torch.nn.LSTM keeps weak references to its weights
    __hash__ = object.__hash__

    @property
    def __class__(self) -> type:
        return torch.Tensor

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return _environment().call(func, args, kwargs or {})

    def __getattr__(self, name: str) -> Any:
        environment = _environment()
        if (found := environment.language.get(name)) is not None:
            return types.MethodType(found, self)
        return environment.attribute(self, name)

    def __len__(self) -> int:
        require(bool(self.spec.shape), "len() of a 0-d tensor", error=TypeError)
        return self.spec.shape[0]

    def __iter__(self) -> Iterator[Any]:
        require(bool(self.spec.shape), "iteration over a 0-d tensor", error=TypeError)
        return iter(self.unbind(0))

    def __contains__(self, item: Any) -> Any:
        return bool((self == item).any())

    def __format__(self, spec: str) -> str:
        return self.name

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def __array__(self, *_: Any, **__: Any) -> Any:
        require(False, "a traced tensor has no values to make a NumPy array of; convert it outside the compiled function", error=TypeError)


def _environment() -> Any:
    try:
        return recorder.get().environment
    except AttributeError:
        raise NotTracing("a traced tensor was kept after dovetail.trace or jit returned; return it from the function instead") from None
