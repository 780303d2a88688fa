"""Context variables in a tracked run: the value at the call is guarded, what is set or reset waits as every other write does."""

from __future__ import annotations

from contextvars import ContextVar, Token
from functools import partial
from typing import Any

from dovetail.frontend.class_lookup import NULL, address_of
from dovetail.frontend.interpreter.tracking.effects import DELETED, Write


class SetToken:
    """The result of `set` in a tracked run; the real token exists once the write has been done."""

    def __init__(self, var: ContextVar, old_value: Any):
        self.var, self.old_value, self.used = var, old_value, False


def _now(tracker: Any, variable: ContextVar) -> Any:
    """Return the value of a variable, NULL where it has none, nor a default."""
    now = tracker.effects.now(variable, "value")
    if now is not NULL:
        return variable.get(NULL) if now is DELETED else now
    if id(variable) not in tracker.readers:
        tracker.readers[id(variable)] = partial(variable.get, NULL)
    reader, value = tracker.readers[id(variable)], variable.get(NULL)
    source = tracker.sources.call(tracker.sources.const(reader))
    if value is NULL:
        tracker.guard("is", source, NULL)
        return NULL
    return tracker.reach(value, source)


def _get(tracker: Any, variable: ContextVar, *default: Any) -> Any:
    value = _now(tracker, variable)
    return value if value is not NULL else variable.get(*default)


def _set(tracker: Any, variable: ContextVar, value: Any) -> SetToken:
    old = _now(tracker, variable)
    token = SetToken(variable, Token.MISSING if old is NULL else old)
    token.written = tracker.effects.now(variable, "value")
    tracker.effects.written[address_of(variable), "value"] = value
    tracker.effects.log.append(Write(variable, "context", token, value))
    return token


def _reset(tracker: Any, variable: ContextVar, token: Any) -> None:
    if not isinstance(token, SetToken) or token.var is not variable:
        variable.reset(token)  # raises, but for a token from outside, which is of another call
        return
    if token.used:
        raise RuntimeError(f"{token!r} has already been used once")
    token.used = True
    if token.written is NULL:
        tracker.effects.written.pop((address_of(variable), "value"), None)
    else:
        tracker.effects.written[address_of(variable), "value"] = token.written
    tracker.effects.log.append(Write(variable, "context", token, DELETED))


CONTEXT = {"get": _get, "set": _set, "reset": _reset}
