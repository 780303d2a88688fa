"""Results that are only copied into an input are computed there, by the fusion executors that can.

>>> def computation(t0, t1):
...     t2 = prims.mul(t1, 0.1)
...     t3 = prims.add(t0, t2)
...     return (t3,)

with the epilogue

>>> def epilogue(t0, t1, t3):
...     prims.copy_(t0, t3)

reads as before; but where one region computes t3, and nothing reads t0 after it, the function that runs it may write t3 where t0 lies and
return t0 itself.  Copying a tensor into itself then costs nothing, and still tells autograd of the write.
"""

from __future__ import annotations

from collections import Counter

from dovetail import prims
from dovetail.executors.contract.executor import FusionExecutor
from dovetail.executors.discovery.plugin_errors import guarded
from dovetail.executors.dispatching.regions import FusedRegion
from dovetail.executors.ordering.resolve_order import Priority
from dovetail.trace import BoundSymbol, Proxy, TensorProxy, Trace, proxies
from dovetail.trace.aliases import root_of, view_bases


def in_place(trace: Trace, epilogue: Trace, executors: Priority) -> Trace:
    """Return `trace`, an executed program with results that `epilogue` takes, with regions that write into inputs where that is safe."""
    new = trace.derive("in_place")
    new.lines = list(trace.lines)
    wanted = _copied(trace, epilogue)
    if not wanted:
        return new
    bases, fusing = view_bases(trace.lines), {ex.name: ex for ex in executors if isinstance(ex, FusionExecutor)}
    returned = Counter(root_of(p, bases) for p in proxies(trace.outputs))
    wanted = {value: p for value, p in wanted.items() if root_of(value, bases) is value and returned[value] == 1 and p not in returned}
    later: set[Proxy] = set()  # what is read after a line
    for i in reversed(range(len(new.lines))):
        line = new.lines[i]
        into = {q: p for q in line.writes if (p := wanted.get(q)) is not None and p in set(line.reads) and p not in later}
        implementation = line.implementation
        if into and isinstance(implementation, FusedRegion) and implementation.executor in fusing:
            new.lines[i] = _writing(line, into, fusing[implementation.executor])
        later.update([root_of(p, bases) for p in line.reads])
    return new


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
