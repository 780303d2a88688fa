"""Opaque operations in training: the forward keeps autograd's graph of the call, so that the backward need not run it again.

    opaque_graph(wrt, *args, **kwargs)                 a token, then the results; the graph is that of the tensors numbered `wrt`
    opaque_graph_vjp(wrt, orders, gs, args, **kwargs)  as opaque_vjp, with cotangents in these orders; args begin with the token
    opaque_random_graph, opaque_random_graph_vjp       the same of opaque_random, where the state of the generator is the token

The token is a tensor that has the graph as an attribute: it is saved, and lives, as the tensors do that the backward needs.  Where it has
none, since a transform or a hook on saved tensors gave the backward another tensor, the call runs again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch

from dovetail import prims
from dovetail.devices import cpu
from dovetail.dtypes import uint8
from dovetail.langs.torch.binding.bridge import Order, in_order
from dovetail.langs.torch.binding.opaque import (
    OpaqueSymbol,
    check_is_dense,
    cotangent_specs,
    cotangents,
    differentiated_by_autograd,
    generator_state,
    opaque_symbol,
    register_kind,
    vjp_by_autograd,
    vjp_of_same_numbers,
    watched,
)
from dovetail.prims import TensorSpec
from dovetail.prims.sizes import is_symbolic
from dovetail.prims.spec import laid_out
from dovetail.torch_internals import saved_hooks
from dovetail.trace import BoundSymbol, TensorProxy, leaves, proxies, tree_map

TOKEN = TensorSpec((0,), uint8, cpu)


class Graph(NamedTuple):
    """What autograd recorded of a call: its results, and the tensors that gradients are for."""

    results: list[torch.Tensor]
    inputs: list[torch.Tensor]


def graph_rule(line: BoundSymbol) -> Callable[..., Any] | None:
    """Return the grad rule, in interleaved form, that keeps the graph of an opaque line; None for other lines."""
    symbol = line.symbol
    if not isinstance(symbol, OpaqueSymbol) or symbol.kind not in ("opaque", "opaque_random") or not differentiated_by_autograd(symbol):
        return None
    if not all([isinstance(y, TensorProxy) for y in leaves(line.out)]):
        return None
    kind = f"{symbol.kind}_graph"

    def rule(*args: Any, **kwargs: Any) -> Any:
        tensors = proxies((args, kwargs))
        wrt = tuple([i for i, x in enumerate(tensors) if x.spec.dtype.inexact and x.spec.requires_grad])
        if not wrt:
            return NotImplemented
        check_is_dense(symbol, args, kwargs)
        token, *results = opaque_symbol(symbol.func, kind, symbol.tags)(wrt, *args, **kwargs)
        gs = tuple([prims.get_grad(y) if y.spec.dtype.inexact else None for y in results])
        orders = tuple([_order(tensors[i].spec) for i in wrt])
        for i, g in zip(wrt, opaque_symbol(symbol.func, f"{kind}_vjp")(wrt, orders, gs, (token, *args), **kwargs), strict=True):
            prims.put_grad(tensors[i], g)
        following = iter(results if symbol.kind == "opaque" else (token, *results))
        return tree_map(lambda _: next(following), line.out)

    return rule


def _order(x: TensorSpec) -> Order:
    """Return the order of a cotangent: that of its tensor, as autograd's mostly are, where this is dense, of known sizes, and not row-major."""
    return None if x.strides is None or is_symbolic((x.shape, x.strides)) or not x.is_dense else x.order


def _with_graph(func: Callable, wrt: tuple[int, ...], *args: Any, **kwargs: Any) -> tuple:
    return _keep(torch.empty(0, dtype=torch.uint8, device="cpu"), func, wrt, args, kwargs)


def _random_with_graph(func: Callable, wrt: tuple[int, ...], *args: Any, **kwargs: Any) -> tuple:
    return _keep(generator_state((args, kwargs)), func, wrt, args, kwargs)


def _keep(token: torch.Tensor, func: Callable, wrt: tuple[int, ...], args: tuple, kwargs: dict) -> tuple:
    """Return the token and the results of a call.  Where hooks on saved tensors are set, which may change values, no graph is kept."""
    if saved_hooks(True) is not None:
        return token, *leaves(func(*args, **kwargs))
    with torch.enable_grad():
        args, kwargs, inputs = watched(wrt, args, kwargs)
        results = list(leaves(func(*args, **kwargs)))
    token.graph = Graph(results, inputs)
    return token, *[y.detach() if y.requires_grad else y for y in results]


def _vjp(again: Callable, func: Callable, wrt: tuple[int, ...], orders: tuple[Order, ...], gs: tuple, args: tuple, **kwargs: Any) -> tuple:
    """Return the cotangents by the graph of the token, else by `again`, with the arguments that this takes."""
    graph = getattr(args[0], "graph", None)
    if graph is None:
        return tuple(map(in_order, again(func, wrt, gs, args if again is vjp_of_same_numbers else args[1:], **kwargs), orders))
    return cotangents(graph.results, graph.inputs, gs, orders)  # the graph goes with the token


def _specs(symbol: OpaqueSymbol, wrt: tuple[int, ...], *args: Any, **kwargs: Any) -> tuple:
    if symbol.kind == "opaque_random_graph":
        return opaque_symbol(symbol.func, "opaque_random", symbol.tags).meta(*args, **kwargs)
    return (TOKEN, *leaves(opaque_symbol(symbol.func).meta(*args, **kwargs)))


def _vjp_specs(symbol: OpaqueSymbol, wrt: tuple[int, ...], orders: tuple[Order, ...], gs: tuple, args: tuple, **kwargs: Any) -> tuple:
    specs = cotangent_specs(symbol, wrt, gs, args[1:], **kwargs)
    return tuple(x if order is None else laid_out(x, order) for x, order in zip(specs, orders, strict=True))


def _again(symbol: OpaqueSymbol, g: tuple, out: tuple, wrt: tuple[int, ...], *args: Any, **kwargs: Any) -> tuple:
    """Return the vjp of a call that an inner gradient keeps the graph of, for an outer one: that of the call without a graph."""
    if symbol.kind == "opaque_random_graph":
        plain = opaque_symbol(symbol.func, "opaque_random", symbol.tags)
    else:
        plain, g, out = opaque_symbol(symbol.func), g[1:], out[1:]
    return (None,) * len(wrt), *plain.vjp_rule(g, out, *args, **kwargs)


def _vjp_again(
    symbol: OpaqueSymbol, g: tuple, out: tuple, wrt: tuple[int, ...], orders: tuple[Order, ...], gs: tuple, args: tuple, **kwargs: Any
) -> tuple:
    """Return the vjp of the inner gradient, for an outer one: that of the gradient without a graph."""
    of_wrt, of_gs, of_args = opaque_symbol(symbol.func, "opaque_vjp").vjp_rule(g, out, wrt, gs, args[1:], **kwargs)
    return of_wrt, tree_map(lambda _: None, orders), of_gs, (None, *of_args)


register_kind("opaque_graph", _with_graph, _specs, _again)
register_kind("opaque_graph_vjp", partial(_vjp, vjp_by_autograd), _vjp_specs, _vjp_again)
register_kind("opaque_random_graph", _random_with_graph, _specs, _again)
register_kind("opaque_random_graph_vjp", partial(_vjp, vjp_of_same_numbers), _vjp_specs)
