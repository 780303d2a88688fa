"""What explain, cache_info and cache_misses show of decisions, the limits, and how strict a function is about values."""

from __future__ import annotations

import inspect
import json
import warnings
from xml.etree import ElementTree

import pytest
import torch
from decisions.helpers import agrees, compiled, graph_of

import dovetail
from dovetail.errors import DovetailError, TracedValueError


def branch(x):
    if x.sum() > 0:
        return x * 2
    return x - 1


def test_24_more_outcomes_than_the_limit_run_in_eager_mode():
    def steps(x, n):
        return [x + i for i in range(int(n))]

    fn = compiled(steps)
    with dovetail.use(outcome_limit=3):
        for n in (1, 2, 3):
            agrees(fn, steps, torch.zeros(2), torch.tensor(n))
        with pytest.warns(UserWarning, match=r"a number at .*test_reports.py:\d+ had 3 outcomes; calls with others run eagerly"):
            agrees(fn, steps, torch.zeros(2), torch.tensor(4))
        agrees(fn, steps, torch.zeros(2), torch.tensor(5))
        agrees(fn, steps, torch.zeros(2), torch.tensor(2))
    assert graph_of(fn).eager_calls == 2


def test_24_more_decisions_than_the_limit_run_in_eager_mode():
    def counted(x):
        seen = []
        while x.sum() < 20:
            x = x + 1
            seen.append(x)
        return x, len(seen)

    fn = compiled(counted)
    with dovetail.use(decision_limit=5), pytest.warns(UserWarning, match=r"more than 5 values, the last at .*test_reports.py:\d+"):
        agrees(fn, counted, torch.zeros(2))
    agrees(fn, counted, torch.full((2,), 9.0))


def test_25_error_names_the_line_and_compiles_nothing():
    fn = compiled(branch, decisions="error")
    with pytest.raises(TracedValueError, match=r"needed at .*test_reports.py:\d+.*choose with torch.where"):
        fn(torch.ones(2))
    assert fn.cache_info() == (0, 0, 0)


def test_25_eager_runs_the_function_as_it_stands():
    fn = compiled(branch, decisions="eager")
    for value in (1.0, -1.0, 2.0):
        agrees(fn, branch, torch.full((2,), value))
    assert fn.cache_info() == (2, 1, 1) and not fn._cache.explored


def test_25_an_unknown_word_is_an_error():
    with pytest.raises(DovetailError, match="decisions is 'graph', 'eager' or 'error'"):
        dovetail.jit(branch, decisions="never")


def test_25_native_tracing_and_make_trace_refuse():
    with pytest.raises(TracedValueError):
        compiled(branch, interpretation="native")(torch.ones(2))
    with dovetail.use(decisions="graph"), pytest.raises(TracedValueError):
        dovetail.make_trace(branch)(torch.ones(2))


def test_29_explain_names_lines_outcomes_and_why_a_decision_stands_alone():
    def ordered(x, y):
        first, second = sorted([x, y], key=lambda t: float(t.sum()))
        return first - second if first.max() > 0 else second

    fn = compiled(ordered)
    agrees(fn, ordered, torch.ones(2), torch.zeros(2))
    explained = dovetail.explain(fn)
    start, *decisions = explained.decisions
    assert [each.name for each in decisions] == ["d0", "d1"]
    assert decisions[0].unmerged == "a Compared is alive"
    assert decisions[1].unmerged is None
    assert str(start.outcomes[0]).endswith("-> d0, 1 time")
    assert "d1: a condition at test_reports.py" in str(explained)
    assert json.loads(explained.to_json())["decisions"][2]["outcomes"][0]["outcome"] == "False"
    shown = explained.to_html()
    drawn = ElementTree.fromstring(shown[shown.index("<svg") : shown.index("</svg>") + 6])
    words = [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert "start: the call" not in words and words.count("return") == 1
    assert {"d0: a comparison", "d1: a condition"} <= set(words)
    arrows = drawn.findall("{http://www.w3.org/2000/svg}path")
    assert len(arrows) == sum(len(row.outcomes) for row in explained.decisions)


def test_29_a_call_that_explores_is_a_miss_with_a_reason():
    fn = compiled(branch)
    fn(torch.ones(2))
    fn(torch.ones(2))
    assert fn.cache_info() == (1, 1, 1)
    fn(-torch.ones(2))
    assert fn.cache_info() == (1, 2, 1)
    assert repr(fn.cache_info()) == "CacheInfo(hits=1, misses=2, programs=1, decisions=1, segments=3)"
    first, *explored = dovetail.cache_misses(fn)
    assert first == "the first call"
    assert [text.partition(" at ")[0] + text.rpartition(" was")[2] for text in explored] == [
        "a condition True for the first time",
        "a condition False for the first time",
    ]


def test_each_kind_of_call_has_a_graph_of_its_own():
    fn = compiled(branch)
    for size in (2, 3, 2, 3):
        for sign in (1, -1):
            agrees(fn, branch, torch.ones(size) * sign)
    assert fn.cache_info().programs == 2
    fn.clear_cache()
    assert fn.cache_info() == (0, 0, 0) and dovetail.cache_misses(fn) == []


def test_values_that_follow_from_constants_need_no_decisions():
    def constants(x):
        return x * int(torch.arange(4).max()) if torch.tensor(16) > 3 else x

    fn = compiled(constants)
    agrees(fn, constants, torch.ones(2))
    assert graph_of(fn) is None


def test_a_straight_line_is_compiled_as_before():
    fn = compiled(lambda x, flag: x * 2 if flag else branch(x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fn(torch.ones(2), True)
        assert graph_of(fn) is None
        fn(torch.ones(2), False)
        assert graph_of(fn) is not None
        torch.testing.assert_close(fn(torch.ones(2), True), torch.full((2,), 2.0))
    assert fn.cache_info().programs == 2


def test_the_driver_is_what_runs_and_what_prints():
    def halved(x, n):
        while x.sum() > n.item():
            x = x * 0.5
        if n.item() == 3:
            x = x + 1
        return x[x > 0]

    fn = compiled(halved)
    numbers = [torch.tensor(n) for n in (1, 2, 3)]
    for n in numbers * 3:
        agrees(fn, halved, torch.linspace(-1, 9, 4), n)
    graph = graph_of(fn)
    printed = dovetail.last_driver(fn)
    assert graph.driver is not None and printed.startswith(inspect.getsource(graph.driver))
    assert "outcome = values[0] > values[1]" in printed or "outcome = bool(values[0])" in printed
    assert printed.count("if at == ") == len(graph.decisions) and "def segment_0(" in printed
    compile(printed, "driver", "exec")
    before = sum(edge.count for each in graph.decisions for edges in each.edges.values() for edge in edges)
    agrees(fn, halved, torch.linspace(-1, 9, 4), numbers[0])
    assert sum(edge.count for each in graph.decisions for edges in each.edges.values() for edge in edges) > before
    agrees(fn, halved, torch.linspace(-9, -8, 4), numbers[0])  # a shape that is new: printed anew once that is calm
    assert graph.driver is None
    for _ in range(4):
        agrees(fn, halved, torch.linspace(-9, -8, 4), numbers[0])
    assert graph.driver is not None and graph.eager_calls == 0


def test_a_function_without_decisions_has_no_driver():
    fn = compiled(lambda x: x + 1)
    fn(torch.ones(2))
    with pytest.raises(DovetailError, match="the function needs no values"):
        dovetail.last_driver(fn)


def test_an_error_inside_the_driver_is_that_of_eager_mode():
    def checked(x):
        y = x * 2
        if y.sum() > 3:
            raise ValueError("too large")
        return 1 / x.sum().item() + (y if y.sum() > 0 else -y)

    fn = compiled(checked)
    for _ in range(5):
        agrees(fn, checked, torch.full((2,), 0.5))
    assert graph_of(fn).driver is not None
    with pytest.raises(ZeroDivisionError):
        fn(torch.zeros(2))
    with pytest.raises(ValueError, match="too large"):
        fn(torch.ones(2))
    agrees(fn, checked, torch.full((2,), 0.5))
