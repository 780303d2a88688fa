"""Guards: a kind of guard is one row of a table, and the prim that the row names."""

from __future__ import annotations

import pytest

from dovetail.frontend.guards.guard import KINDS, Guard, Kind, Miss
from dovetail.frontend.guards.prologue import prologue
from dovetail.frontend.guards.source import Sources
from dovetail.prims.guard import GUARD
from dovetail.prims.op import Tag, prim
from dovetail.trace import Trace, to_callable


@prim(tags=GUARD)
def check_even(x, *, miss):
    """Check that x is even."""


@check_even.python
def check_even_python(target, x, *, miss):
    return f"if {x} % 2: return {miss}"


def test_a_kind_of_guard_is_one_row_and_a_prim(monkeypatch):
    monkeypatch.setitem(KINDS, "even", Kind("even", "{s} is even", "{s} is no longer even", check_even, lambda value: {}))
    sources = Sources()
    guard = Guard("even", sources.item(sources.arg("args"), 0))
    guarded = to_callable(prologue([guard], [], [], Trace(), run=lambda: "the result"))
    assert str(guard) == "args[0] is even"
    assert guarded((4,), {}) == "the result"
    miss = guarded((5,), {})
    assert type(miss) is Miss and miss.reason == "args[0] is no longer even"


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_row_names_a_check_and_its_sentences(kind):
    assert Tag.GUARD in kind.prim.tags
    for sentence in (kind.fact, kind.broken):
        assert "{s}" in sentence
        assert sentence.format(s="the source", v="value", n="name", t="type") != sentence
