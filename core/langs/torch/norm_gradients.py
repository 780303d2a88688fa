"""Closed forms of the gradients of normalisations, each with the sums that it needs and no others.

Differentiated line by line, a normalisation adds up its cotangent once for each statistic and once for each parameter.  With xhat the
standardized input and h the cotangent of xhat, the gradient of the input is (h - mean(h) - xhat * mean(h * xhat)) / deviation; see Ioffe
and Szegedy, "Batch Normalization", 2015, section 3.  Where the parameters belong to what is normalised, the two means are the sums of
their gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dovetail import dtypes, prims
from dovetail.langs import core
from dovetail.langs.torch.binding.symbol import Number, Tensor
from dovetail.langs.torch.norm import (
    affine,
    all_but_channels,
    along,
    batch_norm_functional,
    group_norm,
    layer_norm,
    of_channels,
    standardized_channels,
    standardized_groups,
    standardized_rows,
    statistics_of_batch,
)
from dovetail.prims import Symbol
from dovetail.prims.shape import flat_reshape
from dovetail.prims.spec import prod
from dovetail.trace import BoundSymbol
from dovetail.trace.passes.grad import Rule, requires_grad


def _input_gradient(h: Tensor, xhat: Tensor, mean: Tensor, mean_of_product: Tensor, scale: Tensor) -> Tensor:
    """(h - mean(h) - xhat * mean(h * xhat)) / deviation, all of one shape."""
    return core.mul(core.sub(core.sub(h, mean), core.mul(xhat, mean_of_product)), scale)


def _sum(x: Tensor, dims: Sequence[int]) -> Tensor:
    return prims.sum(x, dims=tuple(dims)) if dims else x


def _put(x: Tensor | None, gradient: Callable[[], Tensor]) -> None:
    """Give `x` its gradient, in its own dtype, where it wants one."""
    if requires_grad(x):
        prims.put_grad(x, core.convert(gradient(), x.spec.dtype))


def _cotangent(out: Tensor, dtype: dtypes.DType) -> Tensor:
    return core.convert(prims.get_grad(out), dtype)


def _of_layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: Number = 1e-5
) -> Any:
    shape, rank = input.spec.shape, len(input.spec.shape)
    dims = tuple(range(rank - len(normalized_shape), rank))
    rows = range(dims[0])
    parts = standardized_rows(input, dims, eps)
    out = core.convert(affine(parts.values, weight, bias, *dims), input.spec.dtype)
    g = _cotangent(out, parts.values.spec.dtype)
    _put(bias, lambda: _sum(g, rows))
    _put(weight, lambda: _sum(core.mul(g, parts.values), rows))
    if requires_grad(input):
        h, count = affine(g, weight, None, *dims), prod(shape[d] for d in dims)
        means = [along(core.div(prims.sum(part, dims=dims), count), shape, *rows) for part in (h, core.mul(h, parts.values))]
        _put(input, lambda: _input_gradient(h, parts.values, *means, parts.spread))
    return out


def _of_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    training: bool,
    momentum: Number,
    eps: Number,
) -> Any:
    shape, dims = input.spec.shape, all_but_channels(input)
    parts = standardized_channels(input, eps)
    out = core.convert(affine(parts.values, weight, bias, 1), input.spec.dtype)
    statistics = statistics_of_batch(parts, input, running_mean, running_var, momentum)
    g = _cotangent(out, parts.values.spec.dtype)
    total, total_of_product = prims.sum(g, dims=dims), prims.sum(core.mul(g, parts.values), dims=dims)
    _put(bias, lambda: total)
    _put(weight, lambda: total_of_product)
    if requires_grad(input):
        count, scale = prod(shape[d] for d in dims), parts.scale
        means = [along(core.div(part, count), shape, 1) for part in (total, total_of_product)]
        wide = scale if weight is None else core.mul(scale, core.convert(weight, scale.spec.dtype))
        _put(input, lambda: _input_gradient(g, parts.values, *means, along(wide, shape, 1)))
    return out, *statistics


def _of_group_norm(input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: Number = 1e-5) -> Any:
    batch, channels, *spatial = shape = input.spec.shape
    spatial_dims, size = range(2, len(shape)), channels // num_groups
    parts = standardized_groups(input, num_groups, eps)
    out = core.convert(affine(parts.values, weight, bias, 1), input.spec.dtype)
    g = _cotangent(out, parts.values.spec.dtype)
    total, total_of_product = _sum(g, spatial_dims), _sum(core.mul(g, parts.values), spatial_dims)  # of each channel of each item
    _put(bias, lambda: _sum(total, (0,)))
    _put(weight, lambda: _sum(total_of_product, (0,)))
    if requires_grad(input):
        count, means = size * prod(spatial), []
        for part in (total, total_of_product):
            of_groups = prims.sum(flat_reshape(affine(part, weight, None, 1), (batch, num_groups, size)), dims=(2,))
            means.append(along(of_channels(core.div(of_groups, count), channels), shape, 0, 1))
        _put(input, lambda: _input_gradient(affine(g, weight, None, 1), parts.values, *means, parts.spread))
    return out


CLOSED_FORMS: dict[Symbol, Rule] = {  # the registry: symbol -> a grad rule in interleaved form; pooling adds those of its means
    layer_norm: _of_layer_norm,
    batch_norm_functional: _of_batch_norm,
    group_norm: _of_group_norm,
}


def closed_form(line: BoundSymbol) -> Rule | None:
    """Return the grad rule, in interleaved form, of a line that has a closed form; None for other lines, and for one of nothing."""
    rule = CLOSED_FORMS.get(line.symbol)
    return rule if rule is not None and line.args and line.args[0].spec.numel else None
