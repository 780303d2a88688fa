"""Variances, standard deviations and covariances."""

from __future__ import annotations

from math import inf
from typing import Any

from dovetail import dtypes, prims
from dovetail.devices import cpu
from dovetail.errors import require, require_dtype
from dovetail.langs import core
from dovetail.langs.torch.binding.symbol import Number, Tensor, torchsymbol
from dovetail.langs.torch.linalg import conjugate
from dovetail.langs.torch.reduction import Dims, require_inexact, restore_dims, safe_sqrt
from dovetail.prims import Symbol
from dovetail.prims.linalg import transposed
from dovetail.trace import leaves


def _moments(prim: Symbol, x: Tensor, dim: Any, unbiased: bool, keepdim: bool, correction: Number | None) -> list[Tensor]:
    """Variance, and mean where `prim` has it, in the wide dtype of x, from the common arguments of var, std, var_mean and std_mean.

    On the CPU that is float64, as in PyTorch's kernel: neither squares nor sums overflow there, and equal elements have no variance.
    `var(x, False)` means unbiased=False.
    """
    require_inexact(x, "std and var")
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    require(correction is None or unbiased is True, "expected either unbiased or correction, got both", error=TypeError)
    correction = (1 if unbiased else 0) if correction is None else correction
    dims = core.canonical_dims(dim, len(x.spec.shape))
    if (dim is None or not x.spec.shape) and correction > 1 and x.spec.numel <= correction:
        correction = inf  # no freedom: the variance is the same, and PyTorch has a gradient of its own without `dim` alone
    wide = dtypes.float64 if x.spec.device is cpu and x.spec.dtype.kind == "float" else core.wide(x.spec.dtype)
    parts = prim(core.convert(x, wide), dims=dims, correction=correction)
    return [restore_dims(part, x, dims, keepdim) for part in leaves(parts)]


@torchsymbol("torch.var", methods=("var",))
def var(input: Tensor, dim: Dims = None, unbiased: bool = True, keepdim: bool = False, *, correction: Number | None = None):
    """The mean of |x - mean|**2 over `dim`, dividing by count - correction."""
    return core.convert(_moments(prims.var, input, dim, unbiased, keepdim, correction)[0], dtypes.real_of(input.spec.dtype))


@torchsymbol("torch.std", methods=("std",))
def std(input: Tensor, dim: Dims = None, unbiased: bool = True, keepdim: bool = False, *, correction: Number | None = None):
    """The square root of `var`."""
    return core.convert(safe_sqrt(_moments(prims.var, input, dim, unbiased, keepdim, correction)[0]), dtypes.real_of(input.spec.dtype))


@torchsymbol("torch.var_mean")
def var_mean(input: Tensor, dim: Dims = None, unbiased: bool = True, keepdim: bool = False, *, correction: Number | None = None):
    """(var, mean) over `dim`."""
    variance, mean = _moments(prims.var_mean, input, dim, unbiased, keepdim, correction)
    return core.convert(variance, dtypes.real_of(input.spec.dtype)), core.convert(mean, input.spec.dtype)


@torchsymbol("torch.std_mean")
def std_mean(input: Tensor, dim: Dims = None, unbiased: bool = True, keepdim: bool = False, *, correction: Number | None = None):
    """(std, mean) over `dim`."""
    variance, mean = _moments(prims.var_mean, input, dim, unbiased, keepdim, correction)
    return core.convert(safe_sqrt(variance), dtypes.real_of(input.spec.dtype)), core.convert(mean, input.spec.dtype)


@torchsymbol("torch.cov", methods=("cov",))
def cov(input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None):
    """The covariances of variables, which are rows, over observations, which are columns.

    `fweights` says how often each observation counts, `aweights` how much.
    """
    dtype = _covariance_dtype(input, fweights, aweights)
    return core.convert(_covariances(input, correction, fweights, aweights, core.wide(dtype)), dtype)


def _covariance_dtype(x: Tensor, fweights: Tensor | None, aweights: Tensor | None) -> dtypes.DType:
    """Return the result's dtype, after the checks of cov."""
    require(len(x.spec.shape) <= 2, "cov(): expected input to have two or fewer dimensions but got {}", x.spec)
    require_dtype(x.spec.dtype is not dtypes.bool_, "cov(): bool dtype is not supported for input; convert with .float() first")
    observations = x.spec.shape[-1:] or (1,)
    for name, weights, kinds in (("fweights", fweights, ("int",)), ("aweights", aweights, ("float",))):
        if weights is not None:
            fits = weights.spec.shape in (observations, ()) if observations == (1,) else weights.spec.shape == observations
            require(fits, "cov(): expected {} to have one element for each of {} observations but got {}", name, observations[0], weights.spec)
            require(weights.spec.dtype.kind in kinds, "cov(): expected {} of kind {}, got {}", name, kinds[0], weights.spec)
    return core.inexact_of(core.promote(*[part for part in (x, aweights) if part is not None]))


def _covariances(input: Tensor, correction: int, fweights: Tensor | None, aweights: Tensor | None, dtype: dtypes.DType) -> Tensor:
    x = core.convert(input, dtype)
    x = x if len(x.spec.shape) == 2 else prims.broadcast_in_dim(x, shape=(1, *(x.spec.shape or (1,))), dims=tuple(range(1, len(x.spec.shape) + 1)))
    weight_factors = [core.convert(part, dtypes.real_of(dtype)) for part in (fweights, aweights) if part is not None]
    weights = core.expand(core.mul(*weight_factors) if len(weight_factors) == 2 else weight_factors[0], x.spec.shape[1:]) if weight_factors else None
    weighted = x if weights is None else core.mul(x, weights)
    total = x.spec.shape[1] if weights is None else prims.sum(weights, dims=(0,))
    if weights is None:
        freedom = total - correction if total > correction else 0
    else:
        correction_term = total
        if aweights is not None and correction:
            correction_term = core.div(prims.sum(core.mul(weights, core.convert(aweights, weights.spec.dtype)), dims=(0,)), total)
            correction_term = core.mul(correction_term, correction)
        freedom = core.maximum(core.sub(total, correction_term if correction_term is not total else correction), 0)
    centred = core.sub(x, core.unsqueezed(core.div(prims.sum(weighted, dims=(1,)), total), 1))
    weighted_centred = centred if weights is None else core.mul(centred, weights)
    out = core.div(prims.matmul(centred, conjugate(transposed(weighted_centred))), freedom)
    ones = tuple([d for d, n in enumerate(out.spec.shape) if n == 1])
    return prims.squeeze(out, dims=ones) if ones else out


@torchsymbol("torch.corrcoef", methods=("corrcoef",))
def corrcoef(input: Tensor):
    """The covariances of variables, which are rows, divided by their deviations."""
    require(len(input.spec.shape) <= 2, "corrcoef(): expected input to have two or fewer dimensions but got {}", input.spec)
    dtype = _covariance_dtype(input, None, None)
    c = _covariances(input, 1, None, None, core.wide(dtype))
    if not c.spec.shape:
        return core.convert(core.div(c, c), dtype)
    variances = prims.diagonal(c, offset=0, dim1=0, dim2=1)
    deviations = core.sqrt(prims.real(variances) if dtype.kind == "complex" else variances)
    c = core.div(core.div(c, core.unsqueezed(deviations, 1)), deviations)
    if dtype.kind == "complex":
        return prims.complex(_within_one(prims.real(c)), _within_one(prims.imag(c)))
    return core.convert(_within_one(c), dtype)


def _within_one(x: Tensor) -> Tensor:
    return core.minimum(core.maximum(x, -1), 1)
