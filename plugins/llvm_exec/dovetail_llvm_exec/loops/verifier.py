"""Check a finished plan and the functions written from it: what one loop nest reads, an earlier one has written, and nothing overwrote it.

Planning decides who computes what; this module trusts none of its bookkeeping.  It derives from the items of each loop nest, and from what
the code of each function does to memory, who writes a value and who reads it, and raises `Broken` where an invariant does not hold:

- one value, one name: no two nodes share a buffer, and one loop nest writes each;
- a loop nest writes every element of a buffer exactly once, and reads none outside of it;
- a value depends on no loop that its place does not depend on: nothing is left to the last iteration, or the last thread;
- a loop nest reads what earlier ones have written completely, and results of its own rows that are known by then;
- no function writes where what it reads, or what a later one reads, lies;
- no unit of a function writes what another unit of it reads or writes: between threads there is no barrier but its end.

Places in memory are checked for the sizes of the call that is compiled, so that nothing more is assumed of others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dovetail.prims.sizes import hint_of
from dovetail_llvm_exec.loops.stage import Phase, Workspace
from dovetail_llvm_exec.region.exprs import Buffer, Expr, walk
from dovetail_llvm_exec.region.forms import Atom, CannotLower, Form, dot, known_equal
from dovetail_llvm_exec.region.graph import Node
from dovetail_llvm_exec.region.groups import Group, Item, Plan, Result

SHARED = ("out", "temp", "part")  # kinds of buffers that outlive a function


class Broken(CannotLower):
    """A plan breaks an invariant, so its region is not compiled: it would compute something else."""


def require(holds: bool, text: str, *args: object) -> None:
    """Raise Broken where an invariant does not hold."""
    if not holds:
        raise Broken(text.format(*args))


# --- the loop nests


def verify_plan(plan: Plan) -> None:
    """Check the loop nests of a plan, in the order in which they run."""
    places = list(plan.memory.values())
    require(len(set(places)) == len(places), "two values of the plan share the name of a buffer")
    of = {buffer: node for node, buffer in plan.memory.items()}
    complete = {buffer for buffer in places if buffer.kind == "in"}
    for group in plan.groups:
        written = [plan.memory.get(item.node) for item in group.items if item.kind != "result"]
        require(None not in written, "loop nest {} stores a value that has no place", group.index)
        for buffer in written:
            require(buffer not in complete and written.count(buffer) == 1, "{} is written more than once", named(buffer))
        _verify_group(group, of, complete)
        complete.update(written)
    for node in plan.stored:
        require(plan.outputs[node] in complete, "no loop nest writes {}", named(plan.outputs[node]))


def _verify_group(group: Group, of: Mapping[Buffer, Node], complete: set[Buffer]) -> None:
    """Check the items of one loop nest, when the buffers in `complete` are written."""
    atoms = group.atoms(range(len(group.shape)))
    columns = group.atoms(group.columns)
    known: set[Result] = set()
    every = {item.expr.data for item in group.items if item.kind == "result"}
    for item in group.items:
        roots = _roots(item)
        under = walk(roots)
        stray = {a for e in under for a in e.atoms} - atoms
        require(not stray, "loop nest {} computes with {}, which it does not count", group.index, stray)
        waits = frozenset().union(*(e.row_results for e in roots)) if item.kind != "result" else _waits(item.expr.data)
        require(waits <= (known if item.kind == "result" else every), "loop nest {} reads a result that it does not know", group.index)
        if item.kind == "result":
            require(item.expr.data.row_atoms == atoms - columns, "a reduction of loop nest {} is not over its columns", group.index)
            known.add(item.expr.data)
        else:
            _verify_write(group, item, atoms - columns)
        if group.wide and item.kind == "store" and waits:
            require(item.expr.atoms.isdisjoint(columns), "loop nest {} reads results of rows that other units have a part of", group.index)
        for load in (e for e in under if e.op == "load"):
            buffer, form = load.data
            require(buffer in complete, "loop nest {} reads {}, which is not complete then", group.index, named(buffer))
            if not load.args and hint_of(group.numel):  # an empty one reads nothing
                _verify_bounds(form, of[buffer], f"loop nest {group.index} reads {named(buffer)}")


def _roots(item: Item) -> list[Expr]:
    """Return what an item computes."""
    if item.kind != "result":
        return [item.expr]
    result = item.expr.data
    return [result.body] if result.place is None else [result.body, result.place]


def _waits(result: Result) -> frozenset[Result]:
    """Return the results that a reduction needs before it starts."""
    return result.body.row_results if result.place is None else result.body.row_results | result.place.row_results


def _verify_write(group: Group, item: Item, rows: frozenset[Atom]) -> None:
    """Check that a store, or a sum down the rows, writes each element of its node once, with a value of that place."""
    form, node = dot(item.coords, item.node.steps), item.node
    where = f"loop nest {group.index} writes {node!r}"
    own, down = {a for a, _ in form.terms}, group.atoms(group.down) if item.kind == "tally" else frozenset()
    varies = {a for a in item.expr.atoms if hint_of(a.size) > 1}
    require(varies <= own | down and own.isdisjoint(down), "{} in a place that does not change with the value", where)
    require(own <= group.atoms(range(len(group.shape))), "{} at a place of another loop nest", where)
    require(not form.moving and _covers(form, node.numel), "{} not once at each element", where)
    _verify_bounds(form, node, where)


def _covers(form: Form, numel: int) -> bool:
    """Return whether a form takes `numel` values, each once."""
    count = reach = 1
    for size, step in sorted([(hint_of(atom.size), hint_of(step)) for atom, step in form.terms], key=lambda term: term[1]):
        if step < reach:
            return False
        count, reach = count * size, reach + step * (size - 1)
    return count == hint_of(numel)


def _verify_bounds(form: Form, node: Node, where: str) -> None:
    """Check that a position is inside of a node's memory."""
    if hint_of(node.numel) == 0:
        return  # no position is one of an element
    extent = 1 + sum((hint_of(n) - 1) * hint_of(step) for n, step in zip(node.shape, node.steps, strict=True))
    low = high = hint_of(form.const)
    pairs = [(a.size, s) for a, s in form.terms] + [(_size(e), s) for e, s in form.moving]
    for size, step in [(hint_of(n), hint_of(s)) for n, s in pairs]:
        low, high = low + min((size - 1) * step, 0), high + max((size - 1) * step, 0)
    require(low >= 0 and high < extent, "{} at {} to {} of {} elements", where, low, high, extent)


def _size(position: Expr) -> int:
    """Return how many values a position read from memory can have."""
    require(position.op == "checked", "a position read from memory is not checked")
    return position.data[0]


# --- the functions


def verify_phases(phases: Sequence[Phase], workspace: Workspace, outputs: Iterable[Buffer], into: Mapping[Buffer, Buffer] | None = None) -> None:
    """Check the functions of a program, in the order in which they run, by what their code does to memory.

    `into` maps an output to the input in whose memory it is written.
    """
    into = into or {}
    held: dict[Buffer, tuple[object, int, int]] = {}  # what is intact, and where it lies
    lost: set[Buffer] = set()  # inputs that were written over
    for phase in phases:
        writes = {b for b, _ in phase.writes if b.kind in SHARED}
        reads = {b for b, _ in phase.reads if b.kind in (*SHARED, "in")}
        _verify_units(phase, into)
        for buffer in reads - writes:
            intact = buffer not in lost if buffer.kind == "in" else buffer in held
            require(intact, "{} reads {}, which is not written before, or another value has its place", phase.name, named(buffer))
        for buffer in writes:
            place = _place(buffer, workspace, into)
            clash = next((b for b in (reads | writes) - {buffer} if b.kind != "in" and _overlap(place, _place(b, workspace, into))), None)
            require(clash is None, "{} uses {} and {}, which share a place", phase.name, named(buffer), named(clash))
            held = {b: other for b, other in held.items() if b == buffer or not _overlap(place, other)}
            held[buffer] = place
            lost |= {into[buffer]} if buffer in into else set()
    for buffer in outputs:
        require(buffer in held, "{} is not intact in the end", named(buffer))


def _verify_units(phase: Phase, into: Mapping[Buffer, Buffer]) -> None:
    """Check that units of a function, which threads run at the same time, have nothing to do with one another."""
    forms: dict[Buffer, set[Form | None]] = {}
    for buffer, form in phase.writes:
        if buffer.kind in SHARED:
            forms.setdefault(buffer, set()).add(form)
            alone = (
                (type(phase.units) is int and phase.units == 1)
                or buffer in phase.own
                or phase.split <= {a for a, _ in form.terms} | {a for a in phase.split if hint_of(a.size) == 1}
            )
            require(alone, "units of {} write the same elements of {}", phase.name, named(buffer))
    forms.update({into[b]: places for b, places in list(forms.items()) if b in into})
    for buffer, form in phase.reads:
        mixed = buffer in forms and forms[buffer] != {form}
        require(not mixed, "{} reads elements of {} that it writes elsewhere", phase.name, named(buffer))


def _place(buffer: Buffer, workspace: Workspace, into: Mapping[Buffer, Buffer]) -> tuple[object, int, int]:
    """Return where a buffer lies: a memory, and bytes of it."""
    if buffer.kind == "out":
        return into.get(buffer, buffer), 0, 1
    room = next((r for r in workspace.rooms if r.buffer == buffer), None)
    require(room is not None and known_equal(room.low, workspace.offsets[buffer]), "{} has no place in the workspace", named(buffer))
    return "workspace", hint_of(room.low), hint_of(room.high)


def _overlap(a: tuple[object, int, int], b: tuple[object, int, int]) -> bool:
    return a[0] == b[0] and a[1] < b[2] and b[1] < a[2]


def named(buffer: Buffer | None) -> str:
    """Return a buffer in words."""
    words = {"in": "input", "out": "output", "temp": "temporary", "part": "partial result"}
    return "nothing" if buffer is None else f"{words.get(buffer.kind, buffer.kind)} {buffer.number}"
