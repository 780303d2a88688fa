"""Reverse-mode differentiation: a pure computation in, one joint trace out.

>>> def computation(t0):
...     t1 = prims.sin(t0)
...     return (t1,)

becomes

>>> def computation(t0, t2):
...     t1 = prims.sin(t0)
...     t3 = prims.cos(t0)
...     t4 = prims.mul(t2, t3)
...     return ((t1,), [t4])

where t2 is the cotangent of t1.  A line is differentiated by the first of: the rules that `rules(line)` offers, in interleaved form; the
symbol's own, in vjp form; its decomposition.  A vjp rule is called on the way back.  An interleaved rule is run once on the way forward, in
place of the line; the lines it records that depend on a get_grad are held, and recorded again on the way back with real cotangents.  Both
become one entry on the tape.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from dovetail import prims
from dovetail.errors import DovetailError, InputError, InvalidTrace, NoGradRule
from dovetail.prims import Symbol, Tag
from dovetail.prims.creation import zeros_like
from dovetail.prims.sizes import is_symbolic
from dovetail.prims.spec import TensorSpec, laid_out
from dovetail.trace.ir import BoundSymbol, Environment, Trace, recording, substitute
from dovetail.trace.printing import literal
from dovetail.trace.proxies import Proxy, TensorProxy, leaves, proxies, tree_map
from dovetail.trace.saved_writes import REFUSE_SAVED

Rule = Callable[..., Any]
RULES: dict[Symbol, Rule] = {}  # the registry: symbol -> a rule in interleaved form, which wins over the symbol's own


def registered(line: BoundSymbol) -> Iterable[Rule]:
    """Return the rule that register_grad registered for the symbol of `line`."""
    return (RULES[line.symbol],) if line.symbol in RULES else ()


@dataclass(eq=False)
class Whole:
    """An operation that was differentiated by its decomposition, and what the lines of that compute.

    `intact` says that no rule put lines of its own in the place of one of these.
    """

    line: BoundSymbol
    computed: list[Proxy]
    intact: bool = True


@dataclass(eq=False)
class JointTrace(Trace):
    """Inputs are the computation's and then `cotangents`; outputs are (the computation's outputs, one gradient or None for each input).

    `pulled` are the outputs that have a cotangent, in the order of `cotangents`.  `flows` are the positions of the cotangents that flow into
    each gradient, which may be zero whatever they are.  `whole` are the operations that were taken apart, outer before
    inner.  `by_rules` are the values that only grad rules compute.
    """

    cotangents: list[Proxy] = field(default_factory=list)
    pulled: list[Proxy] = field(default_factory=list)
    flows: list[frozenset[int]] = field(default_factory=list, repr=False)
    whole: list[Whole] = field(default_factory=list, repr=False)
    by_rules: set[Proxy] = field(default_factory=set, repr=False)


def grad(
    trace: Trace,
    rules: Callable[[BoundSymbol], Iterable[Rule]] = registered,
    *,
    constant: Collection[Proxy] = (),
    detached: Collection[Proxy] = (),
    environment: Environment | None = None,
    as_results: bool = False,
) -> JointTrace:
    """Return the joint trace of a pure computation.

    Gradients are those of the inputs whose spec requires one.  Values in `constant` pass none on, see `constants_of`; results in
    `detached` get no cotangent.  `environment` is what rules record in: the front end's, so that they may call its functions.  Cotangents
    are row-major, or laid out `as_results` are.
    """
    changes = {"environment": environment or Environment()}
    joint = JointTrace(**vars(trace.derive("grad", **changes)))
    tape = Tape(joint, rules, set(constant))
    with recording(joint):
        for line in trace.lines:
            tape.forward(line, line.where)
        outputs = substitute(trace.outputs, tape.env)
        unseen = {tape.env.get(p, p) for p in detached}
        joint.pulled = [p for p in dict.fromkeys(proxies(outputs)) if p in tape.needs and p not in unseen]
        joint.cotangents = [joint.tensor(_as_result(p.spec) if as_results else p.spec.fresh()) for p in joint.pulled]
        tape.grads.update(zip(joint.pulled, joint.cotangents, strict=True))
        tape.flows.update({p: frozenset([i]) for i, p in enumerate(joint.pulled)})
        start = len(joint.lines)
        tape.backward()
        gradients = [tape.cotangent(p) if p in tape.leaves else None for p in trace.inputs]
        joint.flows = [tape.flows.get(p, frozenset()) for p in trace.inputs]
        joint.by_rules = {p for line in joint.lines[start:] for p in line.writes}
    joint.inputs = [*trace.inputs, *joint.cotangents]
    joint.outputs = (outputs, gradients)
    return joint


def constants_of(trace: Trace) -> set[Proxy]:
    """Return the values of an acquired trace without a history in eager PyTorch: computed while grad mode was off, or detached.

    Such a value does not require grad although it was computed from one that does.
    """
    return constants_in(trace.lines)


def constants_in(lines: Iterable[BoundSymbol]) -> set[Proxy]:
    """Return the values without a history that some lines compute, see `constants_of`."""
    constants: set[Proxy] = set()
    for line in lines:
        _note_constants(line, constants)
    return constants


def _note_constants(line: BoundSymbol, constants: set[Proxy]) -> None:
    for inner in line.body:
        _note_constants(inner, constants)
    if not (line.body and line.mutates) and any([requires_grad(p) for p in line.reads]):
        constants.update([p for p in line.writes if not requires_grad(p)])


def _as_result(x: TensorSpec) -> TensorSpec:
    """Describe the cotangent of a result: in its order of dimensions where it is dense, of sizes that are known; else row-major."""
    plain = x.strides is None or is_symbolic(x.shape) or not x.is_dense
    return x.fresh() if plain else laid_out(x.fresh(), x.order)


def requires_grad(x: Any) -> bool:
    """Return whether `x` is a traced tensor that requires grad.  Grad rules call it to leave out unneeded gradients."""
    return isinstance(x, TensorProxy) and x.spec.requires_grad


class Tape:
    """What was recorded on the way forward, and the cotangents on the way back."""

    def __init__(self, joint: JointTrace, rules: Callable[[BoundSymbol], Iterable[Rule]], constant: set[Proxy]):
        self.joint, self.rules, self.constant = joint, rules, constant
        self.leaves = {p for p in joint.inputs if requires_grad(p)}
        self.needs: set[Proxy] = set(self.leaves)  # the values with cotangents that are wanted
        self.env: dict[Proxy, Proxy] = {}  # results that an interleaved rule computed in place of a line's
        self.grads: dict[Proxy, Proxy] = {}
        self.flows: dict[Proxy, frozenset[int]] = {}  # the positions of the cotangents that flow into the one of a value
        self.flowing: frozenset[int] = frozenset()  # those that flow into the entry that is pulled
        self.pieces: dict[Proxy, list[tuple[BoundSymbol, Proxy]]] = {}  # slices of a value and their cotangents, not yet in `grads`
        self.entries: list[tuple[Any, Callable[[Any], None]]] = []
        self.refused: set[Any] = set()  # writes for which the backward raises
        self.raises_at_once = False  # whether what a backward raises is raised now, and not when it runs
        self.hooks: dict[Proxy, Callable[[Proxy], Proxy]] = {}  # what the cotangent of a value becomes before it flows on

    def forward(self, line: BoundSymbol, where: str | None) -> None:
        """Add `line` to the joint trace, and what differentiates it to the tape."""
        self._record(line, where)
        for p in line.writes if self.joint.saved_writes else ():
            if p in self.joint.saved_writes and (now := self.env.get(p, p)) in self.needs:
                self.entries.append(((now,), partial(self._check_saved, self.joint.saved_writes[p])))

    def _check_saved(self, writes: Any, _: Any) -> None:
        """Let the backward raise where what a line saves for it is overwritten by then."""
        if writes not in self.refused and (message := self.joint.environment.overwrites_saved(writes)) is not None:
            self.refused.add(writes)
            if self.raises_at_once:
                raise RuntimeError(message)
            gs = [self.joint.cotangents[i] for i in sorted(self.flowing)]  # not g, which may be zeros that depend on no cotangent
            self.joint.lines.append(BoundSymbol(REFUSE_SAVED, tuple(gs), {"message": message}, None, gs))

    def _record(self, line: BoundSymbol, where: str | None) -> None:
        line = substitute(line, self.env)
        if not self._flows(line):
            self.joint.lines.append(line)
            return
        for rule in self.rules(line):
            if self._interleaved(rule, line):
                return
        if line.symbol.vjp_rule is not None:
            self.joint.lines.append(line)
            self._needs(line.out)
            self.entries.append((line.out, lambda g: self._pull(line, g)))
        elif line.body:
            self._decomposed(line, where)
        else:
            called = f", called at {where}" if where else ""
            raise NoGradRule(
                f"{line.symbol.path} has no gradient rule (symbol {line.symbol.id}, in {line!r}{called}); declare one with @{line.symbol.name}.vjp, "
                f'or dovetail.extend.register_grad("{line.symbol.id}", rule), or detach its inputs'
            )

    def _flows(self, line: BoundSymbol) -> bool:
        """Whether a cotangent can come in by the results of `line` and go out by its arguments."""
        if Tag.NO_GRAD in line.symbol.tags or not any([p in self.needs for p in line.reads]):
            return False
        return any([isinstance(p, TensorProxy) and p.spec.dtype.inexact and p not in self.constant for p in line.writes])

    def _decomposed(self, line: BoundSymbol, where: str | None) -> None:
        start, replaced = len(self.joint.lines), len(self.env)
        whole = Whole(line, [])
        self.joint.whole.append(whole)
        for inner in line.body:
            self.forward(inner, where)
        whole.intact = len(self.env) == replaced
        whole.computed = [p for line in self.joint.lines[start:] for p in line.writes]

    def backward(self) -> None:
        """Pull every entry, the last first."""
        while self.entries:
            out, pull = self.entries.pop()
            g = tree_map(lambda p: self.hooked(p) if isinstance(p, Proxy) else None, out)
            if any([x is not None for x in leaves(g)]):
                self.flowing = frozenset().union(*[self.flows.get(p, ()) for p in proxies(out)])
                pull(g)

    def cotangent(self, p: Proxy) -> Proxy | None:
        """Return what flowed into `p`, from everything that reads it."""
        if p in self.pieces:
            for part in _together(self.pieces.pop(p), p):
                self._add(p, part, prims.strided_slice)
        return self.grads.get(p)

    def hooked(self, p: Proxy) -> Proxy | None:
        """Return the cotangent of `p` after its hook, which runs once."""
        g = self.cotangent(p)
        if g is not None and p in self.hooks:
            g = self.grads[p] = self.hooks.pop(p)(g)
        return g

    def _needs(self, out: Any) -> None:
        for p in proxies(out):
            if isinstance(p, TensorProxy) and p.spec.dtype.inexact and p not in self.constant:
                self.needs.add(p)
                if not p.spec.requires_grad:
                    p.spec = p.spec.like(requires_grad=True)

    def _pull(self, line: BoundSymbol, g: Any) -> None:
        if line.symbol is prims.strided_slice:
            self.pieces.setdefault(line.args[0], []).append((line, g))
            self._flow_into(line.args[0])
            return
        try:
            cotangents = line.symbol.vjp_rule(g, line.out, *line.args, **line.kwargs)
        except Exception as error:
            if not isinstance(error, DovetailError):
                error.add_note(f"raised by the vjp rule of {line.symbol}, in {line!r}{f', called at {line.where}' if line.where else ''}")
            raise
        args, grads = list(leaves(line.args)), list(leaves(cotangents))
        if len(args) != len(grads):
            raise InvalidTrace(
                f"the vjp rule of {line.symbol} gives {len(grads)} cotangents for {len(args)} arguments; give one for each, None where there is none"
            )
        for p, gp in zip(args, grads, strict=True):
            self._add(p, gp, line.symbol)

    def _add(self, p: Any, gp: Any, symbol: Symbol) -> None:
        """Add `gp` to the cotangent of `p`, where it is needed."""
        if gp is None or not isinstance(p, Proxy) or p not in self.needs:
            return
        if not isinstance(gp, TensorProxy):
            raise InvalidTrace(f'the grad rule of {symbol} gives {gp!r} for the cotangent of {p.name}: "{p.spec}"; give a tensor like it, or None')
        if gp.spec.shape != p.spec.shape or gp.spec.dtype is not p.spec.dtype:
            raise InvalidTrace(f'the grad rule of {symbol} gives {gp.name}: "{gp.spec}" for the cotangent of {p.name}: "{p.spec}"')
        known = self.grads.get(p)
        self.grads[p] = gp if known is None else prims.add(known, gp)
        self._flow_into(p)

    def _flow_into(self, p: Proxy) -> None:
        self.flows[p] = self.flows.get(p, frozenset()) | self.flowing

    def _interleaved(self, rule: Rule, line: BoundSymbol) -> bool:
        """Run `rule` in place of `line`; False when it declines by returning NotImplemented."""
        joint, outer = self.joint, self.joint.lines
        joint.lines, joint.language = [], line.symbol.language or prims.OPERATORS
        try:
            out = rule(*line.args, **line.kwargs)
            recorded = joint.lines
        finally:
            joint.lines, joint.language = outer, prims.OPERATORS
        if out is NotImplemented:
            return False
        held, early, late = [], [], set()
        for new in recorded:
            backward = new.symbol in (prims.get_grad, prims.put_grad) or any([p in late for p in new.reads])
            late.update(new.writes if backward else ())
            (held if backward else early).append(new)
        if len(early) == 1 and _is_same(early[0], line) and len(proxies(out)) == len(proxies(line.out)):
            renamed = dict(zip(early[0].writes, line.writes, strict=True))
            early, held = [line], [substitute(new, renamed) for new in held]
            out = substitute(out, renamed)
        outer += early
        self._stands_for(line, out, late)
        self._needs(out)
        self.entries.append((out, lambda g: self._replay(held, line)))
        return True

    def _stands_for(self, line: BoundSymbol, out: Any, late: set[Proxy]) -> None:
        """The results of an interleaved rule take the place of the line's."""
        old, new = proxies(line.out), proxies(out)
        if len(old) != len(new) or any([p in late for p in new]):
            raise InvalidTrace(
                f"the grad rule of {line.symbol} returns {out}; it returns the results of the operation, {line.out}, before any get_grad"
            )
        for a, b in zip(old, new, strict=True):
            if a.spec.shape != b.spec.shape or a.spec.dtype is not b.spec.dtype:
                raise InvalidTrace(f'the grad rule of {line.symbol} computes {b.name}: "{b.spec}" where the operation gives {a.name}: "{a.spec}"')
            if a in self.constant:
                self.constant.add(b)
            if a is not b:
                self.env[a] = b
                if a in self.hooks:
                    self.hooks[b] = self.hooks.pop(a)

    def _replay(self, held: list[BoundSymbol], line: BoundSymbol) -> None:
        """Record the held lines with real cotangents, where the rule had stand-ins that are row-major."""
        got = {new.out: new.args[0] for new in held if new.symbol is prims.get_grad}
        env: dict[Proxy, Proxy] = {}
        moved: set[Proxy] = set()  # stand-ins for values of another layout; lines that read them are recorded anew
        for new in with_absent(held, {p for p, of in got.items() if self.cotangent(of) is None}):
            if new.symbol is prims.get_grad:
                g = self.cotangent(new.args[0])
                env[new.out] = zeros_like(new.args[0]) if g is None else g
                if g is not None and g.spec.strides is not None:
                    moved.add(new.out)
            elif new.symbol is prims.put_grad:
                p, gp = new.args
                self._add(p, env.get(gp, gp), line.symbol)
            elif any([p in moved for p in new.reads]):
                self._again(new, env, moved)
            else:
                self.joint.lines.append(substitute(new, env))

    def _again(self, line: BoundSymbol, env: dict[Proxy, Proxy], moved: set[Proxy]) -> None:
        """Record `line` on values of other strides than it was recorded on; on row-major copies where it cannot be."""

        def record(swapped: dict[Proxy, Proxy]) -> Any:
            args, kwargs = substitute((line.args, line.kwargs), swapped)
            return self.joint.record(line.symbol, args, kwargs)

        try:
            out = record(env)
        except InputError:
            out = record(env | {p: prims.clone(env[p]) for p in line.reads if p in moved})
        for a, b in zip(proxies(line.out), proxies(out), strict=True):
            env[a] = b
            if isinstance(a, TensorProxy) and a.spec.strides != b.spec.strides:
                moved.add(a)


def nothing_flows(lines: Iterable[BoundSymbol], cotangents: Iterable[Proxy], absent: Iterable[Proxy]) -> set[Proxy]:
    """Return what is zero where the cotangents `absent` are, of all that lines compute of `cotangents`."""
    late, nothing = set(cotangents), set(absent)
    for line in lines:
        flowing = [p for p in line.reads if p in late]
        late.update(line.writes if flowing else ())
        nothing.update(line.writes if flowing and nothing.issuperset(flowing) else ())
    return nothing


def with_absent(lines: Iterable[BoundSymbol], absent: Collection[Proxy]) -> list[BoundSymbol]:
    """Return lines with None for the cotangents in which nothing flows, where an operation takes that."""
    nothing = dict.fromkeys(absent)
    return [substitute(line, nothing) if Tag.ABSENT in line.symbol.tags else line for line in lines]


def _is_same(a: BoundSymbol, b: BoundSymbol) -> bool:
    """Whether a rule computes the forward by the very operation that it is the rule of."""
    if a.symbol is not b.symbol or len(a.writes) != len(b.writes) or len(a.args) != len(b.args) or a.kwargs.keys() != b.kwargs.keys():
        return False
    return literal((a.args, a.kwargs)) == literal((b.args, b.kwargs))


def _together(pieces: list[tuple[BoundSymbol, Proxy]], x: Proxy) -> list[Proxy]:
    """Cotangents of `x` from those of slices of it: one concatenation where the slices lie side by side along one dimension."""
    shape, dtype, device = x.spec.shape, x.spec.dtype, x.spec.device
    windows = [tuple(zip(*(line.kwargs[k] for k in ("starts", "stops", "steps")), strict=True)) for line, _ in pieces]
    cut = {d for window in windows for d, part in enumerate(window) if part != (0, shape[d], 1)}
    if len(pieces) > 1 and len(cut) == 1:
        (dim,) = cut
        spans = sorted([(*window[dim], i) for i, window in enumerate(windows)])
        parts, at = [], 0
        for start, stop, step, i in [*spans, (shape[dim], shape[dim], 1, None)]:
            if start < at or step != 1:
                break
            if start > at:
                gap = (*shape[:dim], start - at, *shape[dim + 1 :])
                parts.append(prims.full(shape=gap, value=0.0, dtype=dtype, device=device))
            parts += [] if i is None else [pieces[i][1]]
            at = stop
        else:
            return [prims.cat(parts, dim=dim)]
    return [_spread(g, line, window, x) for (line, g), window in zip(pieces, windows, strict=True)]


def _spread(g: Proxy, line: BoundSymbol, window: tuple[tuple[int, int, int], ...], x: Proxy) -> Proxy:
    """The cotangent of `x` from that of one slice of it: zeros around g."""
    if any([step != 1 for _, _, step in window]):
        return prims.put_slice(zeros_like(x), g, **line.kwargs)
    low, high = tuple([start for start, _, _ in window]), tuple([n - stop for n, (_, stop, _) in zip(x.spec.shape, window, strict=True)])
    return prims.pad(g, value=0.0, low=low, high=high, interior=(0,) * len(low))
