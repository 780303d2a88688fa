"""The default front end: a function's bytecode is interpreted on tracked values, so that all that it reads is guarded."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from dovetail.frontend.environment import Acquired, compiling, is_plain, no_draws
from dovetail.frontend.guards.prologue import prologue
from dovetail.frontend.guards.source import Source
from dovetail.frontend.interpreter import engine
from dovetail.frontend.interpreter.tracebacks import line_of
from dovetail.frontend.interpreter.tracking import Captured, Tracker, capture
from dovetail.frontend.torch_recorder import TorchRecorder, TrackedEnvironment
from dovetail.langs.torch import LANGUAGE, check_copies, check_positions
from dovetail.trace import Proxy, Trace, recording
from dovetail.trace.source_location import INTERPRETERS


def acquire(fn: Callable, args: tuple, kwargs: dict) -> Acquired:
    """Interpret `fn` with proxies for the tensors that it reaches; those become inputs, in the order in which they are met."""
    environment = TrackedEnvironment(LANGUAGE)
    new = Trace(language=LANGUAGE, environment=environment)
    recorder = TorchRecorder(new, environment)
    try:
        with compiling(), no_draws(seen=True), recording(new):
            began = time.perf_counter()
            with recorder.switches.kept():
                tracker, captured = capture(fn, args, kwargs, recorder)
            new.outputs, build = _result(captured, recorder)
            check_copies(new)
            check_positions(new)
            new.took = time.perf_counter() - began
    except BaseException:
        environment.forget()
        raise
    environment.finished = True
    guards = functools.partial(_prologue, tracker, recorder, captured.sources if build else ())
    return Acquired(new, environment.tensors, build, guards, recorder.switches.casts, environment.settle, environment.forget)


def _result(captured: Captured, recorder: TorchRecorder) -> tuple[Any, Callable[[list, tuple], Any] | None]:
    """The outputs of the trace, and how the result is built of them; None where they are the result as it stands."""
    if not captured.effects and not captured.sources and is_plain(captured.value) and not _shares(captured.value):
        return captured.value, None
    return tuple(recorder.results), captured.finish


def _shares(nest: Any) -> bool:
    """Whether a list or dict stands in two places of a nest."""
    seen: set[int] = set()

    def again(value: Any) -> bool:
        if not isinstance(value, (list, tuple, dict)):
            return False
        if id(value) in seen:
            return True
        if value:
            seen.add(id(value))
        return any([again(item) for item in (value.values() if isinstance(value, dict) else value)])

    return again(nest)


def _prologue(tracker: Tracker, recorder: TorchRecorder, found: Sequence[Source], *, written: list[Proxy], run: Callable) -> Trace:
    changing = {id(write.owner) for write in tracker.effects.log}
    calls = tuple(tracker.calls)
    return prologue(tracker.facts(), recorder.found, found, recorder.trace, written=written, run=run, changing=changing, calls=calls)


def _place(real: FrameType) -> tuple[str, int]:
    """File and line of what the interpreter's loop runs."""
    running = real.f_locals
    frame = running["frame"]
    return frame.code.co_filename, line_of(frame, running["pc"])


INTERPRETERS[engine.loop.__code__] = _place
