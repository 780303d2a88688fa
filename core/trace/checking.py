"""Validate traces: every value is computed once and before it is read, and every meta still gives the recorded specs."""

from __future__ import annotations

from typing import Any

from dovetail.errors import InputError, InvalidTrace
from dovetail.prims import Tag, TensorSpec
from dovetail.trace.ir import BoundSymbol, Trace
from dovetail.trace.proxies import Proxy, is_proxy, leaves, proxies, tree_map

_OUTSIDE = frozenset({Tag.GUARD, Tag.HOST})  # what looks at the world outside has no meta that could be computed again


def check(trace: Trace) -> Trace:
    """Return `trace`, or raise InvalidTrace, which names the pass, the line and what is wrong with it.  Linear in the size of the trace."""
    known = {*trace.inputs, *trace.constants}
    if trace.relations is not None:  # symbols are ambient until the pass `sizes` computes them
        known.update({atom.proxy for atom in trace.relations.symbols()}.difference([p for line in trace.lines for p in line.writes]))
    for line in trace.lines:
        _check_line(line, known, trace)
    for p in proxies(trace.outputs):
        _require(p in known, trace, "{} is returned but never computed", p)
    return trace


def _check_line(line: BoundSymbol, known: set[Proxy], trace: Trace) -> None:
    """Check `line` and add what it makes to `known`."""
    for p in line.reads:
        _require(p in known, trace, "{} is read by {} before it is computed", p, line.symbol)
    for p in line.writes:
        _require(p not in known, trace, "{} is computed twice, the second time by {}", p, line.symbol)
    if line.symbol.is_prim and line.symbol.module != "opaque" and _OUTSIDE.isdisjoint(line.symbol.tags):  # an opaque meta may run user code
        _check_meta(line, trace)
    created_inside: list[Proxy] = []
    for inner in line.body:
        _check_line(inner, known, trace)
        created_inside += inner.writes
    if line.body:
        for p in line.writes:
            _require(p in known, trace, "{} is a result of {}, and its decomposition does not make it", p, line.symbol)
        known.difference_update(created_inside)
    known.update(line.writes)


def _check_meta(line: BoundSymbol, trace: Trace) -> None:
    try:
        specs = line.symbol.meta(*tree_map(_spec, line.args), **tree_map(_spec, line.kwargs))
    except InputError as error:
        raise InvalidTrace(f"the trace of {trace.made_by} is invalid: {line} {error}") from error
    declared, computed = (list(map(_plain, leaves(tree))) for tree in (tree_map(_spec, line.out), specs))
    _require(declared == computed, trace, "{} has results {}, its meta says {}", line, line.out, specs)


def _spec(leaf: Any) -> Any:
    return leaf.spec if is_proxy(leaf) else leaf


def _plain(spec: Any) -> Any:
    return spec.like(requires_grad=False) if isinstance(spec, TensorSpec) and spec.requires_grad else spec


def _require(condition: bool, trace: Trace, message: str, *details: object) -> None:
    if not condition:
        raise InvalidTrace(f"the trace of {trace.made_by} is invalid: " + message.format(*details))
