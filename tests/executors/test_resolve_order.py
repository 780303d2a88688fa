"""Rows 17, 18, 20, 24, 25 and 27: who is asked first, in which scope, and what a compiled function does when that changes.  Scenario 40."""

from __future__ import annotations

import asyncio
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dovetail
from dovetail.errors import ExecutorError
from dovetail.executors import Plugin, resolve_executors
from dovetail.executors.discovery import configuration
from dovetail.executors.discovery.registry import REGISTRY
from dovetail.executors.ordering import resolve_order
from dovetail.executors.ordering.resolve_order import add_operator_executor
from dovetail.extend import OperatorExecutor, options_of

NAMES = ("a", "b", "c")


@pytest.fixture(autouse=True)
def registered():
    """Executors a, b and c, which run torch.sin; c was added last, so it is asked first."""
    REGISTRY.load()
    executors, defaults, apart, rows = dict(REGISTRY.executors), list(REGISTRY.defaults), set(resolve_order._NOT_DEFAULT), list(REGISTRY.plugins)
    REGISTRY.plugins[:] = [row for row in rows if row.name == "torch"]  # whatever else is installed here
    for name in NAMES:
        add(name)
    yield
    REGISTRY.executors.clear()
    REGISTRY.executors.update(executors)
    REGISTRY.defaults[:], REGISTRY.plugins[:] = defaults, rows
    resolve_order._NOT_DEFAULT.clear()
    resolve_order._NOT_DEFAULT.update(apart)
    configuration.WATCH.changed()


def add(name, **how):
    return add_operator_executor(name, {"torch.sin": (f"{name}_sin", None, lambda input: torch.sin(input))}, **how)


def order(wanted=None):
    return [ex.name for ex in resolve_executors(wanted)]


@pytest.mark.parametrize(
    ("wanted", "asked"),
    [
        (None, "c b a torch"),
        (["a", "b"], "a b torch"),
        ("a, b", "a b torch"),
        ([], "torch"),
        (["torch", "a"], "torch a"),
        ("+a", "a c b torch"),
        (["+a", "+b"], "b a c torch"),
        ("-c", "b a torch"),
        ("-torch", "c b a"),
        ("a > c", "a c b torch"),
        ("a > b > c", "a b c torch"),
        (["a", "..."], "a c b torch"),
        (["...", "c"], "b a c torch"),
        (["a", "...", "c"], "a b c torch"),
        (["a", "b", "-a"], "b torch"),
        (["+a", "b > a"], "b a c torch"),
        (["torch > a"], "c b torch a"),
        (["nobody?", "a"], "a torch"),
    ],
)
def test_rows_17_and_18_an_order_or_edits_of_it(wanted, asked):
    assert order(wanted) == asked.split()


def test_an_executor_that_is_not_in_the_order_comes_in_by_an_edit():
    add("apart", add_to_default_executors=False)

    assert "apart" not in order()
    assert order("+apart")[0] == "apart"


def test_executors_themselves_and_edits_go_together():
    own = OperatorExecutor("own")

    assert resolve_executors([own, "..."])[0] is own
    assert order([own, "a", "a > own"]) == ["a", "own", "torch"]


def test_a_higher_layer_changes_what_the_lower_ones_made():
    with dovetail.use("a, b"):
        assert order() == ["a", "b", "torch"]
        with dovetail.use("b > a"):
            assert order() == ["b", "a", "torch"]
            assert order("+a") == ["a", "b", "torch"]
            assert order(["c"]) == ["c", "torch"]


def test_executors_of_one_plugin_stand_as_its_hook_gives_them():
    for name, place in (("zebra", ("m", 0)), ("apple", ("m", 1)), ("n", None), ("last", ("k", 0))):
        ex = OperatorExecutor(name)
        ex.place = place
        REGISTRY.add(ex)
    assert order() == ["c", "b", "a", "last", "zebra", "apple", "n", "torch"]


def test_an_executor_of_last_resort_that_is_named_stands_before_one_that_is_not():
    ex = OperatorExecutor("slow", last_resort=True)
    ex.after = ("torch",)
    REGISTRY.add(ex)
    assert order() == ["c", "b", "a", "torch", "slow"]
    assert order(["slow"]) == ["slow", "torch"] and order(["a", "slow"]) == ["a", "slow", "torch"]
    assert order(["torch", "slow"]) == ["torch", "slow"]


@pytest.mark.parametrize("words", ["a >", "> a", "+", "-", "+a b", "a > > b", "a b", "a?b"])
def test_what_is_no_edit_is_an_error_that_shows_the_forms(words):
    with pytest.raises(ExecutorError, match=re.escape(f"has {words!r}, which is not an edit; write NAME, +NAME, -NAME")):
        order([words])


def test_row_20_a_circle_is_an_error_whose_last_line_settles_it():
    with pytest.raises(ExecutorError, match="the order of executors has a cycle") as raised, dovetail.use(["a > b", "b > c", "c > a"]):
        pass
    message = str(raised.value)
    assert all(f"{words}: {__file__}:" in message for words in ("a > b", "b > c", "c > a"))

    fixing = re.search(r'executors=\["(.+)"\]', message.splitlines()[-1]).group(1)
    with configuration.scope(configuration.call_settings({"executors": ["a > b", "b > c", "c > a"]}, "here")):
        assert order([fixing]) == ["a", "b", "c", "torch"]


def test_the_fixing_line_keeps_what_the_variable_says_already(monkeypatch, tmp_path):
    (tmp_path / "dovetail.toml").write_text('executors = ["a > b", "b > a"]\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOVETAIL_EXECUTORS", "-c")
    with pytest.raises(ExecutorError, match="has a cycle") as raised:
        order()
    assert "a > b: dovetail.toml:1 says 'a > b'" in str(raised.value)

    name, words = re.search(r'(DOVETAIL_\w+)="(.+)"$', str(raised.value)).groups()
    monkeypatch.setenv(name, words)
    assert order() == ["a", "b", "torch"]


def test_hints_of_plugins_order_them_and_give_way_to_configuration():
    REGISTRY.executors["a"].before = ("c", "not_installed")

    assert order() == ["a", "c", "b", "torch"]
    assert order("c > a") == ["c", "b", "a", "torch"]
    assert any("gives way to c > a" in note for note in resolve_executors("c > a").notes)


def test_hints_that_contradict_one_another_stop_nothing_and_say_what_settles_it():
    REGISTRY.executors["a"].before, REGISTRY.executors["c"].before = ("c",), ("a",)
    (note,) = [note for note in resolve_executors().notes if "gives way" in note]

    words = re.search(r'DOVETAIL_EXECUTORS="(.+)"', note).group(1)
    assert not [note for note in resolve_executors(words).notes if "settle it" in note]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["+a", "-b", "b > a", "c > b", "a > c", "...", "a", "c?", "torch > a"]), max_size=5), st.randoms())
def test_any_edits_give_an_order_that_holds_what_they_say_or_an_error(items, random):
    try:
        made = order(items)
    except ExecutorError:
        return
    assert len(set(made)) == len(made)
    for item in items:
        if ">" in item:
            first, second = item.split(" > ")
            assert first not in made or second not in made or made.index(first) < made.index(second)
    if items and items[-1] == "-b":
        assert "b" not in made


def runs(fn, *args):
    fn(*args)
    return [line.implementation.executor for line in dovetail.last_traces(fn)[-1].lines if line.implementation]


def program(x):
    return torch.sin(x) + torch.cos(x)


def test_scenario_40_a_map_of_operations_forces_one_and_leaves_the_others():
    ex = REGISTRY.executors["a"]
    ex.implements(torch.cos, lambda input: torch.cos(input))
    fn = dovetail.jit(program)
    with dovetail.use(["b"]):
        assert runs(fn, torch.ones(3)) == ["b", "torch", "torch"]
    with dovetail.use(["b"], operations={"torch.cos": "a"}):
        assert runs(fn, torch.ones(3)) == ["b", "a", "torch"]


def asked_for(name):
    return [ex.name for ex in resolve_executors().for_symbol(dovetail.extend.advanced.symbol_for(name))]


def test_row_17_patterns_edits_and_the_more_exact_name():
    with dovetail.use(operations={"torch.*": "+a", "torch.sin": "b", "*cos*": "-c"}):
        assert asked_for("torch.sin") == ["b", "torch"]
        assert asked_for("torch.tanh") == ["a", "c", "b", "torch"]
        assert asked_for("torch.cos") == ["a", "b", "torch"]
        with dovetail.use(operations={"*": ["c"]}):
            assert asked_for("torch.sin") == ["c", "torch"]


def test_a_whole_list_in_a_higher_layer_says_who_is_asked_at_all():
    with dovetail.use(operations={"torch.sin": "a", "torch.cos": "+b"}), dovetail.use(["b", "c"]):
        assert asked_for("torch.sin") == ["b", "c", "torch"]
        assert asked_for("torch.cos") == ["b", "c", "torch"]


def test_an_operation_that_is_none_is_an_error_with_a_suggestion():
    for name in ("torch.sine", "prims.sinn", "torch.zzz*"):
        with pytest.raises(ExecutorError, match=rf"operations in .* names the unknown operation {re.escape(repr(name))}"):
            dovetail.use(operations={name: "a"}).__enter__()
    with pytest.raises(ExecutorError, match=r"did you mean torch\.sin"):
        dovetail.use(operations={"torch.sine": "a"}).__enter__()


# Row 25: an explicit request fails loudly, automatic selection goes on with a note.


def broken(name="late", status="import-failed", reason="importing it raised OSError: libfast.so"):
    REGISTRY.plugins.append(Plugin(name, "late", "dovetail-late", "1.2", "", status, reason, "reinstall it"))
    configuration.WATCH.changed()


@pytest.mark.filterwarnings("ignore:dovetail goes on without")
def test_row_25_who_is_asked_for_by_name_has_to_be_there():
    broken()
    for wanted in ("late", "+late", ["late", "..."]):
        with pytest.raises(
            ExecutorError, match=r"asks for late .* cannot be used: late \(dovetail-late 1.2\): import-failed; .*libfast.so; reinstall"
        ):
            order(wanted)
    with pytest.raises(ExecutorError, match=r"operations in .* asks for late"):
        dovetail.use(operations={"torch.sin": "late"}).__enter__()


def test_row_19_who_is_taken_out_or_disabled_is_noted_with_the_place_that_says_so(monkeypatch):
    REGISTRY.plugins.append(Plugin("slow", "slow", "dovetail-slow", "1.0", status="disabled", reason="disabled by dovetail.toml:2"))
    monkeypatch.setenv("DOVETAIL_EXECUTORS", "-a, -b")

    notes = resolve_executors("+b").notes
    assert "a is not used: DOVETAIL_EXECUTORS (environment) says '-a'" in notes and not [note for note in notes if note.startswith("b ")]
    assert "slow (dovetail-slow 1.0) is not used: disabled by dovetail.toml:2" in notes
    assert not [note for note in resolve_executors(["b", "torch"]).notes if note.startswith("a ")]  # a whole list starts anew


def test_row_22_where_nobody_runs_an_operation_the_error_says_who_was_left_out():
    with dovetail.use("-torch"), pytest.raises(dovetail.errors.Unclaimed, match=r"torch is not used: .*test_resolve_order.py:\d+ .* says '-torch'"):
        dovetail.jit(torch.cos)(torch.ones(2))


@pytest.mark.filterwarnings("ignore:dovetail goes on without")
def test_row_25_otherwise_it_is_a_note():
    broken()

    assert order("late?, a") == ["a", "torch"] and order("late > a, -late") == ["c", "b", "a", "torch"]
    assert any(note.startswith("late (dovetail-late 1.2) is not used: import-failed; ") for note in resolve_executors().notes)


def test_row_25_a_plugin_that_does_not_load_is_warned_of_once(monkeypatch, recwarn):
    monkeypatch.setattr(resolve_order, "_warned", set())
    broken()
    resolve_executors()
    configuration.WATCH.changed()
    resolve_executors()

    messages = [str(each.message) for each in recwarn if "late" in str(each.message)]
    assert len(messages) == 1 and messages[0].endswith("DOVETAIL_DISABLE=late silences this")


@pytest.mark.filterwarnings("ignore:dovetail goes on without")
@pytest.mark.parametrize(
    ("status", "cause"), [("unavailable", "unavailable"), ("incompatible", "version"), ("unmet-requirement", "version"), ("conflict", "load-error")]
)
def test_row_26_each_cause_can_be_forbidden_alone(status, cause):
    broken(status=status)
    others = [each for each in dovetail.options.CAUSES if each != cause]
    for strict in (False, others):
        with dovetail.use(strict=strict):
            assert order() == ["c", "b", "a", "torch"]
    for strict in (True, [cause]):
        with pytest.raises(ExecutorError, match=rf"strict forbids {cause}: late .*DOVETAIL_DISABLE=late".replace(".*DOVE", r"(?s:.*)DOVE")):
            dovetail.use(strict=strict).__enter__()


def test_row_26_what_is_not_asked_for_may_be_broken_under_strict():
    broken()
    with dovetail.use(["a"], strict=["load-error"]):
        assert order() == ["a", "torch"]


# Row 27: the configuration is a part of a compiled function's key.


def test_row_27_another_order_compiles_again_and_says_why():
    fn, x = dovetail.jit(program), torch.ones(3)
    assert runs(fn, x)[0] == "c"
    with dovetail.use("-c"):
        assert runs(fn, x)[0] == "b"
    assert re.fullmatch(
        r"the executors are b, a, torch by .*test_resolve_order.py:\d+ \(with dovetail.use\(...\)\), and were c, b, a, torch",
        dovetail.cache_misses(fn)[1],
    )


def test_row_27_programs_are_found_again_in_their_scope():
    fn, x = dovetail.jit(program), torch.ones(3)
    for _ in range(3):
        for words in ("-c", "-b", None):
            with dovetail.use(words):
                assert runs(fn, x)[0] == ("b" if words == "-c" else "c")
    assert len(dovetail.cache_misses(fn)) == 3


def test_row_27_a_new_executor_and_one_that_is_replaced_compile_again():
    fn, x = dovetail.jit(program), torch.ones(3)
    fn(x)
    add("newest")
    assert runs(fn, x)[0] == "newest"
    add("newest", replace=True)
    fn(x)
    assert dovetail.cache_misses(fn)[2].startswith("executor newest 0 was replaced")


def test_row_27_an_executors_options_and_version_are_in_the_key():
    REGISTRY.executors["c"].options = {"tile": 64}
    fn, x = dovetail.jit(program), torch.ones(3)
    fn(x)
    with dovetail.use(options={"c": {"tile": 8}}):
        fn(x)
        fn(x)
    fn(x)
    assert dovetail.cache_misses(fn)[1:] == ["executor c 0 tile=64 became c 0 tile=8"]
    assert dovetail.extend.options_of(REGISTRY.executors["c"]) == {"tile": 64}


def test_row_27_a_change_that_changes_no_order_compiles_nothing():
    fn, x = dovetail.jit(program, executors=["a"]), torch.ones(3)
    fn(x)
    add("elsewhere")
    with dovetail.use("+b"):
        fn(x)
    assert len(dovetail.cache_misses(fn)) == 1


def test_row_27_a_warm_call_is_the_programs_own():
    """Nothing stands between a call and its program as long as nobody has used a scope; then one comparison does."""
    fn, x = dovetail.jit(program), torch.ones(3)
    cache = fn._cache
    scoped, configuration.WATCH.scoped = configuration.WATCH.scoped, False
    try:
        fn(x)
        assert cache.last is cache.entries[0].call
        with dovetail.use("-c"):
            assert cache.last is not cache.entries[0].call
    finally:
        configuration.WATCH.scoped = configuration.WATCH.scoped or scoped


def test_jit_takes_edits_and_refuses_unknown_names_at_once():
    assert runs(dovetail.jit(program, executors=["-c", "a > b"]), torch.ones(3))[0] == "a"
    assert runs(dovetail.jit(program, executors="-c"), torch.ones(3))[0] == "b"
    with pytest.raises(ExecutorError, match=r"test_resolve_order.py:\d+ \(jit.*no executor is called 'tarch'; did you mean torch\?"):
        dovetail.jit(program, executors=["tarch"])


# Row 24: scopes.


def test_row_24_a_scope_is_its_threads_own():
    fn, x = dovetail.jit(program), torch.ones(3)

    def inside(words):
        with dovetail.use(words):
            return [(order()[0], runs(fn, x)[0] if words == "only" else fn(x) is not None) for _ in range(20)]

    with ThreadPoolExecutor(3) as pool, dovetail.use("+a"):
        found = list(pool.map(inside, ["-c", "+b", "-c", "+b", "-b", "-c"]))
        assert order()[0] == "a"
    assert [{name for name, _ in each} for each in found] == [{"b"}, {"b"}, {"b"}, {"b"}, {"c"}, {"b"}]


def test_row_24_each_call_runs_the_program_of_its_own_scope_whatever_other_threads_do():
    ran = []
    for name in NAMES:
        REGISTRY.executors[name].implements(torch.sin, lambda input, name=name: ran.append(name) or torch.sin(input), name=f"{name}_sin")
    configuration.WATCH.changed()
    fn, x = dovetail.jit(lambda x: torch.sin(x)), torch.ones(3)
    local = {}

    def inside(name):
        with dovetail.use([name]):
            for _ in range(50):
                fn(x)
                local.setdefault(name, set()).add(next(line.implementation.executor for line in _used(fn, name)))

    def _used(fn, name):
        key = next(entry for entry in fn._cache.entries if entry.key.executors[0].executor.name == name)
        return [line for line in key.traces[-1].lines if line.implementation]

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(inside, NAMES))
    assert local == {name: {name} for name in NAMES}
    assert {name: ran.count(name) for name in NAMES} == dict.fromkeys(NAMES, 50)


def test_row_24_a_scope_goes_with_an_asynchronous_task_even_after_it_was_left():
    fn, x = dovetail.jit(program), torch.ones(3)
    fn(x)

    async def later():
        await asyncio.sleep(0)
        return order()[0], runs(fn, x)[0]

    async def main():
        with dovetail.use("-c"):
            task = asyncio.create_task(later())
        here = order()[0], runs(fn, x)[0]
        return here, await task, (order()[0], runs(fn, x)[0])

    assert asyncio.run(main()) == (("c", "c"), ("b", "b"), ("c", "c"))


def test_row_24_a_scope_is_left_on_an_error():
    with pytest.raises(ZeroDivisionError), dovetail.use("-c"):
        raise ZeroDivisionError
    with pytest.raises(ExecutorError):
        dovetail.use("nobody").__enter__()

    assert order()[0] == "c"
    assert copy_context().run(order)[0] == "c"


def test_a_priority_is_a_tuple_and_survives_pickling():
    made = resolve_executors("-c")

    assert isinstance(made, tuple) and made.executors == tuple(made)
    assert pickle.loads(pickle.dumps(made)) == made
    assert dict(made.provenance)["torch"].where == "dovetail-torch-exec 0.1.0"


def test_an_executor_that_is_passed_runs_whatever_its_available_says():
    """Tests of a plugin pass it with a stand-in for what the machine lacks."""
    lacking = OperatorExecutor("lacking", available=lambda: "needs a quantum device")
    lacking.implements(torch.sin, lambda x: torch.sin(x))
    fn = dovetail.jit(lambda x: torch.sin(x), executors=[lacking, "torch"])
    fn(torch.ones(2))
    assert "lacking_exec" in str(dovetail.last_traces(fn)[-1])


def test_options_name_executors_that_are_passed_as_objects():
    tiled, tiles = OperatorExecutor("tiled"), []
    tiled.options = {"tile": 4}
    tiled.implements(torch.sin, torch.sin, checker=lambda x: tiles.append(options_of(tiled)["tile"]) or True)
    fn = dovetail.jit(lambda x: torch.sin(x), executors=[tiled, "torch"])
    fn(torch.ones(2))
    with dovetail.use(options={"tiled": {"tile": 8}}):
        fn(torch.ones(2))
    with dovetail.use(executors=[tiled, "torch"], options={"tiled": {"tile": 16}}):
        dovetail.jit(lambda x: torch.sin(x))(torch.ones(2))
    assert sorted(set(tiles)) == [4, 8, 16]
    with pytest.raises(ExecutorError, match="no executor is called tilde"), dovetail.use(options={"tilde": {"tile": 8}}):
        pass
    with pytest.raises(ExecutorError, match="tiled has no such option; did you mean tile"), dovetail.use(options={"tiled": {"tilt": 8}}):
        fn(torch.ones(2))
