"""Tracked runs: what a program reads from outside is guarded, what it writes there waits until the computation has run; no torch."""

from __future__ import annotations

from dovetail.frontend.guards.guard import Guard as Guard
from dovetail.frontend.interpreter.tracking.capture import Captured as Captured
from dovetail.frontend.interpreter.tracking.capture import PendingWrites as PendingWrites
from dovetail.frontend.interpreter.tracking.capture import capture as capture
from dovetail.frontend.interpreter.tracking.capture import is_own_error as is_own_error
from dovetail.frontend.interpreter.tracking.capture import raised_in as raised_in
from dovetail.frontend.interpreter.tracking.recorder import Recorder as Recorder
from dovetail.frontend.interpreter.tracking.tracker import Tracker as Tracker
