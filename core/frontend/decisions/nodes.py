"""The parts of a decision graph: decisions, the leaves at which paths end, and the edges between them, which run segments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dovetail.frontend.decisions.ends import End
from dovetail.frontend.decisions.late_sizes import Place
from dovetail.frontend.decisions.segments import Segment
from dovetail.frontend.guards.guard import Guard
from dovetail.frontend.guards.source import Source
from dovetail.trace import Proxy, Trace

Step = Callable[..., tuple[Any, tuple]]  # of values; returns the outcome, and further values


@dataclass(eq=False)
class Decision:
    """A point at which the program needs a value.

    Attributes:
        key: the state of the interpreter, equal for decisions with an equal future; None where it equals no other.
        problem: why there is no key.
        where: the user's file and line.
        what: what is needed, as "bool" or "the shape of nonzero".
        path: the steps by which it was reached first: the counters that were widened, the outcome, and the sizes of the call from there on.
        ask: computes the outcome, and values that come with it, from the values that are needed.
        reads: where these are among the values that arrive.
        text: the same as an expression with a place for each of them; None where it is more than an expression.
        width: the specs of the values that arrive.
        guards: facts that hold when it is reached.
        inputs: the tensors that are known when it is reached: slot -> source and proxy.
        edges: for each outcome the segments that follow, which differ in their guards.
        count: how often calls came here.
    """

    key: Any
    problem: str | None
    where: str
    what: str
    path: tuple
    ask: Step | None
    reads: Sequence[int]
    width: tuple
    guards: dict[Any, Guard]
    inputs: dict[int, tuple[Source, Proxy]]
    text: str | None = None
    edges: dict[Any, tuple[Edge, ...]] = field(default_factory=dict)
    most: int = 1 << 30  # outcomes
    place: Place | None = None  # where sizes of the outcome come from that depend on values
    sizes: Sequence[tuple[int, int]] = ()  # of symbols of sizes: the position among the values, and which symbol of the path it is
    widened: tuple[int, ...] = ()  # the counters in its state that became numbers of the program when it was reached first

    def step(self, values: tuple) -> tuple[Any, tuple]:
        """Return the outcome for the values that arrive, and the values that come with it."""
        return self.ask(*[values[i] for i in self.reads])


@dataclass(eq=False)
class Leaf:
    """The end of paths: `finish(inputs, values, objects)` returns the result after it has done the writes, which `end` has as text."""

    finish: Callable[[dict[int, Any], tuple, tuple], Any]
    end: End
    inputs: dict[int, tuple[Source, Proxy]]


@dataclass(eq=False)
class Edge:
    """A segment between two decisions.

    Attributes:
        check: its guards, as a function of the call's arguments that returns tensors and objects, or a Miss; None where it adds none.
        slots: where the tensors go that `check` returns.
        segment: what runs; None where it has no lines.
        takes: where its inputs are: (True, position among the values) or (False, slot of an input).
        gives: where the next values are: (0, position among its results), (1, position among the values) or (2, slot of an input).
        target: what follows; None for the rest of an eager call.
        trace: the pure program.
        prologue: the guards as a program.
        count: how often calls went along it.
        eager: why calls run eagerly from here on; None where they do not.
        conditions: what it assumes of sizes, as text, and as expressions over the values that arrive at its source.
        selects: the decisions on the way that it computes both outcomes of.
        before: the edge that it replaced by that; None where it replaced none.
        tried: whether doing so for those that follow was tried.
    """

    check: Callable[[tuple, dict], Any] | None = None
    slots: Sequence[int] = ()
    segment: Segment | None = None
    takes: Sequence[tuple[bool, int]] = ()
    gives: Sequence[tuple[int, int]] = ()
    target: Decision | Leaf | None = None
    trace: Trace | None = None
    prologue: Trace | None = None
    count: int = 0
    eager: str | None = None
    conditions: Mapping[str, str] = field(default_factory=dict)
    selects: Sequence[Decision] = ()
    before: Edge | None = None
    tried: bool = False
    fits: Callable[[tuple], bool] | None = field(default=None, repr=False)
    advance: Callable[[tuple, dict[int, Any]], tuple] = field(init=False, repr=False)

    def statements(self, run: str, *, tried: bool = True) -> tuple[list[str], str]:
        """Return how to run the segment, called `run`, in Python, and the expression of the values that arrive at the target."""
        segment = self.segment
        arguments = ", ".join([f"values[{i}]" if live else f"inputs[{i}]" for live, i in self.takes])
        results = "".join([f"{('results', 'values', 'inputs')[place]}[{i}], " for place, i in self.gives]).rstrip()
        if segment is None:
            return [], f"({results})"
        statements, called = [], f"{run}({arguments})"
        if tried and segment.trial is not None:
            statements, called = [f"{run}_trial.count += 1"], f"({run} if {run}_trial.count < {run}_trial.due else {run}_beside)({arguments})"
        if list(self.gives) == [(0, i) for i in range(len(self.trace.outputs))]:
            return statements, called
        return [*statements, f"results = {called}"], f"({results})"

    def connect(self) -> None:
        """Make `advance`, which runs the segment and returns the values that arrive at its target: plain Python, since every call pays for it."""
        segment, namespace = self.segment, dict[str, Any]()
        if segment is not None:
            namespace = {"run": segment.run, "run_beside": segment.run_beside, "run_trial": segment.trial}
        statements, values = self.statements("run")
        exec("def advance(values, inputs):\n    " + "\n    ".join([*statements, f"return {values}"]), namespace)
        self.advance = namespace["advance"]
        self.fits = eval(f"lambda values: {' and '.join(self.conditions.values())}") if self.conditions else None

    def refusal(self, values: tuple, args: tuple, kwargs: dict) -> str:
        """Return why a call, with these values at the source, cannot take the edge."""
        if self.fits is not None and not self.fits(values):
            return next(f"{text} does not hold" for text, condition in self.conditions.items() if not eval(condition, {"values": values}))
        return self.check(args, kwargs).reason


def describe(outcome: Any) -> str:
    """Return an outcome as text."""
    return outcome.text() if hasattr(outcome, "text") else repr(outcome)
