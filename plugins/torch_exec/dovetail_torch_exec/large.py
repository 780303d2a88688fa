"""Products whose result is large are written into memory from the pool, since new memory costs a third of the time again."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from dovetail import prims
from dovetail.extend import BoundSymbol, TensorSpec
from dovetail.extend.advanced import POOL, Symbol, symbol_for
from dovetail.prims.sizes import hint_of
from dovetail.prims.spec import row_major


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute torch.nn.functional.linear with a matrix for its weight."""
    return matmul(input, weight.t(), bias) if weight.ndim == 2 else torch.nn.functional.linear(input, weight, bias)


def matmul(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute rows [..., k] times one matrix [k, m], plus `bias` [m]; anything else is PyTorch's.

    As PyTorch does it: the same product, so that the numbers are the same.
    """
    plain = a.ndim >= 2 and b.ndim == 2 and a.is_contiguous() and (bias is None or bias.ndim == 1)
    if not plain or (torch.is_grad_enabled() and any([x is not None and x.requires_grad for x in (a, b, bias)])):
        return torch.matmul(a, b) if bias is None else torch.nn.functional.linear(a, b.t(), bias)
    shape, rows = (*a.shape[:-1], b.shape[1]), a.view(-1, a.shape[-1])
    out = POOL.empty(shape, row_major(shape), a.dtype, rows.shape[0] * b.shape[1] * a.element_size())
    into = out.view(-1, b.shape[1])
    if bias is None:
        torch.mm(rows, b, out=into)
    else:
        torch.addmm(bias, rows, b, out=into)
    return out


LARGE = 32 << 20  # bytes from which the system's allocator asks for new pages each time; below, it keeps its own


def large_results(line: BoundSymbol) -> bool:
    """Return whether a result of `line` lies on a CPU and has LARGE bytes or more."""
    tensors = [p.spec for p in line.writes if type(p.spec) is TensorSpec]
    return any([spec.device.type == "cpu" and hint_of(spec.numel) * spec.dtype.bytes >= LARGE for spec in tensors])


PRODUCTS: dict[Symbol, Callable[..., Tensor]] = {
    prims.linear: linear,
    prims.matmul: matmul,
    symbol_for("torch.nn.functional.linear"): linear,
    symbol_for("torch.matmul"): matmul,
}
