"""The default front end: interpret a function's bytecode on tracked values, so that all that it reads is guarded."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError, EagerCall, TracedValueError, Unsupported
from dovetail.frontend.arrays.detection import array_frontend, arrays_in, has_arrays, shares_memory
from dovetail.frontend.autograd.traced_autograd import without_graph
from dovetail.frontend.class_lookup import address_of
from dovetail.frontend.environment import Acquired, is_plain, refuse_seeding
from dovetail.frontend.guards.prologue import prologue
from dovetail.frontend.guards.source import Source
from dovetail.frontend.guards.symbolic_sizes import SymbolicSizes
from dovetail.frontend.interpreter import engine
from dovetail.frontend.interpreter.tracebacks import line_of
from dovetail.frontend.interpreter.tracking import Captured, Tracker, capture, is_own_error
from dovetail.frontend.recording.array_choices import ArrayChoices, ArrayNeeded
from dovetail.frontend.recording.torch_recorder import TorchRecorder
from dovetail.frontend.recording.tracked_environment import TrackedEnvironment
from dovetail.langs.torch import LANGUAGE, check_copies, check_returned_rows, know_imported
from dovetail.torch_internals import torch_function
from dovetail.trace import Proxy, Trace, recording
from dovetail.trace.collector import without_collector
from dovetail.trace.source_location import register_interpreter

if TYPE_CHECKING:
    from dovetail.frontend.decisions.requests import Requester


def acquire(fn: Callable, args: tuple, kwargs: dict, sizes: SymbolicSizes | None = None, session: Requester | None = None) -> Acquired:
    """Interpret `fn` with proxies for the tensors that it reads; those become inputs, in the order in which they are read.

    In a call with NumPy arrays and no tensors, arrays take the place of tensors, and their sizes are ints.  `sizes` decides which sizes are symbols.
    `session` answers what the function needs to know of values; without one that is refused.
    """
    if session is not None or not has_arrays(fn, args, kwargs):
        return _of_tensors(fn, args, kwargs, sizes, session)
    frontend, refused = array_frontend(), None
    try:
        acquired = frontend.acquire(_interpret, fn, args, kwargs, None if sizes is None else sizes.history)
        if not isinstance(acquired, TracedValueError):
            return acquired
        refused = acquired
    except frontend.MixedCall:
        pass
    try:
        return _of_tensors(fn, args, kwargs, sizes, None)
    except DovetailError:
        if refused is None:
            raise
        raise refused from None
    finally:
        acquired = refused = None  # it holds this frame


def _of_tensors(fn: Callable, args: tuple, kwargs: dict, sizes: SymbolicSizes | None, session: Requester | None) -> Acquired:
    """Interpret a function of tensors, or of arrays that tensors stand for."""
    history = None if sizes is None else sizes.history
    know_imported()
    inputs = arrays_in(args, kwargs, written=session is not None)
    choices = ArrayChoices(session is None, dict(inputs), guards_contents=history is None or history.guards_contents)
    is_compiling, first = True, None
    while True:
        environment = TrackedEnvironment(LANGUAGE)
        environment.computes = sizes is not None and sizes.history.computes
        trace = Trace(language=LANGUAGE, environment=environment)
        if session is not None:
            session.attach(trace, environment)
        recorder = TorchRecorder(trace, environment, sizes, choices)
        recorder.is_compiling = is_compiling
        try:
            acquired = _interpret(fn, args, kwargs, recorder)
        except ArrayNeeded as needed:
            choices.inputs[id(needed.array)] = needed.array
        except TracedValueError as error:
            if not (_without_numbers(sizes, environment) or choices.learn(error, trace, environment.array_inputs)):
                raise
            first = str(error) if choices.by_value and first is None else first
        except Unsupported as error:
            if not (_without_numbers(sizes, environment) or choices.create(environment.array_inputs) or choices.give_up()):
                if first is None or isinstance(error, EagerCall):
                    raise
                raise TracedValueError(first) from None  # guarding the content did not help: say what the values were needed for
        except Exception as error:  # the program's own, perhaps only where torch.compiler.is_compiling() is true
            if not _without_numbers(sizes, environment):
                if not (is_own_error(error) and is_compiling and recorder.checks_compiling):
                    raise
                is_compiling = False
        else:
            if not acquired.shows_contents:
                if choices.by_value and history is not None:
                    history.guarded_contents()
                return acquired
            acquired.forget()
            if not choices.by_value or history is None or not history.guards_contents:
                raise EagerCall("the function returns memory of an array, the content of which is guarded")
            history.guarded_contents()
            choices = ArrayChoices(session is None, dict(inputs), guards_contents=False)
        finally:
            environment.array_inputs = None
        if sizes is not None:
            sizes.restart()


def _without_numbers(sizes: SymbolicSizes | None, environment: TrackedEnvironment) -> bool:
    """Return whether the function is to be traced again, with the values of numbers that it computes of sizes, since that has failed."""
    if sizes is None or not environment.reals:
        return False
    sizes.history.computes = False
    return True


def _interpret(fn: Callable, args: tuple, kwargs: dict, recorder: TorchRecorder) -> Acquired:
    """Interpret `fn`; `recorder` records what it does with tensors."""
    trace, environment = recorder.trace, recorder.environment
    try:
        with without_collector(), refuse_seeding(tracked=True), recording(trace), torch_function():
            began = time.perf_counter()
            with recorder.settings.restored():
                tracker, captured = capture(fn, args, kwargs, recorder)
            acquired = _Interpreted(tracker, captured, recorder)
            check_copies(trace)
            check_returned_rows(trace)
            trace.took = time.perf_counter() - began
    except BaseException:
        environment.forget()
        raise
    finally:
        environment.session = None
    environment.finished = True
    return acquired


class _Interpreted(Acquired):
    """A function, traced by interpreting its bytecode."""

    def __init__(self, tracker: Tracker, captured: Captured, recorder: TorchRecorder):
        super().__init__(recorder.trace, recorder.environment.tensors)
        self.tracker, self.recorder, self.casts = tracker, recorder, recorder.settings.casts
        self.objects: Sequence[Source] = ()
        self.buffers = tracker.buffers.values()
        self.shows_contents = bool(tracker.buffers) and shares_memory(captured.value, self.buffers)
        self.changes, self.calls = bool(captured.effects), bool(tracker.calls)
        self.owns_generators = recorder.generators.owns
        self.leaves = tuple([x for p, values in recorder.autograd.leaves.items() for x in (p, *values)])
        self.spent, self.distinct, self.differentiates = recorder.autograd.spent, recorder.autograd.changed(), recorder.autograd.used
        if (
            recorder.returns_tensors
            and not self.spent
            and not recorder.autograd.frozen
            and not captured.effects
            and not captured.sources
            and is_plain(captured.value)
            and not _shares(captured.value)
            and not recorder.result_builders()
        ):
            self.trace.outputs = captured.value
        else:
            self.trace.outputs, self.objects = tuple(recorder.results), captured.sources
            self.build = without_graph(recorder.autograd, recorder.build(captured))

    def prologue(self, *, written: list[Proxy], run: Callable) -> Trace:
        """Check the guards of the tracked run."""
        self.recorder.check_written(written)
        changing = {address_of(write.owner) for write in self.tracker.effects.log}
        guards, inputs, calls = self.tracker.all_guards(), self.recorder.sources, tuple(self.tracker.calls)
        more = {"distinct": self.distinct, "changing": changing, "calls": calls, "sizes": self.recorder.sizes, "buffers": list(self.tracker.buffers)}
        return prologue(guards, inputs, self.objects, self.trace, written=written, run=run, **more)

    def freeze_guards(self) -> None:
        """Refuse further guards."""
        self.recorder.environment.freeze_guards()

    def forget(self) -> None:
        """Release the values that the run has seen."""
        self.recorder.environment.forget()


def _shares(nest: Any) -> bool:
    """Return whether a list or dict stands in two places of a nest."""
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


def _place(real: FrameType) -> tuple[str, int]:
    """Return file and line of the code that the interpreter's loop runs."""
    running = real.f_locals
    frame = running["frame"]
    return frame.code.co_filename, line_of(frame, running["pc"])


register_interpreter(engine.loop, _place)
