"""Which values share storage: views, what they are views of, and the value that owns the memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from dovetail.prims import Tag
from dovetail.trace.ir import BoundSymbol, Trace
from dovetail.trace.proxies import Proxy


def views_in(line: BoundSymbol) -> Iterator[BoundSymbol]:
    """Yield the views that `line` consists of: itself, or those in its decomposition, in order."""
    if Tag.VIEW in line.symbol.tags:
        yield line
    else:
        for inner in line.body:
            yield from views_in(inner)


def view_bases(lines: Iterable[BoundSymbol]) -> dict[Proxy, Proxy]:
    """Map each view to what it is a view of, seen through regions and composites."""
    return {view.out: view.args[0] for line in lines for view in views_in(line)}


def tracked_views(lines: Iterable[BoundSymbol]) -> dict[Proxy, Proxy]:
    """Map each view that shares the autograd history of what it is a view of to that."""
    return {view.out: view.args[0] for line in lines for view in views_in(line) if shares_history(view)}


def shares_history(view: BoundSymbol) -> bool:
    """Return whether autograd sees a write into a view as one into what it is a view of: not with `detach` and `bitcast`."""
    return Tag.NO_GRAD not in view.symbol.tags


def root_of(p: Proxy, bases: Mapping[Proxy, Proxy]) -> Proxy:
    """Return the value that owns the storage of `p`, as far as `bases` tell."""
    while p in bases:
        p = bases[p]
    return p


def looking_into(storage: Collection[Proxy], lines: Iterable[BoundSymbol]) -> set[Proxy]:
    """Return the values in `storage` and the views of them."""
    seen = set(storage)
    if seen:
        for view in (view for line in lines for view in views_in(line)):
            if view.args[0] in seen:
                seen.update(view.writes)
    return seen


def storage_roots(trace: Trace, lines: Iterable[BoundSymbol]) -> dict[Proxy, Proxy]:
    """Map each value to the value that owns its storage, looking at whole lines only: itself where it has memory of its own."""
    root: dict[Proxy, Proxy] = {p: p for p in (*trace.inputs, *trace.constants)}
    for line in lines:
        for p in line.reads:
            if p not in root:
                root[p] = p
        base = root[line.reads[0]] if line.reads and is_view(line) else None
        for p in line.writes:
            root[p] = p if base is None else base
    return root


def is_view(line: BoundSymbol) -> bool:
    """Return whether a line only shows its first argument in another way."""
    return all(map(is_view, line.body)) if line.body else Tag.VIEW in line.symbol.tags
