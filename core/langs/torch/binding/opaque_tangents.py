"""Forward mode of torch operations without a decomposition, and of their cotangents: by torch.func.jvp, when the program runs.

    opaque_jvp(kind, at, tangents, args, **kwargs)    the tangents of the floating and complex results, for those of the tensors numbered `at`

`kind` is what is differentiated: "opaque", a call with `args` and `kwargs`, or "opaque_vjp", whose `args` are its (wrt, gs, args).

The tangents of a call are differentiated again by its cotangents: where J is its Jacobian, the gradients of <g, J t> by t and by `args` are
J'g, and the gradient of <J'g, t> by `args`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dovetail.errors import NoGradRule
from dovetail.langs.torch.binding.names import NAMED
from dovetail.langs.torch.binding.opaque import OpaqueSymbol, opaque_symbol, register_kind, vjp_by_transform
from dovetail.prims import Tag
from dovetail.trace import leaves, tree_map

_CALLS = ("opaque", "opaque_resolved", "opaque_copy")


def tangents_of_opaque(line: Any, tangents: Any, args: tuple, kwargs: dict[str, Any]) -> list[Any] | None:
    """Record the tangents of the results of an opaque line, one or None for each; return None where torch cannot compute them."""
    symbol = line.symbol
    if not isinstance(symbol, OpaqueSymbol) or symbol.func in NAMED or symbol.tags - {Tag.ABSENT} or symbol.kind not in (*_CALLS, "opaque_vjp"):
        return None
    moving = {i: t for i, t in enumerate(_of_tensors(args, tangents)) if t is not None}
    kind = "opaque" if symbol.kind in _CALLS else symbol.kind
    out = opaque_symbol(symbol.func, "opaque_jvp")(kind, tuple(moving), tuple(moving.values()), args, **kwargs)
    results = iter(out)
    return [next(results) if hasattr(p, "spec") and p.spec.dtype.inexact else None for p in leaves(line.out)]


def _of_tensors(args: Any, tangents: Any) -> list[Any]:
    """Return the tangent or None of each tensor in the arguments."""
    return [t for x, t in zip(leaves(args), leaves(tangents), strict=True) if hasattr(x, "spec")]


def _jvp(func: Callable, kind: str, at: Sequence[int], tangents: Sequence[torch.Tensor], args: tuple, **kwargs: Any) -> tuple:
    tensors = [x for x in leaves(args) if isinstance(x, torch.Tensor)]

    def call(*moving: torch.Tensor) -> tuple:
        new, numbers = dict(zip(at, moving, strict=True)), iter(range(len(tensors)))
        placed = tree_map(lambda x: new.get(next(numbers), x) if isinstance(x, torch.Tensor) else x, args)
        return _results(func, placed, kwargs) if kind == "opaque" else vjp_by_transform(func, *placed, kwargs)

    pushed = torch.func.jvp(call, tuple([tensors[i] for i in at]), tuple(tangents))[1]
    return tuple([t.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format) for t in pushed])


def _results(func: Callable, args: tuple, kwargs: dict[str, Any]) -> tuple:
    """Return the floating and complex results of a call."""
    return tuple([y for y in leaves(func(*args, **kwargs)) if isinstance(y, torch.Tensor) and (y.is_floating_point() or y.is_complex())])


def _specs(symbol: OpaqueSymbol, kind: str, at: Sequence[int], tangents: Sequence[Any], args: tuple, **kwargs: Any) -> tuple:
    """Return the specs of tangents: like the results, row-major."""
    specs = opaque_symbol(symbol.func, kind).meta(*args, **kwargs)
    return tuple([spec.fresh() for spec in leaves(specs) if spec is not None and spec.dtype.inexact])


def _rule(symbol: OpaqueSymbol, g: tuple, out: tuple, kind: str, at: Sequence[int], tangents: Sequence[Any], args: tuple, **kwargs: Any) -> tuple:
    """Return the vjp of opaque_jvp: the cotangents of its tangents and args."""
    if kind != "opaque":
        raise NoGradRule(f"{symbol.path} of a gradient has no gradient rule: that is a third derivative")
    specs = opaque_symbol(symbol.func).meta(*tree_map(_spec, args), **tree_map(_spec, kwargs))
    following = iter(g)
    gs = tuple([next(following) if spec is not None and spec.dtype.inexact else None for spec in leaves(specs)])
    pullback = opaque_symbol(symbol.func, "opaque_vjp")
    of_tangents = pullback(at, gs, args, **kwargs)
    *_, of_args = pullback.vjp_rule(tuple(tangents), of_tangents, at, gs, args, **kwargs)
    return None, (None,) * len(at), of_tangents, of_args


def _spec(x: Any) -> Any:
    return getattr(x, "spec", x)


register_kind("opaque_jvp", _jvp, _specs, _rule)
