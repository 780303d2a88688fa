"""Products of bfloat16 and float16 on processors that take longer for them, as products of float32 that are rounded once.

Without instructions for these dtypes, PyTorch multiplies them element by element, which takes 10 to 50 times as long as in float32; where there are
such instructions, `costs` measures.  PyTorch adds up in float32 as well, so results differ by the order of the sums alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dovetail import prims
from dovetail.extend import BoundSymbol, Tag, TensorSpec
from dovetail.extend.advanced import Implementation, Symbol, leaves, prims_of, symbol_for
from dovetail.langs.torch import TO_TORCH, TorchSymbol
from dovetail.prims.sizes import hint_of
from dovetail.prims.spec import prod
from dovetail_torch_exec import costs
from dovetail_torch_exec.convolution import convolution, convolution_input_grad, convolution_weight_grad
from dovetail_torch_exec.costs import Kind
from dovetail_torch_exec.formats import symbol_printed

BLOCK = 1 << 20  # elements in float32 at a time: of more, the pages would be new to each call, and take longer than the product
DOTS = 2  # rows up to which PyTorch is as fast with a weight of contiguous rows, with which it has a dot product for each element
FEW = 1 << 15  # multiplications that take PyTorch no longer than conversions
PREFIX = "in_float32_"


def widely(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return `fn`, a function of tensors of one dtype that returns such, computed in float32."""

    def run(*args: Any, **kwargs: Any) -> Any:
        dtype = next(x.dtype for x in leaves([args, kwargs]) if isinstance(x, Tensor) and x.is_floating_point())
        out = fn(*widened(args, dtype), **{name: widened(x, dtype) for name, x in kwargs.items()})
        return tuple([rounded(x, dtype) for x in out]) if isinstance(out, (tuple, list)) else rounded(out, dtype)

    return run


def widened(nest: Any, dtype: torch.dtype) -> Any:
    """Return tensors of a dtype in float32, and anything else as it is."""
    if isinstance(nest, Tensor):
        return nest.float() if nest.dtype is dtype else nest
    return type(nest)([widened(x, dtype) for x in nest]) if type(nest) in (tuple, list) else nest


def rounded(x: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Return a result in a dtype; None where it was not computed."""
    return x if x is None else x.to(dtype)


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute torch.nn.functional.linear."""
    return matmul(input, weight.t(), bias) if weight.ndim == 2 else _whole(input, weight, bias)


def matmul(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute a @ b, plus `bias` [m]."""
    recorded = torch.is_grad_enabled() and any([x is not None and x.requires_grad for x in (a, b, bias)])
    if recorded or not a.numel() or not b.numel():
        return _whole(a, b, bias)
    if b.ndim == 1 and a.ndim == 2 and bias is None and _is_quick_with_vector(a):
        return torch.mv(a, b)
    if b.ndim == 2 and a.ndim and (bias is None or bias.ndim == 1):
        return _product(a.reshape(-1, a.shape[-1]), b, bias).view(*a.shape[:-1], b.shape[1])
    return _batches(a, b) if a.ndim > 2 and a.shape[:-2] == b.shape[:-2] else _whole(a, b, bias)


def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Compute torch.addmm."""
    if alpha == beta == 1 and input.ndim == 1 and mat1.ndim == mat2.ndim == 2:
        return matmul(mat1, mat2, input)
    return torch.addmm(input.float(), mat1.float(), mat2.float(), beta=beta, alpha=alpha).to(mat1.dtype)


def _whole(a: Tensor, b: Tensor, bias: Tensor | None) -> Tensor:
    out = torch.matmul(a.float(), b.float()) if bias is None else torch.nn.functional.linear(a.float(), b.float().t(), bias.float())
    return out.to(a.dtype)


def _is_quick_with_vector(a: Tensor) -> bool:
    """Return whether PyTorch multiplies a matrix by a vector as it is in less time than conversions take: float16 row by row alone."""
    return a.dtype is torch.bfloat16 or a.stride(1) == 1 or a.numel() < FEW


def _batches(a: Tensor, b: Tensor) -> Tensor:
    """Return the products of as many matrices, a block of them at a time."""
    shape = (*a.shape[:-1], b.shape[-1])
    a, b = a.reshape(-1, *a.shape[-2:]), b.reshape(-1, *b.shape[-2:])
    out = torch.empty((len(a), *shape[-2:]), dtype=a.dtype)
    for at in _blocks(len(a), max(x[0].numel() for x in (a, b, out))):
        out[at] = torch.bmm(a[at].float(), b[at].float())
    return out.view(shape)


def _product(a: Tensor, b: Tensor, bias: Tensor | None) -> Tensor:
    """Return a [n, k] @ b [k, m] + bias, with a block of the largest of them in float32 at a time."""
    (n, k), m = a.shape, b.shape[1]
    by_columns = b.stride(0) == 1
    if n * k * m < FEW or (n <= DOTS and by_columns):
        return torch.mm(a, b) if bias is None else torch.addmm(bias, a, b)
    if k * m <= max(n * k, n * m):
        out, right = torch.empty((n, m), dtype=a.dtype), b.float()
        for at in _blocks(n, max(k, m)):
            out[at] = _sum(bias, a[at].float(), right)
        return out
    left = a.float()
    if by_columns:
        return torch.cat([_sum(bias if bias is None else bias[at], left, b[:, at].float()).to(a.dtype) for at in _blocks(m, k)], 1)
    sums = torch.zeros((n, m)) if bias is None else bias.float().expand(n, m).clone()
    for at in _blocks(k, m):
        sums.addmm_(left[:, at], b[at].float())
    return sums.to(a.dtype)


def _sum(bias: Tensor | None, a: Tensor, b: Tensor) -> Tensor:
    return torch.mm(a, b) if bias is None else torch.addmm(bias.float(), a, b)


def _blocks(count: int, size: int) -> Iterator[slice]:
    """Divide `count` things of so many elements into blocks."""
    step = max(1, BLOCK // size)
    return (slice(start, start + step) for start in range(0, count, step))


IN_FLOAT32: dict[Symbol, Callable[..., Any]] = {  # the registry: what computes an operation in float32; others get its implementation, widely
    prims.linear: linear,
    prims.matmul: matmul,
    symbol_for("torch.nn.functional.linear"): linear,
    symbol_for("torch.matmul"): matmul,
    symbol_for("torch.mm"): matmul,
    symbol_for("torch.bmm"): matmul,
    symbol_for("torch.addmm"): addmm,
    prims.convolution: partial(convolution, convolve=widely(torch.convolution)),
    prims.convolution_input_grad: partial(convolution_input_grad, gradients=widely(torch.ops.aten.convolution_backward)),
    prims.convolution_weight_grad: partial(convolution_weight_grad, gradients=widely(torch.ops.aten.convolution_backward)),
}


def _of_product(line: BoundSymbol) -> tuple[Kind, Any]:
    a, b = line.args
    return Kind.BATCHES if b.spec.rank > 2 else Kind.PRODUCT, line.out.spec.numel * a.spec.shape[-1]


def _of_convolution(line: BoundSymbol) -> tuple[Kind, Any]:
    x, weight = line.args
    return Kind.CONVOLUTION, (x if line.kwargs["transposed"] else line.out).spec.numel * prod(weight.spec.shape[1:])


def _of_input_grad(line: BoundSymbol) -> tuple[Kind, Any]:
    g, weight = line.args
    pixels = prod(line.kwargs["input_shape"]) if line.kwargs["transposed"] else g.spec.numel
    return Kind.CONVOLUTION_BACKWARD, pixels * prod(weight.spec.shape[1:])


def _of_weight_grad(line: BoundSymbol) -> tuple[Kind, Any]:
    g, x = line.args
    return Kind.CONVOLUTION_BACKWARD, (x if line.kwargs["transposed"] else g).spec.numel * prod(line.kwargs["weight_shape"][1:])


MULTIPLICATIONS: dict[Symbol, Callable[[BoundSymbol], tuple[Kind, Any]]] = {  # the registry: the kind of a prim, and how often it multiplies
    prims.linear: _of_product,
    prims.matmul: _of_product,
    prims.convolution: _of_convolution,
    prims.convolution_input_grad: _of_input_grad,
    prims.convolution_weight_grad: _of_weight_grad,
}
WHOLE = {symbol_for("torch.nn.functional.scaled_dot_product_attention"): Kind.ATTENTION}  # of another kind than its prims


class InFloat32:
    """The variants of an executor's implementations that compute in float32, by what programs print for them."""

    def __init__(self) -> None:
        self._variants: dict[str, Implementation] = {}

    def chosen(self, implementation: Implementation, line: BoundSymbol) -> Implementation | None:
        """Return the variant where PyTorch would multiply slowly, else None."""
        if not _multiplies_slowly(line):
            return None
        name = f"{PREFIX}{line.symbol.id.replace('.', '_')}"
        if name not in self._variants:
            self._variants[name] = replace(implementation, name=name, fn=float32_variant(line.symbol, implementation), path=None)
        return self._variants[name]


def float32_variant(symbol: Symbol, implementation: Implementation) -> Callable[..., Any]:
    """Return the function that computes an operation in float32."""
    return IN_FLOAT32.get(symbol) or widely(implementation.fn)


def symbol_called(name: str) -> Symbol | None:
    """Return the operation that programs print the variant of as `name`; None where there is none."""
    return symbol_printed(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else None


def _multiplies_slowly(line: BoundSymbol) -> bool:
    """Return whether `line` is an operation on 16-bit floats on a CPU, to such, with sums of products that take longer than in float32."""
    if line.mutates or (line.symbol not in IN_FLOAT32 and not isinstance(line.symbol, TorchSymbol)):
        return False
    results = [p.spec for p in line.writes]
    tensors = [p.spec for p in line.reads if type(p.spec) is TensorSpec and p.spec.dtype.inexact]
    alike = tensors[:1] if line.symbol in MULTIPLICATIONS else [*results, *tensors]  # attention also returns and reads sums in float32
    if not tensors or not all([type(x) is TensorSpec and x.device.type == "cpu" and x.dtype is tensors[0].dtype for x in alike]):
        return False
    dtype = TO_TORCH[tensors[0].dtype]
    if dtype not in costs.HALVES:
        return False
    parts = list(prims_of([line]))
    tags = set[Tag]().union(*(part.symbol.tags for part in parts))
    if Tag.MATMUL not in tags or Tag.RANDOM in tags:
        return False
    return dtype in costs.slow_dtypes() or _pays(line, dtype, parts)


def _pays(line: BoundSymbol, dtype: torch.dtype, parts: list[BoundSymbol]) -> bool:
    """Return whether a line with such parts takes less time in float32, by what was measured; sizes are those that were traced."""
    counted = [MULTIPLICATIONS[part.symbol](part) for part in parts if part.symbol in MULTIPLICATIONS]
    if not counted:
        return False
    kind, _ = max(counted, key=lambda each: hint_of(each[1]))
    tensors = {p: p.spec for p in (*line.reads, *line.writes) if type(p.spec) is TensorSpec}
    elements = sum([hint_of(spec.numel) for spec in tensors.values()])
    return costs.pays(dtype, WHOLE.get(line.symbol, kind), sum([hint_of(count) for _, count in counted]), elements)
