"""torch.func.jacrev, jacfwd and hessian inside a traced function: a pullback, or tangents, for the batch of all unit vectors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dovetail import prims
from dovetail.dtypes import int64
from dovetail.errors import require
from dovetail.frontend import trees
from dovetail.frontend.autograd.batching import in_prims
from dovetail.frontend.autograd.forward_mode import recorded_linearization, tangents_of
from dovetail.frontend.autograd.nested_grad import no_cotangents, recorded_vjp
from dovetail.frontend.autograd.vmap import vmap
from dovetail.prims import recorder
from dovetail.prims.shape import flat_reshape
from dovetail.trace import TensorProxy

Argnums = int | tuple[int, ...]


def jacrev(func: Callable, argnums: Argnums = 0, *, has_aux: bool = False, chunk_size: int | None = None) -> Callable[..., Any]:
    """Return torch.func.jacrev of a function."""
    require(chunk_size is None or chunk_size > 0, "jacrev: `chunk_size` should be greater than 0.", error=ValueError)

    def jacobian(*args: Any) -> Any:
        inputs, build, which = _inputs(argnums, args, "jacrev")
        result, pullback = recorded_vjp(func, args, {}, which)
        value, aux = result if has_aux else (result, None)
        outputs, tree = trees.flatten(value)
        _require_real(outputs, "jacrev", "outputs of f")

        def pull(*units: Any) -> list[Any]:
            cotangents = tree.build(list(units))
            return trees.flatten(pullback((cotangents, no_cotangents(aux)) if has_aux else cotangents))[0]

        columns = _over_units(pull, outputs, chunk_size)
        rows = [build([_block(column[at], y.spec.shape, x) for column, x in zip(columns, inputs, strict=True)]) for y, at in _placed(outputs)]
        return (tree.build(rows), aux) if has_aux else tree.build(rows)

    return jacobian


def jacfwd(func: Callable, argnums: Argnums = 0, has_aux: bool = False, *, randomness: str = "error") -> Callable[..., Any]:
    """Return torch.func.jacfwd of a function."""

    def jacobian(*args: Any) -> Any:
        inputs, build, which = _inputs(argnums, args, "jacfwd")
        structures = []

        def push(*units: Any) -> Any:
            result, tangents = recorded_linearization(func, args, which)
            value, aux = result if has_aux else (result, None)
            flat, tree = trees.flatten(tangents_of(value, tangents(units)))
            _require_real(flat, "jacfwd", "outputs of f")
            structures.append(tree)
            return (flat, aux) if has_aux else flat

        pushed = vmap(push, randomness=randomness)(*_units(inputs))
        outputs, aux = pushed if has_aux else (pushed, None)
        rows = [build([_block(y[at].movedim(0, -1), y.spec.shape[1:], x) for x, at in _placed(inputs)]) for y in outputs]
        jacobians = structures[0].build(rows)
        return (jacobians, trees.tree_map(lambda x: x[0], aux)) if has_aux else jacobians

    return jacobian


def hessian(func: Callable, argnums: Argnums = 0) -> Callable[..., Any]:
    """Return torch.func.hessian of a function."""
    return jacfwd(jacrev(func, argnums), argnums)


def _inputs(argnums: Argnums, args: tuple, name: str) -> tuple[list[Any], Callable[[list[Any]], Any], tuple[int, ...]]:
    """Return the leaves of the arguments to differentiate by, what makes nests like these of leaves, and the positions of the arguments."""
    which = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    for n in which:
        require(-len(args) <= n < len(args), "Got argnum={}, but only {} positional inputs", n, len(args), error=RuntimeError)
    require(len({n % len(args) for n in which}) == len(which) > 0, "argnums elements must be unique, got {}", which, error=RuntimeError)
    which = tuple([n % len(args) for n in which])
    inputs, tree = trees.flatten([args[n] for n in which])
    _require_real(inputs, name, "inputs")
    return inputs, (lambda leaves: tree.build(leaves)[0] if isinstance(argnums, int) else tuple(tree.build(leaves))), which


def _require_real(tensors: Sequence[Any], name: str, what: str) -> None:
    for x in tensors:
        is_real = isinstance(x, TensorProxy) and x.spec.dtype.kind == "float"
        require(
            is_real, f"{name}: Expected all {what} to be real floating tensors but received {{}}", getattr(x, "spec", type(x)), error=RuntimeError
        )


def _placed(tensors: Sequence[Any]) -> list[tuple[Any, slice]]:
    """Return each tensor with the unit vectors that belong to its elements."""
    ends = list(itertools.accumulate([int(math.prod(x.spec.shape)) for x in tensors]))
    return [(x, slice(start, stop)) for x, start, stop in zip(tensors, [0, *ends], ends, strict=False)]


def _units(tensors: Sequence[Any]) -> list[Any]:
    """Return the unit vectors of the space of some tensors: for each a batch of tensors like it."""
    places = _placed(tensors)
    total, units = places[-1][1].stop, []
    with in_prims(recorder.get()):
        for x, at in places:
            grid, place = (total, at.stop - at.start), {"dtype": int64, "device": x.spec.device}
            rows = prims.broadcast_in_dim(prims.iota(length=grid[0], start=0, step=1, **place), shape=grid, dims=(0,))
            columns = prims.broadcast_in_dim(prims.iota(length=grid[1], start=at.start, step=1, **place), shape=grid, dims=(1,))
            units.append(flat_reshape(prims.convert_element_type(rows == columns, dtype=x.spec.dtype), (total, *x.spec.shape)))
    return units


def _over_units(pull: Callable[..., list[Any]], outputs: Sequence[Any], chunk_size: int | None) -> list[Any]:
    """Return what `pull` returns for all unit vectors of `outputs`; with a `chunk_size` of 1 without a batch."""
    units = _units(outputs)
    if chunk_size != 1:
        return vmap(pull, chunk_size=chunk_size)(*units)
    pulled = [pull(*[unit[i] for unit in units]) for i in range(units[0].spec.shape[0])]
    return [torch.stack(parts) for parts in zip(*pulled, strict=True)]


def _block(part: Any, shape: tuple[int, ...], x: Any) -> Any:
    """Return the part of a Jacobian that belongs to an output of a shape and to the input x."""
    return part.reshape((*shape, *x.spec.shape))
