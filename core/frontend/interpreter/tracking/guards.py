"""What a trace depended on: one guard for each fact, with the code that checks it and the sentence that a miss says."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from dovetail.frontend.interpreter.tracking.sources import Source


class Guard(NamedTuple):
    """A fact about the value at `source`: `kind` is a key of KINDS, `value` what it is compared with."""

    kind: str
    source: Source
    value: Any = None

    def __str__(self) -> str:
        value = self.value
        shown = repr(value) if isinstance(value, Source) else getattr(value, "__name__", None) or repr(value)
        return KINDS[self.kind].format(s=repr(self.source), v=shown)


KINDS = {  # s: the value at the source, v: what it is compared with
    "is": "{s} is {v}",
    "isnot": "{s} is not {v}",
    "same": "{s} is {v}",
    "notsame": "{s} is not {v}",
    "type": "type({s}) is {v}",
    "equal": "{s} == {v}",
    "len": "len({s}) == {v}",
    "keys": "list({s}) == {v}",
    "key types": "list(map(type, {s})) == {v}",
    "key identities": "list(map(id, {s})) == list(map(id, {v}))",
    "has": "{v} in {s}",
    "hasnot": "{v} not in {s}",
    "truthy": "{s}",
    "falsy": "not {s}",
    "tensor": "{v}({s})",
    "env": "{s}() == {v}",
}


def equality(value: Any, s: str, v: str, kind: str) -> str:
    """A test that the value called `s` is the atom called `v`, whose type is called `kind`: 1 is not True, 0.0 is not -0.0, NaN is NaN."""
    if value is None or value is True or value is False:
        return f"{s} is {v}"
    if type(value) is float:
        if value != value:
            return f"type({s}) is {kind} and {s} != {s}"
        if value == 0:
            sign = "-" if math.copysign(1, value) < 0 else ""
            return f"type({s}) is {kind} and str({s}) == '{sign}0.0'"
    if type(value) is complex:
        return f"type({s}) is {kind} and repr({s}) == {repr(value)!r}"
    return f"type({s}) is {kind} and {s} == {v}"
