"""Where in its storage a traced tensor begins, as eager mode would say: constructors of tensor subclasses ask for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail import prims
from dovetail.trace import BoundSymbol, Proxy
from dovetail.trace.aliases import views_in

if TYPE_CHECKING:
    from dovetail.frontend.interpreter.tracking.tracker import Tracker

_FROM_THE_START = frozenset({"broadcast_in_dim", "detach", "reshape", "squeeze", "transpose"})  # views that begin where their base does


def storage_offset(tracker: Tracker, x: Proxy) -> int | None:
    """Return the storage offset of a traced tensor, None where it is not known; that of an input is guarded."""
    recorder, offset = tracker.recorder, 0
    views = {view.out: view for line in recorder.trace.lines for view in views_in(line)}
    while x in views:
        step = _step(views[x])
        if step is None:
            return None
        offset, x = offset + step, views[x].args[0]
    real: Any = recorder.real.get(x)
    if real is None:
        return None if x in recorder.trace.constants else offset
    tracker.guard("equal", tracker.sources.call(tracker.sources.attr(tracker.source(x), "storage_offset")), real.storage_offset())
    return offset + real.storage_offset()


def _step(view: BoundSymbol) -> int | None:
    """Return by how much a view begins behind its base."""
    if view.symbol.name in _FROM_THE_START:
        return 0
    if view.symbol is not prims.strided_slice:
        return None
    starts, steps = view.kwargs["starts"], view.args[0].spec.steps
    return sum([int(start * step) for start, step in zip(starts, steps, strict=True)])
