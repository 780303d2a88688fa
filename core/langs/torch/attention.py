"""Attention: each query takes the mean of the values, weighted by how well their keys match it."""

from __future__ import annotations

import math
from typing import Any

import torch

from dovetail import dtypes, prims
from dovetail.devices import cpu
from dovetail.errors import require, require_dtype
from dovetail.langs import core
from dovetail.langs.torch.binding.opaque import opaque_symbol
from dovetail.langs.torch.binding.symbol import Tensor, torchquery, torchsymbol
from dovetail.langs.torch.dropout import plain_dropout
from dovetail.langs.torch.padding import positions, slow_to_fast
from dovetail.langs.torch.softmax import softmax
from dovetail.prims import TensorSpec
from dovetail.prims.shape import flat_reshape
from dovetail.prims.spec import dense, prod
from dovetail.torch_internals import NESTED_FROM_MASK


@torchsymbol("torch.nn.functional.scaled_dot_product_attention")
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
):
    """dropout(softmax(query @ key^T * scale + mask)) @ value over the last two dimensions; `scale` is 1 / sqrt(width) unless given.

    A boolean mask selects the keys that take part; a query without any results in zeros.  With `enable_gqa`, groups of query heads (dimension -3)
    share the heads of key and value.
    """
    _require_attention(query.spec, key.spec, value.spec, attn_mask, is_causal)
    dtype = query.spec.dtype
    like = _like(query.spec, key.spec, value.spec, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    if enable_gqa:
        key, value = _shared(key, query.spec), _shared(value, query.spec)
    width = query.spec.shape[-1]
    scale = (1.0 / math.sqrt(width) if width else 1.0) if scale is None else scale
    q, k, v = (core.convert(x, core.wide(dtype)) for x in (query, key, value))
    scores = core.mul(_product(q, _transposed(k)), core.as_float(scale))
    weights = softmax(_masked(scores, _causal(scores)), -1) if is_causal else _weights(scores, attn_mask)
    out = core.convert(_product(plain_dropout(weights, dropout_p, True), v), dtype)
    return out if like is None or like.strides is None else _placed(out, like)


def _require_attention(q: TensorSpec, k: TensorSpec, v: TensorSpec, mask: Tensor | None, is_causal: bool) -> None:
    require(q.dtype is k.dtype is v.dtype, "Expected query, key, and value to have the same dtype, got {}, {} and {}", q, k, v)
    require(q.device is k.device is v.device, "Expected query, key, and value to have the same device, got {}, {} and {}", q, k, v)
    require(min(q.rank, k.rank, v.rank) >= 2, "Expected query, key, and value to all be at least 2 dimensional, got {}, {} and {}", q, k, v)
    require_dtype(q.dtype.kind == "float", "attention is not implemented for {}; convert to a floating dtype", q)
    require(q.shape[-1] == k.shape[-1], "expected query and key of one width, got {} and {}", q, k)
    require(k.shape[-2] == v.shape[-2], "expected one value for each key, got {} and {}", k, v)
    if mask is not None:
        require(not is_causal, "Explicit attn_mask should not be set when is_causal=True; put the causal mask into attn_mask")
        require(mask.spec.rank >= 2 or q.rank != 4, "expected a mask of at least 2 dimensions, got {}", mask.spec, error=IndexError)
        is_supported = mask.spec.dtype in (dtypes.bool_, dtypes.float32, q.dtype)
        require(is_supported, "Expected attn_mask dtype to be bool or float or to match query dtype, got {} and {}", mask.spec, q)


def _like(
    q: TensorSpec, k: TensorSpec, v: TensorSpec, mask: Tensor | None, dropout_p: float, is_causal: bool, scale: float | None, enable_gqa: bool
) -> TensorSpec | None:
    """Return a spec with the memory layout of the result, None for row-major.

    PyTorch's fused CPU kernel follows the query, its plain path does not.  On other devices torch's fake tensors decide.
    """
    if q.device is not cpu:
        specs = (q, k, v, None if mask is None else mask.spec, dropout_p, is_causal)
        return opaque_symbol(torch.nn.functional.scaled_dot_product_attention).meta(*specs, scale=scale, enable_gqa=enable_gqa)
    heads = k.rank == v.rank == 4 and k.shape[1] == v.shape[1] and (q.shape[1:2] == k.shape[1:2] or enable_gqa)
    alike = q.rank == 4 and heads and q.shape[0] == k.shape[0] == v.shape[0] and q.shape[-1] == v.shape[-1]
    masked = mask is None or (mask.spec.rank in (2, 4) and not mask.spec.requires_grad)
    full = q.shape[-2] != 0 and k.shape[-2] != 0 and q.steps[-1] == k.steps[-1] == v.steps[-1] == 1
    return dense(q) if alike and masked and full and dropout_p == 0 else None


def _placed(out: Tensor, like: TensorSpec) -> Tensor:
    """Lay `out` out as `like`, which may be a slice of rows that a kernel padded."""
    shape, order = out.spec.shape, slow_to_fast(like)
    width = min([step for step, n in zip(like.steps[:-1], shape[:-1], strict=True) if n > 1], default=shape[-1])
    if like.is_dense or width <= shape[-1]:
        return prims.stride_order(out, order=order)
    zeros = (0,) * len(shape)
    longer = prims.pad(out, value=0.0, low=zeros, high=(*zeros[1:], width - shape[-1]), interior=zeros)
    return prims.strided_slice(prims.stride_order(longer, order=order), starts=zeros, stops=shape, steps=(1,) * len(shape))


def _shared(x: Tensor, q: TensorSpec) -> Tensor:
    """Repeat each head of x for the query heads that share it."""
    shape = x.spec.shape
    require(min(len(shape), q.rank) >= 3, "enable_gqa: expected heads at dimension -3, got {} and {}", q, x.spec, error=IndexError)
    if shape[-3] == q.shape[-3]:
        return x
    times, rest = divmod(q.shape[-3], shape[-3]) if shape[-3] else (0, 1)
    require(rest == 0, "Number of heads in key and value must divide the number of heads in query, got {} and {}", x.spec, q)
    at = len(shape) - 2
    dims = tuple([d for d in range(len(shape) + 1) if d != at])
    repeated = prims.broadcast_in_dim(x, shape=(*shape[:at], times, *shape[at:]), dims=dims)
    return flat_reshape(repeated, (*shape[: at - 1], q.shape[-3], *shape[at:]))


def _transposed(x: Tensor) -> Tensor:
    rank = len(x.spec.shape)
    return prims.transpose(x, order=(*range(rank - 2), rank - 1, rank - 2))


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Return matrix products, with the leading dimensions broadcast."""
    (*before_a, n, k), (*before_b, _, m) = a.spec.shape, b.spec.shape
    before = core.broadcast_shapes(tuple(before_a), tuple(before_b))
    return prims.matmul(core.expand(a, (*before, n, k)), core.expand(b, (*before, k, m)))


def _causal(scores: Tensor) -> Tensor:
    """Return the causal mask: whether each key is no later than the query."""
    rows, columns = scores.spec.shape[-2:]
    shape = (rows, columns)
    row = prims.broadcast_in_dim(positions(scores, rows), shape=shape, dims=(0,))
    return prims.ge(row, prims.broadcast_in_dim(positions(scores, columns), shape=shape, dims=(1,)))


def _weights(scores: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(scores + mask) over the last dimension, zero in rows that are fully masked."""
    shape = scores.spec.shape
    if mask is None or not prod(shape):
        return softmax(scores, -1)
    scores = _masked(scores, mask)
    last = (len(shape) - 1,)
    largest = prims.detach(prims.amax(scores, dims=last))
    is_fully_masked = core.expand(core.keep_dims(prims.eq(largest, -math.inf), shape, last), shape)
    weights = softmax(prims.where(is_fully_masked, 0.0, scores), -1)  # finite there, and so are its gradients
    return prims.where(is_fully_masked, 0.0, weights)


def _masked(scores: Tensor, mask: Tensor) -> Tensor:
    """scores + mask, -inf where a boolean mask is False."""
    shape, dtype = scores.spec.shape, scores.spec.dtype
    require(core.broadcast_shapes(shape, mask.spec.shape) == shape, "expected a mask that broadcasts to {}, got {}", shape, mask.spec)
    if mask.spec.dtype is dtypes.bool_:
        return prims.where(core.expand(mask, shape), scores, -math.inf)
    return prims.add(scores, core.fit(mask, shape, dtype))


@torchquery(NESTED_FROM_MASK)
def left_aligned(*_: Any) -> bool:
    """Return whether nn.TransformerEncoder may drop padding by nested tensors: it depends on values, and the plain path is right for every mask."""
    return False
