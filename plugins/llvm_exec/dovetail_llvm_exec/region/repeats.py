"""Values that are stored before loops read them, since the loops would compute them again and again.

    x / 10000 ** (i / 128)      for the 512 rows of x, the powers are those of 128 numbers: they are computed once, and read
    stack((sin(x), cos(x)), -1) sines and cosines take turns in memory, and no vector holds one kind: each kind is computed on its own

An expression is computed in the outermost loop that it varies with, so what is repeated along inner loops alone is computed once as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from math import prod

from dovetail.prims.sizes import hint_of
from dovetail_llvm_exec.region.graph import Node
from dovetail_llvm_exec.scalars.costs import CHEAP, POWERS, cost_of

TIMES = 4  # how often a value is computed at least
SAVED = 1000.0  # nanoseconds, which a loop nest of its own and the memory that is read take
COSTLY = 5 * CHEAP  # of an element, with all that it is computed from: reading it takes longer than less
RUN = 16  # elements of one kind side by side that fill a vector


def repeated(nodes: Sequence[Node], stored: Collection[Node]) -> set[Node]:
    """Return those of `nodes`, in their order of computation, that are worth storing; the `stored` ones and reductions are read as they are."""
    worth, costs = set[Node](), dict[Node, float]()
    readers = {x: node for node in nodes if not node.is_view for x in node.nodes}
    for node in nodes:
        for x, evaluations in _reads(node, readers):
            base = x.base
            if base in stored or base in worth or base.reduces or evaluations < TIMES * hint_of(base.numel):
                continue
            cost = _cost(base, {*stored, *worth}, costs)
            if cost >= COSTLY and (evaluations - hint_of(base.numel)) * cost >= SAVED:
                worth.add(base)
    return worth


def _reads(node: Node, readers: dict[Node, Node]) -> Iterator[tuple[Node, int]]:
    """Yield each argument that loops over `node` compute more often than it has elements, and how often."""
    shape = [hint_of(n) for n in node.shape]
    if node.op == "broadcast_in_dim":
        (x,) = node.nodes
        varies = {d for d, n in zip(node.params["dims"], x.shape, strict=True) if n != 1}
        inner = 1
        for d in reversed(_order(node, readers)):
            if d in varies:
                break
            inner *= shape[d]
        yield x, prod(shape) // max(inner, 1)
    elif node.op == "cat":
        dim = node.params["dim"]
        for x in node.nodes:
            if hint_of(x.shape[dim]) * prod(shape[dim + 1 :]) < RUN:
                yield x, TIMES * prod(shape)  # one by one, for all of the elements


def _order(node: Node, readers: dict[Node, Node]) -> list[int]:
    """Return the dimensions of a node as loops over it go, the outermost first."""
    reader = readers.get(node)
    steps = reader.steps if reader is not None and len(reader.shape) == len(node.shape) else range(len(node.shape), 0, -1)
    return sorted(range(len(node.shape)), key=lambda d: (-hint_of(steps[d]), d))


def _cost(node: Node, known: Collection[Node], costs: dict[Node, float]) -> float:
    """Return what an element of `node` costs, with all that is computed for it and not `known`."""
    computed, pending = set[Node](), [node]
    while pending:
        x = pending.pop()
        if x not in computed and x not in known and not x.reduces and x.op != "input":
            computed.add(x)
            pending += x.nodes
    total = 0.0
    for x in computed:
        if x not in costs:
            power = POWERS.get(x.args[1]) if x.op == "pow" and not isinstance(x.args[1], Node) else None
            costs[x] = 0.0 if x.is_view or x.op in ("full", "extent", "copy") else cost_of(power or x.op, x.dtype)
        total += costs[x]
    return total
