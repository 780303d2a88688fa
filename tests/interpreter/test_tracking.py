"""Tracked runs on plain values: which guards a program gets, how they print, and what a prologue says."""

from __future__ import annotations

import math

import pytest

from dovetail.frontend.guards.guard import Guard, Miss
from dovetail.frontend.guards.prologue import prologue
from dovetail.frontend.guards.source import Sources
from dovetail.frontend.interpreter.tracking import Captured, Recorder, capture
from dovetail.trace import Trace, to_callable


class Box:
    def __init__(self, **values):
        self.__dict__.update(values)


def traced(fn, *args, **kwargs) -> tuple[Captured, object]:
    """What a run depended on, and a function that says which guard fails, or None."""
    _, captured = capture(fn, args, kwargs, Recorder())
    check = to_callable(prologue(captured.guards, (), captured.sources, Trace(), run=lambda **_: None))

    def failing(*args, **kwargs):
        missed = check(args, kwargs)
        return missed.reason if isinstance(missed, Miss) else None

    return captured, failing


def test_reading_one_attribute_guards_that_attribute_alone():
    def f(box):
        return box.v + 1

    box = Box(v=1, other=2)
    captured, failing = traced(f, box)
    assert [str(g) for g in captured.guards] == [
        "len(args) == 1",
        "list(kwargs) == []",
        f"f.__code__ is {f.__code__!r}",
        "type(args[0]) is Box",
        "args[0].v == 1",
        "Box has none of ['__getattribute__', 'v']",
    ]
    box.other = 3
    assert failing(box) is None
    box.v = 5
    assert failing(box) == "args[0].v is no longer 1"


def test_an_object_that_is_passed_on_and_never_looked_at_has_no_guard():
    def f(box, n):
        return [box], n

    captured, failing = traced(f, Box(v=1), 2)
    assert failing(Box(v=3), 2) is None
    assert failing("anything", 2) is None
    assert failing(Box(v=1), 3) == "args[1] is no longer 2"
    other = Box(v=9)
    (got,), n = captured.finish([], (other,))
    assert got is other and n == 2


def test_two_arguments_that_are_one_object_stay_one():
    def f(a, b):
        return a.v + b.v

    same = Box(v=1)
    _, failing = traced(f, same, same)
    assert failing(same, same) is None
    assert failing(same, Box(v=1)) == "args[1] is no longer the same object as args[0]"


def test_a_list_that_is_written_may_not_become_one_that_is_read():
    def f(a, b):
        a.append(1)
        return len(b)

    _, failing = traced(f, [5], [6])
    both = [7]
    assert failing([5], [6]) is None
    assert failing(both, both) == "args[0] has become the same object as args[1]"


def test_keyword_arguments_are_guarded_by_name():
    _, failing = traced(lambda *, k: k + 1, k=2)
    assert failing(k=2) is None
    assert failing(k=3) == "kwargs['k'] is no longer 2"
    assert failing(j=2) == "the call no longer has the keyword arguments ['k']"


def test_a_path_that_is_gone_is_a_miss():
    _, failing = traced(lambda d: d["a"]["b"], {"a": {"b": 1}})
    assert failing({"a": {"b": 1}}) is None
    assert failing({"a": {}}) == "args[0]['a']['b'] is not there any more"


def test_the_prologue_is_a_program_that_can_be_read():
    _, captured = capture(lambda n: n, (2,), {}, Recorder())
    text = str(prologue(captured.guards, (), captured.sources, Trace(), run=lambda: None))
    assert "def prologue(args, kwargs):\n    if active_mode() is not None: return miss\n    if len(args) != 1: return miss" in text
    assert "if type(v0) is not int or v0 != 2: return miss" in text


ATOMS = [1, True, 1.0, 0.0, -0.0, math.nan, math.inf, "1", b"1", None, 0j, complex(-0.0, 0.0), (), "it's"]


@pytest.mark.parametrize("value", ATOMS)
def test_atoms_are_told_apart(value):
    guard = Guard("equal", Sources().make("item", Sources().arg("args"), 0), value)
    check = to_callable(prologue([guard], (), (), Trace(), run=lambda: None))
    fits = [other for other in ATOMS if check((other,), {}) is None]
    assert [repr(other) for other in fits] == [repr(value)]


def test_equal_sources_are_one_object():
    sources = Sources()
    first = sources.item(sources.arg("args"), 1)
    one = sources.item(sources.attr(first, "x"), 0)
    assert sources.item(sources.attr(first, "x"), 0) is one
    assert sources.item(sources.attr(first, "x"), False) is not one
    assert repr(one) == "args[1].x[0]"
