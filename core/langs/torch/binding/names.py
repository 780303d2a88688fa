"""The dotted names of torch's callables."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from dovetail.errors import EagerCall, Unsupported
from dovetail.langs.torch.binding.symbol import resolve
from dovetail.torch_internals import C_NAMESPACES, OpOverload, OpOverloadPacket
from dovetail.trace import user_line

_PLACES = (
    *("torch", "torch.Tensor", "torch.nn.functional", "torch.linalg", "torch.fft", "torch.special", "torch.nn.init", "torch.Generator"),
    *C_NAMESPACES,
)


def dotted(func: Callable) -> str:
    """Return the name under which a program that imports torch finds `func`: dotted(torch.Tensor.sin) == "torch.Tensor.sin"."""
    name, resolves = _names(func)
    if not resolves:
        raise not_traced(func, "it has no public name in torch, which a printed program needs; call it outside the compiled function")
    return name


def name_of(func: Any) -> str:
    """Return the dotted name of a torch callable for messages; always an answer."""
    return func if isinstance(func, str) else _names(func)[0]


NAMED: dict[Any, str] = {}  # the registry: functions outside of torch -> their names in programs


@cache
def _names(func: Any) -> tuple[str, bool]:
    """Return the best name there is for `func`, and whether it leads back to it."""
    if func in NAMED:
        return NAMED[func], True
    if isinstance(func, OpOverload):
        return f"torch.ops.{func._schema.name.replace('::', '.')}.{func._overloadname}", True
    if isinstance(func, OpOverloadPacket):
        return f"torch.ops.{func._qualified_op_name.replace('::', '.')}", True
    candidates = _candidates(func)
    return next(((name, True) for name in candidates if resolve(name) is func), (candidates[0], False))


def _candidates(func: Any) -> list[str]:
    if getattr(func, "__name__", None) == "__get__":
        return [f"torch.Tensor.{_property_name(func.__self__)}.__get__"]
    name = getattr(func, "__name__", str(func))
    family, _, rest = name.partition("_")
    in_namespace = [f"torch.{family}.{rest}"] if family in ("linalg", "fft", "special") else []  # torch.linalg.qr calls itself linalg_qr
    places = [candidate for place in _PLACES if resolve(candidate := f"{place}.{name}") is func]
    return [*in_namespace, *places, f"{getattr(func, '__module__', None) or 'torch'}.{name}"]


def _property_name(descriptor: Any) -> str:
    return getattr(descriptor, "__name__", None) or descriptor.fget.__name__


def not_traced(func: Any, reason: str, location: str | None = None) -> Unsupported:
    """Return the error that says so, where, and the way out."""
    return Unsupported(f"{name_of(func)} is not traced: {reason}\n  called at {location or user_line()}")


def unsupported_gradient(operation: str, option: str) -> EagerCall:
    """Return the error for an option that gives an operation another gradient than the one that is implemented: eager mode computes it."""
    return EagerCall(f"the gradient of {operation} with {option}=True is not traced; leave {option} out, or call it outside the compiled function")
