"""Collectives on processes of this machine: executors that are wrong on purpose are caught, on one rank and in the gradient alone, too."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from dovetail.extend import OperatorExecutor
from dovetail.prims import SYMBOLS, collectives
from dovetail_conformance import check
from dovetail_conformance.broken_collectives import FAULTS, own_gradient, sound, wrong_on_the_last_rank
from dovetail_conformance.collectives import COLLECTIVES

pytestmark = pytest.mark.xdist_group("collectives")  # one process of pytest has the ranks
MODULE = "dovetail_conformance.broken_collectives"


def report_of(make: Callable[[], OperatorExecutor], operation: str, level: str = "smoke"):
    return check(f"{MODULE}:{make.__name__}", operations=[operation], dtypes=["float32"], level=level)


def test_every_operation_of_several_ranks_is_described() -> None:
    assert {info.symbol for info in COLLECTIVES} == {symbol for symbol in SYMBOLS.values() if symbol.module == "dist" and symbol.is_prim}


FEW = (wrong_on_the_last_rank, own_gradient)


@pytest.mark.parametrize("make", [pytest.param(make, id=make.__name__, marks=() if make in FEW else pytest.mark.slow) for make in FAULTS])
def test_a_fault_is_found_by_the_named_check(make: Callable[[], OperatorExecutor]) -> None:
    name, state, pattern = FAULTS[make]

    report = report_of(make, next(iter(make().declaration()["operations"])))

    (row,) = [row for row in report.failures if row.check == name]
    assert row.state == state
    assert re.search(pattern, row.message, re.DOTALL), row.message


def test_what_the_broken_ones_are_made_of_is_right() -> None:
    report = report_of(sound, "dist.all_reduce")

    assert not report.failures
    assert {row.check: row.state for row in report}["backward"] == "partly"  # another executor waits


def test_an_executor_of_this_process_alone_is_not_run() -> None:
    report = check(sound(), operations=["dist.all_reduce"], dtypes=["float32"], level="quick")

    (row,) = [row for row in report if row.check == "claims"]
    assert (row.state, report.failures) == ("not-run", [])
    assert "pass its name, or file.py:name" in row.message


@pytest.mark.slow
def test_the_torch_executor_conforms_on_four_ranks() -> None:
    report = check("torch", operations=["dist.*"], level="full")

    assert not report.failures
    assert {row.operation for row in report if row.state == "pass"} == {info.symbol.id for info in COLLECTIVES}
    assert collectives.all_reduce.id in {row.operation for row in report if row.check == "backward"}
