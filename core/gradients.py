"""Derivatives of functions: `dovetail.grad`, `value_and_grad` and `vjp`, on nests of tensors, inside compiled functions and outside."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any

import torch

from dovetail.compiler.api import jit
from dovetail.errors import require, require_function
from dovetail.frontend import trees
from dovetail.frontend.autograd import nested_grad
from dovetail.torch_internals import active_mode


def grad(fn: Callable, argnums: int | tuple[int, ...] = 0, *, has_aux: bool = False) -> Callable[..., Any]:
    """Return the gradient of `fn`, as a function of the same arguments.

    `fn` returns a real number as a tensor without dimensions, or, with `has_aux`, a tuple of that and auxiliary data, which is returned
    with the gradient.  `argnums` are the positions of the arguments to differentiate by: nests of floating or complex tensors; the
    gradient of each is a nest like it.  The program is compiled once for each kind of call.  It can be differentiated again:
    `grad(grad(fn))`.
    """
    both = value_and_grad(fn, argnums, has_aux=has_aux)

    @wraps(fn, updated=())
    def gradient(*args: Any, **kwargs: Any) -> Any:
        result, grads = both(*args, **kwargs)
        return (grads, result[1]) if has_aux else grads

    return gradient


def value_and_grad(fn: Callable, argnums: int | tuple[int, ...] = 0, *, has_aux: bool = False) -> Callable[..., Any]:
    """Return a function that returns (result of `fn`, gradient); see `grad`."""
    require_function("grad", fn)
    numbers = (argnums,) if isinstance(argnums, int) else argnums
    fine = isinstance(numbers, (tuple, list)) and all([isinstance(n, int) for n in numbers])
    require(fine, "grad expects argnums= to be the position of an argument, or a tuple of positions; got {!r}", argnums, error=TypeError)
    return _value_and_grad(fn, argnums if isinstance(argnums, int) else tuple(argnums), has_aux)


@lru_cache(maxsize=128)
def _value_and_grad(fn: Callable, argnums: int | tuple[int, ...], has_aux: bool) -> Callable[..., Any]:
    """Return a cached function for each `fn`, so that it is compiled once."""
    recorded = nested_grad.recorded_value_and_grad(fn, argnums, has_aux)

    @wraps(fn, updated=())
    def recorded_or_eager(*args: Any, **kwargs: Any) -> Any:
        return recorded(*args, **kwargs) if nested_grad.is_tracing() else _eager_value_and_grad(fn, argnums, has_aux, args, kwargs)

    compiled = jit(recorded_or_eager)

    @wraps(fn, updated=())
    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        if nested_grad.is_tracing():
            return recorded(*args, **kwargs)
        if active_mode() is not None:
            grads, result = torch.func.grad_and_value(fn, argnums, has_aux)(*args, **kwargs)
            return result, grads
        return compiled(*trees.tree_map(_detached, args), **trees.tree_map(_detached, kwargs))

    return value_and_gradient


def _eager_value_and_grad(fn: Callable, argnums: int | tuple[int, ...], has_aux: bool, args: tuple, kwargs: dict) -> tuple[Any, Any]:
    """Return (fn(*args, **kwargs), gradient) by PyTorch's autograd, for calls that run in eager mode."""
    which = {n % len(args) for n in ((argnums,) if isinstance(argnums, int) else argnums)}
    leaf_args = tuple([trees.tree_map(_leaf, arg) if n in which else arg for n, arg in enumerate(args)])
    with torch.enable_grad():
        result = fn(*leaf_args, **kwargs)
    value = nested_grad.checked_value(result, has_aux, lambda x: isinstance(x, torch.Tensor) and x.dim() == 0 and x.is_floating_point())

    def gradient(arg: Any) -> Any:
        leaves, tree = trees.flatten(arg)
        if not value.requires_grad:
            return tree.build([torch.zeros_like(x) for x in leaves])
        return tree.build(torch.autograd.grad(value, leaves, retain_graph=True, materialize_grads=True))

    grads = gradient(leaf_args[argnums]) if isinstance(argnums, int) else tuple([gradient(leaf_args[n]) for n in argnums])
    return trees.tree_map(_detached, result), grads


def vjp(fn: Callable, *args: Any, **kwargs: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Return (fn(*args, **kwargs), pullback): the pullback maps the cotangent of the result to the cotangents of `args`.

    Arguments other than floating or complex tensors, and nests of them, have the cotangent None.  The pullback may be called again.
    """
    if nested_grad.is_tracing():
        return nested_grad.recorded_vjp(fn, args, kwargs, tuple(range(len(args))))
    leaf_args = trees.tree_map(_leaf, args)
    with torch.enable_grad():
        result = _compiled(fn)(*leaf_args, **kwargs)
    leaves, tree = trees.flatten(leaf_args)
    inputs = [x for x in leaves if isinstance(x, torch.Tensor) and x.requires_grad]

    def pullback(cotangent: Any) -> Any:
        outs, parts = trees.flatten(result)[0], trees.flatten(cotangent)[0]
        require(
            len(outs) == len(parts),
            "the pullback of vjp expects a cotangent for each of the {} leaves of the result, nested as it is, or None; got {}",
            *(len(outs), len(parts)),
            error=ValueError,
        )
        pairs = [(y, g) for y, g in zip(outs, parts, strict=True) if g is not None and isinstance(y, torch.Tensor) and y.requires_grad]
        cotangents = iter(torch.autograd.grad([y for y, _ in pairs], inputs, [g for _, g in pairs], retain_graph=True, materialize_grads=True))
        return tree.build([next(cotangents) if isinstance(x, torch.Tensor) and x.requires_grad else None for x in leaves])

    return trees.tree_map(_detached, result), pullback


@lru_cache(maxsize=128)
def _compiled(fn: Callable) -> Callable:
    return fn if hasattr(fn, "_cache") else jit(fn)


def _detached(x: Any) -> Any:
    return x.detach() if isinstance(x, torch.Tensor) and x.requires_grad else x


def _leaf(x: Any) -> Any:
    return x.detach().requires_grad_() if isinstance(x, torch.Tensor) and (x.is_floating_point() or x.is_complex()) else x
