"""Opaque functions of the user: not traced; recorded as one line that calls the function on real tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from dovetail.errors import DovetailError, require_function
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
    """Mark a function as opaque: a compiled program calls it on real tensors instead of tracing it.

    Tensor arguments may be nested; other arguments are guarded.  The result is a tensor, a tuple of tensors, which must depend on the
    arguments alone, or None, where the function is called for its side effect.  The specs of the results come from a run on fake tensors,
    or from `meta`, a function of the same arguments that returns tensors like them, or None.  Gradients flow through it as in eager mode.
    """
    if fn is None:
        return functools.partial(opaque_function, meta=meta)
    if not callable(fn):
        raise DovetailError(f"opaque: expected a function, got {type(fn).__name__}")
    if meta is not None:
        require_function("meta= of opaque", meta)
    base_name = "".join([c if c.isalnum() else "_" for c in getattr(fn, "__name__", "function")])
    name, number = base_name, 0
    while hasattr(FUNCTIONS, name):
        number += 1
        name = f"{base_name}_{number}"

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
