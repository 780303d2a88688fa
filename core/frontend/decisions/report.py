"""A graph of decisions, as an explanation shows it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dovetail.executors.reports.explain import DecisionRow, OutcomeRow
from dovetail.executors.trials.trial import Trial
from dovetail.frontend.decisions.graph import Graph
from dovetail.frontend.decisions.nodes import Decision, Edge, Leaf, describe
from dovetail.frontend.decisions.selects import reasons
from dovetail.trace import Trace


def decision_rows(graph: Graph) -> tuple[DecisionRow, ...]:
    """Return a row for the start of a call, and one for each decision."""
    names = {id(decision): f"d{i}" for i, decision in enumerate(graph.decisions)}
    numbers = {id(segment): f"segment {i}" for i, segment in enumerate(list(graph.programs.values()))}
    order = {id(decision): i for i, decision in enumerate(graph.decisions)}
    if graph.eager is not None:
        return (DecisionRow("start", graph.origin.what, None, 0, None, (OutcomeRow(None, None, 0, 0, (), "eager mode", False, graph.eager),)),)
    rows = []
    for decision in (graph.origin, *graph.decisions):
        outcomes = tuple([_outcome(decision, outcome, edge, names, numbers, order) for outcome, edges in decision.edges.items() for edge in edges])
        name = names.get(id(decision), "start")
        rows.append(DecisionRow(name, decision.what, decision.where or None, len(decision.width), decision.problem, outcomes))
    return tuple(rows)


def _outcome(decision: Decision, outcome: object, edge: Edge, names: dict[int, str], numbers: dict[int, str], order: dict[int, int]) -> OutcomeRow:
    shown = None if decision.ask is None else describe(outcome) + (f" where {' and '.join(edge.conditions)}" if edge.conditions else "")
    if edge.eager is not None:
        return OutcomeRow(shown, None, 0, edge.count, (), "eager mode", False, edge.eager)
    end = isinstance(edge.target, Leaf)
    target = "return" if end else names.get(id(edge.target), "another graph")
    back = not end and order.get(id(edge.target), 0) <= order.get(id(decision), -1)
    if edge.selects:
        target += f" (both outcomes of {', '.join([names.get(id(each), 'another') for each in edge.selects])} are computed)"
    guards = tuple(reasons(edge.prologue)) if edge.prologue is not None else ()
    return OutcomeRow(shown, numbers.get(id(edge.segment)), len(edge.trace.lines), edge.count, guards, target, back)


def segment_programs(graph: Graph) -> Iterator[tuple[Trace, Trace]]:
    """Yield (as dispatched, as it runs) for each program of a graph, named by its number."""
    for i, segment in enumerate(list(graph.programs.values())):
        for name, steps in ((f"segment {i}", segment.steps), (f"segment {i}, backward", segment.backward)):
            if steps:
                dispatched = next(trace for trace in steps if trace.dispatch_record is not None)
                yield replace(dispatched, name=name), steps[-1]


def segment_trials(graph: Graph) -> Iterator[tuple[str, Trial]]:
    """Yield the trials of the programs of a graph, each with the name of its program."""
    for i, segment in enumerate(list(graph.programs.values())):
        for trial in segment.trials:
            yield f"segment {i}" + (", backward" if trial.trace.name == "backward" else ""), trial
