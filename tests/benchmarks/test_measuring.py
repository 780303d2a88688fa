"""Subjects take turns, and whatever becomes of one is a row."""

from __future__ import annotations

import pytest
from measuring import FULL, QUICK, Effort, Measurement, estimate
from processes import Gone
from rows import quartiles
from subjects import NAMES
from workloads import SUITE

EFFORT = Effort(rounds=4, a_round=0.2, warm=0.1, firsts=3)


class Fake:
    """Answers like a worker, from a table; an answer that is a Gone is raised."""

    def __init__(self, name, log, answers):
        self.name, self.log, self.answers = name, log, answers
        self.closed = False

    def ask(self, do, **more):
        self.log.append((self.name, do, *more.values()))
        found = self.answers.get(do, {"first": {"first": 1.0, "wrong": ""}, "warm": {"call": 0.05}, "round": {"call": 0.5}, "peak": {"peak": 64}}[do])
        found = found.pop(0) if isinstance(found, list) else found
        if isinstance(found, Gone):
            raise found
        return found

    def close(self):
        self.closed = True


@pytest.fixture
def measured():
    """measured({"eager": {}, "other": {...}}) is (rows by subject, requests in their order, every worker)."""

    def run(answers, effort=EFFORT):
        log, workers = [], []

        def start(workload, subject):
            if isinstance(answers[subject], Gone):
                raise answers[subject]
            workers.append(Fake(subject, log, answers[subject]))
            return workers[-1]

        rows = Measurement("double", list(answers), start, effort).run()
        return {row.subject: row for row in rows}, log, workers

    return run


def test_subjects_take_turns_and_who_begins_changes(measured):
    rows, log, workers = measured({"eager": {}, "one": {}, "two": {}})

    turns = [name for name, what, *_ in log if what == "round"]
    assert turns == ["eager", "one", "two", "one", "two", "eager", "two", "eager", "one", "eager", "one", "two"]
    assert [row.calls for row in rows.values()] == [4, 4, 4]  # turns of 0.2 s, of calls that take 0.05 s
    assert all(worker.closed for worker in workers)


def test_nobody_is_timed_before_everyone_was_checked(measured):
    _, log, _ = measured({"eager": {}, "one": {}})

    kinds = [what for _, what, *_ in log]
    assert max(i for i, what in enumerate(kinds) if what == "first") < kinds.index("warm")
    assert max(i for i, what in enumerate(kinds) if what == "warm") < kinds.index("round")


def test_speeds_are_beside_eager_in_the_same_round(measured):
    eager = {"round": [{"call": each} for each in (1.0, 2.0, 3.0, 4.0)]}
    rows, _, _ = measured({"eager": eager, "one": {"round": [{"call": 0.5} for _ in range(4)]}})

    assert rows["one"].rounds == [0.5] * 4
    assert rows["one"].speeds == [2.0, 4.0, 6.0, 8.0]
    assert rows["one"].speed == 5.0
    assert rows["eager"].speeds == [1.0] * 4


def test_a_wrong_subject_gets_no_time_but_a_word(measured):
    rows, log, workers = measured({"eager": {}, "bad": {"first": {"first": 1.0, "wrong": "result 0 is far away"}}})

    assert (rows["bad"].state, rows["bad"].message) == ("wrong", "result 0 is far away")
    assert rows["bad"].firsts == [] and rows["bad"].rounds == [] and rows["bad"].speed is None
    assert ("bad", "first") in log and not [entry for entry in log if entry[0] == "bad" and entry[1] == "round"]
    assert rows["eager"].ok and all(worker.closed for worker in workers)


@pytest.mark.parametrize("when", ["first", "warm", "round"])
@pytest.mark.parametrize("state", ["crash", "timeout", "error"])
def test_a_subject_that_is_gone_is_a_row_and_not_the_end(measured, when, state):
    rows, _, workers = measured({"eager": {}, "bad": {when: Gone(state, "that was it")}, "good": {}})

    assert (rows["bad"].state, rows["bad"].message, rows["bad"].rounds) == (state, "that was it", [])
    assert rows["good"].speed == 1.0 and len(rows["good"].rounds) == 4
    assert all(worker.closed for worker in workers)


def test_a_subject_that_does_not_start_is_a_row(measured):
    rows, _, _ = measured({"eager": {}, "bad": Gone("crash", "ended with exit status 1")})

    assert rows["bad"].state == "crash" and rows["eager"].ok


def test_without_eager_there_are_times_and_no_speeds(measured):
    rows, _, _ = measured({"eager": Gone("crash", "gone"), "one": {}})

    assert rows["one"].median == 0.5 and rows["one"].speed is None


def test_a_peak_that_cannot_be_had_costs_no_times(measured):
    rows, _, _ = measured({"eager": {}, "one": {"peak": Gone("timeout", "no answer within 1 s")}})

    assert rows["one"].ok and rows["one"].peak is None and rows["one"].message == "no peak: no answer within 1 s"
    assert rows["eager"].peak == 64


def test_cheap_first_calls_are_repeated_in_new_processes(measured):
    rows, _, workers = measured({"eager": {}, "dear": {"first": {"first": 20.0, "wrong": ""}}})

    assert rows["eager"].firsts == [1.0] * 3 and rows["dear"].firsts == [20.0]
    assert [worker.name for worker in workers] == ["eager", "eager", "eager", "dear"]


@pytest.mark.parametrize(("values", "wanted"), [([1.0, 2.0, 3.0, 4.0, 5.0], (2.0, 4.0)), ([1.0, 2.0], (1.25, 1.75)), ([7.0], (7.0, 7.0))])
def test_quartiles_are_interpolated(values, wanted):
    assert quartiles(values) == wanted


def test_a_quick_run_is_planned_to_end_within_five_minutes():
    there = [name for name in NAMES if name != "lightning-thunder"]
    quick, every = SUITE.chosen((), quick=True), SUITE.chosen((), quick=False)

    assert sum(estimate(w, there, QUICK) for w in quick) < 300
    assert {w.name for w in quick} < {w.name for w in every}
    assert sum(estimate(w, there, FULL) for w in every) < 3600


def test_patterns_choose_workloads_and_an_unknown_one_is_an_error():
    assert [w.name for w in SUITE.chosen(("gpt*",), quick=True)] == ["gpt", "gpt-bf16", "gpt-train", "gpt-train-bf16"]
    with pytest.raises(ValueError, match="no workload matches gtp; expected one of add-4"):
        SUITE.chosen(("gtp",), quick=False)
