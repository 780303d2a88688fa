"""Tracing of functions of NumPy arrays: the arrays they reach become inputs, and what is called on them is NumPy's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dovetail.errors import TracedValueError, Unsupported
from dovetail.frontend.arrays.conversion import is_traceable as is_traceable
from dovetail.frontend.arrays.recorder import ArrayEnvironment, ArrayRecorder, MixedCall
from dovetail.frontend.environment import Acquired
from dovetail.frontend.recording.array_choices import arrays_behind
from dovetail.langs.numpy import LANGUAGE
from dovetail.trace import Trace

SMALL = 1 << 16  # bytes of an array that may be guarded by content


def acquire(run: Callable[..., Acquired], fn: Callable, args: tuple, kwargs: dict) -> Acquired | None:
    """Trace `fn` with `run`, arrays as inputs; None where the function also uses tensors.

    Where Python needs the values of a small array, as an index of a list, that array is guarded by its content instead, as a number
    is; the run starts again, for as many arrays as it takes.
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
                return run(fn, args, kwargs, recorder)
            except MixedCall:
                return None
            except Unsupported:
                if first is None:
                    raise
                raise first from None  # guarding the content did not help: say what the values were needed for
            except TracedValueError as error:
                first = error if first is None else first
                needed = arrays_behind(error.proxy, new, known)
                if not needed or sum([x.nbytes for x in needed]) > SMALL:
                    raise
                by_value |= {id(x): x for x in needed}
    finally:
        first = None  # it holds the frame that holds it
