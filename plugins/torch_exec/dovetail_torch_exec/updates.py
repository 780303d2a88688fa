"""Operations that change places of a tensor, run so that they write its memory; each returns the tensor that it wrote.

They write through a tensor that is detached: neither does what they write give it a history, nor is writing a leaf an error.  Tensors of a transform,
as vmap, may not be written into one that has none of its dimensions, and autograd would not see the write: there they compute another tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dovetail import prims
from dovetail.extend.advanced import Symbol, symbol_for, torch_internals
from dovetail_torch_exec.prims import PRIMS, from_front

METHODS = ("index_copy", "index_add", "index_fill", "scatter", "scatter_add", "scatter_reduce")


def put_slice(x: Tensor, value: Tensor, *, starts: tuple, stops: tuple, steps: tuple) -> Tensor:
    x.detach()[tuple(map(slice, starts, stops, steps))] = value
    return x


def put_diagonal(x: Tensor, value: Tensor, *, offset: int, dim1: int, dim2: int) -> Tensor:
    x.detach().diagonal(offset, dim1, dim2).copy_(value)
    return x


def index_put(x: Tensor, indices: list, value: Tensor, *, accumulate: bool) -> Tensor:
    x.detach().index_put_(tuple(from_front(x, indices)), value, accumulate)
    return x


def _along(name: str) -> Callable[..., Tensor]:
    """Return what writes a value to places along a dimension by the method of tensors of that name."""
    method = getattr(Tensor, name)

    def write(x: Tensor, index: Tensor, value: Tensor, *, dim: int) -> Tensor:
        method(x.detach(), dim, index, value)
        return x

    return write


def _by_method(name: str) -> Callable[..., Tensor]:
    """Return the method of tensors that writes what the torch function `name` computes."""
    method = getattr(Tensor, f"{name}_")

    def write(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        method(input.detach(), *args, **kwargs)
        return input

    return write


def _where_it_may(write: Callable[..., Tensor], compute: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return `write`, or `compute` for tensors of a transform and for those that autograd follows."""

    def run(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        records = torch.is_grad_enabled()
        for each in (x, *args):
            if isinstance(each, Tensor) and (not torch_internals.has_storage(each) or (records and each.requires_grad and not each.is_leaf)):
                return compute(x, *args, **kwargs)
        return write(x, *args, **kwargs)

    return run


_WRITES: dict[Symbol, Callable[..., Tensor]] = {
    prims.put_slice: put_slice,
    prims.put_diagonal: put_diagonal,
    prims.index_put: index_put,
    prims.index_copy: _along("index_copy_"),
    prims.index_add: _along("index_add_"),
    prims.scatter: _along("scatter_"),
    prims.scatter_add: _along("scatter_add_"),
    **{symbol_for(f"torch.{name}"): _by_method(name) for name in METHODS},
}
UPDATES = {symbol: _where_it_may(write, PRIMS.get(symbol) or symbol.callable) for symbol, write in _WRITES.items()}
