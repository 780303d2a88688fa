"""Every pass shows what it does in its module's docstring; here the example is run."""

from __future__ import annotations

import importlib
import inspect

import programs
import pytest

from dovetail.trace import cse, dce, functionalize, philox, release, schedule
from dovetail.trace.checking import check

PASSES = (cse, dce, functionalize, philox, release, schedule)


def examples(docstring: str) -> list[str]:
    """The programs in a docstring, one for each run of `>>>` and `...` lines."""
    found: list[list[str]] = []
    inside = False
    for row in docstring.splitlines():
        shown = row.startswith((">>> ", "... "))
        if shown and not inside:
            found.append([])
        if shown:
            found[-1].append(row[4:])
        inside = shown
    return ["\n".join(rows) for rows in found]


@pytest.mark.parametrize("step", PASSES, ids=lambda step: step.__name__)
def test_the_example_in_the_docstring_is_what_the_pass_does(step):
    module = importlib.import_module(step.__module__)
    before, *after = examples(module.__doc__)
    inputs = len(inspect.signature(_function(before)).parameters)
    made = step(programs.read(before, *[programs.SPEC] * inputs))
    made = made if isinstance(made, tuple) else (made,)
    assert [programs.renamed(str(trace)) for trace in made] == [programs.renamed(text) for text in after]
    for trace in made:
        check(trace)


def _function(text: str):
    scope: dict = {}
    exec(text, scope)
    return scope["computation"]


def test_every_pass_has_an_example():
    for step in PASSES:
        assert len(examples(importlib.import_module(step.__module__).__doc__)) >= 2, f"{step.__module__} shows no example in its docstring"
