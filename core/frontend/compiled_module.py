"""A compiled module is a module."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch


class CompiledModule(torch.nn.Module):
    """A module that runs compiled programs and shares everything else with the module it was made from.

    Parameters, buffers, submodules, `state_dict()`, `train()`, `to()` and attributes are the original's own, under the same names.
    """

    def __new__(cls, module: torch.nn.Module, cache: Any, call: Callable, again: Callable) -> CompiledModule:
        """An instance that also answers `len(x)`, `x[i]`, `in` and iteration where `module` does."""
        answers = {name: _of_original(name) for name in _CONTAINER if hasattr(type(module), name)}
        return object.__new__(type(cls.__name__, (cls,), answers) if answers else cls)

    def __init__(self, module: torch.nn.Module, cache: Any, call: Callable, again: Callable):
        vars(self).update(_module=module, _cache=cache, _call=call, _again=again)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    forward = __call__

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledModule:
        memo[id(self)] = made = self._again(copy.deepcopy(self._module, memo))
        return made

    def __reduce__(self) -> tuple:
        """A copy, also one that is unpickled, is the module's copy compiled anew."""
        return self._again, (self._module,)

    @property
    def cache_info(self) -> Callable:
        """How the calls so far were answered."""
        return self._call.cache_info

    @property
    def clear_cache(self) -> Callable:
        """Forget every program."""
        return self._call.clear_cache

    @property
    def explain_miss(self) -> Callable:
        """Why a call like this would compile a program."""
        return self._call.explain_miss

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["_module"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._module, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._module, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._module)})

    def __repr__(self) -> str:
        return f"compiled {self._module!r}"


_CONTAINER = ("__len__", "__getitem__", "__setitem__", "__delitem__", "__iter__", "__contains__")


def _of_original(name: str) -> Callable:
    def answer(self: CompiledModule, *args: Any) -> Any:
        return getattr(self._module, name)(*args)

    return answer
