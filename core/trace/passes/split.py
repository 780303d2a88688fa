"""A joint trace cut into forward and backward, saving as few bytes between them as computing cheap lines again allows.

>>> def computation(t0, t3):
...     t1 = prims.exp(t0)
...     t2 = prims.sin(t1)
...     t4 = prims.cos(t1)
...     t5 = prims.mul(t3, t4)
...     t6 = prims.mul(t5, t1)
...     return ((t2,), [t6])

becomes a forward that also returns what is saved, tensors and then numbers

>>> def forward(t0):
...     t1 = prims.exp(t0)
...     t2 = prims.sin(t1)
...     return ((t2,), (t0,), ())

and a backward that takes what is saved and then the cotangents.

>>> def backward(t0, t3):
...     t1 = prims.exp(t0)
...     t4 = prims.cos(t1)
...     t5 = prims.mul(t3, t4)
...     t6 = prims.mul(t5, t1)
...     return [t6]

The choice is a minimum cut: every forward value is an edge as wide as its bytes, from what is provided or has to be computed once (inputs,
results of lines that are not cheap) to what the backward reads.  Values on the cut are saved; the backward computes the cheap lines behind
them again.  Inputs and results are nearly free, since they are held anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from dovetail import prims
from dovetail.errors import require
from dovetail.prims import Symbol, Tag
from dovetail.prims.creation import zeros_like
from dovetail.prims.memory import in_layout_of
from dovetail.prims.op import register
from dovetail.prims.sizes import Atom, hint_of, symbols_in
from dovetail.trace.aliases import looking_into
from dovetail.trace.ir import BoundSymbol, Trace, recording, substitute
from dovetail.trace.passes.dce import needed
from dovetail.trace.passes.grad import JointTrace, Whole
from dovetail.trace.passes.sizes import shown_symbols
from dovetail.trace.proxies import Proxy, TensorProxy, proxies

WIDE = 2**30  # scipy's flow is 32 bits: the finite edges together stay below WIDE, an edge of WIDE is never cut
DEEPEST = 20  # a longer chain of cheap lines is cut somewhere, or the backward would start by running the whole forward again
FREE = {Tag.VIEW, Tag.CREATION}
RECOMPUTE: dict[str, Callable[[BoundSymbol], bool]] = {  # how eager the backward is to compute a line again
    "none": lambda line: not FREE.isdisjoint(line.symbol.tags),
    "balanced": lambda line: Tag.CHEAP in line.symbol.tags,
    "all": lambda line: True,
}


@dataclass(eq=False)
class BackwardTrace(Trace):
    """Inputs are `saved` and then `cotangents`, outputs the gradients, into which the cotangents at the positions `flows` flow.

    `saved_bytes` is the memory held between forward and backward beyond inputs and results.
    """

    saved: list[Proxy] = field(default_factory=list, repr=False)
    cotangents: list[Proxy] = field(default_factory=list, repr=False)
    flows: list[frozenset[int]] = field(default_factory=list, repr=False)
    saved_bytes: int = 0

    def python(self, *, depth: int | None = None, where: bool = False) -> str:
        head = f"# {len(self.saved)} values are saved for this program; besides inputs and results they hold {self.saved_bytes:,} bytes\n"
        return head + super().python(depth=depth, where=where)


def split(joint: JointTrace, *, recompute: str = "balanced", written: Collection[Proxy] = (), fused: bool = True) -> tuple[Trace, BackwardTrace]:
    """Return (forward, backward).  The forward returns (results, saved tensors, saved numbers), the backward takes what is saved and the cotangents.

    `recompute` is "none" (save whatever the backward reads), "balanced" (compute cheap lines again where that saves memory) or "all"
    (compute everything again but random draws and effects).  `written` are inputs whose storage is overwritten between the two programs.
    Where no executor fuses what is computed again (`fused` False), "balanced" keeps the results of whole operations, as eager PyTorch does, and
    computes only what lies inside of them again.
    """
    require(recompute in RECOMPUTE, "recompute is one of {}, got {!r}", ", ".join(map(repr, RECOMPUTE)), recompute, error=ValueError)
    early, late, wanted = _sides(joint, written)
    exposed = looking_into(written, early)  # what holds something else by the time the backward runs
    cut = _Cut(joint, early, wanted, recompute, exposed, None if fused or recompute != "balanced" else _inside(joint.whole))
    saved = cut.saved()
    forward = joint.derive("split")
    forward = Trace(**{name: value for name, value in vars(forward).items() if name in Trace.__dataclass_fields__})
    forward.name, forward.inputs = "forward", joint.inputs[: len(joint.inputs) - len(joint.cotangents)]
    with recording(forward):
        copies = {p: prims.clone(p) for p in saved if p in cut.exposed}
    kept = substitute(list(saved), copies)
    numbers = [p for p in kept if not isinstance(p, TensorProxy)]
    kept = [p for p in kept if isinstance(p, TensorProxy)]
    forward.outputs = (joint.outputs[0], tuple(kept), tuple(numbers))
    forward.lines = folded(needed([*early, *forward.lines], forward.outputs), joint.whole, forward)
    lines = needed([*(line for line in early if not line.effects), *late], joint.outputs[1], known=[*saved, *joint.cotangents])
    lines = _just_in_time(lines, set(late), joint.outputs[1])
    if joint.relations is not None:
        shown = shown_symbols(kept)
        numbers += [atom.proxy for atom in symbols_of(lines, joint.cotangents) if atom not in shown]
        forward.outputs = (joint.outputs[0], tuple(kept), tuple(numbers))
    env: dict[Proxy, Any] = dict(copies)
    backward = BackwardTrace(**vars(forward.derive("split", name="backward")))
    backward.inputs, backward.saved, backward.cotangents = [*kept, *numbers, *joint.cotangents], [*kept, *numbers], joint.cotangents
    backward.flows = joint.flows
    backward.lines = [substitute(line, env) for line in lines] if env else lines
    backward.outputs = list(substitute(joint.outputs[1], env))
    backward.saved_bytes = sum([bytes_of(p) for p in kept if p not in cut.held])
    return forward, backward


def symbols_of(lines: list[BoundSymbol], cotangents: Collection[Proxy]) -> dict[Atom, None]:
    """Return the symbols in `lines` and `cotangents`.

    A backward gets them as numbers where no saved tensor has such a size: a cotangent may be None, and shows no size then.
    """
    specs = [p.spec for p in (*cotangents, *[p for line in lines for p in line.writes]) if isinstance(p, TensorProxy)]
    used: dict[Atom, None] = {}
    for tree in (*[(line.args, line.kwargs) for line in lines], *[(spec.shape, spec.strides) for spec in specs]):
        used |= symbols_in(tree)
    return used


def bytes_of(p: Proxy) -> int:
    """Return the memory that a value takes."""
    return hint_of(p.spec.numel) * p.spec.dtype.bytes if isinstance(p, TensorProxy) else 0


def _sides(joint: JointTrace, written: Collection[Proxy]) -> tuple[list[BoundSymbol], list[BoundSymbol], list[Proxy]]:
    """The lines of the forward, those of the backward, and the early values (inputs among them) that the late lines read.

    What no cotangent flows into is early, but for the draws and collectives of grad rules, which happen when and if the backward runs.
    """
    after, early, late = set(joint.cotangents), [], []
    wanted: dict[Proxy, None] = {}
    constants = set(joint.constants).difference(written)
    for line in joint.lines:
        if any([p in after for p in line.reads]) or (line.effects and not joint.by_rules.isdisjoint(line.writes)):
            after.update(line.writes)
            late.append(line)
        else:
            early.append(line)
    for p in [p for line in needed(late, joint.outputs[1]) for p in line.reads] + proxies(joint.outputs[1]):
        if p not in after and p not in constants:
            wanted[p] = None
    return early, late, list(wanted)


def _inside(wholes: list[Whole]) -> set[Proxy]:
    """What is computed inside operations of the program and is not their result."""
    computed: set[Proxy] = set()
    results: set[Proxy] = set()
    for whole in wholes:
        if computed.isdisjoint(whole.computed):
            computed.update(whole.computed)
            results.update(whole.line.writes)
    return computed - results


class _Cut:
    """The graph whose minimum cut says what to save.  Of lines that are not free only those in `inside`, unless None, are computed again."""

    def __init__(
        self, joint: JointTrace, early: list[BoundSymbol], wanted: list[Proxy], recompute: str, exposed: set[Proxy], inside: set[Proxy] | None
    ):
        self.wanted, self.recompute, self.exposed, self.inside = wanted, recompute, exposed, inside
        self.lines, self.by_rules = needed(early, wanted), joint.by_rules
        self.inputs, self.constants = set(joint.inputs), {p for p in joint.constants if p not in exposed}
        self.held = {*self.inputs, *proxies(joint.outputs[0])} - exposed  # in memory anyway

    def saved(self) -> list[Proxy]:
        """Return the values to save, in the order in which they are computed."""
        if all([p in self.inputs and p not in self.exposed for p in self.wanted]):
            return self.wanted
        values = dict.fromkeys([*(p for line in self.lines for p in (*line.reads, *line.writes)), *self.wanted])
        node = {
            p: 2 + 2 * i for i, p in enumerate(p for p in values if p not in self.constants)
        }  # 0 is the source, 1 the sink; p flows on to node + 1
        widths = {p: 1 if p in self.held else max(1, bytes_of(p)) for p in node}
        scale = min(1.0, (WIDE - 3 * len(node) - 2) / max(1, sum(widths.values())))
        # All else being equal, the base of a view is saved, and what a rule computes is left to the backward.
        second = self.by_rules | {p for line in self.lines if Tag.VIEW in line.symbol.tags for p in line.writes}
        edges = {(n, n + 1): max(1, int(widths[p] * scale)) + (p in second) for p, n in node.items()}
        computed = {p for line in self.lines for p in line.writes}
        edges |= {(0, n): WIDE for p, n in node.items() if p not in computed}
        edges |= {(node[p] + 1, 1): WIDE for p in self.wanted}
        for line, cheap in zip(self.lines, self._cheap(), strict=True):
            for p in line.writes:
                edges |= {(node[q] + 1, node[p]): WIDE for q in line.reads if q in node} if cheap else {(0, node[p]): WIDE}
        return _minimum_cut(edges, node)

    def _cheap(self) -> Iterable[bool]:
        """For each line, whether the backward may run it: `depth` counts cheap lines since the last value that is surely not recomputed."""
        chosen, depth = RECOMPUTE[self.recompute], {}
        for line in self.lines:
            deep = max([depth.get(p, 0) for p in line.reads], default=0) + (Tag.VIEW not in line.symbol.tags)
            cheap = not line.effects and _all(line, chosen) and (deep <= DEEPEST or self.recompute != "balanced")
            if _all(line, lambda part: Tag.AGAIN in part.symbol.tags) and not line.kwargs.get("keep"):
                cheap, deep = True, 0
            elif cheap and self.inside is not None and not self.inside.issuperset(line.writes):
                cheap = _all(line, RECOMPUTE["none"])
            if not cheap and not line.effects and not self.by_rules.isdisjoint(line.writes):
                cheap, deep = True, 0  # not computed again but once, in the backward
            depth.update(dict.fromkeys(line.writes, deep if cheap else 0))
            yield cheap


def _all(line: BoundSymbol, chosen: Callable[[BoundSymbol], bool]) -> bool:
    return all([_all(inner, chosen) for inner in line.body]) if line.body else chosen(line)


def _minimum_cut(edges: dict[tuple[int, int], int], node: dict[Proxy, int]) -> list[Proxy]:
    from scipy.sparse import csr_array  # 0.3 s, and only programs that are trained need it
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    tails, heads = zip(*edges, strict=True)
    size = 2 + 2 * len(node)
    graph = csr_array((list(edges.values()), (tails, heads)), shape=(size, size), dtype="int32")
    residual = (graph - maximum_flow(graph, 0, 1).flow).T.tocsr()
    residual.eliminate_zeros()
    # Of the cuts of least width the one nearest to the sink: what is as cheap to save further on need not be computed again from further back.
    behind = set(breadth_first_order(residual, 1, return_predecessors=False).tolist())
    return [p for p, n in node.items() if n not in behind and n + 1 in behind]


def folded(lines: list[BoundSymbol], wholes: list[Whole], forward: Trace) -> list[BoundSymbol]:
    """Return `lines` with an operation that was taken apart whole again, where nothing outside reads what is computed inside it."""
    position = {p: i for i, line in enumerate(lines) for p in line.writes}
    readers: dict[Proxy, list[int]] = {p: [-1] for p in proxies(forward.outputs)}
    for i, line in enumerate(lines):
        for p in line.reads:
            readers.setdefault(p, []).append(i)
    known = {*forward.inputs, *forward.constants, *position}
    gone: set[int] = set()
    placed: dict[int, BoundSymbol] = {}
    for whole in wholes:
        present = [p for p in whole.computed if p in position]
        members = {position[p] for p in present}
        if not whole.intact or not members or not members.isdisjoint(gone) or not all([p in known for p in whole.line.reads]):
            continue
        shown = set(whole.line.writes)
        if all([p in shown or members.issuperset(readers.get(p, ())) for p in present]) and shown <= known:
            gone |= members
            placed[max(members)] = whole.line
    return [placed.get(i, line) for i, line in enumerate(lines) if i in placed or i not in gone]


def _just_in_time(lines: list[BoundSymbol], late: set[BoundSymbol], outputs: Any) -> list[BoundSymbol]:
    """`lines` with those that are computed again right before the first line that reads them, so that no two layers are held at once."""
    waiting = {p: line for line in lines if line not in late for p in line.writes}
    ordered: list[BoundSymbol] = []

    def bring(reads: Iterable[Proxy]) -> None:
        stack = [waiting[p] for p in reads if p in waiting]
        while stack:
            line = stack[-1]
            before = [waiting[p] for p in line.reads if p in waiting]
            if before:
                stack += before
                continue
            stack.pop()
            if line.writes[0] in waiting:
                ordered.append(line)
                for p in line.writes:
                    del waiting[p]

    for line in lines:
        if line in late:
            bring(line.reads)
            ordered.append(line)
    bring(proxies(outputs))
    return ordered


def drop_cotangents(backward: BackwardTrace, absent: Collection[Proxy]) -> BackwardTrace:
    """Return the backward for calls in which the cotangents `absent` are None, without the lines that only they flow into.

    Every line that a cotangent flows into is linear in the cotangents, so it gives nothing where nothing flows in; in a sum the other
    operand remains; elsewhere None or zeros stand in.  A gradient is None where none of the others flows into it, else zero where no line
    computes it.
    """
    new = backward.derive("drop_cotangents")
    gone, late = set(absent), set(backward.cotangents)
    env: dict[Proxy, Any] = {}
    zeros: dict[Proxy, Proxy] = {}
    with recording(new):
        for line in backward.lines:
            flowing = [p for p in line.reads if p in late]
            late.update(line.writes if flowing else ())
            missing = [p for p in flowing if p in gone]
            if missing and len(missing) == len(flowing):
                gone.update(line.writes)
            elif missing and line.symbol is prims.add:
                a, b = line.args
                rest = b if a in gone else a
                env[line.out] = in_layout_of(line.out, substitute(rest, env))
            elif missing and Tag.ABSENT in line.symbol.tags:
                new.lines.append(substitute(line, env | dict.fromkeys(missing)))
            else:
                zeros |= {p: zeros_like(p) for p in dict.fromkeys(missing) if p not in zeros}
                new.lines.append(substitute(line, env | {p: zeros[p] for p in missing} if missing else env))
        present = {i for i, p in enumerate(backward.cotangents) if p not in set(absent)}
        reached = [p if flows & present else None for p, flows in zip(backward.outputs, backward.flows, strict=True)]
        new.outputs = [zeros_like(p) if p in gone else p for p in reached]
    new.cotangents = [backward.cotangents[i] for i in sorted(present)]
    new.inputs = [*new.saved, *new.cotangents]
    new.outputs = substitute(new.outputs, env)
    new.lines = needed(new.lines, new.outputs)
    return new


def apart(backward: BackwardTrace) -> list[frozenset[int]]:
    """Return the groups of cotangents, by their positions, that share no line which reads a saved value besides: they share sums alone."""
    flows = {p: frozenset([i]) for i, p in enumerate(backward.cotangents)}
    groups = list(flows.values())
    for line in backward.lines:
        through = frozenset[int]().union(*[flows[p] for p in line.reads if p in flows])
        if not through:
            continue
        flows.update(dict.fromkeys(line.writes, through))
        if len(through) > 1 and not all([p in flows for p in line.reads]):
            groups = [*[group for group in groups if not group & through], through.union(*[group for group in groups if group & through])]
    return groups


def _unpack_saved(saved: Any) -> None:
    """The items of the list `saved`, which is emptied; only at the head of a backward that runs."""


UNPACK = register(Symbol("prims", "unpack_saved", _unpack_saved, tags={Tag.HOST, Tag.NO_GRAD}))


@UNPACK.python
def _unpack_saved_python(target: str, saved: str) -> str:
    return f"{target} = {saved}\n    {saved}.clear()"


def take_saved(backward: BackwardTrace) -> BackwardTrace:
    """Return a backward that takes `saved` as one list and empties it, so that the program alone holds what was saved."""
    new = backward.derive("take_saved")
    holder = Proxy("kept")
    line = BoundSymbol(UNPACK, (holder,), {}, tuple(backward.saved), [holder])
    new.lines = [line, *backward.lines] if backward.saved else list(backward.lines)
    new.inputs = [holder, *backward.cotangents]
    return new
