"""A compiled module is a module."""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

import torch

from dovetail.frontend.class_lookup import lookup
from dovetail.frontend.modules.wrapped_modules import is_sharded, is_sharding
from dovetail.prims import recorder
from dovetail.prims.op import no_recorder


class CompiledModule(torch.nn.Module):
    """A module that runs compiled programs and shares everything else with the original module.

    Parameters, buffers, submodules, `state_dict()`, `train()`, `to()` and attributes are the original's own, under the same names.
    It passes for an instance of the original's class: `isinstance(compiled, Model)` holds.
    """

    def __new__(cls, module: torch.nn.Module, cache: Any, call: Callable, again: Callable) -> CompiledModule:
        """Return an instance with the methods of torch.nn.Module that `module` overrides, and with `len(x)`, `x[i]` and `in` where it has them."""
        own = [*(name for name in _CONTAINER if hasattr(type(module), name)), *_overridden(type(module))]
        methods = {name: _of_original(name) for name in own}
        return object.__new__(type(cls.__name__, (cls,), methods) if methods else cls)

    def __init__(self, module: torch.nn.Module, cache: Any, call: Callable, again: Callable):
        forward = _with_signature_of(module.forward, call)
        vars(self).update(_module=module, _cache=cache, _call=call, _again=again, _run=call, _compiled=forward, forward=forward)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(*args, **kwargs)

    forward = __call__
    __class__ = property(operator.attrgetter("_module.__class__"))  # libraries ask whether a model is one of theirs

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledModule:
        memo[id(self)] = copied = self._again(copy.deepcopy(self._module, memo))
        return copied

    def __reduce__(self) -> tuple:
        """Compile the copy of the module anew, also when it is unpickled."""
        return self._again, (self._module,)

    @property
    def cache_info(self) -> Callable:
        """Report how many calls ran a cached program, and how many compiled one."""
        return self._call.cache_info

    @property
    def clear_cache(self) -> Callable:
        """Forget every program."""
        return self._call.clear_cache

    @property
    def explain_miss(self) -> Callable:
        """Explain why a call like this would compile a program."""
        return self._call.explain_miss

    def __getattr__(self, name: str) -> Any:
        """Return what the module has; a method of its class gets a module that is called compiled as `self`, as `generate` of transformers does."""
        module = vars(self)["_module"]
        if recorder.get() is no_recorder and name not in vars(module) and type(raw := lookup(type(module), name)) is FunctionType:
            if raw.__module__.startswith("torch.distributed."):  # a method of a wrapper, which knows the module by its identity
                return MethodType(raw, module)
            return MethodType(raw, self._facade)
        return getattr(module, name)

    @functools.cached_property
    def _facade(self) -> torch.nn.Module:
        return facade_of(vars(self)["_module"], self._call)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set it on the module; a new `forward`, as of a library that wraps the compiled one, is what runs from here on."""
        if name == "forward":
            run = self._run if is_sharded(self) else self._call if value is self._compiled else value
            vars(self).update(forward=value, _run=run)
        elif name == "__class__" and is_sharding(value):  # its hooks run before and after the program
            bases = [type(self) if base is self.__class__ else base for base in value.__bases__]
            object.__dict__["__class__"].__set__(self, type(value.__name__, tuple(bases), dict(vars(value))))
            self._compile_forward()
        else:
            setattr(self._module, name, value)

    def _compile_forward(self) -> None:
        """Compile the forward alone, so that the hooks of the module run eagerly around it."""
        call = self._again(self._module.forward)
        forward = _with_signature_of(self._module.forward, call)
        run = functools.partial(torch.nn.Module.__call__, self)
        vars(self).update(_cache=call._cache, _call=call, _run=run, _compiled=forward, forward=forward)

    def __delattr__(self, name: str) -> None:
        if name == "forward":
            self.forward = self._compiled
        else:
            delattr(self._module, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._module)})

    def __repr__(self) -> str:
        return f"compiled {self._module!r}"


def _with_signature_of(forward: Callable, call: Callable) -> Callable:
    """Return `call` under the name, the documentation and the signature of a module's own forward, which libraries inspect."""

    @functools.wraps(forward, updated=())
    def compiled(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    return compiled


def facade_of(module: torch.nn.Module, call: Callable) -> torch.nn.Module:
    """Return an object with the attributes of `module`, of a class that derives from its class, which `call` runs when it is called.

    Both have one `__dict__`; copies of it are copies of the module.
    """
    kind = type(module)

    @functools.wraps(kind.forward)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    methods = {
        "__call__": lambda self, *args, **kwargs: call(*args, **kwargs),
        "__copy__": lambda self: copy.copy(module),
        "__deepcopy__": lambda self, memo: copy.deepcopy(module, memo),
        "__reduce_ex__": lambda self, protocol: (_itself, (module,)),
        "forward": forward,
        "__class__": property(lambda self: kind),
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
    }
    facade = type(kind)(kind.__name__, (torch.nn.Module,), methods)
    try:
        facade.__bases__ = (kind,)  # no `__init_subclass__` of the program hears of this class
    except TypeError:  # a class with slots
        facade = type(kind)(kind.__name__, (kind,), methods)
    result = object.__new__(facade)
    object.__setattr__(result, "__dict__", vars(module))
    return result


def _itself(module: torch.nn.Module) -> torch.nn.Module:
    """Return the module: what is unpickled in the place of a facade."""
    return module


_CALLS = ("forward", "_call_impl", "_wrapped_call_impl", "compile")
_CONTAINER = ("__len__", "__getitem__", "__setitem__", "__delitem__", "__iter__", "__contains__")


def _overridden(kind: type) -> list[str]:
    """Return the methods of torch.nn.Module that a class overrides, but for those that call it and its special ones."""
    names = [name for name, value in vars(torch.nn.Module).items() if type(value) is FunctionType and not name.startswith("__")]
    return [name for name in names if name not in _CALLS and getattr(kind, name, None) is not getattr(torch.nn.Module, name)]


def _of_original(name: str) -> Callable:
    """Return a method that calls the one of the original module; where that returns the module, it returns the compiled one."""

    def call(self: CompiledModule, *args: Any, **kwargs: Any) -> Any:
        result = getattr(self._module, name)(*args, **kwargs)
        return self if result is self._module else result

    return call
