"""Forward rules: the tangent of what a prim computes, for `torch.func.jvp`.

A rule is called as `rule(tangents, out, *args, **kwargs)`, where `tangents` has the tangent of each positional argument, None for one that
does not change, nested as the arguments are.  It returns the tangent of the result, or one for each of several results.  Prims that are not
here are differentiated by their grad rule: an elementwise one by applying it to the tangents, any other by transposing it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail import prims
from dovetail.prims import Symbol
from dovetail.prims.creation import zeros_like
from dovetail.prims.reduction import spread
from dovetail.prims.shape import flat_reshape, paired
from dovetail.prims.spec import is_tensor

Rule = Callable[..., Any]

# Linear in all floating and complex arguments together; positions and masks are no values.
LINEAR = (
    prims.conj,
    prims.real,
    prims.imag,
    prims.convert_element_type,
    prims.complex,
    prims.sum,
    prims.broadcast_in_dim,
    prims.squeeze,
    prims.transpose,
    prims.strided_slice,
    prims.put_slice,
    prims.diagonal,
    prims.put_diagonal,
    prims.unfold,
    prims.fold_add,
    prims.cat,
    prims.flip,
    prims.view_as_real,
    prims.clone,
    prims.stride_order,
    prims.device_put,
    prims.cumsum,
    prims.take,
    prims.index_add,
    prims.index_copy,
    prims.take_along_axis,
    prims.scatter,
    prims.scatter_add,
    prims.index,
    prims.index_put,
    prims.embedding,
    prims.embedding_backward,
)
BILINEAR = (prims.mul, prims.matmul, prims.linear, prims.convolution, prims.convolution_input_grad, prims.convolution_weight_grad)  # in two arguments


def _filled(tangent: Any, x: Any) -> Any:
    """Return the tangent of an argument of a linear prim: zero where it does not change, the argument itself where it is no value."""
    if isinstance(x, (list, tuple)):
        return type(x)([_filled(t, item) for t, item in zip(tangent, x, strict=True)])
    if tangent is not None:
        return tangent
    if not is_tensor(x):
        return 0.0
    return zeros_like(x) if x.spec.dtype.inexact else x


def _linear(symbol: Symbol) -> Rule:
    return lambda tangents, out, *args, **kwargs: symbol(*_filled(tangents, args), **kwargs)


def _bilinear(symbol: Symbol) -> Rule:
    def rule(tangents: Any, out: Any, a: Any, b: Any, **kwargs: Any) -> Any:
        ta, tb = tangents
        return _add((None if ta is None else symbol(ta, b, **kwargs), None if tb is None else symbol(a, tb, **kwargs)))

    return rule


def _coo_mm(tangents: Any, out: Any, rows: Any, columns: Any, values: Any, x: Any, **kwargs: Any) -> Any:
    _, _, of_values, of_x = tangents
    by_values = None if of_values is None else prims.coo_mm(rows, columns, of_values, x, **kwargs)
    return _add((by_values, None if of_x is None else prims.coo_mm(rows, columns, values, of_x, **kwargs)))


def _zero(tangents: Any, out: Any, *_: Any, **_names: Any) -> Any:
    return zeros_like(out)


def _neg(tangents: Any, *_: Any) -> Any:
    return -tangents[0]


def _add(tangents: Any, *_: Any) -> Any:
    ta, tb = tangents
    return tb if ta is None else ta if tb is None else ta + tb


def _sub(tangents: Any, *_: Any) -> Any:
    ta, tb = tangents
    return -tb if ta is None else ta if tb is None else ta - tb


def _where(tangents: Any, out: Any, condition: Any, a: Any, b: Any) -> Any:
    _, ta, tb = tangents
    return prims.where(condition, 0.0 if ta is None else ta, 0.0 if tb is None else tb)


def _reshape(tangents: Any, out: Any, x: Any, *, shape: tuple[int, ...]) -> Any:
    return flat_reshape(tangents[0], shape)


def _view_as_complex(tangents: Any, out: Any, x: Any) -> Any:
    return prims.view_as_complex(paired(tangents[0]))


def _pad(tangents: Any, out: Any, x: Any, *, value: float, **kwargs: Any) -> Any:
    return prims.pad(tangents[0], value=0.0, **kwargs)


def _extreme(tangents: Any, out: Any, x: Any, *, dims: tuple[int, ...]) -> Any:
    """The mean of the tangents of the elements that equal the result, as their grad rule divides a cotangent among them."""
    hits = (x == spread(out, x, dims)) | prims.isnan(x)
    hits = prims.convert_element_type(hits, dtype=x.spec.dtype)
    return prims.sum(hits * tangents[0], dims=dims) / prims.sum(hits, dims=dims)


def _selected(tangents: Any, out: Any, x: Any, *, dim: int, **kwargs: Any) -> Any:
    """The tangents of the elements that were selected, at the positions that are the second result."""
    return prims.take_along_axis(tangents[0], out[1], dim=dim), None


RULES: dict[Symbol, Rule] = {
    **{symbol: _linear(symbol) for symbol in LINEAR},
    **{symbol: _bilinear(symbol) for symbol in BILINEAR},
    prims.bernoulli: _zero,
    prims.coo_mm: _coo_mm,
    prims.neg: _neg,
    prims.add: _add,
    prims.sub: _sub,
    prims.where: _where,
    prims.reshape: _reshape,
    prims.view_as_complex: _view_as_complex,
    prims.pad: _pad,
    prims.amax: _extreme,
    prims.amin: _extreme,
    prims.sort: _selected,
    prims.topk: _selected,
    prims.cummax: _selected,
    prims.cummin: _selected,
}
