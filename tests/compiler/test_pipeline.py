"""The pipeline: a pass that is named in it runs on every program, with what it asks for, and CONTRIBUTING's list to add one is complete."""

from __future__ import annotations

import importlib
import pkgutil

import pytest
import torch

import dovetail
import dovetail.trace
from dovetail.compiler import pipeline
from dovetail.compiler.compilation import Compilation, run
from dovetail.executors import Priority, resolve_executors
from dovetail.extend import OperatorExecutor
from dovetail.trace import Trace, passes

FACTORIES = {"watch"}  # make a pass for `jit(passes=[...])`, and are in no pipeline


class Seeing:
    """A pass that changes nothing and remembers the programs that it ran on."""

    def __init__(self):
        self.programs: list[tuple[str, bool]] = []
        self.executors: set[Priority] = set()

    def named(self):
        def seeing(trace, executors):
            claimed = any(line.implementation is not None for line in trace.lines)
            self.programs.append((trace.name, claimed))
            self.executors.add(executors)
            return trace.derive("seeing", lines=list(trace.lines))

        return seeing


@pytest.fixture
def seeing():
    return Seeing()


def written_and_viewed(x, y):
    y.mul_(2)
    return (torch.sin(x) * y).sum(), x.t()


@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
def test_a_pass_that_is_named_once_runs_on_computation_forward_backward_and_epilogue(monkeypatch, seeing, last):
    row = (seeing.named(), pipeline.ALL)
    monkeypatch.setattr(pipeline, "LOWER", (*pipeline.LOWER, row) if last else (row, *pipeline.LOWER))
    fn = dovetail.jit(written_and_viewed, executors=["torch"])

    with torch.no_grad():
        fn(torch.ones(2, 3), torch.ones(2, 3))
    assert seeing.programs == [("computation", last), ("epilogue", last)]
    assert [seeing.executors] == [{resolve_executors(["torch"])}]

    del seeing.programs[:]
    x = torch.ones(2, 3, requires_grad=True)
    fn(x, torch.ones(2, 3))[0].backward()
    assert seeing.programs == [("forward", last), ("backward", last), ("epilogue", last)]
    torch.testing.assert_close(x.grad, 2 * torch.cos(torch.ones(2, 3)))

    groups = (dovetail.last_traces(fn), dovetail.last_backward_traces(fn), dovetail.last_epilogue_traces(fn))
    for steps in groups:
        assert [trace.made_by for trace in steps].count("seeing") == 1 and (steps[-1].made_by == "seeing") is last


def test_it_runs_on_backwards_that_are_compiled_later_too(monkeypatch, seeing):
    monkeypatch.setattr(pipeline, "LOWER", (*pipeline.LOWER, (seeing.named(), pipeline.ALL)))
    fn = dovetail.jit(lambda x: (torch.sin(x), torch.cos(x)), executors=["torch"])
    x = torch.ones(3, requires_grad=True)
    first, _ = fn(x)
    assert [name for name, _ in seeing.programs] == ["forward", "backward"] + ["epilogue"]

    first.sum().backward()  # the other cotangent is None
    assert [name for name, _ in seeing.programs[3:]] == ["backward"]

    (gx,) = torch.autograd.grad(fn(x)[0].sum(), x, create_graph=True)
    gx.sum().backward()
    assert [name for name, _ in seeing.programs[4:]].count("forward") == 1, "the gradient of the gradient goes the same way"


def test_a_pass_over_the_pure_program_and_one_over_the_joint_one_run_where_they_are_named(monkeypatch, seeing):
    monkeypatch.setitem(pipeline.SIMPLIFY, "generator", (*pipeline.SIMPLIFY["generator"], seeing.named()))
    monkeypatch.setattr(pipeline, "DIFFERENTIATE", (*pipeline.DIFFERENTIATE, seeing.named()))
    x = torch.ones(3, requires_grad=True)
    fn = dovetail.jit(lambda x: torch.sin(x).sum(), executors=["torch"])
    fn(x).backward()

    steps = dovetail.last_traces(fn)
    assert [trace.made_by for trace in steps][:8] == ["tracing", "functionalize", "dce", "cse", "seeing", "grad", "dce", "seeing"]
    torch.testing.assert_close(x.grad, torch.cos(torch.ones(3)))


def test_every_pass_has_a_file_a_name_in_the_package_and_a_place_in_the_pipeline():
    simplify = [step for steps in pipeline.SIMPLIFY.values() for step in steps]
    placed = [pipeline.FUNCTIONALIZE, *simplify, *pipeline.DIFFERENTIATE, pipeline.SPLIT, *(step for step, _ in pipeline.LOWER)]
    for module in pkgutil.iter_modules(passes.__path__):
        step = getattr(importlib.import_module(f"{passes.__name__}.{module.name}"), module.name, None)
        assert callable(step), f"core/trace/passes/{module.name}.py has no function {module.name}"
        assert getattr(dovetail.trace, module.name, None) is step, f"core/trace/__init__.py does not export {module.name}"
        assert module.name in FACTORIES or step in placed, f"core/compiler/pipeline.py names {module.name} in no tuple"


def test_every_row_names_programs_that_there_are():
    for step, programs in pipeline.LOWER:
        assert programs and set(programs) <= set(pipeline.ALL), step.__name__


# The runner.


def compilation() -> Compilation:
    return Compilation(Priority([OperatorExecutor("none")]))


def test_a_pass_that_has_nothing_to_do_leaves_no_step():
    trace = Trace()

    assert run([lambda trace: trace], trace, compilation()) == [trace]


def test_a_pass_that_makes_several_programs_leaves_each():
    trace = Trace()

    def two(trace):
        return [trace.derive("first"), trace.derive("second")]

    def last(trace):
        return trace.derive(f"after {trace.made_by}")

    assert [step.made_by for step in run([two, last], trace, compilation())] == ["tracing", "first", "second", "after second"]


def test_a_pass_gets_the_fields_that_it_names():
    got = {}

    def asking(trace, executors, *, recompute):
        got.update(executors=executors, recompute=recompute)
        return trace

    context = compilation()
    run([asking], Trace(), context)
    assert got == {"executors": context.executors, "recompute": "balanced"}


def test_a_parameter_that_is_no_field_is_an_error_that_lists_the_fields():
    def asking(trace, colour):
        return trace

    with pytest.raises(dovetail.DovetailError, match=r"the pass asking has a parameter 'colour'.*executors, passes, recompute"):
        run([asking], Trace(), compilation())
