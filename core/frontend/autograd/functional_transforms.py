"""The transforms of torch.func inside a traced function: gradients are recorded where the transformed function is called."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import torch

from dovetail import prims
from dovetail.errors import Unsupported, require
from dovetail.frontend import trees
from dovetail.frontend.autograd.nested_grad import recorded_value_and_grad, recorded_vjp
from dovetail.prims.creation import zeros_like
from dovetail.prims.shape import flat_reshape
from dovetail.torch_internals import MODULE_TABLES
from dovetail.trace import TensorProxy, user_line

LARGEST_JACOBIAN = 64  # elements of the result, each of which is differentiated by itself
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
    absent = trees.tree_map(lambda x: zeros_like(x) if isinstance(x, TensorProxy) and x.spec.dtype.inexact else None, aux)
    return value, lambda cotangents: tuple(pullback((cotangents, absent))), aux


def jacrev(func: Callable, argnums: Argnums = 0, *, has_aux: bool = False, chunk_size: Any = None) -> Callable[..., Any]:
    """Return torch.func.jacrev of a function: one pull for each element of the result."""
    if has_aux:
        raise Unsupported(f"torch.func.jacrev with has_aux is not traced; return the auxiliary data by another call\n  called at {user_line()}")
    which = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def jacobian(*args: Any, **kwargs: Any) -> Any:
        result, pullback = recorded_vjp(func, args, kwargs, tuple([n % len(args) for n in which]))
        plain = isinstance(result, TensorProxy) and all([isinstance(args[n], TensorProxy) for n in which])
        require(plain, "jacrev of nests of tensors is not traced; differentiate one tensor by one tensor", error=TypeError)
        shape = tuple(result.spec.shape)
        if math.prod(shape) > LARGEST_JACOBIAN:
            raise Unsupported(
                f"a Jacobian of a result of {math.prod(shape)} elements is not traced, at most of {LARGEST_JACOBIAN}; compute it outside the "
                f"compiled function\n  called at {user_line()}"
            )
        rows = [pullback(_unit(result, index)) for index in itertools.product(*map(range, shape))]
        jacobians = [torch.stack(column).reshape(*shape, *args[n].spec.shape) for n, column in zip(which, zip(*rows, strict=True), strict=True)]
        return jacobians[0] if isinstance(argnums, int) else tuple(jacobians)

    return jacobian


def hessian(func: Callable, argnums: int = 0) -> Callable[..., Any]:
    """Return torch.func.hessian of a function."""
    return jacrev(jacrev(func, argnums), argnums)


def _unit(like: TensorProxy, index: tuple[int, ...]) -> Any:
    """Return a tensor like `like` that is 1 at an index and 0 elsewhere."""
    shape, place = tuple(like.spec.shape), {"dtype": like.spec.dtype, "device": like.spec.device}
    flat = [0.0] * math.prod(shape)
    flat[sum([i * math.prod(shape[d + 1 :]) for d, i in enumerate(index)])] = 1.0
    if not shape:
        return prims.full(shape=(), value=1.0, **place)
    return flat_reshape(prims.tensor_from_sequence(values=tuple(flat), **place), shape)


def functional_call(
    tracker: Any, module: torch.nn.Module, values: Any, args: Any = None, kwargs: Any = None, *, tie_weights: bool = True, strict: bool = False
) -> Any:
    """Call a module with other tensors in the place of its parameters and buffers, as torch.func.functional_call does."""
    dicts = [dict(tracker.pairs(part)) for part in (tracker.spread(values) if isinstance(values, (list, tuple)) else [values])]
    named = {name: value for part in dicts for name, value in part.items()}
    missing = [name for name, _ in (*module.named_parameters(), *module.named_buffers()) if name not in named]
    require(not (strict and missing), "missing keys for strict functional_call: {}", missing, error=RuntimeError)
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    with _replaced(tracker, _places(module, named, tie_weights)):
        return tracker.call(module, list(args), dict(kwargs or {}), None)


def _places(module: torch.nn.Module, named: dict[str, Any], tie_weights: bool) -> list[tuple[dict, str, Any]]:
    """Return the tables of modules, the names in them and the values that these get; a tensor under two names gets one value under both."""
    by_tensor: dict[int, Any] = {}
    everywhere: list[tuple[str, dict, str]] = []
    for path, part in module.named_modules(remove_duplicate=False):
        for table in MODULE_TABLES:
            members = object.__getattribute__(part, "__dict__").get(table, {})
            everywhere += [(f"{path}.{name}" if path else name, members, name) for name, x in members.items() if isinstance(x, torch.Tensor)]
    known = {path for path, *_ in everywhere}
    unknown = [name for name in named if name not in known]
    require(not unknown, "unexpected keys for functional_call: {}", unknown, error=RuntimeError)
    for path, members, name in everywhere:
        if path in named and tie_weights:
            by_tensor.setdefault(id(members[name]), named[path])
    chosen = [(members, name, named.get(path, by_tensor.get(id(members[name])))) for path, members, name in everywhere]
    return [row for row in chosen if row[2] is not None]


@contextmanager
def _replaced(tracker: Any, places: list[tuple[dict, str, Any]]) -> Iterator[None]:
    """Let the program see other values in the tables of modules while open; nothing is written."""
    shadows = tracker.effects.shadows
    before = {id(members): shadows.get(id(members)) for members, *_ in places}
    try:
        for members, name, value in places:
            if shadows.get(id(members)) is before[id(members)]:
                shadows[id(members)] = dict(members if before[id(members)] is None else before[id(members)])
            shadows[id(members)][name] = value
        yield
    finally:
        for key, shadow in before.items():
            shadows.pop(key, None)
            if shadow is not None:
                shadows[key] = shadow


TRANSFORMS = {getattr(torch.func, f.__name__): f for f in (grad, grad_and_value, vjp, jacrev, hessian)}


def transformed_outside(function: FunctionType) -> Callable[..., Any] | None:
    """Return the traced form of what torch.func.grad or grad_and_value has returned outside of the trace, None for any other function."""
    maker = _WRAPPERS.get(function.__code__)
    if maker is None:
        return None
    cells = {name: cell.cell_contents for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)}
    return maker(cells["func"], cells["argnums"], cells["has_aux"])


def _wrappers() -> dict[Any, Callable[..., Any]]:
    wanted = {"func", "argnums", "has_aux"}
    wrappers = {f: getattr(torch.func, f.__name__)(len) for f in (grad, grad_and_value)}
    return {wrapper.__code__: f for f, wrapper in wrappers.items() if wanted <= set(wrapper.__code__.co_freevars)}


_WRAPPERS = _wrappers()
