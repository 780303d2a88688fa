"""Parameters stand for themselves once the program is differentiated: `replicas` has done its work in the backward.

>>> def computation(t0, t1):
...     (t2, t3) = dist.replicas(t0, t1, group='dp', ranks=2)
...     t4 = prims.mul(t2, t3)
...     return t4

becomes

>>> def computation(t0, t1):
...     t4 = prims.mul(t0, t1)
...     return t4
"""

from __future__ import annotations

from dovetail.prims import collectives
from dovetail.trace.ir import Trace, substitute
from dovetail.trace.proxies import Proxy


def erase_replicas(trace: Trace) -> Trace:
    """Return the trace without `replicas`; the trace itself where it has none."""
    if not any([line.symbol is collectives.replicas for line in trace.lines]):
        return trace
    new, env = trace.derive("erase_replicas"), dict[Proxy, Proxy]()
    for line in trace.lines:
        if line.symbol is collectives.replicas:
            env.update(zip(line.out, [env.get(p, p) for p in line.args], strict=True))
        else:
            new.lines.append(substitute(line, env))
    new.outputs = substitute(trace.outputs, env)
    return new
