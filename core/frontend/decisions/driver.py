"""A graph as one Python function with a branch for each decision: calls run it, tracebacks and pdb show its lines.

def walk(root, values, inputs, objects, args, kwargs):  # newton
    try:
        values = segment_0(inputs[0])
        edge_0.count += 1
        at = 0
        while True:
            if at == 0:  # a condition at newton.py:11
                outcome = bool(values[0])
                if outcome:
                    objects = ()
                    values = (values[1],)
                    edge_1.count += 1
                    return edge_1, values, objects
                ...
                return None, decision_0, outcome, values
"""

from __future__ import annotations

import linecache
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

from dovetail.executors.trials.judge import GradientDisagreement
from dovetail.frontend.decisions.steps import Arithmetic
from dovetail.frontend.guards.guard import Miss
from dovetail.frontend.interpreter.engine import Abandon

if TYPE_CHECKING:
    from dovetail.frontend.decisions.graph import Graph
    from dovetail.frontend.decisions.nodes import Decision, Edge

_serial = count()
Drive = Callable[[Any, tuple, dict[int, Any], tuple, tuple, dict], tuple]  # of what `Graph._stepped` takes; returns what that does
BOOLS = frozenset({True, False})


class GoEager(Abandon):
    """This call cannot go on compiled: it starts again in eager mode.  With `lasting`, every call that gets here does."""

    def __init__(self, why: str, *, lasting: bool = True, raised: BaseException | None = None):
        super().__init__(why)
        self.lasting, self.raised = lasting, raised

    def bare(self) -> GoEager:
        """Return it without the tracebacks of what has led to it, whose frames hold the call."""
        self.__cause__ = self.__context__ = None
        if self.raised is not None:
            self.raised.__traceback__ = None
        return self.with_traceback(None)


class Restart(GoEager):
    """The graph is compiled in another way from now on: this call starts again."""

    def __init__(self) -> None:
        super().__init__("", lasting=False)


class Printer:
    """Writes a graph; `names` are the objects that the text mentions."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.names: dict[str, Any] = {"Miss": Miss, "GoEager": GoEager, "GradientDisagreement": GradientDisagreement}
        self.decisions = list(graph.decisions)
        self.number = {id(decision): i for i, decision in enumerate(self.decisions)}
        self.segments = {id(segment): f"segment_{i}" for i, segment in enumerate(list(graph.programs.values()))}
        self.edges = 0

    def lines(self) -> Iterator[str]:
        """Yield the lines of the function."""
        yield f"def walk(root, values, inputs, objects, args, kwargs):  # {getattr(self.graph.fn, '__qualname__', type(self.graph.fn).__name__)}"
        yield "    try:"
        yield from self.taken(self.graph.root, " " * 8)
        if self.decisions:
            yield "        while True:"
        for i, decision in enumerate(self.decisions):
            yield f"            if at == {i}:  # {decision.what} at {decision.where}"
            yield from self.branches(i, decision, " " * 16)
        yield "    except GradientDisagreement as wrong:"
        yield "        raise GoEager('', lasting=False) from wrong"
        yield "    except Exception as error:  # what precedes it in the program has not happened yet"
        yield "        raise GoEager('', raised=error) from error"

    def branches(self, i: int, decision: Decision, indent: str) -> Iterator[str]:
        """Yield the outcomes of a decision."""
        self.names[f"decision_{i}"] = decision
        edges = dict(decision.edges)
        operands = ", ".join([f"values[{j}]" for j in decision.reads])
        if decision.text is not None:
            yield f"{indent}outcome = {decision.text.format(*[f'values[{j}]' for j in decision.reads])}"
        else:
            self.names[f"ask_{i}"] = decision.ask
            yield f"{indent}outcome, more = ask_{i}({operands})"
            yield f"{indent}values = (*values, *more)"
        if BOOLS.issuperset(edges) and type(decision.ask) is not Arithmetic:  # whose other outcomes are errors
            conditions = {outcome: "outcome" if outcome else "not outcome" for outcome in edges}
        else:
            self.names[f"known_{i}"] = {outcome: k for k, outcome in enumerate(edges)}
            yield f"{indent}known = known_{i}.get(outcome)"
            conditions = {outcome: f"known == {k}" for k, outcome in enumerate(edges)}
        for outcome, alternatives in edges.items():
            shown = outcome.text() if hasattr(outcome, "text") else ""
            yield f"{indent}if {conditions[outcome]}:" + (f"  # {shown}" if shown else "")
            for edge in alternatives:
                yield from self.alternative(edge, indent + "    ")
        yield f"{indent}return None, decision_{i}, outcome, values"

    def alternative(self, edge: Edge, indent: str) -> Iterator[str]:
        """Yield an edge with its guards; nothing for one that leads to a decision which came after this was printed."""
        if edge.eager is None and type(edge.target) is type(self.decisions[0]) and id(edge.target) not in self.number:
            return
        if edge.conditions:
            yield f"{indent}if {' and '.join(edge.conditions.values())}:  # {' and '.join(edge.conditions)}"
            indent += "    "
        if edge.check is None:
            yield f"{indent}objects = ()"
            yield from self.taken(edge, indent)
            yield from self.onwards(edge, indent)
            return
        number = self.edges
        self.names[f"check_{number}"], self.names[f"slots_{number}"] = edge.check, edge.slots
        for line in edge.prologue.lines:
            if "miss" in line.kwargs:
                yield f"{indent}# unless {line.kwargs['miss'].reason}".replace("\n", " ")
        yield f"{indent}checked = check_{number}(args, kwargs)"
        yield f"{indent}if type(checked) is not Miss:"
        yield f"{indent}    inputs.update(zip(slots_{number}, checked[0]))"
        yield f"{indent}    objects = checked[1]"
        yield from self.taken(edge, indent + "    ")
        yield from self.onwards(edge, indent + "    ")

    def onwards(self, edge: Edge, indent: str) -> Iterator[str]:
        """Yield what leaves the block of a decision, where nothing has left it."""
        if edge.eager is None and id(edge.target) in self.number:
            yield f"{indent}continue"

    def taken(self, edge: Edge, indent: str) -> Iterator[str]:
        """Yield what runs on an edge."""
        name = f"edge_{self.edges}"
        self.edges += 1
        self.names[name] = edge
        if edge.eager is not None:
            yield f"{indent}return {name}, values, objects  # eager mode, since {edge.eager}".replace("\n", " ")
            return
        run = self.segments.get(id(edge.segment), f"{name}_segment")
        statements, values = edge.statements(run)
        if edge.segment is not None:
            self.names |= {run: edge.segment.run, f"{run}_beside": edge.segment.run_beside, f"{run}_trial": edge.segment.trial}
        yield from (f"{indent}{statement}" for statement in statements)
        yield f"{indent}values = {values}"
        yield f"{indent}{name}.count += 1"
        if id(edge.target) in self.number:
            yield f"{indent}at = {self.number[id(edge.target)]}"
        else:
            yield f"{indent}return {name}, values, objects"


def drive(graph: Graph) -> Drive:
    """Return the function of a graph.

    It returns an edge that ends the way, the values that it gives and the objects of the last check; or None, a decision with an outcome that
    leads nowhere yet, that outcome, and the values there.
    """
    printer = Printer(graph)
    text = "\n".join(printer.lines()) + "\n"
    file = f"<dovetail decisions {next(_serial)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), printer.names)
    function = printer.names["walk"]
    weakref.finalize(function, linecache.cache.pop, file, None)
    return function


def printed(graph: Graph) -> str:
    """Return the function of a graph, and the programs of its segments as they run."""
    segments = [replace(segment.steps[-1], name=f"segment_{i}") for i, segment in enumerate(list(graph.programs.values()))]
    return "\n\n".join(["\n".join(Printer(graph).lines()), *[segment.python(depth=0).strip() for segment in segments]]) + "\n"
