"""Methods and attributes of arrays that are no functions of NumPy's, or have other arguments than those."""

from __future__ import annotations

from typing import Any

import torch

from dovetail import prims
from dovetail.errors import require
from dovetail.langs.numpy.arrays import astype, clip, reshape, transpose
from dovetail.langs.numpy.indexing import getitem, setitem
from dovetail.langs.numpy.proxy import no_values
from dovetail.langs.numpy.sorting import sort
from dovetail.langs.numpy.symbol import LANGUAGE, dtype_of, not_traced, numpysymbol
from dovetail.prims import recorder
from dovetail.trace import TensorProxy


def _spread(*items: Any) -> tuple | None:
    return None if items in ((), (None,)) else tuple(items[0]) if isinstance(items[0], (tuple, list)) else items


def _reshape(x: TensorProxy, *shape: Any, order: str = "C", copy: bool | None = None) -> TensorProxy:
    row_major(order)
    return reshape(x, _spread(*shape), copy=copy)


def row_major(order: Any) -> None:
    """Refuse orders of elements other than the rows'."""
    if order not in ("C", "K", "A", None):
        raise not_traced(f"order={order!r}", "elements are read in row-major order; transpose the array first")


def _astype(x: TensorProxy, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True) -> TensorProxy:
    row_major(order)
    if casting != "unsafe":
        raise not_traced("numpy.ndarray.astype with casting=", "leave it out")
    return astype(x, dtype) if copy or dtype_of(dtype) is not x.spec.dtype else x


def _clip(x: TensorProxy, a_min: Any = None, a_max: Any = None, out: Any = None, *, min: Any = None, max: Any = None) -> TensorProxy:
    return clip(x, a_min if min is None else min, a_max if max is None else max, out=out)


@numpysymbol("numpy.ndarray.fill", path=".fill")
def _fill(a: Any, value: Any):
    """Write a number to each element."""
    setitem(a, Ellipsis, value)


def _sort(x: TensorProxy, axis: int = -1, kind: Any = None) -> None:
    LANGUAGE["setitem"](x, Ellipsis, sort(x, axis))


def _item(x: TensorProxy, *index: int) -> Any:
    if index:
        position = index[0] if len(index) == 1 and type(index[0]) is tuple else index
        return _item(getitem(x if len(position) > 1 or len(x.spec.shape) == 1 else reshape(x, (-1,)), tuple(position)))
    require(x.spec.numel == 1, "can only convert an array of size 1 to a Python scalar", error=ValueError)
    return prims.item(x)


def _view(x: TensorProxy, dtype: Any = None, type: Any = None) -> TensorProxy:
    if dtype is not None or type is not None:
        raise not_traced("numpy.ndarray.view of another dtype", "it reads the memory as other numbers; convert with astype, or do it outside")
    return getitem(x, Ellipsis)


def _values(x: TensorProxy, *_: Any, **__: Any) -> Any:
    raise no_values(x)


def _tolist(x: TensorProxy) -> Any:
    """Return the numbers of an array, where the environment can find them out."""
    environment = recorder.get().environment
    session = getattr(environment, "session", None)
    if session is None or not session.is_open:
        raise no_values(x)
    return session.call_outside(torch.Tensor.tolist, (x,), {})


LANGUAGE.update(
    {
        "reshape": _reshape,
        "transpose": lambda x, *axes: transpose(x, _spread(*axes)),
        "astype": _astype,
        "clip": _clip,
        "fill": _fill,
        "sort": _sort,
        "item": _item,
        "view": _view,
        "tolist": _tolist,
        **dict.fromkeys(("tobytes", "tofile", "dumps", "nonzero"), _values),
    }
)
