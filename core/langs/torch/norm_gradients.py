"""Closed forms of the gradients of normalisations, each with the sums that it needs and no others.

Differentiated line by line, a normalisation adds up its cotangent once for each statistic and once for each parameter.  With xhat the
standardized input and h the cotangent of xhat, the gradient of the input is (h - mean(h) - xhat * mean(h * xhat)) / deviation; see Ioffe
and Szegedy, "Batch Normalization", 2015, section 3.  Where the parameters belong to what is normalised, the two means are the sums of
their gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dovetail import prims
from dovetail.langs import core
from dovetail.langs.torch.binding.symbol import Number, Tensor
from dovetail.langs.torch.elementwise import row_major
from dovetail.langs.torch.norm import affine, along, batch_norm_functional, group_norm, in_image_format, layer_norm, moved, unbiased
from dovetail.prims import Symbol
from dovetail.prims.shape import flat_reshape
from dovetail.prims.spec import prod
from dovetail.trace import BoundSymbol
from dovetail.trace.passes.grad import Rule, requires_grad


def _standardized(x: Tensor, variance: Tensor, mean: Tensor, eps: Number, *dims: int) -> tuple[Tensor, Tensor, Tensor]:
    """((x - mean) / deviation, 1 / deviation, the same along `dims` of x)."""
    scale = core.rsqrt(core.add(variance, eps))
    centred, spread = core.sub(x, along(mean, x.spec.shape, *dims)), along(scale, x.spec.shape, *dims)
    return core.mul(centred, spread), scale, spread


def _input_gradient(h: Tensor, xhat: Tensor, mean: Tensor, mean_of_product: Tensor, scale: Tensor) -> Tensor:
    """(h - mean(h) - xhat * mean(h * xhat)) / deviation, all of one shape."""
    return core.mul(core.sub(core.sub(h, mean), core.mul(xhat, mean_of_product)), scale)


def _sum(x: Tensor, dims: Sequence[int]) -> Tensor:
    return prims.sum(x, dims=tuple(dims)) if dims else x


def _put(x: Tensor | None, gradient: Callable[[], Tensor]) -> None:
    """Give `x` its gradient, in its own dtype, where it wants one."""
    if requires_grad(x):
        prims.put_grad(x, core.convert(gradient(), x.spec.dtype))


def _of_layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: Number = 1e-5
) -> Any:
    shape, rank = input.spec.shape, len(input.spec.shape)
    dims = tuple(range(rank - len(normalized_shape), rank))
    rows, x = dims[0], core.convert(row_major(input), core.wide(input.spec.dtype))
    variance, mean = prims.var_mean(x, dims=dims, correction=0)
    xhat, _, scale = _standardized(x, variance, mean, eps, *range(rows))
    out = core.convert(affine(xhat, weight, bias, *dims), input.spec.dtype)
    g = core.convert(prims.get_grad(out), x.spec.dtype)
    _put(bias, lambda: _sum(g, range(rows)))
    _put(weight, lambda: _sum(core.mul(g, xhat), range(rows)))
    if requires_grad(input):
        h, count = affine(g, weight, None, *dims), prod(shape[d] for d in dims)
        means = [along(core.div(prims.sum(part, dims=dims), count), shape, *range(rows)) for part in (h, core.mul(h, xhat))]
        _put(input, lambda: _input_gradient(h, xhat, *means, scale))
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
    shape = input.spec.shape
    dims = tuple([d for d in range(len(shape)) if d != 1])
    count, x = prod(shape[d] for d in dims), core.convert(in_image_format(input), core.wide(input.spec.dtype))
    variance, mean = prims.var_mean(x, dims=dims, correction=0)
    xhat, scale, _ = _standardized(x, variance, mean, eps, 1)
    out = core.convert(affine(xhat, weight, bias, 1), input.spec.dtype)
    statistics = [core.convert(prims.detach(part), running_mean.spec.dtype) for part in (mean, scale)]
    running = moved(running_mean, mean, momentum), moved(running_var, unbiased(variance, count), momentum)
    g = core.convert(prims.get_grad(out), x.spec.dtype)
    total, total_of_product = prims.sum(g, dims=dims), prims.sum(core.mul(g, xhat), dims=dims)
    _put(bias, lambda: total)
    _put(weight, lambda: total_of_product)
    if requires_grad(input):
        means = [along(core.div(part, count), shape, 1) for part in (total, total_of_product)]
        wide = scale if weight is None else core.mul(scale, core.convert(weight, scale.spec.dtype))
        _put(input, lambda: _input_gradient(g, xhat, *means, along(wide, shape, 1)))
    return out, *statistics, *running


def _of_group_norm(input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: Number = 1e-5) -> Any:
    shape = input.spec.shape
    batch, channels, spatial = shape[0], shape[1], tuple(range(2, len(shape)))
    size = channels // num_groups
    x = core.convert(in_image_format(input), core.wide(input.spec.dtype))
    groups = flat_reshape(x, (batch, num_groups, size, *shape[2:]))
    parts = prims.var_mean(groups, dims=tuple(range(2, len(shape) + 1)), correction=0)

    def of_channels(of_groups: Tensor) -> Tensor:
        return flat_reshape(along(of_groups, (batch, num_groups, size), 0, 1), (batch, channels))

    variance, mean = map(of_channels, parts)
    xhat, _, scale = _standardized(x, variance, mean, eps, 0, 1)
    out = core.convert(affine(xhat, weight, bias, 1), input.spec.dtype)
    g = core.convert(prims.get_grad(out), x.spec.dtype)
    total, total_of_product = _sum(g, spatial), _sum(core.mul(g, xhat), spatial)  # of each channel of each item
    _put(bias, lambda: _sum(total, (0,)))
    _put(weight, lambda: _sum(total_of_product, (0,)))
    if requires_grad(input):
        count, means = size * prod(shape[2:]), []
        for part in (total, total_of_product):
            of_groups = prims.sum(flat_reshape(affine(part, weight, None, 1), (batch, num_groups, size)), dims=(2,))
            means.append(along(of_channels(core.div(of_groups, count)), shape, 0, 1))
        _put(input, lambda: _input_gradient(affine(g, weight, None, 1), xhat, *means, scale))
    return out


CLOSED_FORMS: dict[Symbol, Rule] = {layer_norm: _of_layer_norm, batch_norm_functional: _of_batch_norm, group_norm: _of_group_norm}


def closed_form(line: BoundSymbol) -> Rule | None:
    """Return the grad rule, in interleaved form, of a normalisation of real numbers; None for other lines, and for one of nothing."""
    rule = CLOSED_FORMS.get(line.symbol)
    return rule if rule is not None and line.args and line.args[0].spec.numel else None
