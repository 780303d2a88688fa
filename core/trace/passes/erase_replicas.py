"""Values stand for themselves once the program is differentiated: `replicas` and `shared` have done their work in the backward.

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
from dovetail.trace.proxies import Proxy, proxies

MARKS = frozenset({collectives.replicas, collectives.shared})


def erase_replicas(trace: Trace) -> Trace:
    """Return the trace without `replicas` and `shared`; the trace itself where it has none."""
    if not any([line.symbol in MARKS for line in trace.lines]):
        return trace
    new, env = trace.derive("erase_replicas"), dict[Proxy, Proxy]()
    for line in trace.lines:
        if line.symbol in MARKS:
            env.update(zip(proxies(line.out), [env.get(p, p) for p in line.args], strict=True))
        else:
            new.lines.append(substitute(line, env))
    new.outputs = substitute(trace.outputs, env)
    return new
