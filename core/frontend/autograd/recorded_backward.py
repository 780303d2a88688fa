"""Gradients of the program that is being traced: the lines of a backward, recorded behind those that it differentiates.

>>> def step(x, w):
...     loss = (x * w).sum()
...     loss.backward()

The lines recorded when `backward` is called become pure ones, since a gradient is that of values; the lines of the backward follow; what
the program had written by then is written last, so that whoever holds a written tensor, or a view of it, finds it so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import torch

from dovetail import prims
from dovetail.errors import Unsupported
from dovetail.frontend.autograd.inner_function import flag
from dovetail.frontend.autograd.nested_grad import rules_for
from dovetail.langs.torch import symbol_for
from dovetail.prims import Tag
from dovetail.prims.memory import in_layout_of
from dovetail.trace import BoundSymbol, JointTrace, Proxy, Trace, constants_of, copy_line, recording, renamed, substitute
from dovetail.trace.aliases import root_of, view_bases
from dovetail.trace.passes.functionalize import Written, functionalize_so_far
from dovetail.trace.passes.grad import Tape
from dovetail.trace.passes.split import folded

TWICE = (
    "Trying to backward through the graph a second time: the compiled function has already run backward() through it. Specify retain_graph=True "
    "if you need to backward through the graph a second time"
)
BACKWARD = "backward of a torch.autograd.Function"  # what made a trace in which gradients end at what this has read
_SAVING_NOTHING = frozenset(
    {
        *(prims.add, prims.sub, prims.neg, prims.sum, prims.cumsum, prims.round, prims.floor, prims.ceil, prims.trunc),
        *(prims.cat, prims.pad, prims.flip, prims.clone, prims.stride_order, prims.convert_element_type),
        *map(symbol_for, ("torch.add", "torch.sub", "torch.mean", "torch.triu", "torch.tril")),
    }
)  # operations of which the node in eager mode saves no tensor, as those of views
Hook = Callable[[Proxy], Proxy]


@dataclass(frozen=True)
class Hooked:
    """What becomes of the cotangent of `tensor`: of what it holds now, or where there is a `point`, of the value that this is a copy of."""

    tensor: Proxy
    hook: Hook
    point: Proxy | None = None


@dataclass
class Request:
    """One call of backward() or torch.autograd.grad.

    Attributes:
        outputs: what is differentiated, and the cotangent of each.
        wanted: the tensors with gradients that are wanted.
        leaves: those among the values computed so far that no gradient flows beyond, each with the values of pure lines that stand for it:
            several where the program has written into it between two calls.
        spent: values whose graph an earlier backward has freed; those of this one are added.
        hooks: what the cotangents of some values become, in the order in which that happens.
        create_graph: whether the gradients have a history.
        retain_graph: whether the values may be differentiated again.
    """

    outputs: Mapping[Proxy, Proxy]
    wanted: Sequence[Proxy]
    leaves: dict[Proxy, list[Proxy]]
    spent: set[Proxy]
    hooks: Sequence[Hooked] = ()
    create_graph: bool = False
    retain_graph: bool = False


def record_gradients(trace: Trace, request: Request) -> list[Proxy | None]:
    """Record the gradients of the wanted tensors at the end of `trace`; return them, None where nothing flows.

    Raises RuntimeError, as eager does, where the gradients flow through a graph that was freed.
    """
    constant = constants_of(trace)
    state = _State(trace, constant, [p for values in request.leaves.values() for p in values])
    renamed = state.renamed
    leaves = {p: [renamed.get(x, x) for x in values] for p, values in request.leaves.items()}
    request.leaves.update({p: [*values, p] for p, values in leaves.items() if p in renamed})
    joint = JointTrace(**vars(trace.derive("grad", language=prims.OPERATORS, environment=trace.environment)))
    tape = Tape(
        joint,
        rules_for(joint, again=request.create_graph),
        {*[renamed.get(p, p) for p in constant], *[x for values in leaves.values() for x in values]},
    )
    places = [leaves.get(p) or [renamed.get(p, p) if p in state.provided else state.value(p)] for p in request.wanted]
    wanted = [x for values in places for x in values]
    tape.leaves, tape.needs, tape.raises_at_once = set(wanted), set(wanted), True
    if state.written is not None:
        joint.saved_writes = {renamed.get(p, p): writes for p, writes in state.written.later.items()}
    for hooked in request.hooks:
        value = state.value(hooked.tensor) if hooked.point is None else state.value_at(hooked.point)
        tape.hooks[value] = _both(tape.hooks[value], hooked.hook) if value in tape.hooks else hooked.hook
    outputs = {state.value(p): state.value(g) for p, g in request.outputs.items()}
    useful = _ancestors(state.lines, outputs)
    with recording(joint), torch.set_grad_enabled(request.create_graph):
        for line in state.lines:
            if id(line) in useful:
                tape.forward(line, line.where)
            else:
                joint.lines.append(substitute(line, tape.env))
        start = len(joint.lines)
        for p, g in outputs.items():
            p = tape.env.get(p, p)
            known = tape.grads.get(p)
            tape.grads[p] = g if known is None else prims.add(known, g)
        tape.backward()
        grads = [_total([tape.hooked(tape.env.get(x, x)) for x in values]) for values in places]
        flowing = {*tape.grads, *(old for old, new in tape.env.items() if new in tape.grads)} - set(wanted) - _lasting(state, tape)
        if not flowing.isdisjoint(request.spent):
            raise RuntimeError(TWICE)
        grads = _own([None if g is None else in_layout_of(p, g) for g, (p, *_) in zip(grads, places, strict=True)], joint, start)
    state.finish(joint, tape, start, [g for g in grads if g is not None], request.create_graph)
    if not request.retain_graph:
        request.spent.update(flowing)
    return grads


def _both(first: Hook, second: Hook) -> Hook:
    return lambda g: second(first(g))


def _lasting(state: _State, tape: Tape) -> set[Proxy]:
    """Return the values whose nodes in the graph save no tensor, so that a backward frees none, and those of writes that autograd does not see."""
    values = {p for line in _with_parts(list(filter(_saves_nothing, state.lines))) for p in line.writes}
    return values | {tape.env.get(p, p) for p in values}


def _saves_nothing(line: BoundSymbol) -> bool:
    return Tag.VIEW in line.symbol.tags or line.symbol in _SAVING_NOTHING or (bool(line.body) and all(map(_saves_nothing, line.body)))


def _total(grads: Sequence[Proxy | None]) -> Proxy | None:
    """Return the sum of gradients, None where nothing flows."""
    flowing = [g for g in grads if g is not None]
    return functools.reduce(prims.add, flowing) if flowing else None


def _own(grads: list[Proxy | None], joint: JointTrace, start: int) -> list[Proxy | None]:
    """Return gradients with a storage of their own each: a program may write into one."""
    bases, roots = view_bases(joint.lines), set()
    new = {p for line in joint.lines[start:] for p in line.writes}
    result = []
    for g in grads:
        if g is not None:
            root = root_of(g, bases)
            if root in roots or root not in new:
                g = root = prims.clone(g)
            roots.add(root)
        result.append(g)
    return result


def _ancestors(lines: Sequence[BoundSymbol], values: Collection[Proxy]) -> set[int]:
    """Return the ids of the lines that compute `values`."""
    live, chosen = set(values), set()
    for line in reversed(lines):
        if not live.isdisjoint(line.writes):
            chosen.add(id(line))
            live.update(line.reads)
    return chosen


class _State:
    """The lines of a trace so far as pure lines, and how the tensors that they wrote are written at the end.

    `renamed` maps what the trace has written in place, and views of it, to names for the first values of these in the pure lines.
    """

    def __init__(self, trace: Trace, constant: Collection[Proxy], leaves: Collection[Proxy]):
        self.trace, self.lines, self.provided = trace, list(trace.lines), {*trace.inputs, *trace.constants}
        self.renamed: dict[Proxy, Proxy] = {}
        self.written = functionalize_so_far(trace) if any([line.mutates for line in trace.lines]) else None
        self.known = {id(line) for line in _with_parts(trace.lines)}
        self.constant = set(constant)
        if self.written is not None:
            changed = [p for p in (*self.written.values, *self.written.views) if p not in self.provided]
            self.renamed = {p: trace.tensor(p.spec) for p in changed}
            self.constant.update([self.renamed.get(p, p) for p in constant])
            self.lines = [renamed(line, self.renamed) for line in self.written.lines]
            fixed = {self.renamed.get(p, p) for p in leaves}
            self._flag([line for line in self.lines if fixed.isdisjoint(line.writes)], True)

    def _flag(self, lines: Sequence[BoundSymbol], enabled: bool) -> None:
        """Say of the results of lines that the trace does not have whether they require grad."""
        for line in lines:
            if id(line) not in self.known:
                flag(line, enabled, self.constant)
        self.known.update([id(line) for line in _with_parts(lines)])

    def value(self, p: Proxy) -> Proxy:
        """Return the pure value that a tensor of the trace holds now."""
        if self.written is None:
            return p
        start = len(self.written.lines)
        now = self.written.read(p)
        self.lines += [renamed(line, self.renamed) for line in self.written.lines[start:]]
        return self.renamed.get(now, now)

    def value_at(self, point: Proxy) -> Proxy:
        """Return the pure value that a line of the program has copied to `point`."""
        return next(line.args[0] for line in reversed(self.lines) if line.out is point)

    def finish(self, joint: JointTrace, tape: Tape, start: int, grads: list[Proxy], create_graph: bool) -> None:
        """Put the lines into the trace: forward, backward, and the writes that the forward did."""
        self._flag(joint.lines[:start], True)
        self._flag(joint.lines[start:], create_graph)
        read = {p for line in joint.lines[start:] for p in line.reads}
        lines = _standing(joint, tape.env)
        self.trace.lines[:] = folded(lines, joint.whole, joint.derive("grad", outputs=grads))
        if self.written is not None:
            if not read.isdisjoint(self.renamed):
                raise Unsupported("a hook reads a tensor that was written in place before backward(); clone it before the write")
            self._write_again(self.written)

    def _write_again(self, written: Written) -> None:
        """Record what the written tensors hold, and the views of them anew."""
        lines = self.trace.lines
        for root, value in written.values.items():
            value = self.renamed.get(value, value)
            if root in self.renamed:
                root.spec = root.spec.like(requires_grad=value.spec.requires_grad)
                lines.append(copy_line(value, root))
            elif value is not root:
                target = root if root in written.seen else self._detached(root)
                lines.append(BoundSymbol(prims.copy_, (target, value), {}, None, [target, value]))
        lines += [BoundSymbol(line.symbol, line.args, line.kwargs, p, line.reads) for p, line in written.views.items()]
        for p, value in written.apart.items():
            value = self.renamed.get(value, value)
            lines.append(BoundSymbol(prims.copy_, (p, value), {}, None, [p, value]))

    def _detached(self, root: Proxy) -> Proxy:
        """Record a view of `root` without its history: of the memory itself, also where the program reads a frozen leaf as such a view."""
        view = self.trace.tensor(root.spec.like(requires_grad=False))
        self.trace.lines.append(BoundSymbol(prims.detach, (root,), {}, view, [root]))
        return view


def _standing(joint: JointTrace, env: Mapping[Proxy, Proxy]) -> list[BoundSymbol]:
    """Return the lines of `joint` with the results of rules under the names of those that they stand for: the program holds these."""
    names: dict[Proxy, Proxy] = {}
    copies: dict[Proxy, list[Proxy]] = {}
    computed = {p for line in joint.lines for p in line.writes}
    for old, new in env.items():
        if new in computed and new not in names and new.spec.strides == old.spec.strides:
            names[new] = old
        else:
            copies.setdefault(new, []).append(old)
    for whole in joint.whole:
        whole.line, whole.computed = renamed(whole.line, names), [names.get(p, p) for p in whole.computed]
    lines = []
    for line in joint.lines:
        lines.append(renamed(line, names) if names else line)
        for new in line.writes:
            for old in copies.get(new, ()):
                value = names.get(new, new)
                order = old.spec.order
                lines.append(BoundSymbol(prims.stride_order, (value,), {"order": order}, old, [value]))
    return lines


def _with_parts(lines: Sequence[BoundSymbol]) -> list[BoundSymbol]:
    return [part for line in lines for part in (line, *_with_parts(line.body))]
