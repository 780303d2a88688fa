"""Functions of NumPy's that its language lacks, or whose result depends on values: they run by themselves between two segments, on real arrays.

None of them writes its arguments, and their results share no memory with these.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch

from dovetail.errors import Unsupported
from dovetail.frontend.arrays.conversion import needs_copy
from dovetail.frontend.decisions.outside import mapped
from dovetail.langs.numpy import NumpyProxy
from dovetail.trace import NumberProxy, TensorProxy, leaves

_NAMES = {
    np: """percentile quantile nanpercentile nanquantile nanmedian partition argpartition unique unique_all unique_counts unique_inverse
        unique_values bincount digitize searchsorted histogram histogram2d histogram_bin_edges pad kron nonzero argwhere flatnonzero extract cov
        corrcoef convolve correlate polyfit polyval roots average cross intersect1d union1d setdiff1d setxor1d isin lexsort ediff1d select choose
        delete insert cbrt gcd lcm vander block compress unravel_index ravel_multi_index interp unwrap sort_complex packbits unpackbits i0
        nextafter spacing""",
    np.linalg: """inv det solve svd svdvals eig eigh eigvals eigvalsh qr cholesky lstsq pinv matrix_rank matrix_power slogdet cond multi_dot tensorinv
        tensorsolve cross""",
    np.fft: "fft ifft rfft irfft hfft ihfft fft2 ifft2 rfft2 irfft2 fftn ifftn rfftn irfftn",
}


def _named(names: dict[Any, str]) -> dict[int, Any]:
    """Return the functions that this NumPy has under these names, by their ids: a ufunc is equal to nothing but itself."""
    functions = [getattr(module, name, None) for module, words in names.items() for name in words.split()]
    return {id(function): function for function in functions if function is not None}


_FUNCTIONS = _named(_NAMES)


def runs_outside(function: Any, args: Any, kwargs: dict[str, Any]) -> bool:
    """Return whether a call of NumPy's that gets traced arrays may run between two segments."""
    if id(function) not in _FUNCTIONS or "out" in kwargs:
        return False
    operands = list(leaves((args, kwargs)))
    others = any([isinstance(x, TensorProxy) and type(x) is not NumpyProxy for x in operands]) or any(map(_is_function, operands))
    return not others and any([isinstance(x, (NumpyProxy, NumberProxy)) for x in operands])


def _is_function(x: Any) -> bool:
    return callable(x) and not isinstance(x, (type, TensorProxy))


@cache
def on_tensors(function: Callable) -> Callable:
    """Return a function of NumPy's as one of tensors; those without dimensions are NumPy's scalars."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return _as_tensors(function(*mapped(_as_array, args), **mapped(_as_array, kwargs)))

    call.__name__ = getattr(function, "__name__", str(function))
    return call


def _as_array(x: Any) -> Any:
    if not isinstance(x, torch.Tensor):
        return x
    array = x.detach().resolve_conj().resolve_neg().numpy()
    return array if array.ndim else array[()]


def _as_tensors(result: Any) -> Any:
    """Return the tensors for a result: an array, or several."""
    if isinstance(result, (tuple, list)):
        parts = [_as_tensors(x) if isinstance(x, (np.ndarray, np.generic)) else _unknown(x) for x in result]
        return type(result)(*parts) if hasattr(result, "_make") else type(result)(parts)
    if not isinstance(result, (np.ndarray, np.generic)):
        return result
    array = np.asarray(result)
    return torch.from_numpy(array.copy() if needs_copy(array) or not array.flags.writeable else array)


def _unknown(x: Any) -> Any:
    raise Unsupported(f"a function of NumPy's returns a {type(x).__name__} beside arrays; call it outside the compiled function")
