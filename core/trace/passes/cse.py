"""Common subexpressions: the second `sin(t0)` becomes the first.

>>> def computation(t0):
...     t1 = prims.sin(t0)
...     t2 = prims.sin(t0)
...     t3 = prims.mul(t1, t2)
...     return t3

becomes

>>> def computation(t0):
...     t1 = prims.sin(t0)
...     t3 = prims.mul(t1, t1)
...     return t3

Expects a pure trace.  Two results that both leave the program, or views of which do, stay two tensors: eager PyTorch would not have aliased them.
Lines with effects, random ones among them, are never merged.
"""

from __future__ import annotations

from collections.abc import Collection

from dovetail.trace.aliases import storage_roots
from dovetail.trace.ir import Trace, substitute
from dovetail.trace.printing import literal
from dovetail.trace.proxies import Proxy, TensorProxy, proxies


def cse(trace: Trace, *, constant: Collection[Proxy] = ()) -> Trace:
    """Return the trace with equal lines computed once.  No value through which a gradient flows becomes one of `constant`, or the reverse."""
    new, first, env, constant = trace.derive("cse"), {}, {}, set(constant)
    roots = storage_roots(trace, trace.lines)
    escaping = {owner for p in proxies(trace.outputs) for owner in (p, roots.get(p, p))}
    for line in trace.lines:
        line = substitute(line, env)
        kind = tuple([(p.spec.requires_grad, p in constant) for p in line.writes if isinstance(p, TensorProxy)])  # a line under no_grad is another
        key = (line.symbol, literal(line.args), literal(line.kwargs), kind)
        if line.effects or key not in first or any([p in trace.saved_writes for p in (*line.writes, *first[key].writes)]):
            first.setdefault(key, line)
            new.lines.append(line)
        elif not escaping.isdisjoint(line.writes) and not escaping.isdisjoint(first[key].writes):
            new.lines.append(line)
        else:
            merged = dict(zip(line.writes, first[key].writes, strict=True))
            escaping.update([kept for gone, kept in merged.items() if gone in escaping])
            env.update(merged)
    new.outputs = substitute(trace.outputs, env)
    return new
