"""The parts of the check of branches: recording, conditions as text, own code, constants, and turning the numbers of a call."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from dovetail_conformance.guided.hints import hints_of
from dovetail_conformance.guided.knobs import Grow, Knob, knobs_of, shaped
from dovetail_conformance.guided.operands import difference, operands
from dovetail_conformance.guided.own import Own
from dovetail_conformance.guided.recorder import MONITORED, Recorder, Tracer, recorder
from dovetail_conformance.guided.sequences import has_state
from dovetail_conformance.opinfo import SampleInput

LIMIT, TABLE = 7, {300: "few", 40.5: "many"}


def half(n: int) -> int:
    return n // 2 if n % 2 == 0 else n


def branching(x: list[int], mode: str = "a", flag: Any = None) -> Any:
    if len(x) == 4 and x[0] > 100:
        return -1
    if flag is not None:
        raise ValueError("no")
    if mode not in ("a", "b"):
        return NotImplemented
    large = [n for n in x if n > LIMIT] or [0]
    total = 0
    for n in large:
        total += half(n)
    return total if total > 1000 else -total


def observed(function: Callable[..., Any], *calls: tuple) -> Recorder:
    """Record calls of a function."""
    records = recorder(Own([function]))
    with records.open():
        for args in calls:
            with records.recording():
                function(*args)
    return records


def test_operands_of_and_are_conditions_of_their_own() -> None:
    records = observed(branching, ([1, 2],), ([3, 50, 1, 1],))

    told = [str(site).partition(": ")[2] for site in records.one_way]
    assert "`x[0] > 100` was never true" in told and "`total > 1000` was never true" in told
    assert not any("len(x) == 4" in text for text in told)


def test_what_only_raises_or_declines_is_not_listed() -> None:
    told = " ".join(map(str, observed(branching, ([1, 2],)).one_way))

    assert "len(x) == 4" in told
    assert "flag" not in told and "mode" not in told


def test_called_functions_count_and_other_code_does_not() -> None:
    records = observed(branching, ([8],), ([9],))

    names = {site.code.co_name for site in records.sites}
    assert "half" in names and not [site for site in records.one_way if site.code is half.__code__]
    assert all(code.co_filename == __file__ for code in records.ran)


def test_each_call_has_the_path_that_it_took() -> None:
    records = recorder(Own([half]))
    paths = []
    with records.open():
        for n in (2, 3, 4):
            with records.recording():
                half(n)
            paths.append(records.path)

    assert paths[0] == paths[2] != paths[1]


def test_nothing_is_recorded_outside_of_a_recording() -> None:
    records = recorder(Own([half]))
    with records.open():
        with records.recording():
            half(2)
        half(3)

    assert [str(site).partition(": ")[2] for site in records.one_way] == ["`n % 2 == 0` was never false"]


def test_both_sides_of_a_comparison_are_known() -> None:
    records = observed(branching, ([1, 2],))

    assert (2.0, 4.0) in records.sides.values()


def test_an_installed_tracer_is_put_back() -> None:
    def tracer(frame: Any, event: str, argument: Any) -> None:
        return None

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        observed(half, (2,))
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)


@pytest.mark.skipif(not MONITORED, reason="sys.monitoring came with Python 3.12")
def test_tools_of_monitoring_are_left_alone_and_freed() -> None:
    sys.monitoring.use_tool_id(3, "another")
    try:
        records = observed(half, (2,))
        assert records.sites and sys.monitoring.get_tool(3) == "another"
    finally:
        sys.monitoring.free_tool_id(3)
    assert [n for n in range(6) if sys.monitoring.get_tool(n) == "dovetail-conformance"] == []


@pytest.mark.skipif(MONITORED, reason="a trace function is for Python 3.11")
def test_a_trace_function_records_on_older_versions() -> None:
    assert type(recorder(Own([half]))) is Tracer


def test_a_torch_function_has_no_code_of_the_plugin() -> None:
    own = Own([torch.exp, torch.nn.functional.softmax])

    assert own.codes == []


def test_a_function_in_a_closure_is_the_plugins() -> None:
    def outer(inner: Callable) -> Callable:
        return lambda n: inner(n)

    assert half.__code__ in Own([outer(half)]).codes


def test_constants_of_code_globals_and_cells_are_hints() -> None:
    most = 65_536

    def fn(x: Any, scale: float = 2.5) -> Any:
        return TABLE.get(most, (9, 11)) if x.numel() > LIMIT and scale != "sum" else None

    hints = hints_of(Own([fn]))

    assert {7, 65_536, 300} <= set(hints.whole) and {2.5, 40.5} <= set(hints.real)
    assert "sum" in hints.words and (9, 11) in hints.tuples
    assert {65_535, 65_537} <= set(hints.around())


def test_hints_have_values_between_two_constants() -> None:
    hints = hints_of(Own([lambda x: 41.5 < x < 41.75]))

    assert any(41.5 < value < 41.75 for value in hints.values())


def counting() -> Callable:
    calls = [0]

    def fn(x: Any) -> Any:
        calls[0] += 1
        return x

    return fn


@pytest.mark.parametrize(("fn", "keeps"), [(counting(), True), (half, False), (lambda x: x.data_ptr(), True)])
def test_code_that_keeps_something_is_known(fn: Callable, keeps: bool) -> None:
    assert has_state(Own([fn])) is keeps


def test_only_pure_comparisons_are_computed_again() -> None:
    both = operands("x.numel() + 1 > 2 * n")

    assert both is not None and difference(both, {}, {"x": torch.ones(3), "n": 4}) == (4.0, 8.0)
    assert operands("pop() > 3") is None and operands("x") is None and operands("x.clear() == 1") is None


GROW = Grow(torch.Generator())


@pytest.mark.parametrize(
    ("knob", "value", "shapes"),
    [
        (Knob("size", 3), 77, [(2, 77), (77, 4)]),
        (Knob("dim", (1, 1)), 9, [(2, 3), (3, 9)]),
        (Knob("rank", "first"), 4, [(2, 1, 2, 3), (3, 4)]),
        (Knob("count", 0), 900, [(2, 450), (450, 4)]),
    ],
)
def test_a_knob_changes_one_number(knob: Knob, value: int, shapes: list) -> None:
    sample = SampleInput((torch.ones(2, 3), torch.ones(3, 4)))

    assert knob in knobs_of(sample)
    assert [tuple(x.shape) for x in next(knob.put(sample, value, GROW)).args] == shapes


def test_knobs_of_arguments_elements_and_memory() -> None:
    sample = SampleInput((torch.zeros(2, 3), 5), {"dims": (0, 1), "eps": 0.5})

    def put(knob: Knob, value: float) -> SampleInput:
        return next(knob.put(sample, value, GROW))

    assert put(Knob("argument", (0, 1)), 8).args[1] == 8
    assert put(Knob("argument", (1, "dims", 1)), -2).kwargs["dims"] == (0, -2)
    assert put(Knob("items", (1, "dims")), 3).kwargs["dims"] == (0, 1, 1)
    assert put(Knob("named", ("alpha", 1)), 3).kwargs["alpha"] == 3
    assert put(Knob("element", (0, "last")), 88.5).args[0][1, 2] == 88.5
    assert put(Knob("offset", 0), 12).args[0].storage_offset() == 12
    assert put(Knob("pitch", 0), 20).args[0].stride() == (20, 1)
    assert next(shaped(sample, (9, 11), GROW)).args[0].shape == (9, 11)


def test_positions_reach_the_last_row_of_a_table_that_grows() -> None:
    sample = SampleInput((torch.tensor([0, 1]), torch.ones(5, 3)))

    grown = list(Knob("index", (0, "first")).put(sample, 1000, GROW))

    assert grown[0].args[1].shape == (5, 3) and any(each.args[1].shape == (1003, 3) and int(each.args[0][0]) == 1000 for each in grown)
