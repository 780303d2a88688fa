"""Which calls of a tracked run are torch's, which are this package's, and which are C code of others."""

from __future__ import annotations

import sys
from types import BuiltinFunctionType, CodeType, FunctionType, MethodDescriptorType, MethodWrapperType, WrapperDescriptorType
from typing import Any

import torch
from torch import overrides

from dovetail.frontend.class_lookup import per_class
from dovetail.langs.torch import FACTORIES, REFUSED, TABLE
from dovetail.prims import Symbol
from dovetail.torch_internals import TENSOR_BASE, OpOverload, OpOverloadPacket
from dovetail.trace import Proxy
from dovetail.trace.source_location import OURS

_C_CALLABLES = (BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType, MethodWrapperType)
_OPERATORS = (OpOverload, OpOverloadPacket)
_TENSOR_TYPE = type(torch.FloatTensor)
_INTERPRETED = (f"{OURS}gradients.py",)  # of this package, but written in terms of the user's functions
OVERRIDE_CHECKS = frozenset({overrides.has_torch_function, overrides.has_torch_function_unary, overrides.has_torch_function_variadic})


@per_class
def is_tensor_class(kind: type) -> bool:
    """Return whether instances of a class are tensors, real or traced, or numbers that the program computes, symbolic sizes among them."""
    return any(base is torch.Tensor or base is Proxy or base is torch.SymInt for base in kind.__mro__)


@per_class
def is_module_class(kind: type) -> bool:
    """Return whether instances of a class are torch's modules; `isinstance` would read `__class__` of the instance."""
    return any(base is torch.nn.Module for base in kind.__mro__)


@per_class
def is_symbol_class(kind: type) -> bool:
    """Return whether instances of a class are operations that a trace records."""
    return any(base is Symbol for base in kind.__mro__)


def is_ours(code: CodeType) -> bool:
    """Return whether code belongs to this package and runs natively, since it records what it does."""
    file = code.co_filename
    return file.startswith(OURS) and file not in _INTERPRETED


def is_torch(function: Any) -> bool:
    """Return whether a callable is an operation of torch that C code runs, or that the language defines."""
    kind = type(function)
    if kind is FunctionType:
        return function in TABLE or function in REFUSED
    if kind is BuiltinFunctionType:
        owner = function.__self__
        if is_tensor_class(type(owner)):
            return True
        module = function.__module__ or getattr(owner, "__name__", "") or ""
        return module.split(".")[0] == "torch" or function in TABLE or function in FACTORIES or function in REFUSED
    if kind is MethodWrapperType:
        return is_tensor_class(type(function.__self__))
    if kind in (MethodDescriptorType, WrapperDescriptorType):
        return issubclass(function.__objclass__, TENSOR_BASE)
    return kind in _OPERATORS or kind is _TENSOR_TYPE or function is torch.Tensor or function is torch.autograd.Variable


def is_foreign(function: Any) -> bool:
    """Return whether a callable is C code of a package other than Python's library and torch."""
    if not isinstance(function, (*_C_CALLABLES, type)) and type(type(function).__dict__.get("__call__")) is FunctionType:
        return False
    root = package_of(function)
    return root not in sys.stdlib_module_names and root not in ("torch", "dovetail")


def package_of(function: Any) -> str:
    """Return the package that a C function or class belongs to."""
    module = getattr(function, "__module__", None)
    if not isinstance(module, str):
        module = _defining(function).__module__
    return module.split(".")[0]


def _defining(function: Any) -> type:
    """Return the class that a C function belongs to."""
    if hasattr(function, "__objclass__"):
        return function.__objclass__
    owner = getattr(function, "__self__", None)
    kind = owner if isinstance(owner, type) else type(function if owner is None else owner)
    name = getattr(function, "__name__", None)
    return next((base for base in kind.__mro__ if name in vars(base)), kind)
