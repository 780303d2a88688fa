"""Gradients of operations on wrappers.

Autograd differentiates an operation on a wrapper as it stands, and not what `__torch_dispatch__` does: its formulas are operations on the
wrapper and on the cotangent, which come to `__torch_dispatch__` again.  So torch's own autograd records the operations on stand-ins.  Where a
plain tensor with such a history leaves them, its backward runs on stand-ins, too, and what it calls is traced as a program of plain
tensors, which is the backward of that result:

    loss = F.linear(x, wrapper).sum()    result, = with_backward(linear's result, x, part of the gradient of wrapper)

The gradient of a wrapper from outside is that of inputs which stand for its parts, see `forms.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from dovetail import prims
from dovetail.errors import EagerCall, Unsupported
from dovetail.frontend.autograd.custom_autograd import WITH_BACKWARD, functional
from dovetail.frontend.autograd.inner_function import copied, flag
from dovetail.frontend.autograd.recorded_backward import BACKWARD
from dovetail.frontend.dtensors import is_dtensor
from dovetail.frontend.subclasses import is_wrapper
from dovetail.frontend.wrappers.forms import Arrival, Parts, enter, parts_of
from dovetail.frontend.wrappers.stand_ins import StandIn
from dovetail.langs.torch import LANGUAGE
from dovetail.prims import recorder as current_recorder
from dovetail.prims.creation import zeros_like
from dovetail.torch_internals import backward_of, no_modes, torch_function
from dovetail.trace import Proxy, TensorProxy, Trace, is_proxy, proxies, recording, requires_grad, substitute, tree_map, user_line

if TYPE_CHECKING:
    from dovetail.frontend.guards.source import Source
    from dovetail.frontend.interpreter.tracking.tracker import Tracker
    from dovetail.frontend.wrappers.dispatching import Wrappers


@dataclass(eq=False)
class RecordedBackward:
    """The backward of results that operations on wrappers have computed.

    Attributes:
        cotangents: stand for those of the results.
        lines: compute the gradients.
        gradients: the gradient of each value that flows on.
        read: what `lines` read.
        problem: why there are no such lines; None where there are.
    """

    cotangents: list[Proxy]
    name: str
    lines: list[Any] = field(default_factory=list)
    gradients: dict[Proxy, Proxy] = field(default_factory=dict)
    read: list[Proxy] = field(default_factory=list)
    problem: Exception | None = None

    def arguments(self) -> list[Proxy]:
        """Return the values whose cotangents the backward computes, and those that it reads."""
        return list(dict.fromkeys([*self.gradients, *self.read]))

    def __call__(self, gs: Sequence[Any], read: Sequence[Any]) -> list[Any]:
        """Return the cotangents of `arguments`, of which `read` has the values."""
        if self.problem is not None:
            raise self.problem
        trace, arguments = current_recorder.get(), self.arguments()
        env: dict[Proxy, Any] = dict(zip(arguments, read, strict=True))
        for p, g in zip(self.cotangents, gs, strict=True):
            env[p] = zeros_like(p) if g is None else g if g.spec.strides is None else prims.clone(g)
        for line in self.lines:
            new = copied(line, env, trace)
            flag(new, False, set())
            trace.lines.append(new)
        gradients = list(substitute(list(self.gradients.values()), env))
        with torch.no_grad():
            once = WITH_BACKWARD(*gradients, results=len(gradients), backward=_Twice(self.name), shared=()) if gradients else ()
        computed = dict(zip(self.gradients, once, strict=True))
        return [computed.get(p) for p in arguments]


@dataclass(eq=False)
class _Twice:
    """The backward of a gradient through wrappers, which is refused."""

    name: str

    def __call__(self, gs: Sequence[Any], read: Sequence[Any]) -> list[Any]:
        """Refuse it."""
        raise Unsupported(f"the gradient of a gradient through a {self.name} is not traced; compute it in eager mode")


@dataclass(eq=False)
class FunctionCall:
    """One call of a torch.autograd.Function with wrappers: `stand_ins` has those of its arguments, `results` those of what it returned."""

    histories: Histories
    tracker: Tracker
    function: Any
    context: Any
    stand_ins: dict[int, Any]
    results: Any = None

    def closed(self, x: Any) -> Any:
        """Return the stand-in of an argument or a result."""
        return self.stand_ins[id(x)] if id(x) in self.stand_ins else self.histories.stand_ins.closed(x)

    def backward(self, gs: Sequence[Any]) -> list[Any]:
        """Return the cotangents of the arguments."""
        stand_ins, environment = self.histories.stand_ins, self.histories.recorder.environment
        with no_modes(), torch_function(), torch.no_grad():
            grads = environment.run(backward_of(self.function), (self.context, *map(stand_ins.opened, gs)), {})
            return [stand_ins.closed(g) for g in (grads if isinstance(grads, tuple) else (grads,))]


class _Applied(torch.autograd.Function):
    """What autograd sees of such a call."""

    @staticmethod
    def forward(ctx: Any, call: FunctionCall, *args: Any) -> Any:
        ctx.call = call
        ctx.set_materialize_grads(call.context.materialized)
        ctx.mark_non_differentiable(*map(call.closed, call.context.constant))
        return call.results

    @staticmethod
    def backward(ctx: Any, *gs: Any) -> tuple:
        return (None, *ctx.call.backward(gs))


class Histories:
    """What autograd knows of the wrappers of one run."""

    def __init__(self, wrappers: Wrappers):
        self.wrappers, self.stand_ins, self.recorder = wrappers, wrappers.stand_ins, wrappers.recorder
        self.arrivals: dict[tuple, tuple[Arrival, Any, list[Proxy]]] = {}
        self.arriving: set[Source] = set()  # where their inputs are read
        self.grads: dict[int, Any] = {}  # id of a wrapper of the program: its `.grad`

    # from stand-ins to traced tensors

    def opened(self, tracker: Tracker, x: Any) -> Any:
        """Return what a result on stand-ins stands for: a plain tensor with a history gets its backward."""
        if type(x) is not StandIn or not x.requires_grad or x.is_leaf:
            return self.stand_ins.opened(x)
        value = self.stand_ins.opened(x)
        if is_wrapper(value):
            self.stand_ins.of_wrappers[id(value)] = x
            return value
        cotangent = current_recorder.get().tensor(value.spec.fresh())
        backward = self._recorded(tracker, [x], [cotangent], [cotangent])
        return self._with_backward([value], backward)[0]

    def leaving(self, tracker: Tracker, wrapper: torch.Tensor) -> tuple[Parts, list[Proxy]] | None:
        """Return the parts of a result that is a wrapper, and those with a gradient with their backward; None where it has no history."""
        x = self.stand_ins.of_wrappers.get(id(wrapper))
        if x is None or not x.requires_grad:
            return None
        parts = parts_of(wrapper)
        if x.is_leaf:
            raise EagerCall(f"the compiled function creates a {type(wrapper).__name__} that requires grad, a leaf, and returns it; create it outside")
        own = [self.recorder.environment._lifted(parts.tensors[i]) for i in parts.floating]
        cotangents = [current_recorder.get().tensor(p.spec.fresh()) for p in own]
        g = self._cotangent(tracker, parts, cotangents)
        return parts, self._with_backward(own, self._recorded(tracker, [x], [g], cotangents))

    def _cotangent(self, tracker: Tracker, parts: Parts, cotangents: list[Proxy]) -> Any:
        """Return a cotangent that looks like a result."""
        with torch.no_grad():
            g = parts.build(parts.replaced(cotangents), self.wrappers.maker(tracker))
            return self.wrappers.one_rank.as_gradient(g) if is_dtensor(g) else g

    def _with_backward(self, values: list[Proxy], backward: RecordedBackward) -> list[Proxy]:
        if not any(map(requires_grad, backward.arguments())):
            if backward.problem is not None:
                raise backward.problem
            return values
        anew = WITH_BACKWARD(*values, *backward.arguments(), results=len(values), backward=backward, shared=())
        for p in anew:
            p.spec = p.spec.like(requires_grad=True)
        return list(anew)

    def applied(self, tracker: Tracker, cls: type, context: Any, args: tuple, results: Any) -> Any:
        """Return the results of a torch.autograd.Function that has run, differentiated by its backward."""
        if context.written:
            raise Unsupported(f"{cls.__name__} writes into arguments and has tensor subclasses; return new tensors\n  called at {user_line()}")
        call = FunctionCall(self, tracker, cls, context, {id(x): self.stand_ins.closed(x) for x in args})
        call.results = tree_map(call.closed, results)
        with self.wrappers.dispatching(tracker):
            out = _Applied.apply(call, *[call.closed(x) for x in args])
        return tree_map(partial(self.opened, tracker), out)

    def property(self, tracker: Tracker, wrapper: torch.Tensor, name: str) -> Any:
        """Return a property of a wrapper that autograd defines."""
        stand_in, source = self.stand_ins.closed(wrapper), tracker.source(wrapper)
        if name == "requires_grad":
            return stand_in.requires_grad
        if name == "grad":
            return self.grads.get(id(wrapper)) if source is None else tracker.reach(wrapper.grad, tracker.sources.attr(source, "grad"))
        if name == "is_leaf":
            outside = source is not None and stand_in.is_leaf
            return tracker.reach(wrapper.is_leaf, tracker.sources.attr(source, "is_leaf")) if outside else stand_in.is_leaf
        if name == "grad_fn" and source is None and stand_in.grad_fn is None:
            return None
        raise EagerCall(f"the .{name} of a {type(wrapper).__name__} is read at {user_line()}, and it is not traced")

    # the backward

    def _recorded(self, tracker: Tracker, roots: list[StandIn], gs: list[Any], cotangents: list[Proxy]) -> RecordedBackward:
        """Return the backward of stand-ins with cotangents `gs`, which consist of `cotangents`."""
        outer, leaves = current_recorder.get(), leaves_of(roots)
        names = [type(x).__name__ for leaf in leaves if is_wrapper(x := self.stand_ins.opened(leaf))]
        backward = RecordedBackward(cotangents, names[0] if names else "tensor subclass")
        inner = Trace(BACKWARD, language=LANGUAGE, environment=outer.environment, constants=outer.constants, names=outer.names, made_by=BACKWARD)
        inner.inputs, inner.relations = list(outer.inputs), outer.relations
        session, outer.environment.session = outer.environment.session, None
        try:
            with recording(inner), torch.no_grad():
                grads = self.pulled(tracker, roots, leaves, gs)
                backward.gradients = self._flowing(tracker, leaves, grads)
                values = functional(inner, 0, list(backward.gradients.values()), cotangents)
            if any([line.mutates for line in inner.lines]):
                raise Unsupported(f"the backward of a {backward.name} writes into a tensor from outside of it; compute it in eager mode")
        except Exception as error:
            return self._refusing(tracker, leaves, backward, error)
        finally:
            outer.environment.session = session
        backward.gradients = dict(zip(backward.gradients, values, strict=True))
        own = {*cotangents, *(p for line in inner.lines for p in line.writes)}
        read = [p for line in inner.lines for p in line.reads] + proxies(values)
        backward.lines, backward.read = inner.lines, [p for p in dict.fromkeys(read) if p not in own and p not in outer.constants]
        return backward

    def _refusing(self, tracker: Tracker, leaves: list[StandIn], backward: RecordedBackward, error: Exception) -> RecordedBackward:
        """Return a backward that raises where it is needed."""
        backward.problem = error
        for value in map(self.stand_ins.opened, leaves):
            if is_proxy(value):
                backward.read.append(value)
            elif (source := tracker.source(value)) is not None:
                spec = (), value.dtype, value.device
                example = parts_of(torch.zeros((), dtype=value.dtype, device=value.device))
                backward.read += self._arrival(tracker, source, value, Arrival(type(value).__name__, [spec], example, {}))
        return backward

    def pulled(self, tracker: Tracker, roots: list[StandIn], leaves: list[StandIn], gs: list[Any]) -> list[Any]:
        """Return the gradients of leaves, traced tensors or wrappers, None where nothing flows."""
        if not leaves:
            return []
        closed = [self.stand_ins.closed(g) for g in gs]
        self.stand_ins.count_writes()
        with self.wrappers.dispatching(tracker), torch.autograd.set_multithreading_enabled(False):
            grads = torch.autograd.grad(roots, leaves, closed, retain_graph=True, allow_unused=True)
        return [self.stand_ins.opened(g) for g in grads]

    def _flowing(self, tracker: Tracker, leaves: list[StandIn], grads: list[Any]) -> dict[Proxy, Proxy]:
        """Return the gradients of traced tensors: of those that entered, and of inputs that stand for gradients of arguments."""
        flowing: dict[Proxy, Proxy] = {}
        for leaf, g in zip(leaves, grads, strict=True):
            if g is None:
                continue
            value = self.stand_ins.opened(leaf)
            if isinstance(value, TensorProxy) and is_proxy(g):
                pairs = [(value, g)]
            else:
                pairs = self._arriving(tracker, value, g)
            for p, gradient in pairs:
                flowing[p] = gradient if p not in flowing else flowing[p] + gradient
        return flowing

    def _arriving(self, tracker: Tracker, value: Any, g: Any) -> list[tuple[Proxy, Proxy]]:
        """Return the inputs that stand for the gradient of an argument, and the values of their gradients."""
        source = tracker.source(value)
        if is_proxy(value) and value not in self.recorder.real:
            source = None
        if source is None and is_wrapper(value):
            raise EagerCall(f"the function creates a {type(value).__name__} that requires grad, and returns what is computed from it")
        if source is None:
            raise Unsupported(
                f"the gradient of a plain tensor that the function computes is a {type(g).__name__}, which would flow through plain operations; "
                f"make a {type(g).__name__} of the tensor first\n  called at {user_line()}"
            )
        if current_recorder.get().made_by != BACKWARD or self.recorder.environment.finished:
            raise Unsupported(f"a gradient of a {type(value).__name__} is not traced inside a transform of torch.func; call it outside")
        parts = parts_of(g)
        computed = [parts.tensors[i] for i in parts.floating]
        return list(zip(self._inputs(tracker, source, value, parts), computed, strict=True))

    def _inputs(self, tracker: Tracker, source: Source, value: Any, parts: Parts) -> list[Proxy]:
        """Return the inputs that stand for a gradient of these parts of the argument at a source."""
        floating = set(parts.floating)
        own = {} if is_proxy(value) else {self._lifted(x): i for i, x in enumerate(parts_of(value).tensors)}
        held = {i: own.get(self._lifted(x)) for i, x in enumerate(parts.tensors) if i not in floating}
        if None in held.values():
            kind = parts.kinds[0][0].__name__
            raise Unsupported(f"the gradient of a {type(value).__name__} is a {kind} with integers that the backward computes; use eager mode")
        specs = [(tuple(map(int, x.shape)), x.dtype, x.device) for i, x in enumerate(parts.tensors) if i in floating]
        return self._arrival(tracker, source, value, Arrival(type(value).__name__, specs, parts, held))

    def _arrival(self, tracker: Tracker, source: Source, value: Any, arrival: Arrival) -> list[Proxy]:
        """Return the inputs of an arrival, one for each of its parts."""
        key = source, repr(arrival.specs), repr(arrival.parts.kinds)
        if key not in self.arrivals:
            fresh = tracker.sources.fresh(source, len(tracker.calls), enter(arrival))
            examples = [x.requires_grad_() for x in map(torch.Tensor.clone, arrival.examples())]
            items = [tracker.sources.item(fresh, i) for i in range(len(examples))]
            tracker.calls += [fresh, *items]
            self.arriving |= {fresh, *items}
            inputs = [self.recorder.add_input(item, x) for item, x in zip(items, examples, strict=True)]
            self.arrivals[key] = arrival, value, inputs
        return self.arrivals[key][-1]

    def _lifted(self, x: Any) -> Any:
        return x if is_proxy(x) else self.recorder.inputs.get(id(x), x)


def leaves_of(roots: Sequence[StandIn]) -> list[StandIn]:
    """Return the stand-ins that require grad and that others are computed from."""
    leaves, seen, nodes = {}, set(), [x.grad_fn for x in roots]
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if type(variable := getattr(node, "variable", None)) is StandIn:
            leaves[id(variable)] = variable
        nodes += [following for following, _ in node.next_functions]
    return list(leaves.values())
