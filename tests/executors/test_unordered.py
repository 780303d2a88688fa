"""Executors whose order rests on their names alone are reported with the hint that orders them."""

from __future__ import annotations

import sys

import torch
from click.testing import CliRunner

import dovetail
import dovetail.cli
from dovetail.executors import resolve_executors
from dovetail.executors.ordering.unordered import unordered, unordered_notes
from dovetail.extend import FusionExecutor, OperatorExecutor


def installed(name, operation=torch.sin, **declared):
    ex = OperatorExecutor(name, **declared)
    ex.implements(operation, lambda input: operation(input))
    ex.distribution = (f"dovetail-{name}", "1.0")
    return ex


def names(order):
    return [(first.name, second.name) for first, second in unordered(order)]


def test_two_plugins_that_claim_one_operation_are_unordered_without_a_hint():
    a, b = installed("a"), installed("b")

    assert names([a, b]) == [("a", "b")]
    b.after = ("a",)
    assert names([a, b]) == []


def test_a_hint_through_a_third_executor_orders_two():
    a, b, c = installed("a"), installed("b"), installed("c")
    a.before, c.after = ("b",), ("b",)

    assert names([a, b, c]) == []


def test_declarations_without_an_operation_or_a_device_in_common_need_no_hint():
    assert names([installed("a"), installed("b", torch.cos)]) == []
    assert names([installed("a", devices=["cpu"]), installed("b", devices=["cuda"])]) == []
    assert names([installed("a"), FusionExecutor("fuses", operations=["prims.sin"])]) == []
    assert names([installed("a"), FusionExecutor("fuses")]) == [("a", "fuses")]


def test_an_executor_of_last_resort_is_behind_the_others():
    assert names([installed("a"), installed("z", last_resort=True)]) == []


def test_the_note_names_the_hint_and_goes_when_configuration_orders_the_two():
    order = [installed("a"), installed("b")]
    (note,) = unordered_notes(order)

    assert 'b.after = ("a",)' in note and 'executors = ["a > b"]' in note
    with dovetail.use(executors="torch"):
        assert unordered_notes(order) == [note]


def test_the_executors_of_this_repository_are_ordered_by_hints():
    assert unordered_notes(resolve_executors()) == []


def test_the_command_prints_the_notes(monkeypatch):
    command = sys.modules[dovetail.cli.executors.callback.__module__]
    monkeypatch.setattr(command, "resolve_executors", lambda: [installed("a"), installed("b")])
    printed = CliRunner().invoke(dovetail.cli.executors, [], catch_exceptions=False).output

    assert "Note: a comes before b only because of their names" in " ".join(printed.split())
