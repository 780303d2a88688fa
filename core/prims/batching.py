"""Batching rules: what a prim computes for a batch of examples, for `torch.func.vmap`.

A rule is called as `rule(size, *args, **kwargs)`.  An argument that differs between the `size` examples is a `Batch`; any other tensor is the
same for all of them.  It returns the results for all examples, the first dimension of each counting the examples.  An elementwise prim
needs no rule, and a prim whose parameters name dimensions or sizes is one row of `SHIFTED`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dovetail import prims
from dovetail.dtypes import int64
from dovetail.prims import Symbol, Tag
from dovetail.prims.shape import flat_reshape, paired
from dovetail.prims.spec import is_tensor, prod

Rule = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Batch:
    """A traced tensor whose first dimension counts the examples."""

    value: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        return self.value.spec.shape[1:]


def spread(x: Any, size: int) -> Any:
    """Return an argument for all examples: a tensor gets a first dimension of `size`, lists are spread item by item, numbers stay."""
    if type(x) is Batch:
        return x.value
    if isinstance(x, (list, tuple)):
        return type(x)([spread(item, size) for item in x])
    if not is_tensor(x):
        return x
    shape = x.spec.shape
    return prims.broadcast_in_dim(x, shape=(size, *shape), dims=tuple(range(1, len(shape) + 1)))


def shape_of(x: Any) -> tuple[int, ...]:
    """Return the shape of one example."""
    return x.shape if type(x) is Batch else x.spec.shape


def move(x: Any, source: int, target: int) -> Any:
    """Return a tensor with dimension `source` at the place `target`, the others in order."""
    if source == target:
        return x
    order = [d for d in range(len(x.spec.shape)) if d != source]
    order.insert(target, source)
    return prims.transpose(x, order=tuple(order))


def merge(x: Any, dim: int) -> Any:
    """Return a batch with the examples merged into the dimension `dim` of an example, each after the one before."""
    shape = x.spec.shape
    return flat_reshape(move(x, 0, dim), (*shape[1 : dim + 1], shape[0] * shape[dim + 1], *shape[dim + 2 :]))


def split(x: Any, size: int, dim: int) -> Any:
    """Return a batch from a tensor whose dimension `dim` has the examples one after the other; undoes `merge`."""
    shape = x.spec.shape
    return move(flat_reshape(x, (*shape[:dim], size, shape[dim] // size, *shape[dim + 1 :])), dim, 0)


def numbers(size: int, index: Any) -> Any:
    """Return the number of its example for each element of a batched index."""
    count = prims.iota(length=size, start=0, step=1, dtype=int64, device=index.spec.device)
    return prims.broadcast_in_dim(count, shape=index.spec.shape, dims=(0,))


# Parameters of prims that count dimensions of an example, and what they are for a batch.


def _later(size: int, dims: Any) -> Any:
    return tuple([d + 1 for d in dims]) if isinstance(dims, (tuple, list)) else dims + 1


def _sized(size: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return (size, *shape)


def _zero_first(size: int, values: tuple[int, ...]) -> tuple[int, ...]:
    return (0, *values)


def _one_first(size: int, values: tuple[int, ...]) -> tuple[int, ...]:
    return (1, *values)


def _after_first(size: int, dims: tuple[int, ...]) -> tuple[int, ...]:
    return (0, *_later(size, dims))


_DIM, _DIMS = {"dim": _later}, {"dims": _later}
_WINDOW = {"starts": _zero_first, "stops": _sized, "steps": _one_first}
_DIAGONAL = {"dim1": _later, "dim2": _later}

SHIFTED: dict[Symbol, dict[str, Callable[[int, Any], Any]]] = {
    prims.sum: _DIMS,
    prims.prod: _DIMS,
    prims.amax: _DIMS,
    prims.amin: _DIMS,
    prims.any: _DIMS,
    prims.all: _DIMS,
    prims.var: _DIMS,
    prims.var_mean: _DIMS,
    prims.cumsum: _DIM,
    prims.cumprod: _DIM,
    prims.cummax: _DIM,
    prims.cummin: _DIM,
    prims.sort: _DIM,
    prims.topk: _DIM,
    prims.squeeze: _DIMS,
    prims.flip: _DIMS,
    prims.cat: _DIM,
    prims.transpose: {"order": _after_first},
    prims.stride_order: {"order": _after_first},
    prims.broadcast_in_dim: {"shape": _sized, "dims": _after_first},
    prims.strided_slice: _WINDOW,
    prims.put_slice: _WINDOW,
    prims.diagonal: _DIAGONAL,
    prims.put_diagonal: _DIAGONAL,
    prims.unfold: _DIM,
    prims.fold_add: {"shape": _sized, "dim": _later},
    prims.pad: {"low": _zero_first, "high": _zero_first, "interior": _zero_first},
    prims.take_along_axis: _DIM,
    prims.scatter: _DIM,
    prims.scatter_add: _DIM,
    prims.view_as_real: {},
    prims.bitcast: {},
    prims.detach: {},
    prims.clone: {},
    prims.device_put: {},
}


def _shifted(symbol: Symbol, changes: dict[str, Callable[[int, Any], Any]]) -> Rule:
    """Return the rule of a prim that runs on all examples at once, with other parameters."""

    def rule(size: int, /, *args: Any, **kwargs: Any) -> Any:
        kwargs = {name: changes[name](size, value) if name in changes else value for name, value in kwargs.items()}
        return symbol(*[spread(x, size) for x in args], **kwargs)

    return rule


def _reshape(size: int, x: Any, *, shape: tuple[int, ...]) -> Any:
    return flat_reshape(x.value, (size, *shape))


def _view_as_complex(size: int, x: Any) -> Any:
    return prims.view_as_complex(paired(x.value))


def _position(symbol: Symbol) -> Rule:
    """Return the rule of argmax or argmin."""

    def rule(size: int, x: Any, *, dim: int | None) -> Any:
        if dim is not None:
            return symbol(x.value, dim=dim + 1)
        return symbol(flat_reshape(x.value, (size, prod(x.shape))), dim=1)

    return rule


# Products.


def _matmul(size: int, a: Any, b: Any) -> Any:
    if type(b) is Batch or len(b.spec.shape) != 2:
        return prims.matmul(spread(a, size), spread(b, size))
    rows, inner = a.shape
    return flat_reshape(prims.matmul(flat_reshape(a.value, (size * rows, inner)), b), (size, rows, b.spec.shape[1]))


def _linear(size: int, x: Any, weight: Any) -> Any:
    if type(weight) is not Batch:
        return prims.linear(x.value, weight)
    columns, inner = weight.shape
    if type(x) is not Batch:
        return split(prims.linear(x, flat_reshape(weight.value, (size * columns, inner))), size, len(x.spec.shape) - 1)
    rows = flat_reshape(x.value, (size, prod(x.shape[:-1]), inner))
    return flat_reshape(prims.matmul(rows, prims.transpose(weight.value, order=(0, 2, 1))), (size, *x.shape[:-1], columns))


def _convolution(size: int, x: Any, weight: Any, *, groups: int, **window: Any) -> Any:
    """One convolution: examples with a weight of their own become groups, examples with the same weight a larger batch."""
    if type(weight) is not Batch:
        return split(prims.convolution(merge(x.value, 0), weight, groups=groups, **window), size, 0)
    weight = merge(weight.value, 0)
    if type(x) is not Batch and groups == 1 and not window["transposed"]:
        return split(prims.convolution(x, weight, groups=1, **window), size, 1)
    return split(prims.convolution(merge(spread(x, size), 1), weight, groups=size * groups, **window), size, 1)


def _convolution_input_grad(size: int, g: Any, weight: Any, *, input_shape: tuple[int, ...], groups: int, **window: Any) -> Any:
    items, channels, *sizes = input_shape
    if type(weight) is not Batch:
        shape = (size * items, channels, *sizes)
        return split(prims.convolution_input_grad(merge(g.value, 0), weight, input_shape=shape, groups=groups, **window), size, 0)
    g, weight, shape = merge(spread(g, size), 1), merge(weight.value, 0), (items, size * channels, *sizes)
    return split(prims.convolution_input_grad(g, weight, input_shape=shape, groups=size * groups, **window), size, 1)


def _convolution_weight_grad(size: int, g: Any, x: Any, *, weight_shape: tuple[int, ...], groups: int, **window: Any) -> Any:
    g, x, shape = merge(spread(g, size), 1), merge(spread(x, size), 1), (size * weight_shape[0], *weight_shape[1:])
    return split(prims.convolution_weight_grad(g, x, weight_shape=shape, groups=size * groups, **window), size, 0)


# Gathering and scattering: where positions differ between examples, the number of the example is one more position.


def _embedding(size: int, weight: Any, index: Any) -> Any:
    if type(weight) is not Batch:
        return prims.embedding(weight, index.value)
    return _index(size, weight, [index])


def _embedding_backward(size: int, g: Any, index: Any, *, num_weights: int, padding_idx: int) -> Any:
    g, index = spread(g, size), spread(index, size)
    if padding_idx >= 0:
        is_padding = prims.broadcast_in_dim(index == padding_idx, shape=g.spec.shape, dims=tuple(range(len(index.spec.shape))))
        g = prims.where(is_padding, 0.0, g)
    zeros = prims.full(shape=(size, num_weights, g.spec.shape[-1]), value=0.0, dtype=g.spec.dtype, device=g.spec.device)
    return prims.index_put(zeros, [numbers(size, index), index], g, accumulate=True)


def _take(size: int, x: Any, index: Any, *, dim: int) -> Any:
    if type(index) is not Batch:
        return prims.take(x.value, index, dim=dim + 1)
    if type(x) is not Batch:
        return split(prims.take(x, flat_reshape(index.value, (size * index.shape[0],)), dim=dim), size, dim)
    rows = prims.index(move(x.value, dim + 1, 1), [numbers(size, index.value), index.value])
    return move(rows, 1, dim + 1)


def _into_rows(symbol: Symbol, accumulate: bool) -> Rule:
    """Return the rule of index_add or index_copy."""

    def rule(size: int, x: Any, index: Any, value: Any, *, dim: int) -> Any:
        x, value = spread(x, size), spread(value, size)
        if type(index) is not Batch:
            return symbol(x, index, value, dim=dim + 1)
        places = [numbers(size, index.value), index.value]
        return move(prims.index_put(move(x, dim + 1, 1), places, move(value, dim + 1, 1), accumulate=accumulate), 1, dim + 1)

    return rule


def _coo_mm(size: int, rows: Any, columns: Any, values: Any, x: Any, *, num_rows: int) -> Any:
    if not any([type(part) is Batch for part in (rows, columns, values)]):
        return split(prims.coo_mm(rows, columns, values, merge(x.value, 1), num_rows=num_rows), size, 1)
    rows, columns, values, x = (spread(part, size) for part in (rows, columns, values, x))
    picked = prims.index(x, [numbers(size, columns), columns])
    terms = prims.broadcast_in_dim(values, shape=picked.spec.shape, dims=(0, 1)) * picked
    zeros = prims.full(shape=(size, num_rows, x.spec.shape[2]), value=0.0, dtype=x.spec.dtype, device=x.spec.device)
    return prims.index_put(zeros, [numbers(size, rows), rows], terms, accumulate=True)


def _index(size: int, x: Any, indices: list[Any]) -> Any:
    if not any([type(i) is Batch for i in indices]):
        return move(prims.index(move(x.value, 0, len(indices)), indices), len(indices[0].spec.shape), 0)
    places = spread(indices, size)
    return prims.index(x.value, [numbers(size, places[0]), *places]) if type(x) is Batch else prims.index(x, places)


def _index_put(size: int, x: Any, indices: list[Any], value: Any, *, accumulate: bool) -> Any:
    x, value = spread(x, size), spread(value, size)
    if not any([type(i) is Batch for i in indices]):
        after = len(indices)
        return move(prims.index_put(move(x, 0, after), indices, move(value, 0, len(indices[0].spec.shape)), accumulate=accumulate), after, 0)
    places = spread(indices, size)
    return prims.index_put(x, [numbers(size, places[0]), *places], value, accumulate=accumulate)


RULES: dict[Symbol, Rule] = {
    **{symbol: _shifted(symbol, changes) for symbol, changes in SHIFTED.items()},
    prims.reshape: _reshape,
    prims.view_as_complex: _view_as_complex,
    prims.argmax: _position(prims.argmax),
    prims.argmin: _position(prims.argmin),
    prims.matmul: _matmul,
    prims.linear: _linear,
    prims.convolution: _convolution,
    prims.convolution_input_grad: _convolution_input_grad,
    prims.convolution_weight_grad: _convolution_weight_grad,
    prims.embedding: _embedding,
    prims.embedding_backward: _embedding_backward,
    prims.take: _take,
    prims.index_add: _into_rows(prims.index_add, accumulate=True),
    prims.index_copy: _into_rows(prims.index_copy, accumulate=False),
    prims.coo_mm: _coo_mm,
    prims.index: _index,
    prims.index_put: _index_put,
}


def rule_of(symbol: Symbol) -> Rule | None:
    """Return the batching rule of a symbol, None where there is none."""
    return RULES.get(symbol) or (_shifted(symbol, {}) if Tag.ELEMENTWISE in symbol.tags else None)


# Random numbers, where each example draws its own.


def _drawn(symbol: Symbol) -> Rule:
    """Return the rule of a prim that draws numbers of a shape."""
    return lambda size, /, *, shape, **kwargs: symbol(shape=(size, *shape), **kwargs)


def _bernoulli(size: int, p: Any, *, shape: Any = None) -> Any:
    if shape is None:
        return prims.bernoulli(spread(p, size))
    shape = (size, *shape)
    return prims.bernoulli(prims.broadcast_in_dim(p.value, shape=shape, dims=(0,))) if type(p) is Batch else prims.bernoulli(p, shape=shape)


def _multinomial(size: int, x: Any, **kwargs: Any) -> Any:
    x = spread(x, size)
    rows = prims.multinomial(flat_reshape(x, (prod(x.spec.shape[:-1]), x.spec.shape[-1])), **kwargs)
    return flat_reshape(rows, (*x.spec.shape[:-1], rows.spec.shape[-1]))


DRAWS: dict[Symbol, Rule] = {
    prims.uniform: _drawn(prims.uniform),
    prims.normal: _drawn(prims.normal),
    prims.exponential: _drawn(prims.exponential),
    prims.randint: _drawn(prims.randint),
    prims.bernoulli: _bernoulli,
    prims.multinomial: _multinomial,
}
