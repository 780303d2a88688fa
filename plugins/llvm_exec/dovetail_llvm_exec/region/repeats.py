"""Values that are stored before loops read them, since the loops would compute them again and again.

    x / 10000 ** (i / 128)      for the 512 rows of x, the powers are those of 128 numbers: they are computed once, and read
    gelu'(x) over windows       the gradient of an average of gelus, of which each is that of four elements
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
    worth, costs, spread = set[Node](), dict[Node, float](), _spread(nodes, stored)
    readers = {x: node for node in nodes if not node.is_view for x in node.nodes}
    for node in nodes:
        widened = [(x, spread[x.base] * hint_of(x.base.numel)) for x in node.nodes if x.base in spread]
        for x, evaluations in (*_reads(node, readers), *widened):
            base = x.base
            if base in stored or base in worth or base.reduces or evaluations < TIMES * hint_of(base.numel):
                continue
            cost = _cost(base, {*stored, *worth}, costs)
            if cost >= COSTLY and (evaluations - hint_of(base.numel)) * cost >= SAVED:
                worth.add(base)
    return worth


def in_turns(nodes: Sequence[Node]) -> set[Node]:
    """Return the joined values, with parts that take turns in memory, which much is computed from: a loop nest of its own stores each."""
    joined = [node for node in nodes if node.op == "cat" and hint_of(node.numel) >= SAVED]
    return {node for node in joined if any([_takes_turns(x, node) for x in node.nodes]) and _cost_behind(node, nodes) >= COSTLY}


def _cost_behind(node: Node, nodes: Sequence[Node]) -> float:
    """Return what is computed of an element of `node`; `nodes` are in the order of their computation."""
    reached = {node}
    for x in nodes:
        if not reached.isdisjoint(x.nodes):
            reached.add(x)
    return sum([_own_cost(x) for x in reached])


def _spread(nodes: Sequence[Node], stored: Collection[Node]) -> dict[Node, int]:
    """Return what copies spread over a few elements side by side each, and how often an element of it is computed.

    The gradient of a window is that of each of its elements, and a copy puts these where they lie: no loop goes over the elements of one window.
    """
    spread, times, copied = dict[Node, int](), dict[Node, int](), set[Node]()
    for node in reversed(nodes):
        if node.is_view or node.reduces or node in stored:
            continue
        for base in {x.base for x in node.nodes}:
            count, elements = times.get(node, 1), hint_of(base.numel)
            if (node.op == "copy" or node in copied) and elements:
                if hint_of(node.numel) == elements:
                    copied.add(base)
                elif (wider := hint_of(node.numel) // elements) < RUN:
                    count *= max(wider, 1)
                    spread[base] = max(spread.get(base, 1), count)
            times[base] = max(times.get(base, 1), count)
    return spread


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
    elif node.op in ("take", "take_along_axis", "embedding"):
        yield node.nodes[0], prod(shape)
    elif node.op == "cat":
        for x in node.nodes:
            if _takes_turns(x, node):
                yield x, TIMES * prod(shape)  # one by one, for all of the elements


def _takes_turns(x: Node, node: Node) -> bool:
    """Return whether a part of what is joined has too few elements side by side to fill vectors."""
    dim = node.params["dim"]
    return prod(map(hint_of, x.shape[dim:])) < RUN


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
    for x in computed.difference(costs):
        costs[x] = _own_cost(x)
    return sum([costs[x] for x in computed])


def _own_cost(node: Node) -> float:
    if node.is_view or node.op in ("full", "extent", "copy", "cat"):
        return 0.0
    power = POWERS.get(node.args[1]) if node.op == "pow" and not isinstance(node.args[1], Node) else None
    return cost_of(power or node.op, node.dtype)
