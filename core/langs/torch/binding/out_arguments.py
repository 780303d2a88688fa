"""Tensors that are passed as `out=`: which memory and which dtypes PyTorch accepts for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from dovetail import dtypes, prims
from dovetail.errors import require
from dovetail.langs.torch.binding.bridge import TO_TORCH
from dovetail.langs.torch.binding.overlap import WHOLE_TOO, check_overlap
from dovetail.prims import Tag
from dovetail.trace import BoundSymbol, TensorProxy, proxies

_OF_ONE_DTYPE = frozenset(
    {  # functions that write nothing but results of their own dtype; others convert these
        *("abs", "absolute", "ceil", "fix", "floor", "frac", "neg", "negative", "positive", "round", "sgn", "sign", "trunc", "conj_physical"),
        *("heaviside", "nan_to_num", "where", "float_power", "bitwise_not", "signbit", "isin", "isposinf", "isneginf"),
        *("hardshrink", "softshrink", "gelu", "elu", "silu", "mish", "softplus", "hardtanh", "hardsigmoid", "hardswish", "leaky_relu", "softmax"),
        *("log_softmax", "log_sigmoid", "logsigmoid"),
        *("all", "any", "amax", "amin", "argmax", "argmin", "searchsorted", "bucketize", "nonzero", "count_nonzero", "histc", "multinomial", "norm"),
        *("vector_norm", "matrix_norm", "frobenius_norm", "nuclear_norm", "quantile", "nanquantile", "logcumsumexp"),
        *("gather", "scatter", "scatter_add", "scatter_reduce", "index_select", "index_add", "index_copy", "index_reduce", "take", "take_along_dim"),
        *("diag", "tril", "triu", "msort", "renorm", "slice_scatter"),
        *("mm", "bmm", "mv", "matmul", "dot", "vdot", "inner", "linear", "addmm", "addmv", "baddbmm", "addbmm", "tensordot", "chain_matmul"),
        *("multi_dot", "vecdot", "cross", "inverse", "inv", "solve", "det", "cholesky", "lu_solve", "solve_triangular", "eigvalsh", "svdvals"),
    }
)
_CHECKED = frozenset({"aminmax", "cumprod", "cumsum", "kthvalue", "logcumsumexp", "max", "min", "mode", "sort"})  # for memory in common
_CONVERTING = frozenset({"eig", "geqrf", "lstsq", "split_copy", "split_with_sizes_copy"})  # functions of several results that write other dtypes
_JOINING = frozenset({"cat", "column_stack", "concat", "concatenate", "dstack", "hstack", "row_stack", "stack", "vstack"})
_LEGACY_WORD = {"float32": "Float", "float64": "Double", "int64": "Long", "int32": "Int", "bool": "Bool", "complex64": "ComplexFloat"}


def require_castable(value: TensorProxy, out: TensorProxy, error: type[Exception] = RuntimeError) -> None:
    """Raise where a result cannot be converted to the dtype of the tensor that it is written into."""
    castable = dtypes.rank(value.spec.dtype.kind) <= dtypes.rank(out.spec.dtype.kind)
    names = [str(TO_TORCH[spec.dtype]).removeprefix("torch.") for spec in (value.spec, out.spec)]
    words = [_LEGACY_WORD.get(name, name) for name in names]
    require(castable, "result type {} can't be cast to the desired output type {}", *words, error=error)


def check_out(function: Any, out: Any, result: Any, operands: Any, lines: Iterable[BoundSymbol]) -> None:
    """Raise where PyTorch refuses to write the `result` of a function of `operands`, which `lines` compute, into `out`."""
    name = getattr(function, "__name__", "").removeprefix("linalg_").removeprefix("special_")
    if name in WHOLE_TOO or name in _CHECKED or all(map(_is_elementwise, lines)):
        for x in proxies(out):
            check_overlap(name, x, operands)
    keeps = name in _OF_ONE_DTYPE or (isinstance(result, tuple) and name not in _CONVERTING)
    for x, value in zip(proxies(out), proxies(result)):
        if name in _JOINING:
            require_castable(value, x, TypeError)
        same = x.spec.dtype is value.spec.dtype or not keeps
        require(same, "Expected out tensor to have dtype {}, but got {} instead", TO_TORCH[value.spec.dtype], TO_TORCH[x.spec.dtype])


def _is_elementwise(line: BoundSymbol) -> bool:
    if line.body:
        return all(map(_is_elementwise, line.body))
    return not {Tag.ELEMENTWISE, Tag.VIEW, Tag.CREATION}.isdisjoint(line.symbol.tags) or line.symbol in (prims.clone, prims.stride_order)


def _normal_into(out: Any, mean: Any, std: Any = 1.0, *, generator: Any = None) -> Any:
    """Draw in the dtype of `out`, then scale and shift."""
    tensors = [x for x in (mean, std) if isinstance(x, torch.Tensor)]
    scale = 1.0 if isinstance(std, torch.Tensor) else std
    shape = torch.broadcast_shapes(*[x.shape for x in tensors])
    drawn = torch.normal(0.0, scale, shape, generator=generator, dtype=out.dtype, device=out.device)
    return (drawn.mul_(std) if isinstance(std, torch.Tensor) else drawn).add_(mean)


def _logsumexp_into(out: Any, input: Any, dim: Any, keepdim: bool = False) -> Any:
    """Add up in the dtype of `out` the terms that are computed in that of the input."""
    x = input if input.is_floating_point() or input.is_complex() else input.to(torch.get_default_dtype())
    if not x.numel():
        return torch.sum(x.exp(), dim, keepdim, dtype=out.dtype).log()
    top = torch.amax(x.real if x.is_complex() else x, dim, True)
    top = torch.where(top.isinf(), 0.0, top)
    total = torch.sum((x - top).exp(), dim, keepdim, dtype=out.dtype).log()
    return total.add_(top if keepdim else top.reshape(total.shape))


def computation_into(function: Any, out: Any, args: tuple) -> Any:
    """Return the function that computes in the dtype of `out` what `function` does, where PyTorch does not convert the result; else None."""
    if function is torch.normal and any([isinstance(x, torch.Tensor) for x in args[:2]]):
        return _normal_into
    return _logsumexp_into if function in (torch.logsumexp, torch.special.logsumexp) and isinstance(out, torch.Tensor) else None
