"""One exploration: the function is interpreted with the known outcomes forced, then segments are compiled and run as they come."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from dovetail import prims
from dovetail.errors import DovetailError, EagerCall, LeftToAutograd, TracedValueError, Unsupported
from dovetail.executors.trials.judge import GradientDisagreement
from dovetail.frontend.autocast import autocast_state
from dovetail.frontend.autograd.traced_autograd import without_graph
from dovetail.frontend.class_lookup import address_of
from dovetail.frontend.decisions.counters import CountedRange
from dovetail.frontend.decisions.counting import CountingRequester
from dovetail.frontend.decisions.driver import GoEager
from dovetail.frontend.decisions.ends import End, sizes_read
from dovetail.frontend.decisions.graph import Graph
from dovetail.frontend.decisions.late_sizes import ArgumentSizes, LateSizes, has_sizes, symbols_of, widths
from dovetail.frontend.decisions.nodes import Decision, Edge, Leaf, describe
from dovetail.frontend.decisions.requests import Need, Request, Requester
from dovetail.frontend.decisions.segments import GuardKey, Segment, follow_gradients, foreign, needed, refuse_overlap, result_form, text_of
from dovetail.frontend.decisions.state import Reader, Same, State, source_key
from dovetail.frontend.environment import moves_generator
from dovetail.frontend.guards.guard import Guard, Miss
from dovetail.frontend.guards.prologue import prologue
from dovetail.frontend.guards.source import Source
from dovetail.frontend.interpreter.engine import Abandon
from dovetail.frontend.interpreter.handlers import is_handled
from dovetail.frontend.interpreter.tracking import Captured, PendingWrites, Tracker, capture, is_own_error, raised_in
from dovetail.frontend.recording.array_choices import ArrayChoices
from dovetail.frontend.recording.torch_recorder import TorchRecorder
from dovetail.frontend.recording.tracked_environment import TrackedEnvironment
from dovetail.langs.torch import LANGUAGE, CopiedRow, check_copies, check_returned_rows
from dovetail.prims import recorder
from dovetail.prims.op import no_recorder
from dovetail.prims.sizes import Relations
from dovetail.torch_internals import no_torch_function, restores_modes, set_grad_enabled
from dovetail.trace import Proxy, TensorProxy, Trace, recording, requires_grad, user_line, user_operation
from dovetail.trace.collector import without_collector
from dovetail.trace.passes.functionalize import Functionalizer, written_inputs
from dovetail.trace.passes.grad import constants_in
from dovetail.trace.proxies import no_value
from dovetail.trace.raising import ERRORS
from dovetail.trace.source_location import CodeMap


class Joined(Abandon):
    """The rest of the call is known."""


class Session(CountingRequester):
    """The exploration of one outcome of a decision; of the origin, the way to the first decision, and what follows it where it `goes_on`.

    Attributes:
        at_root: whether there is no decision before what is interpreted.
        values: the real values that arrive at the decision in question, and those that came with its outcome.
        here: which values of the pure program stand where among `values`.
        inputs: the real tensors of this call: slot -> tensor.
        forced: the steps that are known, the next first: the counters of a state that were widened, the outcome, the sizes of the call from there on.
        path: the steps so far.
        missed: why guards of this call do not hold.
    """

    restarts = True

    def __init__(
        self, graph: Graph, decision: Decision, outcome: Any, values: tuple, inputs: dict[int, Any], args: tuple, kwargs: dict, goes_on: bool
    ):
        super().__init__()
        self.graph, self.decision, self.outcome, self.values, self.inputs = graph, decision, outcome, values, inputs
        self.args, self.kwargs, self.goes_on = args, kwargs, goes_on
        self.at_root = decision is graph.origin
        sizes = {number: values[i] for i, number in decision.sizes}
        self.forced = [] if self.at_root else [*decision.path, (decision.widened, outcome, sizes)]
        self.path, self.here = tuple[Any, ...](), dict[Proxy, int]()
        self.written: dict[Proxy, tuple[Any, str, str]] = {}  # texts of values, which the states of the run share
        self.constant, self.searched = set[Proxy](), 0  # values without a history, and before which line they were looked for
        self.places: dict[Proxy, int] = {}  # an input -> its slot
        self.guarded: dict[GuardKey, Guard] = {}  # the guards of values so far
        self.counted_guards = 0  # of the tracker's
        self.generators = 0  # of torch, which the program has created
        self.of_classes: tuple[int, dict[GuardKey, Guard]] = 0, {}  # those of classes, and of how many classes and attributes

    @property
    def raises_late(self) -> bool:
        return not is_handled()

    @property
    def reads_positions(self) -> bool:
        return self.is_open and self.graph.assumptions.reads_positions

    def created(self, new: torch.Generator) -> torch.Generator:
        self.generators += 1
        return self.graph.created.setdefault((self.generators, new.device), new)

    def run(self) -> tuple:
        """Return what comes next, as a `Walk` has it; nothing where it ends at the first decision."""
        graph = self.graph
        self.drawn = torch.default_generator.get_state()
        self.objects: tuple = ()
        self.arguments: ArgumentSizes | None = None
        environment = TrackedEnvironment(LANGUAGE)
        environment.read.add("default_dtype")  # guarded in the root, where it costs least: most programs read it sooner or later
        self.attach(Trace(language=LANGUAGE, environment=environment), environment)
        environment.computes = graph.assumptions.computes
        sizes = ArgumentSizes(*graph.arguments, graph.hints, graph.numbers, graph.start_over) if graph.arguments is not None else None
        arrays = ArrayChoices(inputs=graph.arrays_in(self.args, self.kwargs), creates=graph.assumptions.creates)
        self.recorder = TorchRecorder(self.trace, environment, sizes, arrays)
        self.recorder.is_compiling = graph.assumptions.is_compiling
        self.functionalizer = Functionalizer(self.trace.derive("functionalize"), self.trace, graph.grad)
        self.late = LateSizes(Relations(user_line, user_operation) if sizes is None else sizes.relations)
        try:
            with without_collector(), recording(self.trace), self.recorder.settings.restored():
                edge = self.finish(*capture(graph.fn, self.args, self.kwargs, self.recorder))
        except Joined:
            if self.at_root:
                return ()
            following = graph.follow(self.decision, self.outcome, self.values, self.inputs, self.args, self.kwargs)
            return (*following, self.decision, self.outcome, self.values)
        except GoEager as reason:
            self.give_up(reason)
            raise
        except GradientDisagreement as wrong:
            raise GoEager("", lasting=False) from wrong
        except Exception as error:
            raise self.way_out(error) from error
        finally:
            self.late.relations.close()
            environment.session = None
            environment.forget()
        graph.came_to_end()
        return edge, self.values, self.objects

    def way_out(self, error: Exception) -> GoEager:
        """Return what to raise for an error of tracing: a restart with other assumptions where that may help, else the reason to run eagerly."""
        assumptions, recorder = self.graph.assumptions, self.recorder
        if self.environment.reals and assumptions.computes and isinstance(error, DovetailError):
            return self.graph.start_over(computes=False)
        if (self.late or recorder.sizes) and isinstance(raised_in(error), DovetailError):
            return self.without_symbols()
        if isinstance(error, (TracedValueError, Unsupported)) and recorder.choices.created and recorder.inside is not None:
            return self.graph.start_over(creates=True)
        if isinstance(error, CopiedRow) and not assumptions.reads_positions:
            return self.graph.start_over(reads_positions=True)
        if assumptions.is_compiling and recorder.checks_compiling and is_own_error(error):
            return self.graph.start_over(is_compiling=False)
        return self.give_up(self.eager(error))

    def give_up(self, reason: GoEager) -> GoEager:
        """Let all calls that come here run eagerly, where the reason lasts; return that."""
        if reason.lasting and not self.at_root and not self.decision.edges.get(self.outcome):
            self.graph.connect(self.decision, self.outcome, Edge(eager=str(reason) or f"it raised {type(reason.raised).__name__}"))
        return reason

    def eager(self, error: Exception) -> GoEager:
        """Return the reason to run eagerly after an error: nothing to tell where it is the program's own."""
        if isinstance(error, EagerCall) and str(error) not in self.graph.eager_once:  # the next call may find a cache filled
            self.graph.eager_once.add(str(error))
            return GoEager("", lasting=False)
        if isinstance(error, PendingWrites) or is_own_error(error):
            return GoEager("", raised=raised_in(error))
        return GoEager(f"calls run eagerly {self.place()}, since tracing what follows raised {type(error).__name__}: {error}")

    def place(self) -> str:
        """Return where this exploration is, for messages."""
        return f"after {self.decision.what} at {self.decision.where}" if self.decision.where else "altogether"

    def start_again_after(self, error: TracedValueError) -> None:
        self.graph.assume(handles_errors=True)
        self.graph.need = self.graph.need or Need(user_line(), error, handled=True)

    # decisions

    def decide(self, request: Request) -> tuple[Any, dict[Proxy, int]]:
        self.cuts += 1
        if self.graph.need is None and request.reads:
            self.graph.need = Need(user_line(), no_value(request.reads[0]))
        self.check_restartable()
        if is_handled(ERRORS):  # those of an operation that runs between two segments
            self.graph.assume(handles_errors=True)
        self.environment.tracker.keep_apart()
        self.read_arguments()
        self.flush()
        self.functionalizer.cut()
        reads = [*[self.functionalizer.current(p) for p in request.reads], *request.inputs]
        if self.graph.grad:  # autograd takes no part of a segment for a view of what the call writes at its end
            self.functionalizer.hide_views({p for p, slot in self.places.items() if slot in self.graph.written})
        if len(self.forced) > 1 and not self.forced[0][0] and self.graph.passes_over(self.decision):
            return self.passed()
        state = self.state(request, reads)
        if not self.forced:
            self.check_ranges()
        widened = self.forced[0][0] if self.forced else self.to_widen(request, state)
        if widened:
            self.counters |= {state.counters[i].widen() for i in widened}
            self.flush()
            state = self.state(request, reads)
        self.arriving = self.values_for(reads, state)
        where, names = user_line(), state.names if state.key is not None else None
        if self.forced:
            self.late.arrive(names)
            return self.replayed(request, state, where), self.here
        decision, edge = self.next_decision(request, reads, state, where, widened)
        self.connect(edge)
        if self.at_root and (edge.eager is not None or not self.goes_on):
            raise Joined
        self.late.arrive(names)
        self.advance(edge)
        with self.native():
            outcome, more = decision.step(self.values)
        self.drawn = torch.default_generator.get_state()
        self.decision, self.outcome, self.values = decision, outcome, self.values + more
        self.here, self.path = self.arriving, (*self.path, (widened, outcome, {}))
        if self.at_root:
            self.at_root = False
            self.graph.own_sizes()
            self.late.relations.reopen()
            self.graph.on_explore(f"{decision.what} at {where} was {describe(outcome)} for the first time")
        if outcome in decision.edges and self.graph.follow(decision, outcome, self.values, dict(self.inputs), self.args, self.kwargs) is not None:
            raise Joined
        self.graph.check_limits(decision, outcome, exploring=True)
        return outcome, self.here

    def passed(self) -> tuple[Any, dict[Proxy, int]]:
        """Return an outcome on the way to the last one that is known: the state there, which takes longest to read, is not needed."""
        step = self.forced.pop(0)
        self.path += (step,)
        self.functionalizer.new.lines.clear()
        self.late.move(step[2])
        return step[1], {}

    def replayed(self, request: Request, state: State, where: str) -> Any:
        """Return an outcome that is known; what arrives at the last one has to be what arrived there before."""
        step = self.forced.pop(0)
        self.path += (step,)
        self.functionalizer.new.lines.clear()
        self.here = self.arriving
        if not self.forced:
            decision = self.decision
            key = (request.mark, state.key) if state.key is not None else None
            same = (decision.where, decision.width) == (where, widths(self.arriving, self.late))
            if not same or (None not in (key, decision.key) and key != decision.key):
                raise self.graph.differs(decision, where)
        _, outcome, sizes = step
        self.late.move(sizes)
        return outcome

    def next_decision(self, request: Request, reads: list[Proxy], state: State, where: str, widened: tuple[int, ...]) -> tuple[Decision, Edge]:
        """Return the decision that this one is, one that is known or a new one, and the segment that leads to it."""
        graph, key = self.graph, (request.mark, state.key) if state.key is not None else None
        for known in graph.known.get(key, ()) if key is not None else ():
            if known.width == widths(self.arriving, self.late) and (edge := self.edge(known, list(self.arriving))) is not None:
                return known, edge
        graph.check_count(where, len(self.arriving))
        index = [self.arriving[p] for p in reads]
        guards, inputs = self.guards(), self.known_inputs()
        decision = Decision(key, state.problem, where, request.what, self.path, request.step, index, widths(self.arriving, self.late), guards, inputs)
        decision.text, decision.place = request.text, request.place
        decision.sizes = [(i, self.late.number(atom)) for atom in self.late.places if (i := self.arriving.get(atom.proxy)) is not None]
        decision.most, decision.widened = request.most or decision.most, widened
        edge = self.edge(decision, list(self.arriving))
        if edge is None:
            raise GoEager(f"the guards of this call do not hold at {where}: {self.missed}")
        graph.add(decision)
        return decision, edge

    def check_restartable(self) -> None:
        """Go eager where the call could not start again after what runs before this point, or where tracing changed what is around it."""
        tracker = self.environment.tracker
        self.recorder.settings.guard(tracker, self.environment.read)
        if tracker.refusal is not None:
            raise tracker.refusal
        if any(map(self.recorder.is_of_gradients, tracker.calls)):
            raise GoEager("it has a gradient that arrives at a tensor subclass, besides")
        if tracker.calls and {*tracker.calls} <= {*self.recorder.autograd.marked.values()}:
            self.graph.assume(marks=True)
            raise GoEager("it calls requires_grad_() on a tensor from outside, besides")
        if tracker.calls:
            raise GoEager("it draws from a random generator of Python's or NumPy's, or reads a clock, besides")
        if moves_generator(self.drawn, tracked=True):
            raise GoEager("the function moves torch's generator while it is traced")

    def flush(self) -> None:
        """Add the lines since the last decision to the pure program."""
        self.functionalizer.new.relations = self.trace.relations
        lines = self.trace.lines
        self.functionalizer.extend(lines[self.visited :])
        self.visited = len(lines)
        for source, p in self.recorder.sources[len(self.places) :]:
            self.places[p] = self.graph.slot(source_key(source))
        if self.is_differentiated():
            self.graph.note_written({self.places[p] for p in self.functionalizer.writes if p in self.places})
        if self.graph.grad:
            follow_gradients(self.functionalizer.new.lines, self.constants())
        elif any([requires_grad(p) and p not in self.recorder.autograd.leaves for line in self.functionalizer.new.lines for p in line.writes]):
            raise GoEager("the function switches grad mode on itself")

    def state(self, request: Request, reads: list[Proxy]) -> State:
        """Return the state of the interpreter."""
        autograd = self.recorder.autograd
        reader = Reader(self.environment.tracker, self.functionalizer, self.places.get, self.numbers)
        reader.written, reader.sized = self.written, self.sized
        reader.marked = autograd.spent, autograd.retained, autograd.leaves, autograd.frozen, self.freed
        modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), repr(autocast_state())
        settings = *modes, torch.get_default_dtype(), repr(torch.get_default_device())
        gradients = reader.of([autograd.pending(), *[list(each.items()) for each in (autograd.hooks, autograd.after, autograd.frozen)]])
        fixed = frozenset([(source_key(at), self.numbers[n]) for n, (at, _) in self.recorder.changing.read.items() if n in self.numbers])
        context = settings, tuple(map(reader.held, reads)), gradients, reader.of(list(self.put_in)), fixed
        state = reader.read(OWN, Session.run.__code__, context)
        self.flush_views()
        if self.late:
            self.check_sizes()
            state.key = state.key and (state.key, self.late.facts(state.names))
        return state

    def flush_views(self) -> None:
        """Reading a value may have derived views again, which are lines of the segment."""
        if self.graph.grad:
            follow_gradients(self.functionalizer.new.lines, self.constants())

    def constants(self) -> set[Proxy]:
        """Return the values through which no gradient flows."""
        self.constant |= constants_in(self.trace.lines[self.searched :])
        self.searched = len(self.trace.lines)
        return {*[p for p in self.constant if not requires_grad(p)], *self.recorder.autograd.spent}

    def values_for(self, reads: list[Proxy], state: State) -> dict[Proxy, int]:
        """Return the values that arrive at the decision, in their order: what is asked for, then what the rest of the program may read."""
        wanted = [*reads, *[p for p in state.live if p not in self.places]]
        wanted += self.late.kept(state.names)
        if self.graph.assumptions.keeps_all:
            wanted += [*self.here, *[p for line in self.functionalizer.new.lines for p in line.writes]]
        return {p: i for i, p in enumerate(dict.fromkeys(wanted))}

    def guards(self) -> dict[GuardKey, Guard]:
        """Return all guards so far; of those of values, only the ones since the last decision are new."""
        tracker = self.environment.tracker
        for guard in itertools.islice(tracker.guards.values(), self.counted_guards, None):
            self.guarded[GuardKey(guard)] = guard
        self.counted_guards = len(tracker.guards)
        attributes = len(tracker.natives) + sum(map(len, tracker.natives.values()))
        if attributes != self.of_classes[0]:
            self.of_classes = attributes, {GuardKey(guard): guard for guard in tracker.class_guards()}
        return self.guarded | self.of_classes[1]

    def known_inputs(self) -> dict[int, tuple[Source, Proxy]]:
        return {self.places[p]: (source, p) for source, p in self.recorder.sources}

    # segments

    def edge(self, target: Decision | Leaf, wanted: list[Proxy], sources: Sequence[Source] = ()) -> Edge | None:
        """Compile the lines since the last decision; None where `target` needs what does not hold in this call."""
        self.check_sizes()
        source, lines = self.decision, list(self.functionalizer.new.lines)
        if (why := self.graph.generators.note(lines)) is not None and not (self.at_root and self.graph.generators.communicate(lines)):
            raise GoEager(f"{why}, which a call that starts again would repeat")
        edge = Edge(target=target, eager=why)
        if self.at_root:
            self.here = self.late.start()
            self.graph.first_sizes = sizes_read(self.here, self.places)
        elif not self.check(edge, source, target, sources):
            return None
        computed = {p for line in lines for p in line.writes}
        lines = needed(lines, wanted)
        reads = dict.fromkeys([p for line in lines for p in line.reads if p not in computed and p not in self.trace.constants])
        outputs = list(dict.fromkeys([p for p in wanted if p in computed]))
        sizes = symbols_of(lines, [*reads, *outputs]) if self.late else {}
        reads |= dict.fromkeys([atom.proxy for atom in sizes])
        position = {p: i for i, p in enumerate(outputs)}
        edge.takes = [self.origin_of(p) for p in reads]
        edge.gives = [
            (0, position[p]) if p in computed else (1 if live else 2, i)
            for p in wanted
            for live, i in [(True, 0) if p in computed else self.origin_of(p)]
        ]
        edge.trace = self.functionalizer.new.derive(
            "segment", inputs=list(reads), lines=lines, outputs=tuple(outputs), constants=self.trace.constants
        )
        if not sizes and not (self.late and has_sizes(lines, [*reads, *outputs])):
            edge.trace.relations = None
        with self.late.apart():
            if lines and why is None:
                edge.segment = self.program(edge.trace)
            self.check_sizes()
            if self.at_root and not self.check(edge, source, target, sources):
                return None
            edge.conditions = {} if self.at_root else self.late.conditions(self.here)
        edge.connect()
        return edge

    def origin_of(self, p: Proxy) -> tuple[bool, int]:
        """Return where a value is before the segment: (True, position among the values), or (False, slot of an input)."""
        if p in self.here:
            return True, self.here[p]
        if p in self.places:
            slot = self.places[p]
            return False, ~slot if slot in self.graph.assumptions.aliased else slot
        if self.graph.assumptions.keeps_all:
            at = f" at {self.decision.where}" if self.decision.where else ""
            raise GoEager(f"the value {p.name} is needed after {self.decision.what}{at}, which did not keep it")
        raise self.graph.start_over(keeps_all=True)  # code that cannot be looked into holds values

    def check(self, edge: Edge, source: Decision, target: Decision | Leaf, sources: Sequence[Source]) -> bool:
        """Give an edge the guards and inputs that its target has and its source lacks; return whether they hold in this call."""
        guards, inputs = self.guards(), self.known_inputs()
        if isinstance(target, Decision):
            guards, inputs = target.guards | guards, target.inputs | inputs
        more = [guard for key, guard in guards.items() if key not in source.guards]
        tensors = {slot: at for slot, at in inputs.items() if slot not in source.inputs}
        if not (more or tensors or sources or self.at_root):
            return True
        numbers, sizes = (self.here, self.arguments) if self.at_root else ((), None)
        trace = Trace(inputs=[*[p for _, p in tensors.values()], *numbers], names=self.trace.names)
        more = [guard for guard in source.guards.values() if guard.source.kind == "arg"] + more  # so that an executor may check all in its own code
        changing = {address_of(write.owner) for write in self.environment.tracker.effects.log}
        distinct = self.recorder.autograd.changed() if self.at_root else ()
        known = target.inputs.values() if isinstance(target, Decision) else ()
        readable = [*foreign(known, self.recorder.sources, self.trace.names), *tensors.values()]  # the latter where one is both
        edge.prologue = prologue(more, readable, sources, trace, run=_inputs, changing=changing, distinct=distinct, sizes=sizes)
        if not self.at_root:  # the modes around the call are those that the root has checked
            edge.prologue.lines = [line for line in edge.prologue.lines if line.symbol is not prims.check_modes]
        edge.check, edge.slots = self.graph.compiler.prologue(edge.prologue), list(tensors)
        with self.native():
            checked = edge.check(self.args, self.kwargs)
        if type(checked) is Miss:
            self.missed = checked.reason
            return False
        self.inputs.update(zip(edge.slots, checked[0]))
        if self.at_root:
            self.values = checked[0][len(edge.slots) :]
        self.objects = checked[1]
        return True

    def program(self, segment: Trace) -> Segment:
        """Return a segment compiled; segments that are equal but for the names in them share one program."""
        written = [p for p in segment.inputs if self.places.get(p) in self.graph.written]
        key = text_of(segment, set(written), self.recorder.autograd.spent) if segment.relations is None else Same(segment), repr(autocast_state())
        known = self.graph.programs.get(key)
        if known is None and (known := self.graph.former.pop(key, None)) is not None:
            self.graph.programs[key] = known
        if known is None:
            self.environment.session, self.environment.finished = None, True
            try:
                with self.native():
                    known = self.graph.programs[key] = self.graph.compiler.segment(segment, self.trace, written, self.constants())
            except LeftToAutograd as error:  # of which the segments run without
                raise self.graph.start_over() from error
            except Exception as error:
                if segment.relations is not None:
                    raise self.without_symbols() from error
                raise GoEager(f"calls run eagerly {self.place()}, since compiling what follows raised {type(error).__name__}: {error}") from error
            finally:
                self.environment.session, self.environment.finished = self, False
        return known

    def connect(self, edge: Edge) -> None:
        """Publish a segment."""
        self.functionalizer.new.lines.clear()
        self.graph.connect(self.decision, self.outcome, edge)

    def advance(self, edge: Edge) -> None:
        """Run a segment of this call."""
        with self.native():
            self.values = edge.advance(self.values, self.inputs)
        edge.count += 1

    @contextmanager
    def native(self) -> Iterator[None]:
        """Compute with real tensors while open, with the settings of torch as they are around the call."""
        token, grad = recorder.set(no_recorder), torch.is_grad_enabled()
        around = torch.inference_mode(False) if self.recorder.settings.entered else nullcontext()
        modes = nullcontext() if restores_modes() else no_torch_function()
        try:
            with modes, around, self.recorder.settings.as_before():
                set_grad_enabled(self.graph.grad)
                yield
        finally:
            set_grad_enabled(grad)
            recorder.reset(token)

    # the end

    def finish(self, tracker: Tracker, captured: Captured) -> Edge:
        """Compile the end of the path, and run it but for what it writes; return the edge that leads there."""
        self.check_restartable()
        if self.forced:
            raise GoEager("the function does not do the same twice")
        self.read_arguments()
        self.flush()
        trace = self.trace
        trace.outputs = tuple(self.recorder.results)
        check_copies(trace)
        check_returned_rows(trace)
        pure, epilogue = self.functionalizer.finish()
        self.flush_views()
        written = [self.places[p] for p in written_inputs(epilogue) if p in self.places]
        self.note_written(set(written))
        buffers = tracker.buffers
        numbers = [atom.proxy for atom in symbols_of(epilogue.lines, epilogue.inputs)] if self.late else []
        epilogue.inputs += numbers
        key = self.leaf_key(epilogue, captured, written) if not (buffers or numbers) else None
        leaf = self.graph.leaves.get(key) or Leaf(self.finisher(epilogue, captured, written), self.end(epilogue, captured), self.known_inputs())
        edge = self.edge(leaf, [*pure.outputs, *numbers], [*captured.sources, *buffers])
        if edge is None:
            raise GoEager(f"the guards of this call do not hold at its end: {self.missed}")
        if self.at_root:  # no value was needed after all
            self.connect(edge)
            raise Joined
        self.advance(edge)
        with self.native():
            refuse_overlap(self.inputs, written, tuple(buffers.values()))
        self.connect(edge)
        if key is not None:
            self.graph.leaves[key] = leaf
        return edge

    def leaf_key(self, epilogue: Trace, captured: Captured, written: Collection[int]) -> Any:
        """Return a key that is equal for ends that do the same; None where an end does more than return tensors."""
        if written or captured.effects or captured.sources or self.recorder.autograd.used or self.recorder.result_builders():
            return None
        form = result_form(captured.value, self.recorder.results)
        return None if form is None else (form, tuple([self.places[p] for p in self.trace.inputs]), text_of(epilogue, ()))

    def note_written(self, written: set[int]) -> None:
        """Compile all segments again where this path writes inputs that they may have saved for their backward."""
        graph = self.graph
        kept = [p for p in self.trace.outputs if requires_grad(p) and p not in self.freed]
        if not kept and self.functionalizer.followed.isdisjoint(self.trace.inputs):
            return  # nothing that the path has saved is read after it
        if not graph.written >= written and self.is_differentiated():
            graph.written |= written
            raise graph.start_over(reuses=True)

    def is_differentiated(self) -> bool:
        """Return whether segments may save inputs for their backward."""
        return self.graph.grad and any([isinstance(p, TensorProxy) and p.spec.requires_grad for p in self.trace.inputs])

    def end(self, epilogue: Trace, captured: Captured) -> End:
        """Return what happens at the end, as text."""
        why, slots = (
            "a result is a parameter, a leaf or an array" if self.recorder.result_builders() else "",
            [self.places[p] for p in self.trace.inputs],
        )
        return End.of(epilogue, slots, captured.value, self.environment.tracker.effects.log, self.recorder.results, why)

    def finisher(self, epilogue: Trace, captured: Captured, written: Collection[int]) -> Any:
        """Return the function that writes inputs, makes views, and builds the result."""
        if not self.graph.finishes:
            return lambda inputs, values, objects: values
        run, _ = self.graph.compiler.epilogue(epilogue)
        slots = [self.places[p] for p in self.trace.inputs]
        build = without_graph(self.recorder.autograd, self.recorder.build(captured))

        def finish(inputs: dict[int, Any], values: tuple, objects: tuple) -> Any:
            if written:
                refuse_overlap(inputs, written, objects[len(captured.sources) :])
            return build(run(*[inputs[slot] for slot in slots], *values), objects)

        return finish


def _inputs(*inputs: Any, objects: tuple = ()) -> tuple[tuple, tuple]:
    return inputs, objects


_OWN = [function.__code__ for kind in Session.__mro__ for function in vars(kind).values() if hasattr(function, "__code__")]
OWN = CodeMap([(code, True) for code in (*_OWN, Requester.is_open.fget.__code__, CountedRange.__next__.__code__)])


def explore(
    graph: Graph, decision: Decision, outcome: Any, values: tuple, inputs: dict[int, Any], args: tuple, kwargs: dict, goes_on: bool = True
) -> tuple:
    """Compile what follows an outcome, and run it for this call; return what `Session.run` does."""
    return Session(graph, decision, outcome, values, inputs, args, kwargs, goes_on).run()
