"""The transforms of torch.func inside a traced function: what they compute is recorded where the transformed function is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

from dovetail.errors import require
from dovetail.frontend.autograd.forward_mode import JVP, recorded_linearization, tangents_like, tangents_of
from dovetail.frontend.autograd.jacobians import hessian, jacfwd, jacrev
from dovetail.frontend.autograd.nested_grad import no_cotangents, recorded_value_and_grad, recorded_vjp
from dovetail.frontend.autograd.vmap import vmap

Argnums = int | tuple[int, ...]


def grad(func: Callable, argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Return torch.func.grad of a function."""
    both = recorded_value_and_grad(func, argnums, has_aux)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        result, grads = both(*args, **kwargs)
        return (grads, result[1]) if has_aux else grads

    return gradient


def grad_and_value(func: Callable, argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Return torch.func.grad_and_value of a function."""
    both = recorded_value_and_grad(func, argnums, has_aux)
    return lambda *args, **kwargs: both(*args, **kwargs)[::-1]


def vjp(func: Callable, *primals: Any, has_aux: bool = False) -> tuple:
    """Return the result of a function and what maps its cotangents to those of the primals, as torch.func.vjp does."""
    result, pullback = recorded_vjp(func, primals, {}, tuple(range(len(primals))))
    if not has_aux:
        return result, lambda cotangents: tuple(pullback(cotangents))
    value, aux = result
    return value, lambda cotangents: tuple(pullback((cotangents, no_cotangents(aux)))), aux


def jvp(func: Callable, primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> tuple:
    """Return the result of a function and its tangent, as torch.func.jvp does."""
    require(isinstance(primals, tuple), f"{JVP}: Expected primals to be a tuple, got {{}}", type(primals), error=RuntimeError)
    result, push = recorded_linearization(func, primals, tuple(range(len(primals))))
    tangents = push(tangents_like(primals, tangents))
    if not has_aux:
        return result, tangents_of(result, tangents, strict)
    value, aux = result
    return value, tangents_of(value, tangents, strict), aux


def linearize(func: Callable, *primals: Any) -> tuple:
    """Return the result of a function and what maps tangents of the primals to that of the result, as torch.func.linearize does."""
    result, push = recorded_linearization(func, primals, tuple(range(len(primals))))
    return result, lambda *tangents: tangents_of(result, push(tangents_like(primals, tangents)))


TRANSFORMS = {getattr(torch.func, f.__name__): f for f in (grad, grad_and_value, vjp, jvp, linearize, vmap, jacrev, jacfwd, hessian)}


def transformed_outside(function: FunctionType) -> Callable[..., Any] | None:
    """Return the traced form of what a transform of torch.func has returned outside of the trace, None for any other function."""
    if (known := _WRAPPERS.get(function.__code__)) is None:
        return None
    transform, names = known
    cells = {name: cell.cell_contents for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)}
    return transform(**{name: cells[name] for name in names})


def _wrappers() -> dict[Any, tuple[Callable[..., Any], tuple[str, ...]]]:
    """Return for the code of the functions that torch's transforms return the transform, and its arguments, which they hold in cells."""
    wrappers = {}
    for transform in (grad, grad_and_value, vmap, jacrev, jacfwd):
        code, names = getattr(torch.func, transform.__name__)(len).__code__, tuple(inspect.signature(transform).parameters)
        if set(names) <= set(code.co_freevars):
            wrappers[code] = transform, names
    return wrappers


_WRAPPERS = _wrappers()
