"""Faults that are put into a plugin mechanically: what has to be noticed is, and the plugin without a fault is not accused."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import pytest
import torch

from dovetail.extend import OperatorExecutor
from dovetail_conformance import check, environment
from dovetail_conformance.mutants.campaign import Mutant, Verdict, campaign, mutants, save, tried
from dovetail_conformance.mutants.standin import standin

NOTICED = {  # a mutant of the stand-in: operation, family, name
    ("torch.tanh", "sizes", "over 1048576 elements"),
    ("torch.neg", "layouts", "an address that is not aligned"),
    ("torch.sign", "values", "a denormal value"),
    ("torch.mul", "layouts", "one tensor twice"),
    ("torch.softmax", "arguments", "negative dimensions as the last"),
    ("torch.sin", "history", "after 1,000 calls"),
    ("torch.exp", "memory", "a ring of 16 buffers"),
    ("torch.sqrt", "resources", "copies of its inputs"),
    ("torch.floor", "surroundings", "the default dtype"),
    ("torch.cos", "process", "inference mode"),
    ("torch.log1p", "numbers", "zero below 1e-7"),
    ("torch.reciprocal", "checkers", "refuses one question in 500"),
    ("torch.nn.functional.gelu", "gradients", "its forward adds 0.25"),
    ("torch.mul", "gradients", "only where all inputs require one"),
    ("torch.sigmoid", "cotangents", "writes into it"),
    ("torch.atan", "cotangents", "wrong where it is zero"),
}


def mutant_of(operation: str, family: str, name: str) -> Mutant:
    return next(
        m for m in mutants(standin(), None, operations=(operation,)) if (m.symbol.id, m.mutation.family, m.mutation.name) == (operation, family, name)
    )


def test_there_are_thousands() -> None:
    planted = mutants(standin(), None)

    assert len(planted) >= 4000
    assert len({mutant.symbol for mutant in planted}) >= 40


def test_a_sample_is_the_same_for_the_same_seed_and_spread_over_families() -> None:
    first, again, other = (list(map(str, mutants(standin(), 60, seed))) for seed in (1, 1, 2))

    assert first == again != other
    assert len({name.partition(": ")[2].partition(",")[0] for name in first}) >= 8


def test_every_mutant_can_be_made() -> None:
    one_of_each = {mutant.mutation.name: mutant for mutant in mutants(standin(), None)}

    for mutant in one_of_each.values():
        assert mutant.symbol in mutant.executor().table


def test_a_fault_that_never_strikes_is_not_counted() -> None:
    """Gradients are laid out like the result before an executor's rule sees them, and tanh has no argument besides its input."""
    expanded = tried(mutant_of("torch.atan", "cotangents", "wrong where it is expanded"), "smoke")
    argument = tried(mutant_of("torch.tanh", "gradients", "wrong where an argument is given"), "smoke")

    assert (expanded.check, expanded.struck, argument.check, argument.struck) == ("", False, "", False)


def test_a_saved_campaign_names_its_level_and_versions(tmp_path: Path) -> None:
    survivor = Verdict("torch.sin", "values", "a zero", check="", message="", seconds=0.1, struck=True)

    save([survivor], tmp_path / "mutants.json", "full", lambda verdict: f"{verdict.name} is rare")

    saved = json.loads((tmp_path / "mutants.json").read_text())
    assert saved["level"] == "full" and saved["machine"]["torch"] == torch.__version__ and saved["suite"] == environment.suite()
    assert datetime.fromisoformat(saved["created"]).tzinfo is not None
    assert saved["mutants"] == [asdict(survivor) | {"explained": "a zero is rare"}]


def test_a_plugin_without_implementations_is_refused() -> None:
    with pytest.raises(ValueError, match="idle has no implementation of a requested operation"):
        next(campaign(OperatorExecutor("idle")))


@pytest.mark.slow
@pytest.mark.parametrize(("operation", "family", "name"), sorted(NOTICED), ids=lambda word: word.replace(" ", "-"))
def test_a_mutant_is_noticed(operation: str, family: str, name: str) -> None:
    verdict = tried(mutant_of(operation, family, name), "core")

    assert verdict.check, verdict


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["torch.sin", "torch.mul", "torch.matmul", "torch.softmax", "torch.nn.functional.gelu"])
def test_the_plugin_without_a_fault_is_not_accused(operation: str) -> None:
    report = check(standin(), operations=[operation], devices=["cpu"])

    assert not report.failures, report.failures[0].message
