"""Which tensors a region copies first: those whose rows lie across memory where others lie along it.

A loop nest that reduces goes along the rows of what it reduces.  A tensor that another layout is read from there costs a line of the cache for
each element, several times; a copy by tiles reads each line once.
"""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.prims.sizes import is_symbolic
from dovetail_llvm_exec.region.graph import Graph, Node
from dovetail_llvm_exec.scalars.ops import OPERATIONS

LEAST = 1 << 12  # elements from which a copy pays
FAR = 8  # steps between the elements of a row from which it lies across memory


def align(graph: Graph) -> frozenset[Node]:
    """Let reductions read copies of tensors that lie across their rows; return what has to be stored before it is read."""
    copies: dict[tuple[Node, tuple[int, ...]], Node] = {}
    kept: set[Node] = set()
    for node in [n for n in graph.nodes if n.reduces]:
        (x,), dims = node.args, node.params["dims"]
        if is_symbolic(x.shape) or x.numel < LEAST:
            continue
        kept |= _read_copies(graph, node, row_order(x, dims if node.op in ("argmax", "argmin") else ()), copies)
    return frozenset({*kept, *copies.values()})


def _read_copies(graph: Graph, node: Node, order: Sequence[int], copies: dict[tuple[Node, tuple[int, ...]], Node]) -> set[Node]:
    """Let a reduction, and what it reads at the same places, read copies of inputs that lie across `order`; return those that are nodes already."""
    (x,), kept = node.args, set[Node]()
    pending, seen = [node], {node}
    while pending:
        user = pending.pop()
        for source in user.nodes:
            if source.shape != x.shape:
                continue
            across = lies_across(source, order)
            if across and user.op == "copy" and not lies_across(user, order):
                kept.add(user)
            elif across and (source.op == "input" or source.base.op == "input"):
                user.args = tuple(_copied(graph, source, order, copies) if a is source else a for a in user.args)
            elif source not in seen and _passes_on(source):
                seen.add(source)
                pending.append(source)
    return kept


def row_order(x: Node, last: Sequence[int]) -> list[int]:
    """Return the dimensions in the order of a loop nest over `x`, the innermost last; those in `last` behind the others."""
    dims = [d for d, n in enumerate(x.shape) if n != 1]
    return sorted(dims, key=lambda d: (d in last, -x.steps[d], d))


def lies_across(x: Node, order: Sequence[int]) -> bool:
    """Return whether the innermost dimension of `order` is far from element to element, and another one is not."""
    steps = [x.steps[d] for d in order]
    return len(steps) > 1 and steps[-1] >= FAR and min(steps[:-1]) == 1


def _passes_on(node: Node) -> bool:
    """Return whether an element of a node is computed from the elements at the same place."""
    return node.op in OPERATIONS or node.op == "copy"


def _copied(graph: Graph, x: Node, order: Sequence[int], copies: dict[tuple[Node, tuple[int, ...]], Node]) -> Node:
    """Return the copy of `x` that lies in the order of the loops."""
    steps, step = [1] * len(x.shape), 1
    for d in reversed(order):
        steps[d], step = step, step * x.shape[d]
    key = (x, tuple(steps))
    if key not in copies:
        copies[key] = graph.make("copy", (x,), x.shape, x.dtype, key[1])
        graph.nodes.insert(graph.nodes.index(x) + 1, graph.nodes.pop())
    return copies[key]
