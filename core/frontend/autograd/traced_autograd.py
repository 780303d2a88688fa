"""Autograd as a program uses it while it is traced: backward(), torch.autograd.grad, `.grad`, hooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MethodType
from typing import TYPE_CHECKING, Any

import torch

from dovetail import prims
from dovetail.errors import EagerCall, Unsupported, require
from dovetail.frontend.autograd.created_leaves import (
    computed_from,
    detach_earlier_reads,
    is_base_of_written,
    is_view_of_written,
    is_written,
    untracked_views,
)
from dovetail.frontend.autograd.custom_autograd import WITH_BACKWARD, OwnBackward
from dovetail.frontend.autograd.deep_copies import DeepCopies
from dovetail.frontend.autograd.hooks import Node, RemovableHook, UntracedNode, add_hook
from dovetail.frontend.autograd.nested_grad import in_dtype_of
from dovetail.frontend.autograd.recorded_backward import BACKWARD, Hook, Hooked, Request, record_gradients
from dovetail.langs.torch import LANGUAGE, symbol_for
from dovetail.prims import recorder as current_recorder
from dovetail.torch_internals import freed_graph
from dovetail.trace import Proxy, TensorProxy, Trace, is_proxy, requires_grad, user_line
from dovetail.trace.aliases import tracked_views

if TYPE_CHECKING:
    from dovetail.frontend.guards.source import Source
    from dovetail.frontend.interpreter.tracking.tracker import Tracker

UNUSED = "One of the differentiated Tensors appears to not have been used in the graph. Set allow_unused=True if this is the desired behavior."
_NO_LEAF = "you can only change requires_grad flags of leaf variables; use x.detach() where no gradient is to flow to a computed one"
_OF_WRITTEN_VIEW = (
    "the gradient of a tensor that has views is not traced where it has a hook, or is retained, and the program writes by a view\n  called at {}"
)
_LINEAR = symbol_for("torch.nn.functional.linear")
_HOOK_TABLES = ("_backward_hooks", "_post_accumulate_grad_hooks")


class TracedAutograd:
    """What autograd knows of the tensors of one trace.

    Attributes:
        recorder: the TorchRecorder of the trace.
        grads: what the program has set `.grad` of a tensor to.
        leaves: tensors computed by the program that it has called requires_grad_() on, and parameters that it has created, each with the
            values of pure lines that stand for it.
        marked: tensors from outside that it has called requires_grad_() on, before it read them, each with that call.
        frozen: leaves that it has called requires_grad_(False) on, and tensors that it has called detach_() on: the detached views of them that
            lines read from there on.
        parameters: the parameters among the tensors that the program has created.
        hooks: hooks on the gradients of tensors that the program has registered, by number.
        points: for each hook on the gradient of a value, by its number, a copy of what the value was when it was registered: nothing reads it.
        after: hooks that run once a gradient is accumulated.
        nodes: the nodes that the program has read as `.grad_fn` of tensors, and may have registered hooks on.
        untraced_nodes: those that it has read of other tensors.
        retained: tensors that keep their gradient though they are no leaves.
        spent: values whose graph a backward has freed.
        derived: values with a history that were computed between two segments, and gradients with one, each with what they were computed from.
        used: whether gradients were computed.
    """

    def __init__(self, recorder: Any):
        self.recorder = recorder
        self.grads: dict[Proxy, Any] = {}
        self.leaves: dict[Proxy, list[Proxy]] = {}
        self.marked: dict[Proxy, Source] = {}
        self.frozen: dict[Proxy, Proxy] = {}
        self.parameters: dict[Proxy, None] = {}
        self.hooks: dict[Proxy, dict[int, Any]] = {}
        self.points: dict[tuple[Proxy, int], Proxy] = {}
        self.after: dict[Proxy, dict[int, Any]] = {}
        self.nodes: dict[Proxy, Node] = {}
        self.untraced_nodes: dict[Proxy, UntracedNode] = {}
        self.retained: set[Proxy] = set()
        self.spent: set[Proxy] = set()
        self.derived: dict[Proxy, Sequence[Proxy]] = {}
        self.copies = DeepCopies(self)
        self.used = False

    # .grad

    def grad_of(self, tracker: Tracker, p: Proxy) -> Any:
        """Return the gradient of a tensor, None where it has none."""
        if p in self.grads:
            return self.grads[p]
        real = self.recorder.real.get(p)
        if real is None:
            return None
        if not real.is_leaf and not real.retains_grad:
            raise Unsupported(
                f"the .grad of a tensor with a history outside the compiled function is read; read it outside\n  called at {user_line()}"
            )
        if real.grad is not None and real.grad.layout is not torch.strided:
            raise EagerCall(f"a sparse gradient is read, and traces have strided tensors alone\n  called at {user_line()}")
        self.grads[p] = value = tracker.reach(real.grad, tracker.sources.attr(tracker.source(p), "grad"))
        return value

    def is_leaf(self, tracker: Tracker, p: Proxy) -> bool:
        """Return whether a tensor is a leaf of the autograd graph."""
        p = self.frozen.get(p, p)
        real = self.recorder.real.get(p)
        if real is None or not requires_grad(p) or p in self.marked:
            return p in self.leaves or p in self.marked or not requires_grad(p)
        if not real.requires_grad:  # the program has written into it what has a history
            return False
        return tracker.reach(real.is_leaf, tracker.sources.attr(tracker.source(p), "is_leaf"))

    def refuses_writes(self, tracker: Tracker, p: Proxy) -> bool:
        """Return whether a tensor is a leaf that requires a gradient, into which nothing may be written with grad mode on."""
        return p in self.leaves or (self.requires_grad(tracker, p) and self.is_leaf(tracker, p))

    def set_grad(self, tracker: Tracker, p: Proxy, value: Any) -> None:
        """Set or delete the gradient of a tensor; outside it happens after the computation."""
        self.grad_of(tracker, p)
        self.grads[p] = value

    def finish(self, tracker: Tracker) -> None:
        """Set the gradients of tensors from outside after the computation, and which of them require one no longer."""
        for p, value in self.pending():
            if p in self.recorder.real:
                tracker.effects.set(p, "grad", value)
        for p, now in self.frozen.items():
            if p in self.recorder.real:
                if requires_grad(now):
                    raise Unsupported(
                        f'{p.name}: "{p.spec}" gets a history after requires_grad_(False), by a write, which is not traced; write what is detached'
                    )
                tracker.effects.set(p, "requires_grad", False)

    def pending(self) -> list[tuple[Proxy, Any]]:
        """Return the tensors whose gradient the program has set, and what to."""
        changed = []
        for p, value in self.grads.items():
            real = self.recorder.real.get(p)
            before = None if real is None or real.grad is None else self.recorder.inputs.get(id(real.grad))
            if real is None or value is not before:
                changed.append((p, value))
        return changed

    def changed(self) -> list[Proxy]:
        """Return the tensors from outside that gradients were computed of: no two may be one object."""
        return [p for p in self.grads if p in self.recorder.real and p.spec.requires_grad]

    # backward

    def backward(
        self, tracker: Tracker, tensors: Any, grad_tensors: Any = None, retain_graph: Any = None, create_graph: bool = False, inputs: Any = None
    ) -> None:
        """Trace torch.autograd.backward."""
        outputs = _seeds(_several(tracker, tensors), _several(tracker, grad_tensors))
        wanted = self._in_order(self._leaves() if inputs is None else _several(tracker, inputs))
        grads = self._gradients(tracker, outputs, wanted, retain_graph, create_graph)
        if current_recorder.get() is not self.recorder.trace:
            self._check_inner(wanted, grads)
        with torch.set_grad_enabled(create_graph):
            for p, g in zip(wanted, grads, strict=True):
                if g is not None:
                    self._accumulate(tracker, p, g, create_graph)
        if self.recorder.wrappers is not None:
            self.recorder.wrappers.collect(tracker)

    def grad(
        self,
        tracker: Tracker,
        outputs: Any,
        inputs: Any,
        grad_outputs: Any = None,
        retain_graph: Any = None,
        create_graph: bool = False,
        only_inputs: bool = True,
        allow_unused: Any = None,
        is_grads_batched: bool = False,
        materialize_grads: bool = False,
    ) -> Any:
        """Trace torch.autograd.grad."""
        if is_grads_batched:
            more = {"create_graph": create_graph, "allow_unused": allow_unused, "materialize_grads": materialize_grads}
            return self._grad_of_batch(tracker, outputs, inputs, _several(tracker, grad_outputs), retain_graph, more)
        wanted = _several(tracker, inputs)
        for p in wanted:
            require(self.requires_grad(tracker, p), "One of the differentiated Tensors does not require grad", error=RuntimeError)
        seeds = _seeds(_several(tracker, outputs), _several(tracker, grad_outputs))
        grads = self._gradients(tracker, seeds, wanted, retain_graph, create_graph)
        if materialize_grads:
            grads = [self._zeros_like(p, create_graph) if g is None else g for p, g in zip(wanted, grads, strict=True)]
        require(allow_unused or all([g is not None for g in grads]), UNUSED, error=RuntimeError)
        return dict(zip(inputs, grads, strict=True)) if isinstance(inputs, dict) else tuple(grads)

    def _zeros_like(self, p: Proxy, requires_grad: bool) -> Proxy:
        zeros = torch.zeros_like(p)
        return self.create_leaf(zeros) if requires_grad else zeros

    def _grad_of_batch(self, tracker: Tracker, outputs: Any, inputs: Any, batches: list[Any], retain_graph: Any, more: dict[str, Any]) -> tuple:
        """Return the gradients for each of a batch of cotangents, stacked."""
        size = next(int(g.spec.shape[0]) for g in batches if g is not None)
        rows = []
        for i in range(size):
            gs = [None if g is None else g[i] for g in batches]
            rows.append(self.grad(tracker, outputs, inputs, gs, retain_graph if i == size - 1 else True, **more))
        columns = zip(*[row.values() if isinstance(row, dict) else row for row in rows], strict=True)
        grads = [None if column[0] is None else torch.stack(column) for column in columns]
        return dict(zip(inputs, grads, strict=True)) if isinstance(inputs, dict) else tuple(grads)

    def _leaves(self) -> list[Proxy]:
        real = self.recorder.real.items()  # a write may have given others a history
        outside = [p for p, x in real if requires_grad(p) and p not in self.frozen and (x.requires_grad or p in self.marked)]
        wrappers = [] if self.recorder.wrappers is None else self.recorder.wrappers.entered()
        return [*outside, *[p for p in self.leaves if requires_grad(p) and p not in self.frozen], *wrappers]

    def _in_order(self, tensors: list[Any]) -> list[Any]:
        """Return tensors in the order in which autograd accumulates their gradients, as hooks on them see: those that were read last come first."""
        tables = [getattr(x, table, None) for x in map(self.recorder.real.get, tensors) for table in _HOOK_TABLES]
        if not (any(tables) or self.hooks or self.after):
            return tensors
        places: dict[Any, tuple[int, int]] = {}
        for i, line in enumerate(self.recorder.trace.lines):
            bias_first = line.symbol is _LINEAR  # which autograd computes as addmm(bias, x, weight)
            for k, p in enumerate(reversed(line.reads) if bias_first else line.reads):
                places.setdefault(p, (-i, k))
        return sorted(tensors, key=lambda p: places.get(p, (1, 0)))

    def _gradients(
        self, tracker: Tracker, outputs: Mapping[Proxy, Proxy], wanted: Sequence[Proxy], retain_graph: Any, create_graph: bool
    ) -> list[Proxy | None]:
        """Return gradients: as lines of the program; after a decision as what eager autograd computes between two segments."""
        if torch.is_anomaly_enabled():
            raise EagerCall(f"anomaly detection looks for nan in the gradients of each operation\n  called at {user_line()}")
        tracker.guard("equal", tracker.sources.setting(torch.is_anomaly_enabled), False)
        trace, retain = current_recorder.get(), create_graph if retain_graph is None else bool(retain_graph)
        if isinstance(trace, Trace) and trace.made_by == BACKWARD and not trace.depth:  # in the backward of a torch.autograd.Function
            with torch.set_grad_enabled(create_graph):
                return record_gradients(trace, Request(outputs, wanted, self.leaves, self.spent, (), create_graph, retain))
        if trace is not self.recorder.trace or trace.depth:
            raise Unsupported(
                "backward() inside a function that torch.func or dovetail.grad differentiates is not traced; use torch.autograd.grad, or a "
                f"transform of torch.func\n  called at {user_line()}"
            )
        hooks = self._hooks(tracker)
        outside = {hooked.tensor: hooked.hook for hooked in hooks}
        session = self.recorder.environment.session
        if session is None or not session.cuts:
            request = Request(outputs, wanted, self.leaves, self.spent, hooks, create_graph, retain)
            with torch.set_grad_enabled(create_graph):
                grads = record_gradients(self.recorder.trace, request)
        elif (
            not outside.keys() <= {p for p in wanted if p in self.recorder.real}
            or self.hooked()
            or not all([p in self.recorder.real or session.can_reach(p) for p in wanted])
            or not self.spent.isdisjoint(session.ancestors(outputs))
        ):
            raise Unsupported(
                "backward() after a decision is not traced where hooks run on the way to a leaf, or where it reaches a leaf that the program has "
                f"created and written since, or the graph of an earlier backward(); compile the forward alone\n  called at {user_line()}"
            )
        else:
            grads = session.differentiate(outputs, wanted, retain, create_graph)
            with torch.set_grad_enabled(create_graph):
                grads = [g if g is None or p not in outside else outside[p](g) for p, g in zip(wanted, grads, strict=True)]
        self.used = True
        if create_graph:
            self.derived.update({g: (*outputs, *wanted) for g in grads if g is not None})
        self._check_leaves(tracker, wanted, grads)
        return grads

    def _check_inner(self, wanted: Sequence[Proxy], grads: Sequence[Proxy | None]) -> None:
        """Refuse backward() in the backward of a torch.autograd.Function where it has effects beside the .grad of tensors created there."""
        if self.hooks or self.retained or any([g is not None and p in self.recorder.real for p, g in zip(wanted, grads, strict=True)]):
            raise Unsupported(
                "backward() inside the backward of a torch.autograd.Function is not traced where it reaches tensors from outside, or hooks; use "
                f"torch.autograd.grad there, and return the gradients\n  called at {user_line()}"
            )

    def _check_leaves(self, tracker: Tracker, wanted: Sequence[Proxy], grads: Sequence[Proxy | None]) -> None:
        """Guard that gradients end at leaves."""
        for p, g in zip(wanted, grads, strict=True):
            real = self.recorder.real.get(p)
            if g is not None and real is not None and type(real) is not torch.nn.Parameter:
                if not real.is_leaf:
                    raise Unsupported(
                        "backward() inside a compiled function reaches a tensor that was computed outside of it, and would go on there; detach "
                        f"the tensor, or call backward() outside\n  called at {user_line()}"
                    )
                tracker.guard("equal", tracker.sources.attr(tracker.source(p), "is_leaf"), True)

    def _accumulate(self, tracker: Tracker, p: Proxy, g: Proxy, create_graph: bool) -> None:
        """Add a gradient to that of a tensor, and run the hooks that wait for it."""
        known = self.grad_of(tracker, p)
        if known is None:
            self.set_grad(tracker, p, g)
        elif create_graph:
            self.set_grad(tracker, p, LANGUAGE["add"](known, g))
        else:
            LANGUAGE["add_"](known, g)
        for hook in self._hooks_of(tracker, p, "_post_accumulate_grad_hooks", self.after):
            tracker.call(hook, [p], {}, None)

    # hooks

    def _hooks_of(self, tracker: Tracker, p: Proxy, table: str, own: dict[Proxy, dict[int, Any]]) -> list[Any]:
        """Return the hooks of one kind on a tensor: those registered outside, then those of the program."""
        hooks, real = [], self.recorder.real.get(p)
        if real is not None:
            source = tracker.sources.attr(tracker.source(p), table)
            outside = getattr(real, table)
            if outside:
                hooks = [hook for _, hook in tracker.pairs(tracker.reach(outside, source))]
            else:
                tracker.guard("falsy", source)
        return [*hooks, *own.get(p, {}).values()]

    def _hooks(self, tracker: Tracker) -> list[Hooked]:
        """Return what happens to gradients on their way, in its order for each tensor."""
        hooks = []
        for p in filter(requires_grad, dict.fromkeys((*self.recorder.real, *self.hooks, *self.retained))):
            if p in self.recorder.real or p in self.leaves:
                called = self._hooks_of(tracker, p, "_backward_hooks", self.hooks)
                hooks += [Hooked(p, self._calling(tracker, called))] if called else []
                continue
            hooks += [Hooked(p, self._calling(tracker, [hook]), self.points[p, number]) for number, hook in self.hooks.get(p, {}).items()]
            hooks += [Hooked(p, self._keeping(p))] if p in self.retained else []
            if (self.hooks.get(p) or p in self.retained) and is_view_of_written(self.recorder.trace, p):
                raise EagerCall(_OF_WRITTEN_VIEW.format(user_line()))
        return hooks

    def _calling(self, tracker: Tracker, hooks: Sequence[Any]) -> Hook:
        """Return what the gradient of a tensor becomes by hooks."""

        def changed(g: Proxy) -> Proxy:
            trace = current_recorder.get()
            before = trace.language, trace.depth
            trace.language, trace.depth = LANGUAGE, 0
            try:
                for hook in hooks:
                    result = tracker.call(hook, [g], {}, None)
                    g = g if result is None else _checked(result, g)
            finally:
                trace.language, trace.depth = before
            return g

        return changed

    def _keeping(self, p: Proxy) -> Hook:
        """Return what keeps the gradient of a tensor that is no leaf."""

        def kept(g: Proxy) -> Proxy:
            known = self.grads.get(p)
            self.grads[p] = LANGUAGE["clone"](g) if known is None else LANGUAGE["add"](known, g)
            return g

        return kept

    def hooked(self) -> list[Proxy]:
        """Return the tensors of the program whose gradients run hooks on their way."""
        own = [p for p in (*self.hooks, *self.after) if self.hooks.get(p) or self.after.get(p)]
        return own + [p for p, node in self.nodes.items() if node.before or node.after]

    def register(self, tracker: Tracker, p: Proxy, hook: Any, own: dict[Proxy, dict[int, Any]]) -> RemovableHook:
        """Register a hook on a tensor; one on a tensor from outside outlives the call, which runs in eager mode."""
        require(requires_grad(p), "cannot register a hook on a tensor that doesn't require gradient", error=RuntimeError)
        if p in self.recorder.real:
            raise EagerCall(f"a hook is registered on a tensor from outside the compiled function; register it outside\n  called at {user_line()}")
        if own is self.hooks and is_base_of_written(self.recorder.trace, p):
            raise EagerCall(_OF_WRITTEN_VIEW.format(user_line()))
        handle = add_hook(own.setdefault(p, {}), hook)
        if own is self.hooks and p not in self.leaves:
            with torch.no_grad():
                self.points[p, handle.number] = prims.clone(p)
        return handle

    def create_leaf(self, p: Proxy) -> Proxy:
        """Make a tensor that the program has just created, by requires_grad=True, a leaf that requires grad."""
        require(p.spec.dtype.inexact, "Only Tensors of floating point and complex dtype can require gradients", error=RuntimeError)
        return self.require_gradient(p)

    def set_requires_grad(self, p: Proxy, value: bool) -> Proxy:
        """Do p.requires_grad_(value)."""
        if value and not p.spec.requires_grad and p.spec.dtype.inexact:
            return self.mark(p) if p in self.recorder.real else self.require_gradient(p)
        if value == self.requires_grad(None, p):
            return p
        if value and p in self.frozen:
            if p not in self.recorder.real and p not in self.leaves:
                raise Unsupported(f"requires_grad_() after detach_() is not traced; write x = x.detach().requires_grad_()\n  called at {user_line()}")
            del self.frozen[p]
            return p
        if value:
            return LANGUAGE["requires_grad_"](p, value)
        require(self.is_leaf(self.recorder.environment.tracker, p), _NO_LEAF, error=RuntimeError)
        return self.freeze(p)

    def freeze(self, p: Proxy) -> Proxy:
        """Let what follows read a tensor without its history."""
        trace: Trace = self.recorder.trace
        if trace.depth or trace.enclosing:
            raise Unsupported(
                "requires_grad_(False) and detach_() inside a function that is traced on its own are not traced; call it outside, or use detach()\n"
                f"  called at {user_line()}"
            )
        self.frozen[p], self.used = prims.detach(p), True
        return p

    def now(self, p: Proxy) -> Proxy:
        """Return what a result is where it is `p`: its own leaves are built when the call has ended, and others are the caller's."""
        view = self.frozen.get(p)
        built = p in self.recorder.real or p in self.leaves or p in self.parameters
        return p if view is None or (built and not requires_grad(view)) else view

    def detach_(self, p: Proxy) -> Proxy:
        """Do p.detach_()."""
        views = tracked_views(self.recorder.trace.lines)
        require(p not in views, "Can't detach views in-place; use detach() instead", error=RuntimeError)
        if not self.requires_grad(None, p):
            return p
        if p in self.recorder.real or p in set(views.values()):
            which = "from outside the compiled function" if p in self.recorder.real else "that has views"
            raise Unsupported(f"detach_() of a tensor {which} is not traced; call it outside, or use x = x.detach()\n  called at {user_line()}")
        return self.freeze(p)

    def requires_grad(self, tracker: Tracker | None, p: Proxy) -> bool:
        """Return p.requires_grad."""
        return requires_grad(self.frozen.get(p, p))

    def mark(self, p: Proxy) -> Proxy:
        """Let a tensor from outside require grad from the beginning of the computation on; what has read it before reads it detached."""
        tracker = self.recorder.environment.tracker
        if not detach_earlier_reads(self.recorder, p):
            raise EagerCall(
                f"requires_grad_() of an argument that the compiled function has written to before, holds a view of, or has decided by, is not "
                f"traced; call it first, or outside\n  called at {user_line()}"
            )
        call = tracker.sources.fresh(tracker.source(p), len(tracker.calls), torch.Tensor.requires_grad_)
        tracker.calls.append(call)
        self.marked[p] = call
        p.spec = p.spec.like(requires_grad=True)
        return p

    def require_gradient(self, p: Proxy) -> Proxy:
        """Make a tensor that the program computed a leaf that requires grad."""
        session = self.recorder.environment.session
        first = p
        if is_written(current_recorder.get(), p):  # no gradient flows to what it held before
            first = prims.clone(p)
            prims.copy_(p, first)
        if session is not None and session.is_open:
            session.create_leaf(p)
        for x in (p, first):
            x.spec = x.spec.like(requires_grad=True)
        self.leaves[p] = [first]
        return p


def _method(name: str) -> Callable[..., Any]:
    """Return what reads a method of a tensor: torch's own, bound to the proxy, so that its call is seen."""
    return lambda autograd, tracker, p: MethodType(getattr(torch.Tensor, name), p)


def _reads_requires_grad(autograd: TracedAutograd, tracker: Tracker, p: Proxy) -> bool:
    """Return what the program reads as p.requires_grad."""
    trace = current_recorder.get()
    return autograd.requires_grad(tracker, p) or (p not in autograd.recorder.real and bool(untracked_views(trace, [p])))


def _grad_fn(autograd: TracedAutograd, tracker: Tracker, p: Proxy) -> Node | UntracedNode | None:
    """Return the node of a result of a torch.autograd.Function, None for a leaf; of the nodes of others a trace knows that there are such."""
    if not requires_grad(p) or autograd.is_leaf(tracker, p):
        return None
    lines = current_recorder.get().lines
    backward = next((line.kwargs["backward"] for line in reversed(lines) if line.symbol is WITH_BACKWARD and p in set(line.writes)), None)
    if not isinstance(backward, OwnBackward):
        if p in autograd.recorder.real or is_written(autograd.recorder.trace, p):
            raise EagerCall(f"the .grad_fn of a tensor that has a history from outside, or is written to, is read at {user_line()}: it is not traced")
        return autograd.untraced_nodes.setdefault(p, UntracedNode())
    autograd.nodes[p] = backward.node
    return backward.node


def _version(autograd: TracedAutograd, tracker: Tracker, p: Proxy) -> None:
    raise EagerCall(f"the ._version of a tensor is read at {user_line()}, and a trace does not count its writes")


def _backward(autograd: TracedAutograd, tracker: Tracker, p: Proxy, gradient: Any = None, *args: Any, **kwargs: Any) -> None:
    autograd.backward(tracker, p, gradient, *args, **kwargs)


def _retain_grad(autograd: TracedAutograd, tracker: Tracker, p: Proxy) -> None:
    require(requires_grad(p), "can't retain_grad on Tensor that has requires_grad=False", error=RuntimeError)
    if not autograd.is_leaf(tracker, p):
        autograd.retained.add(p)


def _requires_grad_(autograd: TracedAutograd, tracker: Tracker, p: Proxy, requires_grad: bool = True) -> Proxy:
    return autograd.set_requires_grad(p, requires_grad)


def _deepcopy(autograd: TracedAutograd, tracker: Tracker, p: Proxy, memo: Any) -> Proxy:
    return autograd.copies.copy(tracker, p, memo)


def _reduce(autograd: TracedAutograd, tracker: Tracker, p: Proxy, *protocol: Any) -> None:
    raise EagerCall(f"copy.copy of a tensor, or taking one apart as for pickle, at {user_line()} is not traced; use x.detach() or x.clone()")


def _detach_(autograd: TracedAutograd, tracker: Tracker, p: Proxy) -> Proxy:
    return autograd.detach_(p)


def _register_hook(autograd: TracedAutograd, tracker: Tracker, p: Proxy, hook: Any) -> RemovableHook:
    return autograd.register(tracker, p, hook, autograd.hooks)


def _register_after(autograd: TracedAutograd, tracker: Tracker, p: Proxy, hook: Any) -> RemovableHook:
    return autograd.register(tracker, p, hook, autograd.after)


CALLS: dict[Any, Callable[..., Any]] = {  # torch's function -> what it means for traced tensors
    torch.autograd.backward: TracedAutograd.backward,
    torch.autograd.grad: TracedAutograd.grad,
    torch.Tensor.backward: _backward,
    torch.Tensor.retain_grad: _retain_grad,
    torch.Tensor.requires_grad_: _requires_grad_,
    torch.Tensor.detach_: _detach_,
    torch.Tensor.__deepcopy__: _deepcopy,
    torch.Tensor.__reduce_ex__: _reduce,
    torch.Tensor.register_hook: _register_hook,
    torch.Tensor.register_post_accumulate_grad_hook: _register_after,
}
ATTRIBUTES: dict[str, Callable[[TracedAutograd, Tracker, Proxy], Any]] = {
    "grad": TracedAutograd.grad_of,
    "grad_fn": _grad_fn,
    "is_leaf": TracedAutograd.is_leaf,
    "requires_grad": _reads_requires_grad,
    "_version": _version,
    **{
        name: _method(name)
        for name in (
            *("backward", "retain_grad", "requires_grad_", "detach_", "register_hook", "register_post_accumulate_grad_hook"),
            *("__deepcopy__", "__reduce_ex__"),
        )
    },
}


def without_graph(autograd: TracedAutograd, build: Callable[..., Any]) -> Callable[..., Any]:
    """Return `build`, given results whose graph was freed with a history that raises when it is differentiated."""
    trace: Trace = autograd.recorder.trace
    freed = computed_from(trace, autograd.spent, autograd.derived)
    places = [i for i, p in enumerate(trace.outputs) if p in freed and requires_grad(p)]
    if not places:
        return build

    def finish(tensors: Sequence[Any], objects: tuple) -> Any:
        tensors = list(tensors)
        for i in places:
            tensors[i] = freed_graph(tensors[i])
        return build(tensors, objects)

    return finish


def _checked(result: Any, g: Proxy) -> Any:
    """Return what a hook returns in place of a gradient.  Raises where autograd does."""
    is_tensor = isinstance(result, (TensorProxy, torch.Tensor))
    require(is_tensor, "expected a tensor, but the hook returned a {}", type(result).__name__, error=TypeError)
    if isinstance(result, TensorProxy):
        same = result.spec.dtype is g.spec.dtype and result.spec.shape == g.spec.shape
        require(same, "a hook has changed the type or the size of a gradient, from {} to {}", g.spec, result.spec, error=RuntimeError)
    return result


def _several(tracker: Tracker, value: Any) -> list[Any]:
    """Return one tensor, or those in a container or another iterable, as a list."""
    if value is None or is_proxy(value):
        return [] if value is None else [value]
    return list(value.values() if isinstance(value, dict) else tracker.spread(value))


def _seeds(outputs: list[Any], cotangents: list[Any]) -> dict[Proxy, Proxy]:
    """Return the cotangent of each output: 1 for a scalar without one."""
    cotangents = cotangents or [None] * len(outputs)
    require(len(outputs) == len(cotangents), "got {} tensors and {} gradients", len(outputs), len(cotangents), error=RuntimeError)
    seeds: dict[Proxy, Proxy] = {}
    for i, (p, g) in enumerate(zip(outputs, cotangents, strict=True)):
        require(requires_grad(p), "element {} of tensors does not require grad and does not have a grad_fn", i, error=RuntimeError)
        if g is None:
            require(p.spec.numel == 1, "grad can be implicitly created only for scalar outputs", error=RuntimeError)
            g = prims.full(shape=p.spec.shape, value=1.0, dtype=p.spec.dtype, device=p.spec.device)
        same = isinstance(g, TensorProxy) and tuple(g.spec.shape) == tuple(p.spec.shape)
        require(
            same,
            "Mismatch in shape: grad_output[{}] has a shape of {} and output[{}] has a shape of {}.",
            i,
            g.spec.shape,
            i,
            p.spec.shape,
            error=RuntimeError,
        )
        g = in_dtype_of(p, g)
        seeds[p] = g if p not in seeds else prims.add(seeds[p], g)
    return seeds
