"""Cumulative operations, differences and sorting along one dimension."""

from __future__ import annotations

from typing import Any

import torch

from dovetail import dtypes, prims
from dovetail.errors import require, require_dtype
from dovetail.langs import core
from dovetail.langs.torch.binding.symbol import Tensor, torchsymbol
from dovetail.langs.torch.reduction import total_dtype
from dovetail.prims import Symbol


def _running(prim: Symbol, x: Tensor, dim: int, dtype: torch.dtype | None) -> Tensor:
    """Return a cumulative sum or product of x, accumulated in the wide form of its dtype."""
    d, target = core.canonical_dim(dim, len(x.spec.shape)), total_dtype(x, dtype)
    if not x.spec.shape:
        return prims.clone(x) if x.spec.dtype is target else core.convert(x, target)
    return core.convert(prim(core.convert(x, core.wide(target)), dim=d), target)


@torchsymbol("torch.cumsum", methods=("cumsum",))
def cumsum(input: Tensor, dim: int, *, dtype: torch.dtype | None = None):
    """The sum of each element and those before it along `dim`; of integers in int64."""
    return _running(prims.cumsum, input, dim, dtype)


@torchsymbol("torch.cumprod", methods=("cumprod",))
def cumprod(input: Tensor, dim: int, *, dtype: torch.dtype | None = None):
    """The product of each element and those before it along `dim`; of integers in int64."""
    return _running(prims.cumprod, input, dim, dtype)


def only(x: Tensor) -> tuple[Tensor, Tensor]:
    """(value, index) of a tensor without dimensions."""
    return prims.clone(x), prims.full(shape=(), value=0, dtype=dtypes.int64, device=x.spec.device)


@torchsymbol("torch.cummax", methods=("cummax",))
def cummax(input: Tensor, dim: int):
    """The largest of each element and those before it along `dim`, and its position."""
    d = core.canonical_dim(dim, len(input.spec.shape))
    return torch.return_types.cummax(prims.cummax(input, dim=d) if input.spec.shape else only(input))


@torchsymbol("torch.cummin", methods=("cummin",))
def cummin(input: Tensor, dim: int):
    """The smallest of each element and those before it along `dim`, and its position."""
    d = core.canonical_dim(dim, len(input.spec.shape))
    return torch.return_types.cummin(prims.cummin(input, dim=d) if input.spec.shape else only(input))


@torchsymbol("torch.diff", methods=("diff",))
def diff(input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None):
    """The differences of neighbours along `dim`, taken `n` times; of booleans, whether they differ."""
    rank = len(input.spec.shape)
    require(rank > 0, "diff expects input to be at least one-dimensional, got {}", input.spec)
    d = core.canonical_dim(dim, rank)
    for extra in (prepend, append):
        fits = extra is None or len(extra.spec.shape) == rank
        require(fits, "diff expects prepend or append to have {} dimensions like the input, got {}", rank, extra if extra is None else extra.spec)
    require(n >= 0, "order must be non-negative but got {}", n)
    if n == 0:
        return core.clone(input)
    parts = [part for part in (prepend, input, append) if part is not None]
    dtype = core.promote(*parts)
    x = prims.cat([core.convert(part, dtype) for part in parts], dim=d) if len(parts) > 1 else input
    for _ in range(n):
        size = x.spec.shape[d]
        if size == 0:
            break
        after, before = core.sliced(x, d, 1, size), core.sliced(x, d, 0, size - 1)
        x = core.ne(after, before) if dtype is dtypes.bool_ else core.sub(after, before)
    return x


def _sort_arguments(input: Any = None, *args: Any, **kwargs: Any) -> tuple[tuple, dict]:
    """Return canonical arguments; torch accepts `stable` only with dim and descending as keywords."""
    for other, name in (("self", "input"), ("axis", "dim")):
        if other in kwargs:
            kwargs[name] = kwargs.pop(other)
    input = kwargs.pop("input", input)
    positional = dict(zip(("dim", "descending"), args, strict=False))
    is_valid = len(args) <= 2 and not kwargs.keys() - {"dim", "descending", "stable"} and not kwargs.keys() & positional.keys()
    is_valid = is_valid and isinstance(input, (Tensor, torch.Tensor)) and not (args and "stable" in kwargs)
    require(is_valid, "expected (input, dim=-1, descending=False, *, stable=False), got {} and {}", args, kwargs, error=TypeError)
    options = {"dim": -1, "descending": False, "stable": None} | positional | kwargs
    if options["stable"] is not None:
        return (input,), {name: x for name, x in options.items() if (name, x) not in (("dim", -1), ("descending", False))}
    args = (options["dim"], options["descending"])
    return (input, *(args if args[1] is not False else args[:1] if args[0] != -1 else ())), {}


def _sorted(x: Tensor, dim: int, descending: bool, stable: bool | None) -> tuple[Tensor, Tensor]:
    d = core.canonical_dim(dim, len(x.spec.shape))
    require_dtype(x.spec.dtype.kind != "complex", "sort does not support complex dtypes, got {}; sort its abs() or real part", x.spec)
    return prims.sort(x, dim=d, descending=descending, stable=bool(stable)) if x.spec.shape else only(x)


@torchsymbol("torch.sort", methods=("sort",), bind=_sort_arguments)
def sort(input: Tensor, dim: int = -1, descending: bool = False, *, stable: bool | None = None):
    """(values, indices): the elements in order along `dim`, and the position each had."""
    return torch.return_types.sort(_sorted(input, dim, descending, stable))


@torchsymbol("torch.argsort", methods=("argsort",), bind=_sort_arguments)
def argsort(input: Tensor, dim: int = -1, descending: bool = False, *, stable: bool | None = None):
    """The positions of the elements in order along `dim`."""
    return _sorted(input, dim, descending, stable)[1]


@torchsymbol("torch.msort", methods=("msort",))
def msort(input: Tensor):
    """The elements in order along the first dimension."""
    return _sorted(input, 0, False, False)[0]


@torchsymbol("torch.topk", methods=("topk",))
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True):
    """(values, indices): the k largest elements along `dim`, or smallest."""
    d = core.canonical_dim(dim, len(input.spec.shape))
    require_dtype(input.spec.dtype.kind in ("int", "float"), "topk: expected integers or floating point numbers, got {}; convert first", input.spec)
    if not input.spec.shape:
        require(0 <= k <= 1, "selected index k out of range: expected k of at most 1, got {}", k)
        return torch.return_types.topk(only(input))
    return torch.return_types.topk(prims.topk(input, k=k, dim=d, largest=largest, sorted=sorted))
