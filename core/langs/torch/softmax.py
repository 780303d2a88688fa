"""Softmax and its logarithm, along a dimension."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from dovetail import prims
from dovetail.dtypes import DType
from dovetail.langs import core
from dovetail.langs.torch.binding.bridge import dtype_of
from dovetail.langs.torch.binding.symbol import Tensor, torchsymbol
from dovetail.langs.torch.elementwise import require_float, row_major


def shifted(x: Any, dim: int) -> Any:
    """x less its maximum along `dim`, which no gradient flows through: it cancels."""
    return core.sub(x, along(prims.detach(prims.amax(x, dims=(dim,))), x, dim))


def along(reduced: Any, x: Any, dim: int) -> Any:
    """Reshape a reduction of x over `dim` so that the dimension has size 1."""
    return core.keep_dims(reduced, x.spec.shape, (dim,))


def _softmax_of(compute: Callable[[Any, int], Any], x: Any, dim: int, dtype: Any) -> Any:
    """compute(x, dim), in `dtype` where one is given; a tensor of no dimensions counts as one of size 1."""
    target: DType = x.spec.dtype if dtype is None else dtype_of(dtype)
    dim = core.canonical_dim(dim, x.spec.rank)
    x = core.convert(row_major(x), target)
    require_float(x)
    if not x.spec.numel:
        return prims.clone(x)
    flat = x.spec.rank == 0
    wide = core.convert(prims.reshape(x, shape=(1,)) if flat else x, core.wide(target))
    out = core.convert(compute(wide, dim), target)
    return prims.reshape(out, shape=()) if flat else out


def softmax_along(x: Any, dim: int) -> Any:
    """exp(x) / sum(exp(x)) along `dim`."""
    e = core.exp(shifted(x, dim))
    return core.div(e, along(prims.sum(e, dims=(dim,)), x, dim))


def log_softmax_along(x: Any, dim: int) -> Any:
    """x - log(sum(exp(x))) along `dim`."""
    z = shifted(x, dim)
    return core.sub(z, along(core.log(prims.sum(core.exp(z), dims=(dim,))), x, dim))


@torchsymbol("torch.softmax", "torch.special.softmax", methods=("softmax",))
def softmax(input: Tensor, dim: int, dtype: Any = None):
    """exp(input) / sum(exp(input)) along `dim`, shifted by the maximum."""
    return _softmax_of(softmax_along, input, dim, dtype)


@torchsymbol("torch.log_softmax", "torch.special.log_softmax", methods=("log_softmax",))
def log_softmax(input: Tensor, dim: int, dtype: Any = None):
    """input - log(sum(exp(input))) along `dim`, shifted by the maximum."""
    return _softmax_of(log_softmax_along, input, dim, dtype)


@torchsymbol("torch.nn.functional.softmax")
def softmax_function(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None):
    """exp(input) / sum(exp(input)) along `dim`, shifted by the maximum."""
    return _softmax_of(softmax_along, input, _implicit_dim("softmax", input, dim), dtype)


@torchsymbol("torch.nn.functional.log_softmax")
def log_softmax_function(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None):
    """input - log(sum(exp(input))) along `dim`, shifted by the maximum."""
    return _softmax_of(log_softmax_along, input, _implicit_dim("log_softmax", input, dim), dtype)


def _of_result(pull: Callable[[Any, Any, Any], Any], g: Any, out: Any, input: Any, *rest: Any, dim: int | None = None, **_: Any) -> tuple:
    """Return the cotangents of a softmax, computed from its result alone.

    `pull(g, y, total)` computes the cotangent of the input; `total` sums along the dimension.
    """
    dim = rest[0] if rest else dim
    dim = core.canonical_dim(_default_dim(input) if dim is None else dim, input.spec.rank)
    wide = core.wide(out.spec.dtype)

    def total(x: Any) -> Any:
        return x if x.spec.rank == 0 else along(prims.sum(x, dims=(dim,)), x, dim)

    gx = pull(core.convert(g, wide), core.convert(out, wide), total)
    return (core.convert(gx, input.spec.dtype), *(None for _ in rest))


@softmax.vjp
@softmax_function.vjp
def softmax_vjp(g: Any, out: Any, *args: Any, **kwargs: Any) -> tuple:
    """y (g - sum(g y)), where y is the result."""
    return _of_result(lambda g, y, total: core.mul(core.sub(g, total(core.mul(g, y))), y), g, out, *args, **kwargs)


@log_softmax.vjp
@log_softmax_function.vjp
def log_softmax_vjp(g: Any, out: Any, *args: Any, **kwargs: Any) -> tuple:
    """g - exp(y) sum(g), where y is the result."""
    return _of_result(lambda g, y, total: core.sub(g, core.mul(core.exp(y), total(g))), g, out, *args, **kwargs)


def _default_dim(x: Any) -> int:
    """Return PyTorch's default dimension."""
    return 0 if x.spec.rank in (0, 1, 3) else 1


def _implicit_dim(name: str, x: Any, dim: int | None) -> int:
    """Return `dim`, or the default one with PyTorch's warning."""
    if dim is not None:
        return dim
    warnings.warn(f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument.", stacklevel=2)
    return _default_dim(x)
