"""What is measured, when, what follows from it, and where it is kept."""

from __future__ import annotations

import json

import pytest
import torch
import torch.nn.functional as F
from onednn_against_eager import compiled, ran, refusals

import dovetail
from dovetail.extend import Claim
from dovetail_onednn_exec import choices, measure, store
from dovetail_onednn_exec.cases import Convolution, Product
from dovetail_onednn_exec.choices import Choices, faster, table, verdict
from dovetail_onednn_exec.executor import onednn_executor
from dovetail_onednn_exec.measure import Row, differs, race

CASE = Product(torch.float32, 5, 7, 3)
HOW = choices.OPTIONS | {"pack": True}
QUICK = Row({"torch": 20.0, "onednn": 10.0, "packed": 5.0}, {"onednn": 1.0, "packed": 1.0})
SLOW = Row({"torch": 10.0, "onednn": 20.0, "packed": 15.0}, {"onednn": 0.0, "packed": 0.1})
PACKING_PAYS = Row({"torch": 10.0, "onednn": 20.0, "packed": 5.0}, {"onednn": 0.0, "packed": 1.0})
CROWDED = Row({}, disturbed="other processes disturbed 4 of 4 rounds")


@pytest.fixture
def measured(monkeypatch):
    """Gives each class a row without measuring; the list says for which cases that was asked."""
    seen = []

    def becomes(row):
        monkeypatch.setattr(choices, "CHOICES", Choices())
        monkeypatch.setattr("dovetail_onednn_exec.states.CHOICES", choices.CHOICES)
        choices.CHOICES.forget()
        monkeypatch.setattr(choices, "race", lambda ways: seen.append(sorted(ways)) or row)
        return seen

    return becomes


def test_the_faster_way_is_taken(measured):
    measured(QUICK)
    assert verdict(CASE, HOW, packs=False) == Claim("f32 [5, 7] @ [7, 3] is of a class that takes 10 us with oneDNN and 20 us without")
    measured(SLOW)
    assert (
        verdict(CASE, HOW, packs=True) == "f32 [5, 7] @ [7, 3] is of a class that takes 15 us with oneDNN, its weight packed, "
        "and 10 us without; expected 1.05 times the speed"
    )
    measured(PACKING_PAYS)
    assert verdict(CASE, HOW, packs=True) == Claim(
        "f32 [5, 7] @ [7, 3] is of a class that takes 5 us with oneDNN, its weight packed, and 10 us without"
    )
    assert verdict(CASE, HOW, packs=False).startswith("f32 [5, 7] @ [7, 3] is of a class that takes 20 us with oneDNN and 10 us without")
    assert isinstance(verdict(CASE, HOW | {"pack": False}, packs=True), str)


def test_faster_is_by_the_margin_and_in_most_rounds():
    assert faster(Row({"torch": 10.6, "onednn": 10.0}, {"onednn": 0.7}), "onednn", 1.05)
    assert not faster(Row({"torch": 10.4, "onednn": 10.0}, {"onednn": 1.0}), "onednn", 1.05)
    assert not faster(Row({"torch": 20.0, "onednn": 10.0}, {"onednn": 0.5}), "onednn", 1.05)
    assert not faster(Row({"torch": 20.0, "onednn": 10.0, "float32": 10.4}, {"onednn": 1.0, "float32": 1.0}), "onednn", 1.05)
    assert faster(Row({"torch": 20.0, "onednn": 10.0, "float32": 10.6}, {"onednn": 1.0, "float32": 1.0}), "onednn", 1.05)
    assert not faster(QUICK, "other", 1.05) and not faster(CROWDED, "onednn", 1.05)


def test_a_class_is_measured_once(measured):
    seen = measured(QUICK)
    for rows in (65, 100, 128):
        assert isinstance(verdict(Product(torch.float32, rows, 7, 3), HOW, packs=False), Claim)
    assert len(seen) == 1
    assert isinstance(verdict(Product(torch.float32, 129, 7, 3), HOW, packs=False), Claim)
    assert len(seen) == 2


def test_classes_differ_in_whatever_times_depend_on():
    keys = {
        case.key
        for case in (
            CASE,
            Product(torch.bfloat16, 5, 7, 3),
            Product(torch.float32, 5, 7, 3, x_turned=True),
            Product(torch.float32, 5, 7, 3, weight_turned=True),
            Product(torch.float32, 5, 7, 3, bias=True),
            Product(torch.float32, 5, 7, 3, epilogue="relu"),
            Product(torch.float32, 1, 7, 3),
            Convolution(torch.float32, (1, 3, 8, 8), (4, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1),
            Convolution(torch.float32, (1, 3, 8, 8), (4, 3, 3, 3), (2, 1), (1, 1), (1, 1), 1),
            Convolution(torch.float32, (1, 3, 8, 8), (4, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1, x_last=True),
        )
    }
    assert len(keys) == 10
    assert "linear f32 2^3x3x2 nn" in keys and "conv2d f32 2^0x3x3, 3 channels to 4 k3x3 s1x1 p1x1 d1x1 g1 nn" in keys


def test_large_cases_are_measured_on_smaller_tensors():
    small = Product(torch.float32, 4096, 4096, 50000).smaller(2**27)
    assert small.rows * small.inner * small.columns <= 2**27
    assert CASE.smaller(2**27) == CASE and CASE.smaller(1) == CASE
    images = Convolution(torch.float32, (64, 64, 224, 224), (64, 64, 3, 3), (1, 1), (1, 1), (1, 1), 1).smaller(2**27)
    assert images.x[0] == 1 and images.x[1] == 64 and images.x[2] < 224


def test_other_processes_find_what_was_measured(measured):
    seen = measured(QUICK)
    assert isinstance(verdict(CASE, HOW, packs=False), Claim)
    assert Choices().row(CASE) == QUICK  # a new one reads the file
    assert len(seen) == 1
    path = store.path_of(store.machine())
    data = json.loads(path.read_text())
    assert data["machine"]["torch"] == torch.__version__ and list(data["classes"]) == [CASE.key]
    assert table().splitlines()[1] == f"{CASE.key}  torch 20 us, onednn 10 us, packed 5 us"


def test_another_machine_has_a_file_of_its_own(monkeypatch):
    here = store.path_of(store.machine())
    monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
    assert store.path_of(store.machine()) != here
    assert store.path_of({**store.machine(), "cpu": "another"}) != store.path_of(store.machine())


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 0}', '{"format": 2, "classes": {"a": {"b": 1}}}'])
def test_a_file_of_no_use_is_written_anew(measured, text):
    seen = measured(QUICK)
    path = store.path_of(store.machine())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    assert isinstance(verdict(CASE, HOW, packs=False), Claim) and len(seen) == 1
    assert store.read(path, store.machine()) == {CASE.key: QUICK}


def test_a_folder_that_cannot_be_written_stops_nothing(measured, tmp_path):
    seen = measured(QUICK)
    (tmp_path / "file").write_text("")
    how = HOW | {"folder": str(tmp_path / "file" / "folder")}
    assert all(isinstance(verdict(CASE, how, packs=False), Claim) for _ in range(2))
    assert len(seen) == 1


def test_what_was_forgotten_is_measured_again(measured):
    seen = measured(QUICK)
    verdict(CASE, HOW, packs=False)
    choices.CHOICES.forget()
    verdict(CASE, HOW, packs=False)
    assert len(seen) == 2


def test_in_a_crowd_nothing_is_taken_kept_or_tried_for_long(measured):
    seen = measured(CROWDED)
    cases = [Product(torch.float32, 2**n, 7, 3) for n in range(6)]
    message = [verdict(case, HOW, packs=False) for case in cases]
    assert message[0] == ("f32 [1, 7] @ [7, 3] could not be measured: other processes disturbed 4 of 4 rounds; the next process tries again")
    assert len(seen) == choices.CROWD and "earlier measurements" in message[-1]
    assert store.read(store.path_of(store.machine()), store.machine()) == {}


def test_frozen_takes_what_is_known_and_measures_nothing(measured):
    seen = measured(QUICK)
    frozen = HOW | {"choose": "frozen"}
    assert "has no measurement on this machine" in verdict(CASE, frozen, packs=False)
    assert seen == []
    verdict(CASE, HOW, packs=False)
    choices.CHOICES.rows.clear()
    assert isinstance(verdict(CASE, frozen, packs=False), Claim) and len(seen) == 1


def test_always_and_never_ask_nobody(measured):
    seen = measured(SLOW)
    assert verdict(CASE, HOW | {"choose": "always"}, packs=False) is True
    assert verdict(CASE, HOW | {"choose": "never"}, packs=False) == "the option onednn.choose is never"
    assert verdict(CASE, HOW | {"choose": "often"}, packs=False) == "invalid option choose='often'; use one of measure, frozen, always, never"
    assert seen == []


def test_a_compiled_function_measures_when_it_is_compiled_and_then_no_more(measured):
    seen = measured(PACKING_PAYS)
    model, x = torch.nn.Linear(8, 4), torch.randn(3, 8)
    ours = compiled(model, onednn_executor(pack=True))
    with torch.no_grad():
        ours(x)
        assert len(seen) == 1 and ran(ours) == ["torch.nn.functional.linear"]
        choices.race = None  # a measurement would raise
        ours(x)
        dovetail.explain(ours)
    line = dovetail.last_traces(ours)[-1].lines[0]
    assert line.implementation.fn.packs and not line.implementation.fn.plain


def test_training_does_not_count_on_packing(measured):
    measured(PACKING_PAYS)
    model = torch.nn.Linear(8, 4)
    ours = compiled(model, onednn_executor(pack=True))
    ours(torch.randn(3, 8)).sum().backward()
    assert ran(ours) == []
    assert any("takes 20 us with oneDNN and 10 us without" in message for message in refusals(ours))


def test_racing_gives_times_of_ways_that_agree():
    x, w = torch.ones(5, 7), torch.ones(3, 7)

    def fails():
        raise RuntimeError("no kernel\nand more")

    ways = {
        "torch": lambda: F.linear(x, w),
        "onednn": lambda: F.linear(x, w),
        "wrong": lambda: F.linear(x, w) * 1.5,
        "turned": lambda: F.linear(w, x).t(),
        "fails": fails,
    }
    row = race(ways, waited=lambda: 0.0)
    assert set(row.times) == {"torch", "onednn"} and set(row.wins) == {"onednn"} and all(us > 0 for us in row.times.values())
    assert row.lost == {
        "wrong": "it is off by 3.5e+00 where PyTorch returns up to 7.0e+00",
        "turned": "it returns strides (1, 5), PyTorch (3, 1)",
        "fails": "no kernel",
    }


def test_rounds_with_a_queue_for_the_cores_do_not_count():
    waits = iter(range(10**6))
    row = race({"torch": lambda: torch.ones(3)}, waited=lambda: float(next(waits)))
    assert row.times == {} and row.disturbed.startswith("other processes disturbed ")


def test_every_way_of_every_case_agrees():
    for case in (
        Product(torch.float32, 5, 7, 3, x_turned=True, weight_turned=True, bias=True),
        Product(torch.float32, 5, 7, 3, epilogue="add"),
        Product(torch.float32, 5, 7, 3, epilogue="gelu", bias=True),
        Convolution(torch.float32, (2, 4, 8, 8), (6, 2, 3, 3), (2, 1), (1, 0), (1, 1), 2, x_last=True, weight_last=True, bias=True),
    ):
        ways = {name: way for name, way in case.ways().items() if not name.startswith(measure.BESIDE)}
        assert set(ways) == {"torch", "onednn", "packed"}
        assert [differs(way(), ways["torch"]()) for way in ways.values()] == [None, None, None]


def test_measuring_touches_neither_generator_nor_modes():
    state = torch.get_rng_state()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        row = race(CASE.ways(), waited=lambda: 0.0)
        assert torch.is_autocast_enabled("cpu")
    assert row.lost == {} and torch.equal(torch.get_rng_state(), state) and torch.is_grad_enabled()


def test_the_system_says_how_long_threads_waited():
    assert measure.seconds_waited() >= 0.0


def test_the_times_of_another_machine_in_the_place_of_ours_are_not_believed(tmp_path):
    ours = store.machine()
    theirs = ours | {"threads": ours["threads"] + 1}
    for of, row in ((ours, QUICK), (theirs, SLOW)):
        store.write(store.path_of(of, str(tmp_path)), of, {CASE.key: row})
    store.path_of(ours, str(tmp_path)).write_bytes(store.path_of(theirs, str(tmp_path)).read_bytes())
    assert store.read(store.path_of(theirs, str(tmp_path)), theirs) == {CASE.key: SLOW}
    assert store.read(store.path_of(ours, str(tmp_path)), ours) == {}


def test_a_flipped_bit_anywhere_is_measured_again(tmp_path):
    of = store.machine()
    path = store.path_of(of, str(tmp_path))
    store.write(path, of, {CASE.key: QUICK, "another": SLOW})
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        assert store.read(path, of) == {}
    for length in range(0, len(content), 37):
        path.write_bytes(content[:length])
        assert store.read(path, of) == {}
    path.write_bytes(content)
    assert store.read(path, of) == {CASE.key: QUICK, "another": SLOW}


def test_measurements_of_one_class_in_the_place_of_another_are_not_believed(tmp_path):
    of = store.machine()
    path = store.path_of(of, str(tmp_path))
    store.write(path, of, {CASE.key: QUICK, "another": SLOW})
    data = json.loads(path.read_text())
    data["classes"] = dict(zip(data["classes"], reversed(data["classes"].values())))
    path.write_text(json.dumps(data))
    assert store.read(path, of) == {}


def test_packing_is_measured_where_weights_may_be_packed(measured):
    seen = measured(Row({"torch": 20.0, "onednn": 10.0}, {"onednn": 1.0}))
    for how, packs in ((HOW | {"pack": False}, True), (HOW, False), (HOW, True), (HOW, True)):
        verdict(CASE, how, packs=packs)
    assert seen == [["onednn", "torch"], sorted(CASE.ways())]
