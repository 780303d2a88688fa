"""Rows of a table, and classes as rows of an identity matrix."""

from __future__ import annotations

import torch

from dovetail import dtypes, prims
from dovetail.errors import Unsupported, require
from dovetail.langs import core
from dovetail.langs.torch.binding.names import unsupported_gradient
from dovetail.langs.torch.binding.opaque import opaque
from dovetail.langs.torch.binding.symbol import Tensor, torchsymbol
from dovetail.langs.torch.padding import positions
from dovetail.prims.shape import flat_reshape


@torchsymbol("torch.nn.functional.embedding")
def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
):
    """weight[input]; rows at `padding_idx` get no gradient; `max_norm` first scales the rows that are longer, in place."""
    rows = weight.spec.shape[0] if weight.spec.shape else 0
    if padding_idx is not None:
        require(-rows <= padding_idx < rows, "expected padding_idx within the {} rows of weight, got {}", rows, padding_idx, error=AssertionError)
        padding_idx %= rows
    if max_norm is not None:
        opaque(torch.embedding_renorm_, (prims.detach(weight), input, max_norm, norm_type), {})
    return _rows(weight, input, padding_idx, scale_grad_by_freq, sparse)


@torchsymbol("torch.embedding")
def embedding_rows(weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False):
    """weight[indices]; rows at `padding_idx` get no gradient, -1 being none of them."""
    return _rows(weight, indices, padding_idx if padding_idx >= 0 else None, scale_grad_by_freq, sparse)


def _rows(weight: Tensor, index: Tensor, padding_idx: int | None, scale_grad_by_freq: bool, sparse: bool) -> Tensor:
    require(len(weight.spec.shape) == 2, "'weight' must be 2-D, got {}", weight.spec)
    is_integer = index.spec.dtype in (dtypes.int64, dtypes.int32)
    require(is_integer, "Expected tensor for argument 'indices' to have scalar type Long or Int, got {}; convert it with .long()", index.spec)
    index = core.convert(index, dtypes.int64)
    rows = prims.embedding(weight, index)
    if (scale_grad_by_freq or sparse) and rows.spec.requires_grad:
        raise unsupported_gradient("embedding", "scale_grad_by_freq" if scale_grad_by_freq else "sparse")
    if padding_idx is None or not weight.spec.requires_grad:
        return rows
    padding = prims.broadcast_in_dim(prims.eq(index, padding_idx), shape=rows.spec.shape, dims=tuple(range(len(index.spec.shape))))
    return prims.where(padding, prims.detach(rows), rows)


@torchsymbol("torch.nn.functional.one_hot")
def one_hot(input: Tensor, num_classes: int = -1):
    """int64 ones where the class is `input`, in a new last dimension of `num_classes`, else zeros."""
    require(input.spec.dtype is dtypes.int64, "one_hot is only applicable to index tensor of type LongTensor, got {}; use .long()", input.spec)
    if num_classes == -1:
        raise Unsupported("one_hot without num_classes is not traced: its shape depends on values; pass num_classes")
    require(num_classes > 0, "num_classes should be positive, got {}", num_classes)
    shape = (*input.spec.shape, num_classes)
    known = positions(input, num_classes)
    picked = prims.take_along_axis(known, flat_reshape(input, (input.spec.numel,)), dim=0)  # raises for other classes, as eager does
    looked_up = flat_reshape(picked, input.spec.shape)
    classes = prims.broadcast_in_dim(known, shape=shape, dims=(len(shape) - 1,))
    chosen = prims.broadcast_in_dim(looked_up, shape=shape, dims=tuple(range(len(shape) - 1)))
    hit = core.convert(prims.eq(chosen, classes), dtypes.int64)
    return core.in_layout(hit, hit.spec.fresh())
