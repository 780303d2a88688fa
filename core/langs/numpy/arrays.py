"""Shapes, indexing, joining and the other functions of NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail import dtypes, prims
from dovetail.errors import require
from dovetail.langs import core
from dovetail.langs.numpy.proxy import no_values
from dovetail.langs.numpy.reductions import flat
from dovetail.langs.numpy.symbol import (
    FUNCTIONS,
    LANGUAGE,
    array,
    dtype_of,
    not_traced,
    numpyquery,
    numpysymbol,
    of_truth,
    promote,
    torch_call,
)
from dovetail.langs.torch import COPIES
from dovetail.langs.torch import LANGUAGE as TORCH
from dovetail.prims.spec import prod as product
from dovetail.trace import TensorProxy


def call(func: Any, args: tuple, kwargs: dict) -> Any:
    """Call a NumPy function while tracing."""
    meaning = FUNCTIONS.get(func)
    if meaning is None:
        name = f"{getattr(func, '__module__', 'numpy')}.{getattr(func, '__name__', func)}"
        raise not_traced(name, "the numpy language has no meaning for it; write it with other functions, or trace it as torch")
    return meaning(*args, **kwargs)


def _rank(x: TensorProxy) -> int:
    return len(x.spec.shape)


LANGUAGE.properties |= {
    "shape": lambda x: x.spec.shape,
    "ndim": _rank,
    "size": lambda x: product(x.spec.shape),
    "itemsize": lambda x: x.spec.dtype.bytes,
    "nbytes": lambda x: product(x.spec.shape) * x.spec.dtype.bytes,
    "strides": lambda x: tuple(step * x.spec.dtype.bytes for step in x.spec.steps),
    "T": lambda x: transpose(x),
    "mT": lambda x: swapaxes(x, -1, -2),
    "real": lambda x: real(x),
    "imag": lambda x: imag(x),
}
numpyquery("numpy.shape")(lambda a: a.spec.shape)
numpyquery("numpy.ndim")(_rank)
numpyquery("numpy.size")(lambda a, axis=None: product(a.spec.shape) if axis is None else a.spec.shape[core.canonical_dim(axis, _rank(a))])
numpyquery("numpy.result_type")(lambda *xs: np.result_type(*(x.dtype if isinstance(x, TensorProxy) else x for x in xs)))
numpyquery("numpy.iscomplexobj")(lambda x: x.spec.dtype.kind == "complex")
numpyquery("numpy.isrealobj")(lambda x: x.spec.dtype.kind != "complex")


# Elements.


@numpysymbol("numpy.astype", path=".astype", scalar="like")
def astype(a: Any, dtype: Any):
    """A copy in another dtype."""
    x = array(a)
    return core.convert(x, dtype_of(dtype)) if x.spec.dtype is not dtype_of(dtype) else prims.clone(x)


@numpysymbol("numpy.copy", scalar="never")
def copy(a: Any):
    """The array in storage of its own."""
    return prims.clone(array(a))


@numpysymbol(methods=("copy",), scalar="like")
def copied(a: Any):
    """The array, or scalar, in storage of its own."""
    return prims.clone(a)


@numpysymbol("numpy.real", scalar="like", view=True)
def real(val: Any):
    """The real part."""
    x = array(val)
    return prims.real(x) if x.spec.dtype.kind == "complex" else x


@numpysymbol("numpy.imag", scalar="like", view=True)
def imag(val: Any):
    """The imaginary part: zeros for a real array."""
    x = array(val)
    return (
        prims.imag(x)
        if x.spec.dtype.kind == "complex"
        else prims.full(shape=x.spec.shape, value=core.fit(0, (), x.spec.dtype), dtype=x.spec.dtype, device=x.spec.device)
    )


@numpysymbol("numpy.clip")
def clip(a: Any, a_min: Any, a_max: Any):
    """The array with what is below `a_min` raised to it, and what is above `a_max` lowered; None is no bound."""
    out = array(a)
    out = core.convert(out, promote(*[x for x in (out, a_min, a_max) if x is not None]))
    out = out if a_min is None else core.maximum(out, a_min)
    return out if a_max is None else core.minimum(out, a_max)


def _clip(a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, *, min: Any = None, max: Any = None, **options: Any) -> TensorProxy:
    return clip(a, a_min if min is None else min, a_max if max is None else max, out=out, **options)


FUNCTIONS[np.clip] = _clip


@numpysymbol("numpy.round", "numpy.around", methods=("round",))
def round(a: Any, decimals: int = 0):
    """Rounded to `decimals` digits after the point, halves to even."""
    x = array(a)
    if decimals == 0 or (not x.spec.dtype.inexact and decimals > 0):
        return core.round(x)
    scale = 10.0 ** abs(decimals)
    if decimals > 0:
        return core.div(core.round(core.mul(x, scale)), scale)
    whole = core.mul(core.round(core.div(core.convert(x, dtypes.float64 if not x.spec.dtype.inexact else x.spec.dtype), scale)), scale)
    return core.convert(whole, x.spec.dtype)


@numpysymbol("numpy.where", scalar="never")
def where(condition: Any, x: Any, y: Any):
    """x where `condition` holds, else y."""
    held = array(condition)
    held = held if held.spec.dtype is dtypes.bool_ else core.ne(held, 0)
    dtype = promote(x, y)
    x, y = (array(v, dtype) if isinstance(v, TensorProxy) else v for v in (x, y))
    if not isinstance(x, TensorProxy) and not isinstance(y, TensorProxy):
        x = prims.full(shape=(), value=core.fit(x, (), dtype), dtype=dtype, device=held.spec.device)
    return core.where(held, x, y)


def _where(condition: Any, *choices: Any) -> TensorProxy:
    if not choices:
        raise no_values(array(condition))
    return where(condition, *choices)


FUNCTIONS[np.where] = _where


@numpysymbol("numpy.nan_to_num")
def nan_to_num(x: Any, nan: float = 0.0, posinf: Any = None, neginf: Any = None):
    """0 for NaN, the largest finite numbers for the infinities."""
    return torch_call("nan_to_num", array(x), nan, posinf, neginf)


# Shapes.


@numpysymbol("numpy.reshape", scalar="like", view=True)
def reshape(a: Any, shape: int | Sequence[int], copy: bool | None = None):
    """The elements in row-major order under another shape; -1 is what is left."""
    x = prims.clone(array(a)) if copy else array(a)
    return torch_call("reshape", x, tuple(shape) if isinstance(shape, (tuple, list)) else (shape,))


@numpysymbol("numpy.transpose", scalar="like", view=True)
def transpose(a: Any, axes: Sequence[int] | None = None):
    """The dimensions in the order `axes`, reversed for None."""
    x = array(a)
    order = tuple(reversed(range(_rank(x)))) if axes is None else tuple(core.canonical_dim(d, _rank(x)) for d in axes)
    require(len(order) == _rank(x), "axes don't match array: expected {} of them, got {}", _rank(x), axes, error=ValueError)
    return prims.transpose(x, order=order) if _rank(x) > 1 else x


@numpysymbol("numpy.swapaxes", methods=("swapaxes",), view=True)
def swapaxes(a: Any, axis1: int, axis2: int):
    """Two dimensions exchanged."""
    return torch_call("transpose", array(a), axis1, axis2)


@numpysymbol("numpy.moveaxis", view=True)
def moveaxis(a: Any, source: int | Sequence[int], destination: int | Sequence[int]):
    """Dimensions moved to new places."""
    return torch_call("movedim", array(a), source, destination)


@numpysymbol("numpy.expand_dims", view=True)
def expand_dims(a: Any, axis: int | Sequence[int]):
    """A dimension of size 1 at each place in `axis` of the result."""
    x = array(a)
    new = axis if isinstance(axis, (tuple, list)) else (axis,)
    places = sorted(core.canonical_dim(d, _rank(x) + len(new)) for d in new)
    for place in places:
        x = torch_call("unsqueeze", x, place)
    return x


@numpysymbol("numpy.squeeze", methods=("squeeze",), scalar="like", view=True)
def squeeze(a: Any, axis: int | Sequence[int] | None = None):
    """Without the dimensions of size 1: all of them, or those in `axis`, which have to be of size 1."""
    x = array(a)
    dims = core.canonical_dims(axis, _rank(x)) if axis is not None else tuple(d for d, n in enumerate(x.spec.shape) if n == 1)
    wrong = [d for d in dims if x.spec.shape[d] != 1]
    require(not wrong, "cannot select an axis to squeeze out which has size not equal to one: {} of {}", wrong, x.spec.shape, error=ValueError)
    return prims.squeeze(x, dims=dims) if dims else x


@numpysymbol("numpy.ravel", methods=("ravel",), view=True)
def ravel(a: Any):
    """One dimension; a view where the elements lie in order."""
    return flat(array(a))


@numpysymbol(methods=("flatten",))
def flatten(a: Any):
    """A copy with one dimension."""
    return prims.clone(flat(array(a)))


@numpysymbol("numpy.broadcast_to", scalar="never", view=True)
def broadcast_to(array: Any, shape: int | Sequence[int]):
    """The array repeated to `shape` without copying."""
    return TORCH["expand"](array, tuple(shape) if isinstance(shape, (tuple, list)) else (shape,))


@numpysymbol("numpy.repeat", methods=("repeat",))
def repeat(a: Any, repeats: int, axis: int | None = None):
    """Each element, or each slice along `axis`, `repeats` times."""
    if isinstance(repeats, TensorProxy):
        raise no_values(repeats)
    return torch_call("repeat_interleave", array(a), repeats, axis)


@numpysymbol("numpy.tile")
def tile(A: Any, reps: int | Sequence[int]):
    """The array `reps` times along each dimension."""
    return torch_call("tile", array(A), tuple(reps) if isinstance(reps, (tuple, list)) else (reps,))


@numpysymbol("numpy.flip")
def flip(m: Any, axis: int | Sequence[int] | None = None):
    """The order of the elements along `axis` reversed.  A copy, where NumPy makes a view; refused where a write could tell."""
    x = array(m)
    return prims.flip(x, dims=core.canonical_dims(axis, _rank(x)))


COPIES.update((flip, real, imag))  # real and imaginary parts of complex numbers


# Joining and splitting.


def _alike(arrays: Sequence[Any]) -> list[TensorProxy]:
    xs = [array(x) for x in arrays]
    dtype = promote(*xs)
    return [core.convert(x, dtype) for x in xs]


@numpysymbol("numpy.concatenate", "numpy.concat")
def concatenate(arrays: Sequence[Any], axis: int | None = 0):
    """Arrays one after the other along `axis`; flat ones for None."""
    xs = [flat(x) for x in _alike(arrays)] if axis is None else _alike(arrays)
    ranks = {x.spec.rank for x in xs}  # PyTorch leaves out empty vectors
    require(len(ranks) < 2, "all the input arrays must have same number of dimensions, got {}", sorted(ranks), error=ValueError)
    return torch_call("cat", xs, core.canonical_dim(axis or 0, max(ranks, default=0)))


@numpysymbol("numpy.stack")
def stack(arrays: Sequence[Any], axis: int = 0):
    """Arrays side by side in a new dimension."""
    return torch_call("stack", _alike(arrays), axis)


@numpysymbol("numpy.hstack")
def hstack(tup: Sequence[Any]):
    """Arrays one after the other along the second dimension, the first of 1-d ones."""
    return torch_call("hstack", _alike(tup))


@numpysymbol("numpy.vstack")
def vstack(tup: Sequence[Any]):
    """Arrays one below the other."""
    return torch_call("vstack", _alike(tup))


@numpysymbol("numpy.split", view=True)
def split(ary: Any, indices_or_sections: int | Sequence[int], axis: int = 0):
    """Parts along `axis`: so many equal ones, or between these positions."""
    x = array(ary)
    n = x.spec.shape[core.canonical_dim(axis, _rank(x))]
    if isinstance(indices_or_sections, int):
        even = n % indices_or_sections == 0
        require(even, "array split does not result in an equal division: {} into {}", n, indices_or_sections, error=ValueError)
    return list(torch_call("tensor_split", x, indices_or_sections, axis))


# Products.


@numpysymbol("numpy.dot", methods=("dot",))
@of_truth
def dot(a: Any, b: Any):
    """The sum of products over a's last and b's second to last dimension; of a number, the product."""
    a, b = _alike((a, b))
    if not a.spec.shape or not b.spec.shape:
        return core.mul(a, b)
    if _rank(b) <= 2:
        return torch_call("matmul", a, b)
    rows, inner = a.spec.shape[:-1], a.spec.shape[-1]
    last = torch_call("movedim", b, -2, 0)
    product_ = torch_call("matmul", torch_call("reshape", a, (-1, inner)), torch_call("reshape", last, (inner, -1)))
    return torch_call("reshape", product_, (*rows, *last.spec.shape[1:]))


@numpysymbol("numpy.outer")
def outer(a: Any, b: Any):
    """a[i] * b[j] of the flat arrays."""
    a, b = (flat(x) for x in _alike((a, b)))
    return core.mul(torch_call("unsqueeze", a, 1), b)


@numpysymbol("numpy.pad")
def pad(array: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0):
    """The array with so many numbers before and after it along each dimension."""
    if mode != "constant" or not isinstance(constant_values, (bool, int, float)):
        raise not_traced("numpy.pad", "only the mode 'constant' with one number is supported; join the parts with np.concatenate")
    rank = _rank(array)
    width = np.broadcast_to(np.asarray(pad_width), (rank, 2)).tolist()
    return torch_call("nn.functional.pad", array, tuple(n for pair in reversed(width) for n in pair), "constant", constant_values)


LANGUAGE["_function"] = call
