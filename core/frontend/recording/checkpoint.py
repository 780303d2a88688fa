"""A point in a run to which a call that fails for lack of a value can return."""

from __future__ import annotations

from typing import Any

from dovetail.frontend.recording.tracked_environment import TrackedEnvironment
from dovetail.trace import Trace


class Checkpoint:
    """The state of a run before a call: its lines, decisions and writes so far."""

    def __init__(self, environment: TrackedEnvironment, trace: Trace):
        self.trace, self.environment = trace, environment
        self.lines, self.lasting = len(trace.lines), self._lasting()

    def _lasting(self) -> Any:
        """Return what a return to this point would not undo: decisions and writes to outside objects."""
        session = self.environment.session
        return None if session is None else (session.cuts, len(self.environment.tracker.effects.log))

    def can_return(self) -> bool:
        """Return whether the call has done nothing since but record lines."""
        return self._lasting() == self.lasting

    def drop_lines(self) -> None:
        """Remove the lines that were recorded since."""
        del self.trace.lines[self.lines :]
