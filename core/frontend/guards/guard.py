"""What a trace depended on: one guard for each fact, with the words for it and the sentence that a miss says."""

from __future__ import annotations

from typing import Any, NamedTuple

from dovetail.frontend.guards.source import Source


class Guard(NamedTuple):
    """A fact about the value at `source`: `kind` is a key of KINDS, `value` what it is compared with."""

    kind: str
    source: Source
    value: Any = None

    def __str__(self) -> str:
        if self.kind == "tensor":
            return f"{self.source} is a tensor {_facts(self.value)}"
        return KINDS[self.kind][0].format(s=repr(self.source), v=_shown(self.value), t=_a(self.value), n=_name(self.value))


class Miss:
    """What a prologue gives for a call that its program does not fit: `reason` is the guard that failed, as a sentence."""

    __slots__ = ("reason",)

    def __init__(self, reason: str):
        self.reason = reason


KINDS = {  # s: the value at the source, v: what it is compared with, n: its name, t: what it is; the fact, and that it is one no more
    "is": ("{s} is {v}", "{s} is no longer the same {t}"),
    "isnot": ("{s} is not {v}", "{s} has become {v}"),
    "same": ("{s} is {v}", "{s} is no longer the same object as {v}"),
    "notsame": ("{s} is not {v}", "{s} has become the same object as {v}"),
    "type": ("type({s}) is {v}", "{s} is no longer a {n}"),
    "equal": ("{s} == {v}", "{s} is no longer {v}"),
    "len": ("len({s}) == {v}", "{s} no longer has the length {v}"),
    "keys": ("list({s}) == {v}", "{s} no longer has the keys {v}"),
    "key types": ("list(map(type, {s})) == {v}", "{s} no longer has keys of the types {v}"),
    "key identities": ("list(map(id, {s})) == list(map(id, {v}))", "{s} no longer has the keys {v}"),
    "has": ("{v} in {s}", "{s} no longer has {v}"),
    "hasnot": ("{v} not in {s}", "{s} now has {v}"),
    "unset": ("the slot {v} of {s} is empty", "the slot {v} of {s} has been set"),
    "truthy": ("{s}", "{s} has become false, or empty"),
    "falsy": ("not {s}", "{s} has become true, or is no longer empty"),
    "tensor": ("{s} is a tensor {v}", "{s} is no longer a tensor {v}"),
    "natives": ("{s} defines no other methods than {v}", "{s} was given a method that it did not have"),
    "env": ("{s}() == {v}", "{s}() is no longer {v}"),
}


def reason(guard: Guard) -> str:
    """That a guard failed, as a sentence."""
    value = guard.value
    if guard.kind == "tensor":
        return f"{guard.source} is no longer a tensor {_facts(value)}"
    if guard.kind == "len" and guard.source.kind == "arg":
        return f"the call no longer has {value} positional arguments"
    if guard.kind == "keys" and guard.source.kind == "arg":
        return f"the call no longer has the keyword arguments {value}"
    if guard.kind == "is" and (value is None or type(value) in (bool, int, float, str)):
        return f"{guard.source} is no longer {value!r}"
    return KINDS[guard.kind][1].format(s=repr(guard.source), v=_shown(value), t=_a(value), n=_name(value))


def _shown(value: Any) -> str:
    if isinstance(value, Source):
        return repr(value)
    name = getattr(value, "__name__", None)
    if isinstance(name, str):
        return name
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_shown, value))}]"
    return repr(value) if type(value).__module__ in ("builtins", "torch") else f"a {type(value).__name__}"  # no code of the program runs for it


def _name(value: Any) -> str:
    name = getattr(value, "__name__", None)
    return name if isinstance(name, str) else type(value).__name__


def _a(value: Any) -> str:
    name = getattr(value, "__name__", None)
    return f"{type(value).__name__}{f' {name}' if isinstance(name, str) else ''}"


def _facts(facts: Any) -> str:
    """A tensor as a prologue checks it."""
    words = [facts["dtype"], list(facts["shape"]), facts["device"] or "", "that requires grad" if facts["requires_grad"] else ""]
    return " ".join([str(word) for word in words if word != ""]).replace("torch.", "")
