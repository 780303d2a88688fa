"""Functions of torch.autograd whose backward cannot be traced: their calls run by themselves between two segments, with their own history."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn
from weakref import WeakKeyDictionary

import torch

from dovetail.errors import DovetailError, EagerCall, LeftToAutograd
from dovetail.prims import recorder
from dovetail.trace import is_proxy

_PLAIN = frozenset({int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device})


class _Left(NamedTuple):
    """Why a class is left to autograd, what calls its `apply`, and whether its forward writes to something outside."""

    why: str
    apply: Callable[..., Any]
    writes: bool


_LEFT: WeakKeyDictionary[type, _Left] = WeakKeyDictionary()


def is_left(cls: type[torch.autograd.Function]) -> bool:
    """Return whether the backward of a class could not be traced before."""
    return cls in _LEFT


def leave_to_autograd(cls: type[torch.autograd.Function], error: Exception, *, writes: bool) -> NoReturn:
    """Leave calls of `cls` to autograd from now on, since tracing its backward raised `error`; `writes` says that its forward has effects outside.

    Raises LeftToAutograd for the program that is compiled, EagerCall where its calls have to run in eager mode.
    """
    why = str(error)
    if not isinstance(error, DovetailError):
        why = f"the backward of {cls.__name__} raised {type(error).__name__} while it was traced: {error}"
    held = weakref.ref(cls)

    def apply(*args: Any, **kwargs: Any) -> Any:
        return held().apply(*args, **kwargs)

    apply.__name__ = cls.__name__
    _LEFT.setdefault(cls, _Left(why, apply, writes))
    if writes:
        _run_eagerly(cls, why)
    raise LeftToAutograd(why) from error


def call_left(cls: type[torch.autograd.Function], args: tuple, kwargs: dict[str, Any]) -> Any:
    """Record a call that runs between two segments.

    Raises LeftToAutograd where the program cannot be cut, EagerCall where a call that starts again would repeat writes of the forward, or where
    it could not get the arguments and the state of the world outside that it gets in eager mode.
    """
    why, apply, writes = _LEFT[cls]
    environment = recorder.get().environment
    session = getattr(environment, "session", None)
    if writes:
        _run_eagerly(cls, why)
    if session is None or not session.is_open:
        raise LeftToAutograd(why)
    if environment.tracker.is_fresh(cls) or not all([_is_known(x, environment.tracker) for x in (*args, *kwargs.values())]):
        _run_eagerly(cls, why)
    if environment.pending_writes:
        _run_eagerly(cls, f"the function writes to something outside before {cls.__name__}, which may read it")
    return session.call_python(apply, args, kwargs)


def _is_known(x: Any, tracker: Any) -> bool:
    """Return whether an argument is a value of the program, or the same object at every call."""
    return is_proxy(x) or type(x) in _PLAIN or ((source := tracker.source(x)) is not None and source.kind == "const")


def _run_eagerly(cls: type[torch.autograd.Function], why: str) -> NoReturn:
    """Let the call that is traced run in eager mode."""
    raise EagerCall(f"{cls.__name__}.apply runs in eager mode: {why}") from None
