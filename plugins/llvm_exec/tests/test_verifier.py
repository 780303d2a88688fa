"""The verifier refuses plans that would compute something else: faults are planted into plans that are right."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from llvm_against_eager import assert_like_eager, program_of

import dovetail
from dovetail.dtypes import float32, int64
from dovetail.extend.advanced import ExecutorWarning
from dovetail_llvm_exec.executor import llvm_executor
from dovetail_llvm_exec.loops import stage, verifier
from dovetail_llvm_exec.loops.stage import Phase, Workspace
from dovetail_llvm_exec.loops.verifier import Broken, verify_phases, verify_plan
from dovetail_llvm_exec.region.exprs import Buffer
from dovetail_llvm_exec.region.forms import Atom, Form, shifted, times
from dovetail_llvm_exec.region.groups import Plan

X, LARGE = torch.randn(100, 63), torch.randn(300, 1000)


def norm(x):
    return (x / x.norm()).sum() + x.norm()


def write_through_views(a, m):
    """One value is kept while another is placed."""
    part = a.reshape(1, 2, 4, 2)[:, :, 1:].reshape(1, 2, 2, 3)[..., :2]
    part *= m
    return part + 1


def viewed():
    return torch.randn(1, 2, 2, 4).transpose(1, 2), torch.rand(2, 2)


def planned(fn, *args):
    """The plan of `fn`, and a copy of its items that a test may change."""
    plan = program_of(fn, *args).plan
    for group in plan.groups:
        group.items = [dataclasses.replace(item) for item in group.items]
    verify_plan(plan)
    return plan


def refused(plan, words):
    with pytest.raises(Broken, match=words):
        verify_plan(plan)


# --- planted in the planner: the program is right, and says so


def keep_under_a_number_taken_too_early(self, node):
    """`Plan.keep` as it once was: two temporaries could have one name."""
    if node in self.memory:
        return
    home = self.home.get(node)
    buffer = self.outputs.get(node) or Buffer("temp", len(self.temporaries), node.dtype)
    if home is None:
        home = self._placed("store", node, node)
    elif not any(item.kind == "tally" and item.node is node for item in home.items):
        home.admit("store", node)
    self.memory[node], self.written[node], self.home[node] = buffer, home.index, home
    if buffer.kind == "temp":
        self.temporaries.append(node)


def everything_at_the_start(self, buffer, numel, first, last):
    """A workspace that forgets who uses it."""
    size = -(-numel * buffer.dtype.bytes // stage.LINE) * stage.LINE
    self.rooms.append(stage.Room(buffer, 0, size, first, last))
    self.offsets[buffer], self.size = 0, max(self.size, size)
    return buffer


PLANTED = {
    "two temporaries of one name": (write_through_views, viewed, Plan, "keep", keep_under_a_number_taken_too_early, "share the name of a buffer"),
    "two temporaries in one place": (norm, lambda: (LARGE,), Workspace, "take", everything_at_the_start, "share a place|another value has its place"),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_region_that_is_planned_wrong_is_refused(fault, monkeypatch):
    fn, inputs, owner, name, wrong, words = PLANTED[fault]
    monkeypatch.setattr(owner, name, wrong)
    with pytest.warns(ExecutorWarning, match=words):
        args = inputs()
        compiled = dovetail.jit(fn, executors=[llvm_executor(), "torch"])
        got = compiled(*[x.clone() for x in args])
    torch.testing.assert_close(got, fn(*args), rtol=1e-4, atol=1e-4)
    refusals = [each.message for row in dovetail.explain(compiled).rows for each in row.refusals if each.executor == "llvm"]
    assert any(each.startswith("has no right plan for the region: ") for each in refusals), refusals


def test_the_same_program_is_compiled_without_a_warning(recwarn):
    assert_like_eager(norm, X, scale=100.0)
    assert not [w for w in recwarn if issubclass(w.category, ExecutorWarning)]


# --- planted in a finished plan


def test_a_loop_nest_that_runs_before_what_it_reads():
    plan = planned(norm, LARGE)
    plan.groups.reverse()
    refused(plan, "reads temporary [0-9]+, which is not complete then")


def test_a_value_that_nobody_writes():
    plan = planned(norm, LARGE)
    plan.groups[-1].items.pop()
    refused(plan, "no loop nest writes output 0")


def test_a_value_that_is_written_twice():
    plan = planned(lambda x: x * 2 + 1, X)
    plan.groups[0].items *= 2
    refused(plan, "output 0 is written more than once")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda coords: (shifted(coords[0], 1), *coords[1:]), "at 63 to 6362 of 6300 elements"),
        (lambda coords: (*coords[:-1], shifted(coords[-1], 1)), "at 1 to 6300 of 6300 elements"),
        (lambda coords: (times(coords[0], 2), *coords[1:]), "of 6300 elements"),
        (lambda coords: (coords[0], Form(0)), "in a place that does not change with the value"),
        (lambda coords: (coords[0], coords[0]), "not once at each element|does not change with the value"),
    ],
)
def test_a_place_that_is_wrong(change, words):
    plan = planned(lambda x: x * 2 + 1, X)
    (item,) = plan.groups[0].items
    item.coords = change(item.coords)
    refused(plan, words)


def test_a_result_of_a_row_that_is_not_reduced_here():
    plan = planned(lambda x: torch.softmax(x, -1), X)
    (group,) = plan.groups
    group.items = [item for item in group.items if item.kind != "result"]
    refused(plan, "reads a result that it does not know")


def test_a_reduction_before_the_one_it_needs():
    plan = planned(lambda x: torch.softmax(x, -1), X)
    (group,) = plan.groups
    results = [item for item in group.items if item.kind == "result"]
    group.items = [*reversed(results), *(item for item in group.items if item.kind != "result")]
    refused(plan, "reads a result that it does not know")


def test_rows_that_are_not_those_of_the_loop_nest():
    plan = planned(lambda x: x.sum(1), X)
    plan.groups[0].columns = {0}
    refused(plan, "is not over its columns|in a place that does not change")


def test_loops_that_were_split_after_a_value_was_written():
    plan = planned(lambda x: x * 2 + 1, X)
    plan.groups[0].cells[0] = [Atom(7, 10), Atom(8, 10)]
    refused(plan, "which it does not count")


def test_a_lookup_that_may_leave_its_table():
    plan = planned(lambda x, i: x[i] * 2, X, torch.tensor([3, 99]))
    table = plan.groups[0].lowering.table.known
    (checked,) = [e for e in table.values() if e.op == "checked"]
    checked.data = (101, "IndexError")
    refused(plan, "reads input 0 at 0 to 6362 of 6300 elements")


def test_a_result_that_lies_in_memory_is_read_under_the_mask_of_a_pad():
    """It has fewer elements than the loop nest that pads it."""

    def fn(x):
        sums = (x * 2)[:, 1:3].sum((0, 2))
        return torch.nn.functional.pad(sums, (0, 3)) + x.amax((0, 2))

    assert_like_eager(fn, torch.randn(6, 5, 8), scale=100.0)


# --- functions


def phase(name, reads=(), writes=(), **more):
    """A function that reads and writes whole buffers, in one unit."""
    return Phase(name, more.pop("units", 1), 0.0, frozenset(reads), frozenset(writes), **more)


def room(*wanted):
    """A workspace with rooms of 16 numbers from byte `low` on."""
    workspace = Workspace()
    for number, low in enumerate(wanted):
        buffer = Buffer("temp", number, float32)
        workspace.rooms.append(stage.Room(buffer, low, low + 64, 0, 9))
        workspace.offsets[buffer] = low
    return workspace, [Buffer("temp", n, float32) for n in range(len(wanted))]


ALONG = Form(0, ((Atom(0, 16), 1),))
OUT, IN = Buffer("out", 0, float32), Buffer("in", 0, float32)


def test_a_value_is_intact_until_it_was_read():
    workspace, (a, b) = room(0, 0)
    first, second = phase("first", writes=[(a, ALONG)]), phase("second", writes=[(b, ALONG)])
    reads_a, reads_b = phase("third", [(a, ALONG)], [(OUT, ALONG)]), phase("third", [(b, ALONG)], [(OUT, ALONG)])
    verify_phases([first, second, reads_b], workspace, [OUT])
    with pytest.raises(Broken, match="third reads temporary 0, which is not written before, or another value has its place"):
        verify_phases([first, second, reads_a], workspace, [OUT])
    with pytest.raises(Broken, match="second uses temporary 1 and temporary 0, which share a place"):
        verify_phases([first, phase("second", [(a, ALONG)], [(b, ALONG)]), reads_b], workspace, [OUT])


def test_threads_do_not_meet_in_a_function():
    workspace, (a,) = room(0)
    (atom, _), split = ALONG.terms[0], frozenset({ALONG.terms[0][0]})
    verify_phases([phase("each", writes=[(a, ALONG)], units=4, split=split)], workspace, [])
    with pytest.raises(Broken, match="units of each write the same elements of temporary 0"):
        verify_phases([phase("each", writes=[(a, Form(0))], units=4, split=split)], workspace, [])
    verify_phases([phase("each", writes=[(a, Form(0))], units=4, split=split, own=frozenset({a}))], workspace, [])
    with pytest.raises(Broken, match="each reads elements of temporary 0 that it writes elsewhere"):
        verify_phases([phase("each", [(a, Form(15, ((atom, -1),)))], [(a, ALONG)], units=4, split=split)], workspace, [])


def test_an_input_that_is_written_over_is_read_before_or_at_the_same_place():
    workspace, into = Workspace(), {OUT: IN}
    same = phase("first", [(IN, ALONG)], [(OUT, ALONG)])
    verify_phases([same], workspace, [OUT], into)
    with pytest.raises(Broken, match="second reads input 0"):
        verify_phases([same, phase("second", [(IN, ALONG)], [(Buffer("out", 1, float32), ALONG)])], workspace, [OUT], into)
    with pytest.raises(Broken, match="first reads elements of input 0 that it writes elsewhere"):
        verify_phases([phase("first", [(IN, shifted(ALONG, 1))], [(OUT, ALONG)])], workspace, [OUT], into)


def test_results_are_intact_in_the_end():
    with pytest.raises(Broken, match="output 0 is not intact in the end"):
        verify_phases([phase("first", [(IN, ALONG)])], Workspace(), [OUT])


def test_buffers_are_named_in_words():
    assert [verifier.named(Buffer(kind, 3, int64)) for kind in ("in", "out", "temp", "part")] == [
        "input 3",
        "output 3",
        "temporary 3",
        "partial result 3",
    ]
