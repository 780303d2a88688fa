"""Tracing of functions of NumPy arrays: the arrays they reach become inputs, and what is called on them is NumPy's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dovetail.errors import TracedValueError, Unsupported
from dovetail.frontend.arrays.conversion import can_be_written as can_be_written
from dovetail.frontend.arrays.conversion import is_traceable as is_traceable
from dovetail.frontend.arrays.recorder import ArrayEnvironment, ArrayRecorder
from dovetail.frontend.arrays.recorder import MixedCall as MixedCall
from dovetail.frontend.environment import Acquired
from dovetail.frontend.guards.symbolic_sizes import SizeHistory
from dovetail.frontend.recording.array_choices import LARGEST_CONTENT, arrays_behind
from dovetail.langs.numpy import LANGUAGE
from dovetail.trace import Trace


def acquire(run: Callable[..., Acquired], fn: Callable, args: tuple, kwargs: dict, history: SizeHistory | None = None) -> Acquired | TracedValueError:
    """Trace `fn` with `run`, arrays as inputs.  Return an error where a function of tensors may do better, and this may be raised if it does not.

    Where Python needs the values of a small array, as an index of a list, that array is guarded by its content instead, as a number
    is; the run starts again, for as many arrays as it takes.  Where an earlier compilation in `history` has done so, that is not done again.

    Raises MixedCall where `fn` uses tensors as well.
    """
    by_value: dict[int, np.ndarray] = {}
    first: TracedValueError | None = None
    try:
        while True:
            environment = ArrayEnvironment(LANGUAGE)
            new = Trace(language=LANGUAGE, environment=environment)
            recorder = ArrayRecorder(new, environment, by_value)
            known = recorder.known_arrays
            try:
                acquired = run(fn, args, kwargs, recorder)
            except Unsupported:
                if first is None:
                    raise
                return first  # guarding the content did not help: say what the values were needed for
            except TracedValueError as error:
                first = error if first is None else first
                needed = arrays_behind(error.proxy, new, known)
                if not needed or sum([x.nbytes for x in needed]) > LARGEST_CONTENT or not (history is None or history.guards_contents):
                    return error
                by_value |= {id(x): x for x in needed}
            else:
                if first is not None and acquired.shows_contents:
                    acquired.forget()
                    return first
                if by_value and history is not None:
                    history.guarded_contents()
                return acquired
    finally:
        first = None  # it holds the frame that holds it
