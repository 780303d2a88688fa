"""Results that are only copied into an input are computed there, by the executors that can.

>>> def computation(t0, t1):
...     t2 = prims.mul(t1, 0.1)
...     t3 = prims.add(t0, t2)
...     return (t3,)

with the epilogue

>>> def epilogue(t0, t1, t3):
...     prims.copy_(t0, t3)

reads as before; but where one region computes t3, and nothing reads t0 after it, the function that runs it may write t3 where t0 lies and
return t0 itself.  Copying a tensor into itself then costs nothing, and still tells autograd of the write.

An operation that changes few places of a large input, as a step of decoding does to a cache, runs by itself: its executor writes these places
alone, where a region would go over all of the input.  So it does in a tensor that the program has created and no longer needs, as the zeros into
which a backward puts the gradient of a part.

A line is left as it is where a later one may raise, as for an index out of range: such a call starts again in eager mode.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from dovetail import prims
from dovetail.executors.contract.executor import Executor, FusionExecutor, OperatorExecutor
from dovetail.executors.discovery.plugin_errors import guarded
from dovetail.executors.dispatching.regions import FusedRegion
from dovetail.executors.ordering.resolve_order import Priority
from dovetail.prims import Tag
from dovetail.prims.sizes import hint_of
from dovetail.trace import BoundSymbol, Proxy, TensorProxy, Trace, prims_of, proxies
from dovetail.trace.aliases import root_of, view_bases
from dovetail.trace.passes.split import bytes_of
from dovetail.trace.raising import fails_late, raises

UPDATES = frozenset({prims.put_slice, prims.put_diagonal, prims.scatter, prims.scatter_add, prims.index_put, prims.index_copy, prims.index_add})
LARGE = 1 << 15  # bytes of a tensor from which a region takes longer to go over it than an operation of its own takes
SHARE = 4  # how many times more elements it has than what is written into it


def updates(trace: Trace, epilogue: Trace) -> frozenset[Proxy]:
    """Return the results of operations that change few places of large inputs, and are copied into these inputs."""
    wanted, few = _overwriting(trace, _copied(trace, epilogue), view_bases(trace.lines)), set[Proxy]()
    for line in reversed(trace.lines) if wanted else ():
        if _takes_tensor(line) and (p := wanted.get(line.writes[0])) is not None and _changes_little(line):
            few.update(line.writes)
            wanted.setdefault(line.args[0], p)  # several updates, one after the other
    return frozenset(few)


def _takes_tensor(line: BoundSymbol) -> bool:
    """Return whether a line computes one value, and its first argument is a tensor."""
    return len(line.writes) == 1 and bool(line.args) and isinstance(line.args[0], TensorProxy)


def _changes_little(line: BoundSymbol) -> bool:
    """Return whether a line changes few places of its first argument, which is large."""
    (whole, *rest), kinds = line.args, {inner.symbol for inner in prims_of([line])}
    if UPDATES.isdisjoint(kinds) or bytes_of(whole) < LARGE:
        return False
    written = sum([hint_of(p.spec.numel) for p in proxies(rest) if isinstance(p, TensorProxy)])
    return SHARE * written <= hint_of(whole.spec.numel)


def in_place(trace: Trace, epilogue: Trace, executors: Priority) -> Trace:
    """Return `trace`, an executed program with results that `epilogue` takes, with lines that write into inputs where that is safe."""
    new = trace.derive("in_place")
    new.lines = list(trace.lines)
    wanted = _copied(trace, epilogue)
    if not wanted:
        return new
    bases, by_name = view_bases(trace.lines), {ex.name: ex for ex in executors}
    owned = {q for line in trace.lines if _makes(line, by_name) for q in line.writes if root_of(q, bases) is q}
    returned = {root_of(p, bases) for p in proxies(trace.outputs)}
    wanted = _overwriting(trace, wanted, bases)
    later, late = set[Proxy](), fails_late(new.lines)  # what is read after a line, and whether a call may end there
    for i in reversed(range(len(new.lines))):
        line = new.lines[i]
        ex = None if line.implementation is None else by_name.get(line.implementation.executor)
        if late[i] or (isinstance(line.implementation, FusedRegion) and raises(line)):
            pass  # such a call starts again in eager mode, from inputs as they were
        elif isinstance(line.implementation, FusedRegion) and isinstance(ex, FusionExecutor):
            into = {q: p for q in line.writes if (p := wanted.get(q)) is not None and _same_layout(p, q) and p in set(line.reads) and p not in later}
            new.lines[i] = _writing(line, into, ex) if into else line
        elif isinstance(ex, OperatorExecutor) and _takes_tensor(line) and (p := wanted.get(line.writes[0])) is not None:
            x, root = line.args[0], root_of(line.args[0], bases)
            mine = root is p or (root in owned and root not in returned)
            others = {root_of(q, bases) for q in proxies((line.args[1:], line.kwargs))}
            if mine and _same_elements(x, root) and _same_elements(root, p) and root not in later | others:
                new.lines[i] = _updating(line, ex)
                if new.lines[i] is not line:
                    wanted[root] = p  # so that several updates, one after the other, are of one memory
        later.update([root_of(p, bases) for p in line.reads])
    return new


def in_temporaries(trace: Trace, executors: Priority) -> Trace:
    """Return `trace`, an executed program, with updates that write into tensors of earlier lines, where nothing else reads these."""
    by_name = {ex.name: ex for ex in executors}
    own = {id(line) for line in trace.lines if _takes_tensor(line) and _operator_of(line, by_name) is not None}
    if not own:
        return trace
    bases = view_bases(trace.lines)
    owned = {q for line in trace.lines if _makes(line, by_name) or _creates(line, by_name) for q in line.writes if root_of(q, bases) is q}
    new = trace.derive("in_temporaries")
    new.lines = list(trace.lines)
    later = {root_of(p, bases) for p in proxies(trace.outputs)}  # what is read after a line
    for i in reversed(range(len(new.lines))):
        line = new.lines[i]
        if id(line) in own:
            x, root = line.args[0], root_of(line.args[0], bases)
            others = {root_of(q, bases) for q in proxies((line.args[1:], line.kwargs))}
            if root in owned and root not in later | others and _same_elements(x, root):
                new.lines[i] = _updating(line, _operator_of(line, by_name))
        later.update([root_of(p, bases) for p in line.reads])
    return new


def _operator_of(line: BoundSymbol, by_name: dict[str, Executor]) -> OperatorExecutor | None:
    """Return the executor of a line, if it can write the places that the line changes where they lie."""
    ex = None if line.implementation is None else by_name.get(line.implementation.executor)
    return ex if isinstance(ex, OperatorExecutor) and ex.in_place(line) is not None else None


def _creates(line: BoundSymbol, by_name: dict[str, Executor]) -> bool:
    """Return whether a line makes a tensor of no other, or a copy, by an executor of last resort, which keeps none of them."""
    ex = None if line.implementation is None else by_name.get(line.implementation.executor)
    return ex is not None and ex.last_resort and all([p.symbol is prims.clone or Tag.CREATION in p.symbol.tags for p in prims_of([line])])


def _overwriting(trace: Trace, copied: dict[Proxy, Proxy], bases: dict[Proxy, Proxy]) -> dict[Proxy, Proxy]:
    """Return the owners of the memory of results in `copied`, by the inputs that those go into, where nothing else is returned of both."""
    returned = Counter(root_of(p, bases) for p in proxies(trace.outputs))
    roots = {root_of(value, bases): (value, p) for value, p in copied.items() if p not in returned}
    return {root: p for root, (value, p) in roots.items() if returned[root] == 1 and _same_elements(value, root)}


def _makes(line: BoundSymbol, by_name: dict[str, Executor]) -> bool:
    """Return whether what runs a line makes the memory of its results, unless that is an input which it writes."""
    return isinstance(line.implementation, FusedRegion) or _operator_of(line, by_name) is not None


def _updating(line: BoundSymbol, ex: OperatorExecutor) -> BoundSymbol:
    """Return an update, run so that it writes its first argument, if its executor can and the result has the layout of that argument.

    The result of a scatter is row-major even where its first argument is not, and the lines behind it read it so.
    """
    if not _same_layout(line.args[0], line.writes[0]):
        return line
    implementation = guarded("in_place", ex, line, line.where, ex.in_place, line)
    return line if implementation is None else line.replace(implementation=replace(implementation, writes=(line.args[0],)))


def _writing(line: BoundSymbol, into: dict[Proxy, Proxy], ex: FusionExecutor) -> BoundSymbol:
    """A region's line, run so that results go `into` inputs, if its executor can."""
    fused = line.implementation
    fn = guarded("fuse_in_place", ex, line, line.where, ex.fuse_in_place, fused.region, into)
    if fn is None:
        return line
    return line.replace(implementation=FusedRegion(fused.executor, fused.name, fn, region=fused.region, writes=tuple(into.values())))


def _copied(trace: Trace, epilogue: Trace) -> dict[Proxy, Proxy]:
    """Results by the inputs that they are copied into and are for nothing else; of the same dtype and layout, without overlap in itself."""
    reads = Counter([p for line in epilogue.lines for p in line.reads] + proxies(epilogue.outputs))
    results, inputs = set(proxies(trace.outputs)), set(trace.inputs)
    overwritten: dict[Proxy, Proxy] = {}
    detached: dict[Proxy, Proxy] = {}  # how a write with grad mode off reaches an input
    for line in epilogue.lines:
        if line.symbol is prims.detach:
            detached[line.out] = detached.get(line.args[0], line.args[0])
        elif line.symbol is prims.copy_ and line.args[1] in results and reads[line.args[1]] == 1:
            target, value = detached.get(line.args[0], line.args[0]), line.args[1]
            if target in inputs and isinstance(target, TensorProxy) and _same_layout(target, value):
                overwritten[value] = target
    return overwritten


def _same_layout(target: TensorProxy, value: Proxy) -> bool:
    a, b = target.spec, value.spec
    return (a.shape, a.dtype, a.device, a.steps) == (b.shape, b.dtype, b.device, b.steps) and a.is_dense


def _same_elements(x: TensorProxy, y: TensorProxy) -> bool:
    """Return whether two tensors of one memory are all of it, in the same order: then a place of one is a place of the other."""
    row_major = x.spec.strides is None and y.spec.strides is None and x.spec.dtype == y.spec.dtype and x.spec.numel == y.spec.numel
    return x is y or row_major or _same_layout(x, y)
