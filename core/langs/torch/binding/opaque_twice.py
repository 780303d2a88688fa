"""Gradients of gradients of opaque operations, by autograd.

    opaque_vjp_vjp(wrt, ggs, (wrt_of_first, gs, args), **kwargs)

are the cotangents of the tensors numbered `wrt`, of those in gs and then args, from the cotangents `ggs` of what
opaque_vjp(wrt_of_first, gs, args, **kwargs) returns.  These have no gradient themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dovetail.errors import NoGradRule
from dovetail.langs.torch.binding.fake_runs import tensors_in
from dovetail.langs.torch.binding.opaque import OpaqueSymbol, cotangent_specs, cotangents, opaque_symbol, register_kind, register_vjp, watched
from dovetail.trace import leaves, proxies, tree_map


def _vjp_of_vjp(func: Callable, wrt: tuple[int, ...], ggs: tuple, first: tuple, **kwargs: Any) -> tuple:
    with torch.enable_grad():
        (of_first, gs, args), kwargs, inputs = watched(wrt, first, kwargs)
        tensors = tensors_in((args, kwargs), torch.Tensor)
        moving = [tensors[i] if tensors[i].requires_grad else tensors[i].requires_grad_() for i in of_first]
        results = list(leaves(func(*args, **kwargs)))
        first_gradients = cotangents(results, moving, gs, again=True)
    return cotangents(list(first_gradients), inputs, ggs)


def _specs(symbol: OpaqueSymbol, wrt: tuple[int, ...], ggs: tuple, first: tuple, **kwargs: Any) -> tuple:
    return cotangent_specs(symbol, wrt, ggs, first, **kwargs)


def _rule(symbol: OpaqueSymbol, g: tuple, out: tuple, wrt: tuple[int, ...], gs: tuple, args: tuple, **kwargs: Any) -> tuple:
    """Return the vjp of opaque_vjp: the cotangents of its gs and args."""
    first = wrt, gs, args
    if any([p.spec.dtype.inexact and p.spec.requires_grad for p in proxies(kwargs)]):
        raise NoGradRule(f"{symbol.path} has no gradient rule for keyword arguments; pass what is differentiated twice by position, or detach it")
    tensors = proxies(first)
    inexact = [i for i, x in enumerate(tensors) if x.spec.dtype.inexact]
    of_second = tuple([i for i in inexact if tensors[i].spec.requires_grad] or inexact)
    if not of_second or not proxies(g):
        return tree_map(lambda _: None, first)
    second_gradients = dict(zip(of_second, opaque_symbol(symbol.func, "opaque_vjp_vjp")(of_second, tuple(g), first, **kwargs), strict=True))
    numbers = iter(range(len(tensors)))
    return tree_map(lambda x: second_gradients.get(next(numbers)) if hasattr(x, "spec") else None, first)


register_kind("opaque_vjp_vjp", _vjp_of_vjp, _specs)
register_vjp("opaque_vjp", _rule)
