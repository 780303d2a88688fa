"""What NumPy does about floating-point errors: compiled programs warn of nothing, and where NumPy would raise, a call runs in eager mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import EagerCall

if TYPE_CHECKING:
    from dovetail.frontend.interpreter.tracking.tracker import Tracker

_SILENT = frozenset({"ignore", "warn", None})
_KINDS = ("all", "divide", "over", "under", "invalid")


def acts_on_errors() -> bool:
    """Return whether NumPy raises on floating-point errors, or calls or prints something."""
    return not _SILENT.issuperset(np.geterr().values())


def guard_errors(tracker: Tracker) -> None:
    """Guard that NumPy does not act on errors around the call.  Raises EagerCall where it does."""
    if acts_on_errors():
        raise EagerCall("np.seterr or np.errstate makes NumPy raise on floating-point errors, which compiled programs do not see")
    tracker.guard("equal", tracker.sources.setting(acts_on_errors), False)


def check_region(region: Any) -> None:
    """Raise EagerCall where a region of np.errstate lets NumPy act on errors."""
    if not _SILENT.issuperset([getattr(region, f"_{kind}", None) for kind in _KINDS]):
        raise EagerCall("np.errstate makes NumPy raise on floating-point errors, which compiled programs do not see")
