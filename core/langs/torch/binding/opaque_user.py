"""Functions of the user's that are not looked into: a call is one line, and runs the function on real tensors at every call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from dovetail.errors import DovetailError
from dovetail.langs.torch.binding.names import NAMED
from dovetail.langs.torch.binding.opaque import STAND_INS, opaque
from dovetail.langs.torch.binding.symbol import SPACES
from dovetail.prims import recorder
from dovetail.prims.op import no_recorder
from dovetail.torch_internals import no_torch_function
from dovetail.trace import printing

FUNCTIONS = SimpleNamespace()  # the registry: name -> function, as printed programs call them
SPACES["untraced"] = FUNCTIONS
printing.ROOTS["untraced"] = printing.Root("from dovetail.langs.torch.binding.opaque_user import FUNCTIONS as untraced", FUNCTIONS)


def opaque_function(fn: Callable | None = None, /, *, meta: Callable | None = None) -> Any:
    """Return the decorated function is not looked into: a compiled program calls it, on real tensors, at every call.

    It takes tensors, also in nests, and other arguments, which are guarded; it gives tensors, in tuples where they are several, which are
    taken to depend on its arguments alone, or None: then it is called for what it does.  What its results look like is found by running it
    once on tensors without values, unless `meta`, a function of the same arguments, gives tensors that look like them, or None.  Gradients
    flow through it as eager autograd has them.
    """
    if fn is None:
        return functools.partial(opaque_function, meta=meta)
    if not callable(fn):
        raise DovetailError(f"opaque marks a function, not {type(fn).__name__}")
    word = "".join([c if c.isalnum() else "_" for c in getattr(fn, "__name__", "function")])
    name, number = word, 0
    while hasattr(FUNCTIONS, name):
        number += 1
        name = f"{word}_{number}"

    def real(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    setattr(FUNCTIONS, name, real)
    NAMED[real] = f"untraced.{name}"
    if meta is not None:
        STAND_INS[real] = meta

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        if recorder.get() is no_recorder:
            return fn(*args, **kwargs)
        with no_torch_function():
            return opaque(real, args, kwargs)

    return call
