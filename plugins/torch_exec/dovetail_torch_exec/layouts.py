"""Where PyTorch multiplies slowly what lies as it does, a copy in rows is multiplied.

>>> t1 = prims.transpose(t0, dims=(1, 0, 2))
>>> t4 = torch.nn.functional.linear(t1, t2, t3)

becomes

>>> t1 = prims.transpose(t0, dims=(1, 0, 2))
>>> t5 = prims.clone(t1)
>>> t4 = torch.nn.functional.linear(t5, t2, t3)

PyTorch makes one product of matrices of the first when the rows of t1 lie evenly spaced, as those of a matrix do.  Else it makes as many
products as there are matrices in t1, each with a weight that is brought into another layout again.  The result is laid out the same.
"""

from __future__ import annotations

from dovetail import prims
from dovetail.extend import BoundSymbol, TensorSpec, Trace
from dovetail.extend.advanced import Proxy, recording, substitute, symbol_for

MATMUL = symbol_for("torch.matmul")
PRODUCTS = frozenset((prims.linear, symbol_for("torch.nn.functional.linear"), MATMUL))


def in_rows(trace: Trace) -> Trace:
    """Return the trace with copies of what linear layers on CPUs read, where its rows do not lie evenly; one copy for all who read it."""
    if not any([_gathers(line) for line in trace.lines]):
        return trace
    new = trace.derive("in_rows")
    copies: dict[Proxy, Proxy] = {}
    with recording(new):
        for line in trace.lines:
            if _gathers(line):
                x = line.args[0]
                if x not in copies:
                    copies[x] = prims.clone(x)
                line = substitute(line, {x: copies[x]})
            new.lines.append(line)
    return new


def _gathers(line: BoundSymbol) -> bool:
    """Return whether a line multiplies rows that do not lie evenly by one matrix."""
    if line.symbol not in PRODUCTS or len(line.args) < 2:
        return False
    x, weight = line.args[0].spec, line.args[1].spec
    if weight.rank != 2 or x.rank < 3 or x.device.type != "cpu" or x.numel == 0:
        return False
    return not _even(x)


def _even(x: TensorSpec) -> bool:
    """Return whether all dimensions but the last can be seen as one, by PyTorch's own rule, which makes no difference of those of size 1."""
    return all([a == b * n for a, b, n in zip(x.steps[:-2], x.steps[1:-1], x.shape[1:-1], strict=True)])
