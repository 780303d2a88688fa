"""Every pass shows what it does in its module's docstring; here the example is run."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import programs
import pytest

from dovetail.prims import NumberSpec
from dovetail.prims.sizes import Relations
from dovetail.trace import JointTrace, NumberProxy, Trace, passes, proxies
from dovetail.trace.checking import check

FACTORIES = {"watch"}  # make a pass of functions of the user's
PASSES = [module.name for module in pkgutil.iter_modules(passes.__path__) if module.name not in FACTORIES]


def joint(trace: Trace) -> JointTrace:
    """A program of results and gradients, its last input the cotangent of its result, as a joint trace."""
    made = JointTrace(**vars(trace), cotangents=trace.inputs[-1:], pulled=proxies(trace.outputs[0]))
    made.by_rules = {p for line in trace.lines[2:] for p in line.writes}
    return made


RELATIONS = Relations()
S0 = RELATIONS.symbol(3)
RELATIONS.atoms[0].proxy = NumberProxy("s0", NumberSpec("int"))


def symbolic(trace: Trace) -> Trace:
    """A program of symbolic sizes."""
    trace.relations = RELATIONS
    return trace


INPUT = {  # what the inputs of an example are, where it matters
    "grad": programs.SPEC.like(requires_grad=True),
    "sizes": programs.SPEC.like(shape=(S0,)),
}
READ_AS = {"split": joint, "sizes": symbolic}


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


@pytest.mark.parametrize("name", PASSES)
def test_the_example_in_the_docstring_is_what_the_pass_does(name):
    module = importlib.import_module(f"{passes.__name__}.{name}")
    shown = examples(module.__doc__)
    assert len(shown) > 1, f"the docstring of {module.__name__} expects a program before the pass and one after, as those of other passes have"
    before, *after = shown
    inputs = len(inspect.signature(_function(before)).parameters)
    read = programs.read(before, *[INPUT.get(name, programs.SPEC)] * inputs, scope={"s0": S0})
    made = getattr(module, name)(READ_AS.get(name, lambda trace: trace)(read))
    made = made if isinstance(made, tuple) else (made,)
    assert [programs.renamed(str(trace)) for trace in made] == [programs.renamed(text) for text in after]
    for trace in made:
        check(trace)


def _function(text: str):
    scope: dict = {}
    exec(text, scope)
    return scope["computation"]
