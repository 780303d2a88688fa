"""Functions of lists of tensors, which optimizers are written in: each records one operation for each tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dovetail.langs.torch.binding.overlap import check_overlap
from dovetail.langs.torch.binding.symbol import LANGUAGE, Tensor, resolve, torchquery
from dovetail.langs.torch.elementwise import is_one
from dovetail.torch_internals import FOREACH, GROUP_TENSORS

_UNARY = (
    *("abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac", "lgamma", "log", "log10", "log1p"),
    *("log2", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc", "zero", "clone"),
)
_BINARY = {
    **{name: name for name in ("add", "sub", "mul", "div", "pow", "maximum", "minimum", "lerp", "copy")},
    **{"clamp_max": "minimum", "clamp_min": "maximum"},
}
_SCALED = {"addcmul": "addcmul", "addcdiv": "addcdiv"}
LISTS_IN_PLACE: set[Callable] = set()  # torch's functions that write to the tensors of their first argument, and return that list


def _rows(columns: Sequence[Any], count: int) -> list[tuple]:
    """Return the arguments of each call: the items of lists, everything else as it is."""
    spread = [list(x) if isinstance(x, (list, tuple)) else [x] * count for x in columns]
    return list(zip(*spread, strict=True))


def _method(name: str, in_place: bool) -> Callable[..., Any]:
    """Return what is called for each tensor; a bound by a number is clamped."""
    if name in ("maximum", "minimum"):
        clamp = f"clamp_{'min' if name == 'maximum' else 'max'}{'_' * in_place}"
        plain = LANGUAGE[name]

        def bounded(x: Tensor, other: Any) -> Any:
            if not isinstance(other, Tensor):
                return LANGUAGE[clamp](x, other)
            if not in_place:
                return plain(x, other)
            check_overlap(name, x, other)
            return LANGUAGE["copy_"](x, plain(x, other))

        return bounded
    return LANGUAGE[f"{name}{'_' * in_place}"]


def _for_each(name: str, in_place: bool) -> Callable[..., Any]:
    """Return the function that calls the method `name` on each tensor of a list."""

    def call(self: Any, *others: Any, alpha: Any = 1, **kwargs: Any) -> Sequence[Tensor]:
        method, more = _method(name, in_place), {"alpha": alpha} if isinstance(alpha, Tensor) or not is_one(alpha) else {}
        if not isinstance(self, (list, tuple)):  # a number to the power of each tensor
            return tuple([LANGUAGE[name](self, x) for x in others[0]])
        named = list(kwargs.values())
        results = tuple([method(*row, **more) for row in _rows([self, *others, *named], len(self))])
        return self if in_place else results

    return call


def _with_value(name: str, in_place: bool) -> Callable[..., Any]:
    """Return the function of addcmul or addcdiv, with one factor for all or one for each tensor."""

    def call(self: Any, tensor1: Any, tensor2: Any, value: Any = 1, *, scalars: Any = None) -> Sequence[Tensor]:
        factors = value if scalars is None else scalars
        factors = LANGUAGE["unbind"](factors, 0) if isinstance(factors, Tensor) and factors.spec.rank else factors
        method = LANGUAGE[f"{name}{'_' * in_place}"]
        results = tuple([method(x, a, b, value=factor) for x, a, b, factor in _rows([self, tensor1, tensor2, factors], len(self))])
        return self if in_place else results

    return call


def _register() -> None:
    kinds = [*((name, name, _for_each) for name in _UNARY), *((*names, _for_each) for names in _BINARY.items())]
    for name, method, maker in [*kinds, *((*names, _with_value) for names in _SCALED.items())]:
        for in_place in (False, True):
            path = f"{FOREACH}{name}{'_' * in_place}"
            if (function := resolve(path)) is not None:
                torchquery(path)(maker(method, in_place))
                LISTS_IN_PLACE.update([function] * in_place)


_register()


@torchquery(f"{FOREACH}norm")
def norms(self: Any, ord: Any = 2, dtype: Any = None) -> tuple:
    """Return the norm of each tensor."""
    return tuple([torch.linalg.vector_norm(x, ord, dtype=dtype) for x in self])


@torchquery(f"{FOREACH}max")
def maxima(self: Any) -> tuple:
    """Return the largest element of each tensor."""
    return tuple([LANGUAGE["amax"](x) for x in self])


@torchquery(GROUP_TENSORS.path)
def grouped(lists: Any, with_indices: bool = False) -> dict:
    """Return the columns of parallel lists of tensors by the device and dtype of the first."""
    if not lists[0]:
        raise RuntimeError("expected tensors to group, got an empty list")
    groups: dict[tuple, Any] = {}
    for i, row in enumerate(zip(*[x or [None] * len(lists[0]) for x in lists], strict=True)):
        columns, indices = groups.setdefault((row[0].device, row[0].dtype), ([[] for _ in lists], []))
        for column, x, whole in zip(columns, row, lists, strict=True):
            column += [x] if whole else []
        indices += [i] if with_indices else []
    return groups
