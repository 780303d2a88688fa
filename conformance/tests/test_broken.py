"""The suite itself: each executor that is broken on purpose is caught by the check that was named beforehand, and the loopback passes."""

from __future__ import annotations

import pytest

from dovetail_conformance import check
from dovetail_conformance.broken import BROKEN, Broken, replayed, running
from dovetail_conformance.claims import NOTHING_TO_RUN

HERE = [broken for broken in BROKEN.values() if not broken.isolated]
ELSEWHERE = [broken for broken in BROKEN.values() if broken.isolated]


LONG = ("random", "threads")  # checks that take half a minute to find a fault
ONE_DTYPE = ("wrong_for_float16", "raises_for_one_dtype")  # level quick deals out dtypes, and need not ask for theirs
FIRST = {broken.check: broken for broken in reversed(HERE) if broken.check not in LONG}.values()  # of each check


@pytest.mark.parametrize(
    ("broken", "level"),
    [
        pytest.param(broken, level, id=f"{broken.name}-{level}", marks=() if level == "quick" and broken in FIRST else pytest.mark.slow)
        for broken in HERE
        for level in ("quick", "core")
        if level == "core" or broken.name not in ONE_DTYPE
    ],
)
def test_the_named_check_finds_it(broken: Broken, level: str) -> None:
    report = check(broken.make(), operations=broken.operations, checks=[broken.check], devices=["cpu"], level=level)

    assert broken.check in {row.check for row in report.failures}, report.counts


@pytest.mark.slow  # each of its processes starts anew
@pytest.mark.parametrize("broken", ELSEWHERE, ids=lambda broken: broken.name)
def test_a_process_that_ends_is_a_row(broken: Broken) -> None:
    report = check(
        f"dovetail_conformance.broken:{broken.name}",
        operations=broken.operations,
        checks=["claims", "forward"],
        dtypes=["float32", "int64"],
        devices=["cpu"],
        processes=1,
        timeout=10 if broken.check == "timeout" else 600,  # a busy machine is slow to crash
    )

    ended = [row for row in report.failures if row.state == broken.check]
    assert sorted(row.dtype for row in ended) == ["float32", "int64"]  # the run went on


def test_there_are_at_least_25() -> None:
    assert len(BROKEN) >= 25


SOME = ["all_reduce", "amax", "torch.softmax", "torch.add", "dropout"]


@pytest.mark.parametrize("operations", [SOME, pytest.param(None, marks=pytest.mark.slow)], ids=["some", "all"])
def test_the_loopback_has_no_failure_and_no_unexplained_skip(operations) -> None:
    report = check("dovetail_conformance.loopback:loopback", level="smoke", devices=["cpu"], operations=operations)

    assert not report.failures
    assert not [row for row in report if row.state in ("not-claimed", "unsupported", "waived") and not (row.message or row.reason)]
    left = [row for row in report if row.state in ("not-claimed", "unsupported", "not-run") and row.check != "composition"]
    assert {row.message for row in left} <= {NOTHING_TO_RUN}
    assert report.score[0] >= 0.99 * report.score[1]


@pytest.mark.parametrize("programs", [[], pytest.param(["program.*", "random"], marks=pytest.mark.slow)], ids=["operations", "programs"])
def test_what_the_broken_ones_are_made_of_is_right(programs) -> None:
    import torch

    some = [*programs, "torch.softmax", "torch.add", "torch.tensor"]

    assert not check(running(torch.sin), operations=["torch.sin"], devices=["cpu"], level="quick").failures
    assert not check(replayed(), operations=some, devices=["cpu"], level="quick").failures
