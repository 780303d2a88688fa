"""One tracked run of a function: what it depended on, what it computed and what it wrote."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dovetail.errors import DovetailError, InputError
from dovetail.frontend.guards.guard import Guard
from dovetail.frontend.guards.source import Source
from dovetail.frontend.interpreter import recursion
from dovetail.frontend.interpreter.tracebacks import strip
from dovetail.frontend.interpreter.tracking.cached_calls import check_held_results
from dovetail.frontend.interpreter.tracking.listeners import check_listeners
from dovetail.frontend.interpreter.tracking.recorder import Recorder
from dovetail.frontend.interpreter.tracking.replay import Template, Templates, Values, writes
from dovetail.frontend.interpreter.tracking.tracker import Tracker


class PendingWrites(Exception):
    """The program raised its cause, after writes to outside objects or with values in it that tracing does not know: the call has to run eagerly."""


def raised_in(error: Exception) -> BaseException | None:
    """Return what a tracked run has raised, where it has ended with `error`."""
    return error.__cause__ if isinstance(error, PendingWrites) else error


def is_own_error(error: Exception) -> bool:
    """Return whether an error of a tracked run is the program's own."""
    return not isinstance(raised_in(error), DovetailError) or isinstance(raised_in(error), InputError)


class Captured(NamedTuple):
    """A trace: `guards` in the order of their discovery, the `sources` of the objects that `result` and `effects` mention.

    `value` is what the run returned.  A later call that passes the guards has the result `finish(tensors, objects)`, where `tensors` are the
    results of the computation and `objects` the values that the prologue read at the sources.
    """

    value: Any
    guards: list[Guard]
    sources: Sequence[Source]
    result: Template
    effects: list[Callable[[Values], None]]

    def finish(self, tensors: list[Any], objects: tuple) -> Any:
        """Build the result, and do the writes in order."""
        values = Values(tensors, objects)
        result = self.result(values)
        for effect in self.effects:
            effect(values)
        return result


def capture(fn: Callable, args: tuple, kwargs: dict[str, Any], recorder: Recorder) -> tuple[Tracker, Captured]:
    """Run fn(*args, **kwargs) tracked; nothing outside is written.  Parts of the arguments have sources below `args` and `kwargs`."""
    tracker = Tracker(recorder)
    recorder.start(tracker)
    sources = tracker.sources
    listed, named = sources.arg("args"), sources.arg("kwargs")
    tracker.guard("len", listed, len(args))
    tracker.guard("keys", named, list(kwargs))
    try:
        with recursion.raised() as tracker.limit:
            function = tracker.reach(fn, sources.const(fn))
            positional = [tracker.reach(value, sources.item(listed, i)) for i, value in enumerate(args)]
            keywords = {name: tracker.reach(value, sources.item(named, name)) for name, value in kwargs.items()}
            result = tracker.call(function, positional, keywords, None)
            if tracker.refusal is not None:  # code that is not interpreted has swallowed it
                raise tracker.refusal
            tracker.locks.check_released()
        check_held_results(tracker)
        check_listeners(tracker)
        tracker.check_snapshots()
    except BaseException as error:
        error.__traceback__ = strip(error.__traceback__)
        tracker.check_snapshots()
        happened = tracker.effects.log or tracker.calls or recorder.has_effects()
        if (happened or not isinstance(error, DovetailError)) and not (isinstance(error, KeyboardInterrupt) or tracker.refuses(error)):
            raise PendingWrites from error
        raise
    recorder.finish(tracker)
    tracker.keep_apart()
    templates = Templates(tracker)
    template, effects = templates.of(result), writes(templates, tracker.effects.log)
    return tracker, Captured(result, tracker.all_guards(), templates.sources, template, effects)
