"""Guards: the facts that a compiled program depends on.  A kind of guard is one row of KINDS, and the prim that it names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, NamedTuple

from dovetail import prims
from dovetail.frontend.guards.conditions import Answer
from dovetail.frontend.guards.runtime import has_class_flag, has_keys, has_slot
from dovetail.frontend.guards.source import Source
from dovetail.prims import Symbol

PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None)})  # compared by value wherever they are read


class Guard(NamedTuple):
    """A fact about the value at `source`: `kind` is a key of KINDS, `value` what the value is compared with."""

    kind: str
    source: Source
    value: Any = None

    def __str__(self) -> str:
        return _sentence(KINDS[self.kind].fact, self)


class Miss:
    """What a prologue returns for a call that its program does not fit: `reason` is the guard that failed, as a sentence.

    Few guards ever fail: a sentence may be a function, which is called where it is read first.
    """

    __slots__ = ("sentence",)

    def __init__(self, sentence: str | Callable[[], str]):
        self.sentence = sentence

    @property
    def reason(self) -> str:
        """The sentence."""
        if not isinstance(self.sentence, str):
            self.sentence = self.sentence()
        return self.sentence

    def __reduce__(self) -> tuple:
        return Miss, (self.reason,)


class Lasting(Enum):
    """How long a guard holds on a value that is read from a module's dictionary, while that dictionary does not change."""

    CALL = auto()  # it is checked at every call
    OBJECT = auto()  # as long as the value is the same object
    CLASS = auto()  # likewise, for instances of classes in C: they cannot get another class
    ALIAS = auto()  # as long as both values are the same objects
    TABLE = auto()  # as long as the value, a dictionary of parameters or submodules, does not change either


class Named(NamedTuple):
    """An argument of a check that the prologue refers to by a name instead of writing it out."""

    value: Any


@dataclass(frozen=True)
class Kind:
    """A kind of guard.

    `fact` and `broken` are sentences: that the guard holds, and that it failed.  In them {s} is the source, {v} the value that the guard
    compares with, {n} its name and {t} its type and name.  `prim` checks the guard, with `arguments(value)` as its keyword arguments:
    sources among them become the values read there, Named objects names.
    """

    name: str
    fact: str
    broken: str
    prim: Symbol
    arguments: Callable[[Any], dict[str, Any]]
    lasting: Lasting = Lasting.CALL


def _object(value: Any) -> dict[str, Any]:
    """Return the arguments of a check for identity; containers and subclasses of text and numbers get a name, or they would be written out."""
    by_name = isinstance(value, (tuple, list, dict, int, float, complex, str, bytes)) and type(value) is not bool and not isinstance(value, Source)
    return {"value": Named(value) if by_name else value}


def _relation(test: Callable[[Any, Any], bool], holds: bool) -> Callable[[Any], dict[str, Any]]:
    """Return the arguments of a check that `test` holds, or does not, between the value at the source and the guard's."""
    return lambda v: {"other": v, "test": test, "holds": holds}


def _answer(value: Answer) -> dict[str, Any]:
    """Return the arguments of a check that a question about numbers is answered alike."""
    return {"other": value.sources[1] if len(value.sources) > 1 else None, "holds": value.holds, "question": repr(value)}


KINDS = {
    kind.name: kind
    for kind in (
        Kind("is", "{s} is {v}", "{s} is no longer the same {t}", prims.check_identity, _object, Lasting.OBJECT),
        Kind("isnot", "{s} is not {v}", "{s} has become {v}", prims.check_other, _object, Lasting.OBJECT),
        Kind("same", "{s} is {v}", "{s} is no longer the same object as {v}", prims.check_identity, _object, Lasting.ALIAS),
        Kind("notsame", "{s} is not {v}", "{s} has become the same object as {v}", prims.check_other, _object, Lasting.ALIAS),
        Kind("type", "type({s}) is {v}", "{s} is no longer a {n}", prims.check_type, lambda v: {"type": v}, Lasting.CLASS),
        Kind("equal", "{s} == {v}", "{s} is no longer {v}", prims.check_value, lambda v: {"type": type(v), "value": v}, Lasting.OBJECT),
        Kind("len", "len({s}) == {v}", "{s} no longer has the length {v}", prims.check_count, lambda v: {"length": v}, Lasting.TABLE),
        Kind("keys", "list({s}) == {v}", "{s} no longer has the keys {v}", prims.check_keys, lambda v: {"keys": tuple(v)}, Lasting.TABLE),
        Kind(
            "key types",
            "list(map(type, {s})) == {v}",
            "{s} no longer has keys of the types {v}",
            prims.check_key_types,
            lambda v: {"types": tuple(v)},
            Lasting.TABLE,
        ),
        Kind(
            "key identities",
            "list(map(id, {s})) == list(map(id, {v}))",
            "{s} no longer has the keys {v}",
            prims.check_relation,
            lambda v: {"other": Named(tuple(v)), "test": has_keys, "holds": True},
        ),
        Kind("has", "{v} in {s}", "{s} no longer has {v}", prims.check_contains, lambda v: {"key": v, "present": True}, Lasting.TABLE),
        Kind("hasnot", "{v} not in {s}", "{s} now has {v}", prims.check_contains, lambda v: {"key": v, "present": False}, Lasting.TABLE),
        Kind(
            "unset",
            "the slot {v} of {s} is empty",
            "the slot {v} of {s} has been set",
            prims.check_unset,
            lambda v: {"name": v, "has": has_slot},
        ),
        Kind("instance", "{s} is an instance of {v}", "{s} is no longer an instance of {v}", prims.check_relation, _relation(isinstance, True)),
        Kind("no instance", "{s} is no instance of {v}", "{s} has become an instance of {v}", prims.check_relation, _relation(isinstance, False)),
        Kind("subclass", "{s} is a subclass of {v}", "{s} is no longer a subclass of {v}", prims.check_relation, _relation(issubclass, True)),
        Kind("no subclass", "{s} is no subclass of {v}", "{s} has become a subclass of {v}", prims.check_relation, _relation(issubclass, False)),
        Kind("flag", "{s} has the flag {v}", "{s} no longer has the flag {v}", prims.check_relation, _relation(has_class_flag, True)),
        Kind("no flag", "{s} lacks the flag {v}", "{s} now has the flag {v}", prims.check_relation, _relation(has_class_flag, False)),
        Kind(
            "alone",
            "no other tensor shares the memory of {s}",
            "another tensor shares the memory of {s}",
            prims.check_relation,
            lambda v: {"other": None, "test": v, "holds": True},
        ),
        Kind(
            "wrapper",
            "{s} says of itself {v}",
            "{s} no longer says of itself {v}: its shape, strides, offset, dtype, device, layout, requires_grad",
            prims.check_relation,
            lambda v: {"other": Named(v[1:]), "test": v[0], "holds": True},  # the test, and what it compares with
        ),
        Kind("truthy", "{s}", "{s} has become false, or empty", prims.check_truth, lambda v: {"value": True}),
        Kind("falsy", "not {s}", "{s} has become true, or is no longer empty", prims.check_truth, lambda v: {"value": False}),
        Kind("condition", "{v}", "{v} no longer holds", prims.check_answer, _answer),
        Kind("integer", "{s} is an int", "{s} is no longer an int", prims.check_type, lambda v: {"type": int}),
        Kind("tensor", "{s} is a tensor {v}", "{s} is no longer a tensor {v}", prims.check_tensor, lambda v: v),
        Kind("lacks", "{s} has none of {v}", "{s} now has one of {v}", prims.check_absent, lambda v: {}),  # in one line, see `PrologueBuilder`
    )
}


def reason(guard: Guard, words: str | None = None) -> str:
    """Return the sentence that a guard failed, with `words` for the value that it compares with."""
    if guard.source.kind == "arg":
        if guard.kind == "len":
            return f"the call no longer has {guard.value} positional arguments"
        if guard.kind == "keys":
            return f"the call no longer has the keyword arguments {guard.value}"
    return _sentence(KINDS[guard.kind].broken, guard, words)


def _sentence(template: str, guard: Guard, words: str | None = None) -> str:
    value = guard.value
    words = words or (_tensor_words(value) if guard.kind == "tensor" else _words(value))
    return template.format(s=repr(guard.source), v=words, n=_name(value) or type(value).__name__, t=f"{type(value).__name__} {_name(value)}".rstrip())


def _words(value: Any) -> str:
    """Return a value as text; no code of the program runs for it."""
    if isinstance(value, (Source, Answer)):
        return repr(value)
    if name := _name(value):
        return name
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_words, value))}]"
    return repr(value) if type(value).__module__ in ("builtins", "torch") else f"a {type(value).__name__}"


def _name(value: Any) -> str:
    """Return the name of a function, class or module; nothing for what has none."""
    name = getattr(value, "__name__", None)
    return name if isinstance(name, str) else ""


def _tensor_words(facts: dict[str, Any]) -> str:
    """Return what check_tensor wants of a tensor, as text."""
    words = [facts["dtype"], list(facts["shape"]), facts["device"] or "", "that requires grad" if facts["requires_grad"] else ""]
    return " ".join([str(word) for word in words if word != ""]).replace("torch.", "")
