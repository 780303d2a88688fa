"""Operations that change places of a tensor, run so that they write its memory; each returns the tensor that it wrote.

They write through a tensor that is detached: neither does what they write give it a history, nor is writing a leaf an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from dovetail import prims
from dovetail.extend.advanced import Symbol, symbol_for
from dovetail_torch_exec.prims import from_front

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


UPDATES: dict[Symbol, Callable[..., Tensor]] = {
    prims.put_slice: put_slice,
    prims.put_diagonal: put_diagonal,
    prims.index_put: index_put,
    prims.index_copy: _along("index_copy_"),
    prims.index_add: _along("index_add_"),
    prims.scatter: _along("scatter_"),
    prims.scatter_add: _along("scatter_add_"),
    **{symbol_for(f"torch.{name}"): _by_method(name) for name in METHODS},
}
