"""A compiled function that asks for values: decisions, joined by straight-line segments, and the walk of a call through them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import RLock
from typing import TYPE_CHECKING, Any, Protocol

from dovetail import options
from dovetail.executors.trials.judge import GradientDisagreement
from dovetail.frontend.decisions.assumptions import Assumptions
from dovetail.frontend.decisions.driver import Drive, GoEager, Restart, drive
from dovetail.frontend.decisions.generators import Generators, States
from dovetail.frontend.decisions.late_sizes import History
from dovetail.frontend.decisions.nodes import Decision, Edge, Leaf, describe
from dovetail.frontend.decisions.segments import Inputs, Segment, text_of
from dovetail.frontend.decisions.selects import is_joinable, replacement
from dovetail.frontend.guards.guard import Miss
from dovetail.frontend.guards.symbolic_sizes import SizeHistory
from dovetail.frontend.interpreter.tracebacks import error_text
from dovetail.trace import Proxy, Trace
from dovetail.trace.raising import ERRORS

if TYPE_CHECKING:
    from dovetail.frontend.decisions.requests import Need

Explore = Callable[..., tuple]  # of graph, decision, outcome, values, inputs, args, kwargs and whether it goes on behind the root; see `explore`
Report = Callable[[str], Any]

_HELD = 1000  # values alive at a decision, which cost as much as another decision
_ENOUGH = 16  # calls that end in eager mode, before it is checked whether compiling is worth it
_VAIN = 4  # of them, where no call ends compiled
_RESTARTS = 4  # of one call
_CALM = 2  # calls that explore nothing, before the driver is generated
_MOST = 4  # how many of them there may be for each call that ends compiled


class Compiler(Protocol):
    """What the compiler does for a graph.  `retire` is called with the reason where a segment disagreed with the reference."""

    retire: Callable[[str], Any]

    def segment(self, program: Trace, acquired: Trace, written: Sequence[Proxy], constant: Collection[Proxy]) -> Segment:
        """Compile a pure program."""

    def epilogue(self, program: Trace) -> tuple[Callable[..., Any], Sequence[Trace]]:
        """Compile what runs after the last segment."""

    def prologue(self, program: Trace) -> Callable[[tuple, dict], Any]:
        """Generate code for the checks of an edge."""


@dataclass(eq=False)
class Walk:
    """A call on its way through a graph.

    Attributes:
        args, kwargs: its arguments.
        inputs: its tensors: slot -> tensor.
        following: what comes next: (None, decision, outcome, values) is to be explored, (edge, objects, decision, outcome, values) is a known edge,
            and (edge, values, objects) is the end.
        before: the states of generators at the start, of those that are drawn from.
        retired: why segments that it has run are to be compiled again.
        reason: why it cannot go on; None where it can.
    """

    args: tuple
    kwargs: dict[str, Any]
    inputs: dict[int, Any]
    following: tuple
    before: States
    retired: Sequence[str] = ()
    reason: GoEager | None = None


class Graph:
    """The compiled form of one function for one set of root guards.

    Attributes:
        fn: the function.
        compiler: compiles segments.
        root: the first segment; its check is the prologue of the whole.
        decisions: in the order of their discovery.
        known: key of a state -> the decisions with it, which differ in what is known when they are reached.
        programs: text of a segment -> its compiled program.
        written: the inputs that some path writes.
        assumptions: how the function is traced.
    """

    def __init__(self, fn: Callable, compiler: Compiler, explore: Explore, grad: bool, on_explore: Report, on_pin: Report):
        self.fn, self.compiler, self.explore, self.grad, self.on_explore, self.on_pin = fn, compiler, explore, grad, on_explore, on_pin
        self.lock = RLock()
        self.slots: dict[Any, int] = {}
        self.generators = Generators()
        self.created: dict[Any, Any] = {}  # (which, device) -> a generator of torch's that the program creates, the same one on all ways
        self.written: set[int] = set()
        self.eager_calls = 0
        self.warned: set[str] = set()
        self.eager_once: set[str] = set()  # why a call has run eagerly that did not last
        self.sizes = History()
        self.answered = False  # whether a call that explored has come to its end
        self.seen: dict[str, Any] = {}  # the shapes of arguments when they were traced
        self.arguments: tuple[SizeHistory, bool | None, bool] | None = None  # which sizes of arguments are symbols; None where none are
        self.arrays_in: Callable[[tuple, dict], dict[int, Any]] = lambda args, kwargs: {}  # the arrays among arguments that are inputs, by their ids
        self.numbers: dict[Any, bool] = {}  # the places of numbers from outside that programs read, and whether they are inputs of these
        self.pinned: list[str] = []  # sentences about sizes of arguments that were needed as plain ints, which are not reported yet
        self.eager: str | None = None  # why all calls run eagerly behind the root's guards; None where they do not
        self.assumptions = Assumptions()
        self.finishes = True  # whether calls write inputs and build results at their end; else they return the last values
        self.driver: Drive | None = None  # all of it as one function; None while calls explore
        self.driver_root: Edge | None = None  # where that begins
        self.need: Need | None = None  # the first value that was needed, or the error that is handled; None where none was
        self.begun: Walk | None = None  # the call that compiling has begun with; it goes on from there
        self.clear()

    def begin(self, args: tuple, kwargs: dict, *, goes_on: bool = False) -> GoEager | None:
        """Compile the way to the first decision; return why that cannot be done, None where it is.

        `goes_on`: run the call at hand and compile what follows, without what it writes at its end; `call` goes on from there.
        """
        retire, retired = self.compiler.retire, list[str]()
        self.compiler.retire = retired.append  # what is compiled is not at its place yet
        try:
            for _ in range(_RESTARTS):
                walk = Walk(args, kwargs, Inputs(), (), self.generators.everything() | self.generators.state() if goes_on else {}, retired)
                self.generators.first.clear()
                try:
                    walk.following = self.explore(self, self.origin, None, (), walk.inputs, args, kwargs, goes_on)
                except GoEager as reason:
                    walk.reason = reason
                walk.before |= self.generators.first | walk.before
                if type(walk.reason) is Restart:
                    self.generators.restore(walk.before)
                    self.report_pins()
                    continue
                if walk.reason is not None and not self.origin.edges:
                    self.generators.restore(walk.before)
                    return walk.reason.bare()
                self.begun = walk if walk.following or walk.reason else None
                return None
        finally:
            self.compiler.retire = retire
        return self.begin(args, kwargs) if goes_on else GoEager("what is known of its values changes whenever it is traced")

    def take_begun(self, args: tuple, kwargs: dict) -> Walk | None:
        """Return the call with these arguments if compiling has begun with it."""
        begun = self.begun
        if begun is None or begun.args is not args or begun.kwargs is not kwargs:
            return None
        self.begun = None
        for reason in begun.retired:
            self.compiler.retire(reason)
        return begun

    def forget_begun(self) -> None:
        """Give up the call that compiling has begun with, as if nothing had run."""
        if self.begun is not None:
            self.generators.restore(self.begun.before)
            self.begun = None

    def assume(self, **changed: Any) -> None:
        """Change assumptions: fields of `Assumptions`."""
        self.assumptions = replace(self.assumptions, **changed)

    def start_over(self, *, reuses: bool = False, **changed: Any) -> Restart:
        """Forget all decisions, since they have to be compiled in another way; return what lets the call at hand start again.

        Args:
            reuses: segments of equal text are compiled as they were.
            changed: assumptions that have to be others.
        """
        self.assume(**changed)
        former = self.former | self.programs if reuses else {}
        self.clear()
        self.former = former
        return Restart()

    def came_to_end(self) -> None:
        """Note that a call which explored has its result."""
        self.answered, self.former = True, {}

    def passes_over(self, decision: Decision) -> bool:
        """Return whether a replay up to a decision reads no states on its way: the state there has to tell whether it is the same."""
        return self.assumptions.skips and decision.key is not None and not self.assumptions.keeps_all

    def differs(self, decision: Decision, where: str) -> GoEager:
        """Return what to raise where a replay arrives at another state: it may have left out what makes it the same."""
        if self.passes_over(decision):
            self.assume(skips=False)
            return Restart()
        return GoEager(f"the function does not do the same twice until {where}; it runs eagerly from there")

    def clear(self) -> None:
        """Forget all decisions; the root's guards stay."""
        self.origin = Decision(None, None, "", "the call", (), None, (), (), {}, {})
        self.driver, self.driver_root, self.calm = None, None, 0
        self.decisions: list[Decision] = []
        self.held = 0  # values that are alive at them, of all together
        self.outlines: dict[Any, Sequence[Any]] = {}  # a state without its counters -> those of the first such state
        self.known: dict[Any, tuple[Decision, ...]] = {}
        self.programs: dict[Any, Segment] = {}
        self.former: dict[Any, Segment] = {}  # programs from before the graph started over
        self.outdated = False  # whether sizes have become symbols that are ints in some decisions: the next exploration starts over
        self.first_sizes: Sequence[tuple[int, int]] = ()  # the values at the start: the slots of inputs, and dimensions
        self.hints: dict[Any, int] = {}  # the symbolic sizes of arguments in the call that got to the first decision first
        for place in [place for place, moves in self.numbers.items() if not moves]:
            del self.numbers[place]
        self.leaves: dict[Any, Leaf] = {}  # what an end does -> the end that several paths share
        self.selecting = False  # whether the call at hand tries which conditions may be computed on both outcomes

    @property
    def root(self) -> Edge:
        return self.origin.edges[None][0]

    def note_written(self, slots: set[int]) -> None:
        """Note which inputs a path writes, before the segments that read them are compiled; inputs that some segment reads are left out."""
        if slots <= self.written:
            return
        edges = self.all_edges()
        read = {slot for edge in edges for live, slot in edge.takes if not live} | {slot for edge in edges for kind, slot in edge.gives if kind == 2}
        self.written |= {slot for slot in slots if slot not in read and ~slot not in read}

    def all_edges(self) -> list[Edge]:
        """Return the edges of all decisions."""
        return [edge for decision in (self.origin, *self.decisions) for edges in decision.edges.values() for edge in edges]

    def outcomes(self) -> list[tuple[str, str, int]]:
        """Return how often each outcome of each decision followed: its place, the outcome as text, and the count."""
        rows = [(each.where, describe(outcome), edges) for each in self.decisions for outcome, edges in each.edges.items()]
        return [(where, outcome, sum([edge.count for edge in edges])) for where, outcome, edges in rows]

    def slot(self, key: Any) -> int:
        """Return the number of the input with this source."""
        return self.slots.setdefault(key, len(self.slots))

    def call(self, args: tuple, kwargs: dict) -> Any:
        """Return the result of a call, or a Miss where a guard of the root fails."""
        if not self.created:
            return self._call(args, kwargs, 0)
        with self.lock:  # calls at the same time would share its generators
            return self._call(args, kwargs, 0)

    def _call(self, args: tuple, kwargs: dict, restarts: int) -> Any:
        """Make a call; `restarts` counts how often it has started again."""
        begun = self.take_begun(args, kwargs)
        if begun is None:
            root = self._begun(args, kwargs)
            if root is None:
                return self._eager(args, kwargs, None)
            begun = self.take_begun(args, kwargs)
        if begun is None:
            checked = root.check(args, kwargs)
            if type(checked) is Miss:
                return checked
            if self.eager is not None:
                return self.fn(*args, **kwargs)
        before = begun.before if begun is not None else self.generators.state() if self.generators.any else {}
        try:
            return self.finished(begun or self.started(root, checked, before, args, kwargs))
        except GoEager as reason:
            self.generators.restore(before)
            self.report_pins()
            again, why = type(reason) is Restart and restarts < _RESTARTS, str(reason)
            expected = self.assumptions.handles_errors and isinstance(reason.raised, ERRORS)
            raised = "" if expected else error_text(reason.raised)
        if again:
            return self._call(args, kwargs, restarts + 1)
        if why:
            self.warn(why)
        result = self._eager(args, kwargs, raised)  # a call that raises says nothing about those that do not
        self.eager_calls += 1
        self.check_worth()
        return result

    def _begun(self, args: tuple, kwargs: dict) -> Edge | None:
        """Return the way to the first decision, which the first call compiles; None where that cannot be done."""
        origin = self.origin  # which another thread may replace at any time
        if not origin.edges:
            with self.lock:
                if not self.origin.edges and self.begin(args, kwargs, goes_on=self.eager is None) is not None:
                    return None
                origin = self.origin
        return origin.edges[None][0]

    def own_sizes(self) -> None:
        """Part from the sizes of other graphs: what comes behind the first decision concerns this graph alone."""
        if self.arguments is not None:
            history, *how = self.arguments
            self.arguments = (replace(history, seen={}, moving=set(history.moving), pinned=dict(history.pinned)), *how)

    def report_pins(self) -> None:
        """Report the sizes that were needed as plain ints."""
        while self.pinned:
            self.on_pin(self.pinned.pop())

    def check_worth(self) -> None:
        """Let all calls run eagerly from their start where most of them end so: what is compiled would run for nothing."""
        if self.eager_calls < _VAIN:
            return
        finished = sum([edge.count for edge in self.all_edges() if type(edge.target) is Leaf])
        if self.eager_calls >= (_ENOUGH if finished else _VAIN) and self.eager_calls > _MOST * finished:
            self.eager = f"{self.eager_calls} of {self.eager_calls + finished} calls ended in eager mode"

    def _eager(self, args: tuple, kwargs: dict, raised: str) -> Any:
        """Call the function as it stands; `raised` is what it raised while it was traced."""
        result = self.fn(*args, **kwargs)
        if raised:
            self.warn(
                f"it raised {raised} while it was traced, and does not raise it when it runs eagerly; it was not compiled. Please report it as a bug"
            )
        return result

    def started(self, root: Edge, checked: tuple[tuple, tuple], before: States, args: tuple, kwargs: dict) -> Walk:
        """Run from segment to segment as far as they are compiled; raises GoEager where the call cannot go on.

        Args:
            root: where it begins.
            checked: the tensors and objects that the check of the root returned.
            before: the states of generators at the start; gets those that are drawn from first in this call.
        """
        inputs = Inputs(zip(root.slots, checked[0]))
        driver = self._driver_of(root)
        following = (driver or self._stepped)(root, checked[0][len(root.slots) :], inputs, checked[1], args, kwargs)
        return Walk(args, kwargs, inputs, following, before)

    def finished(self, walk: Walk) -> Any:
        """Run a call to its end, and return the result; raises GoEager where it cannot go on."""
        reason, walk.reason = walk.reason, None
        if reason is not None:
            try:
                raise reason
            finally:
                del reason  # its traceback has this frame
        following, before, inputs, arguments = walk.following, walk.before, walk.inputs, (walk.args, walk.kwargs)
        while len(following) != 3:
            if len(following) == 5:
                edge, objects, _, _, values = following
                following = self._stepped(edge, values, inputs, objects, *arguments)
                continue
            before |= self.generators.everything() | before
            _, target, outcome, values = following
            try:
                following = self._explored(target, outcome, values, inputs, *arguments)
            finally:
                before |= self.generators.first | before
        edge, values, objects = following
        if edge.eager is not None:
            edge.count += 1
            raise GoEager("")
        return edge.target.finish(inputs, values, objects)

    def _driver_of(self, root: Edge) -> Drive | None:
        """Return the graph as one function, which is generated once calls explore nothing; None before that."""
        if self.driver is not None:
            return self.driver if self.driver_root is root else None
        self.calm += 1
        self.selecting = self.calm == _CALM and options.SELECTS.read() == "measured"
        if self.calm > _CALM and self.lock.acquire(blocking=False):
            try:
                if self.origin.edges and self.root is root:
                    self.driver_root, self.driver = root, drive(self)
            finally:
                self.lock.release()
        return None

    def _stepped(self, edge: Edge, values: tuple, inputs: dict[int, Any], objects: tuple, args: tuple, kwargs: dict) -> tuple:
        """Follow a call edge by edge; return what a driver does."""
        while edge.eager is None:
            if self.selecting and not edge.tried and is_joinable(edge.target):
                self.select(edge, values, inputs)
            target = edge.target
            try:
                values = edge.advance(values, inputs)
                edge.count += 1
                if type(target) is Leaf:
                    break
                outcome, more = target.step(values)
            except GradientDisagreement as wrong:
                raise GoEager("", lasting=False) from wrong
            except Exception as error:  # what precedes it in the program has not happened yet
                raise GoEager("", raised=error) from error
            values += more
            following = self.follow(target, outcome, values, inputs, args, kwargs)
            if following is None:
                return None, target, outcome, values
            edge, objects = following
        return edge, values, objects

    def select(self, edge: Edge, values: tuple, inputs: dict[int, Any]) -> None:
        """Let later calls compute both outcomes of the conditions behind an edge, where that is faster for the values of this one."""
        with self.lock:
            edge.tried = True
            if (new := replacement(edge, values, inputs, self.select_program)) is not None:
                self.exchange({edge: new})
                for each in [each for decision in new.selects for edges in decision.edges.values() for each in edges]:
                    each.tried = True

    def select_program(self, trace: Trace) -> Segment:
        """Return a program with selects, compiled."""
        key = "selects", text_of(trace, ())
        if key not in self.programs:
            self.programs[key] = self.compiler.segment(trace, trace, (), ())
        return self.programs[key]

    def exchange(self, edges: Mapping[Edge, Edge]) -> None:
        """Put edges in the place of others."""
        for decision in (self.origin, *self.decisions):
            for outcome, alternatives in decision.edges.items():
                if any([each in edges for each in alternatives]):
                    decision.edges = decision.edges | {outcome: tuple([edges.get(each, each) for each in alternatives])}

    def unselect(self) -> None:
        """Let all conditions be decisions again: what is known behind them has changed."""
        edges = self.all_edges()
        for each in edges:
            each.tried = False
            if each.before is not None:
                each.before.count, each.before.tried = each.count, False
        self.exchange({each: each.before for each in edges if each.before is not None})

    def follow(self, decision: Decision, outcome: Any, values: tuple, inputs: dict[int, Any], args: tuple, kwargs: dict) -> tuple[Edge, tuple] | None:
        """Return the edge that fits this call, and the objects that it read; None where there is none yet."""
        for edge in decision.edges.get(outcome, ()):
            if edge.fits is not None and not edge.fits(values):
                continue
            if edge.check is None:
                return edge, ()
            checked = edge.check(args, kwargs)
            if type(checked) is not Miss:
                inputs.update(zip(edge.slots, checked[0]))
                return edge, checked[1]
        return None

    def _explored(self, decision: Decision, outcome: Any, values: tuple, inputs: dict[int, Any], args: tuple, kwargs: dict) -> tuple:
        """Compile what follows, and run it; return what comes next, as a `Walk` has it."""
        with self.lock:
            self.generators.first.clear()
            if not any([each is decision for each in self.decisions]):  # another thread has forgotten it
                raise Restart
            following = self.follow(decision, outcome, values, inputs, args, kwargs)  # another thread may have been here
            if following is not None:
                return (*following, decision, outcome, values)
            if self.outdated:
                self.notes_size(decision, outcome)
                raise self.start_over(reuses=True)
            self.check_limits(decision, outcome)
            known = decision.edges.get(outcome)
            guards = [edge.refusal(values, args, kwargs) for edge in known or () if edge.eager is None]
            what = f"{decision.what} at {decision.where} was {describe(outcome)}"
            self.on_explore(f"{what}, and {'; '.join(guards)}" if guards else f"{what} for the first time")
            return self.explore(self, decision, outcome, values, inputs, args, kwargs)

    def check_limits(self, decision: Decision, outcome: Any, *, exploring: bool = False) -> None:
        """Go eager where one more edge is too many; `exploring`: a session is there, and can go on."""
        if self.notes_size(decision, outcome):
            if self.answered or not exploring:
                raise self.start_over(reuses=True)
            self.outdated = True  # the first call goes on: there may be more of these, and it would start over for each
        alternatives = decision.edges.get(outcome, ())
        if len(alternatives) >= options.RECOMPILE_LIMIT.read():
            raise GoEager(f"what follows {decision.what} at {decision.where} was compiled {len(alternatives)} times; further calls run eagerly there")
        limit = min(decision.most, options.OUTCOME_LIMIT.read())
        if not alternatives and len(decision.edges) >= limit:
            raise GoEager(
                f"{decision.what} at {decision.where} had {len(decision.edges)} outcomes; calls with others run eagerly. Pad it to a fixed size, "
                "or raise the option outcome_limit"
            )

    def notes_size(self, decision: Decision, outcome: Any) -> bool:
        """Return whether a size of an outcome becomes a symbol, since it differs from an earlier one."""
        return decision.place is not None and self.sizes.note(decision.place, outcome.shapes())

    def check_count(self, where: str, held: int) -> None:
        """Go eager where one more decision, with `held` values of tensors that what follows may read, is too many."""
        limit, count = options.DECISION_LIMIT.read(), len(self.decisions)
        self.held += held
        if count + self.held // _HELD >= limit:
            many = f"more than {limit} values" if count >= limit else f"{count + 1} values, and holds up to {held} tensors between them"
            raise GoEager(f"it needs {many}, the last at {where}; calls run eagerly there. Raise the option decision_limit")

    def add(self, decision: Decision) -> None:
        """Keep a new decision."""
        self.decisions.append(decision)
        if decision.key is not None:
            self.known[decision.key] = (*self.known.get(decision.key, ()), decision)

    def connect(self, decision: Decision, outcome: Any, edge: Edge) -> None:
        """Publish an edge; calls that walk at the same time see the edges from before, or all."""
        decision.edges = decision.edges | {outcome: (*decision.edges.get(outcome, ()), edge)}
        self.unselect()
        self.driver, self.calm = None, 0

    def warn(self, why: str) -> None:
        """Warn once that calls run eagerly."""
        if why not in self.warned:
            self.warned.add(why)
            warnings.warn(f"{getattr(self.fn, '__qualname__', type(self.fn).__name__)}: {why}", stacklevel=4)
