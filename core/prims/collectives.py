"""Collectives: operations in which all ranks of a process group take part.

Every rank of a group starts the same collectives in the same order, so `Tag.COLLECTIVE` keeps their order, and none is removed or merged.
A line starts a collective; its result is complete after `wait`, a line of its own, so that a schedule can put distance between the two:

    t5 = dist.all_reduce(t4, op="sum", group="dp", ranks=4)  # t5: "cpu f32[1024]"
    t6 = dist.wait(t5)  # t6: "cpu f32[1024]"

`group` is the name of the group, which the torch language resolves to a process group, and `ranks` is how many ranks it has.

The second family is for parameters that are copied to all ranks or stored in parts.  `gather_shards` has no effect: the program may gather
a parameter twice, once in the forward and once in the backward, or not at all where nothing reads it.  All ranks run the same program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dovetail.errors import require
from dovetail.prims.creation import zeros_like
from dovetail.prims.elementwise import div
from dovetail.prims.memory import clone
from dovetail.prims.op import Symbol, Tag, register
from dovetail.prims.shape import cat, flat_reshape, pad, reshape, strided_slice
from dovetail.prims.spec import TensorSpec, ceildiv, prod

REDUCTIONS = ("sum", "avg", "max", "min", "product")
START = frozenset({Tag.COLLECTIVE})
GATHER = frozenset({Tag.ORDERED, Tag.AGAIN})


def collective(*, tags: Iterable[Tag]) -> Callable[[Callable], Symbol]:
    """Register a collective; the meta rule's name, signature, docstring and body become the operation's."""

    def wrap(meta: Callable) -> Symbol:
        return register(Symbol("dist", meta.__name__, meta, tags=tags, is_prim=True))

    return wrap


def _require_group(group: str, ranks: int) -> None:
    require(isinstance(group, str) and ranks >= 1, "expected the name of a process group and its number of ranks, got {!r} and {!r}", group, ranks)


def _require_reduction(op: str, *allowed: str) -> None:
    require(op in allowed, "expected a reduction among {}, got {!r}", ", ".join(allowed), op)


def _require_rows(x: TensorSpec, ranks: int) -> None:
    fits = x.rank >= 1 and x.shape[0] % ranks == 0
    require(fits, "expected a tensor whose first dimension is a multiple of the {} ranks of the group, got {}", ranks, x)


# Collectives.


@collective(tags={Tag.VIEW, Tag.WAIT})
def wait(x: TensorSpec) -> TensorSpec:
    """Return the result x of a collective, once it is complete."""
    return x.like(requires_grad=False)


@wait.vjp
def wait_vjp(g, out, x):
    return (g,)


@wait.put
def wait_put(x, value):
    return value


@collective(tags=START)
def all_reduce(x: TensorSpec, *, op: str, group: str, ranks: int) -> TensorSpec:
    """Start to reduce x over all ranks, elementwise; `op` is "sum", "avg", "max", "min" or "product"."""
    _require_group(group, ranks)
    _require_reduction(op, *REDUCTIONS)
    return x.fresh()


@all_reduce.vjp
def all_reduce_vjp(g, out, x, *, op, group, ranks):
    _require_reduction(op, "sum", "avg")
    return (wait(all_reduce(g, op=op, group=group, ranks=ranks)),)


@collective(tags=START)
def all_gather(x: TensorSpec, *, group: str, ranks: int) -> TensorSpec:
    """Start to concatenate the x of all ranks along the first dimension."""
    _require_group(group, ranks)
    require(x.rank >= 1, "expected a tensor of at least one dimension, got {}", x)
    return x.fresh((x.shape[0] * ranks, *x.shape[1:]))


@all_gather.vjp
def all_gather_vjp(g, out, x, *, group, ranks):
    return (wait(reduce_scatter(g, op="sum", group=group, ranks=ranks)),)


@collective(tags=START)
def reduce_scatter(x: TensorSpec, *, op: str, group: str, ranks: int) -> TensorSpec:
    """Start to reduce x over all ranks; rank i gets part i of `ranks` equal parts along the first dimension."""
    _require_group(group, ranks)
    _require_reduction(op, *REDUCTIONS)
    _require_rows(x, ranks)
    return x.fresh((x.shape[0] // ranks, *x.shape[1:]))


@reduce_scatter.vjp
def reduce_scatter_vjp(g, out, x, *, op, group, ranks):
    _require_reduction(op, "sum", "avg")
    gathered = wait(all_gather(g, group=group, ranks=ranks))
    return (div(gathered, float(ranks)) if op == "avg" else gathered,)


@collective(tags=START)
def broadcast(x: TensorSpec, *, src: int, rank: int, group: str, ranks: int) -> TensorSpec:
    """Start to copy x from the rank `src` of the group to all of its ranks; `rank` is that of the process that runs the program."""
    _require_group(group, ranks)
    require(0 <= src < ranks and 0 <= rank < ranks, "expected ranks of a group of {}, got {} and {}", ranks, src, rank)
    return x.fresh()


@broadcast.vjp
def broadcast_vjp(g, out, x, *, src, rank, group, ranks):
    total = wait(all_reduce(g, op="sum", group=group, ranks=ranks))
    return (total if rank == src else zeros_like(x),)


@collective(tags=START)
def all_to_all(x: TensorSpec, *, outputs: tuple[int, ...], inputs: tuple[int, ...], group: str, ranks: int) -> TensorSpec:
    """Start to exchange rows: rank j gets `inputs[j]` rows of x, and `outputs[j]` rows of the result come from rank j."""
    _require_group(group, ranks)
    fits = x.rank >= 1 and len(outputs) == len(inputs) == ranks and sum(inputs) == x.shape[0]
    require(fits, "expected for each of {} ranks how many rows it gets and sends, got {} and {} for {}", ranks, outputs, inputs, x)
    return x.fresh((sum(outputs), *x.shape[1:]))


@all_to_all.vjp
def all_to_all_vjp(g, out, x, *, outputs, inputs, group, ranks):
    return (wait(all_to_all(g, outputs=inputs, inputs=outputs, group=group, ranks=ranks)),)


# Parameters of data-parallel training: the gradient of each is the mean over all ranks.


def _require_parameters(params: tuple[TensorSpec, ...]) -> None:
    same = len({(x.dtype, x.device) for x in params}) == 1
    require(same, "expected parameters of one dtype on one device, got {}", ", ".join(map(str, params)))


def padded_size(x: TensorSpec, rows: int) -> int:
    """Return how many elements a part of a parameter has once it is padded to `rows` rows."""
    return rows * prod(x.shape[1:])


@collective(tags=GATHER)
def gather_shards(*parts: TensorSpec, rows: tuple[int, ...], group: str, ranks: int, keep: bool = False) -> TensorSpec:
    """Start to gather parameters of which each rank has some rows; each part is padded to `rows` rows.

    Row i of the result has the parts of rank i, one after the other.  The backward gathers them again rather than keep them, unless `keep`.
    """
    _require_group(group, ranks)
    _require_parameters(parts)
    fits = len(rows) == len(parts) and all([x.rank >= 1 and x.shape[0] <= n for x, n in zip(parts, rows, strict=True)])
    require(fits, "expected parts of at most {} rows, got {}", rows, ", ".join(map(str, parts)))
    return parts[0].fresh((ranks, sum([padded_size(x, n) for x, n in zip(parts, rows, strict=True)])))


@gather_shards.vjp
def gather_shards_vjp(g, out, *parts, rows, group, ranks, keep=False):
    mean = div(wait(reduce_scatter(g, op="sum", group=group, ranks=ranks)), float(ranks))
    grads, start = [], 0
    for x, n in zip(parts, rows, strict=True):
        own = strided_slice(mean, starts=(0, start), stops=(1, start + x.spec.numel), steps=(1, 1))
        grads.append(reshape(own, shape=x.spec.shape))
        start += padded_size(x.spec, n)
    return tuple(grads)


@collective(tags={Tag.VIEW, Tag.AGAIN})
def wait_shards(x: TensorSpec) -> TensorSpec:
    """Return the parameters x, once they are gathered."""
    return x.like(requires_grad=False)


@wait_shards.vjp
def wait_shards_vjp(g, out, x):
    return (g,)


@wait_shards.put
def wait_shards_put(x, value):
    return value


@collective(tags={Tag.AGAIN})
def unpack_shards(x: TensorSpec, *, shapes: tuple[tuple[int, ...], ...]) -> tuple[TensorSpec, ...]:
    """Return the parameters of these shapes, whose rows lie on the ranks in order, out of what `gather_shards` gathered."""
    size = sum([padded_size(x.fresh(shape), ceildiv(shape[0], x.shape[0])) for shape in shapes])
    require(x.rank == 2 and size == x.shape[1], "expected the gathered parts of parameters of shapes {}, got {}", shapes, x)
    return tuple([x.fresh(shape) for shape in shapes])


@unpack_shards.vjp
def unpack_shards_vjp(gs, outs, x, *, shapes):
    ranks, columns = x.spec.shape[0], []
    for g, out in zip(gs, outs, strict=True):
        g = zeros_like(out) if g is None else g
        n = ceildiv(out.spec.shape[0], ranks) * ranks
        if n != out.spec.shape[0]:
            none = (0,) * out.spec.rank
            g = pad(g, value=0.0, low=none, high=(n - out.spec.shape[0], *none[1:]), interior=none)
        columns.append(flat_reshape(g, (ranks, g.spec.numel // ranks)))
    return (columns[0] if len(columns) == 1 else cat(columns, dim=1),)


@collective(tags=())
def replicas(*params: TensorSpec, group: str, ranks: int) -> tuple[TensorSpec, ...]:
    """Parameters of which each rank has a copy.  Their gradients are averaged over all ranks by one collective.

    A rank computes nothing for it: once a program is differentiated, the pass `erase_replicas` removes the line.
    """
    _require_group(group, ranks)
    _require_parameters(params)
    return tuple([x.like(requires_grad=False) for x in params])


@replicas.vjp
def replicas_vjp(gs, outs, *params, group, ranks):
    present = [g for g in gs if g is not None]
    flat = cat([reshape(clone(g), shape=(g.spec.numel,)) for g in present], dim=0)
    total = div(wait(all_reduce(flat, op="sum", group=group, ranks=ranks)), float(ranks))
    parts, start = [], 0
    for g in gs:
        stop = start if g is None else start + g.spec.numel
        part = None if g is None else strided_slice(total, starts=(start,), stops=(stop,), steps=(1,))
        parts.append(None if g is None else reshape(part, shape=g.spec.shape))
        start = stop
    return tuple(parts)


@collective(tags=())
def shared(x: TensorSpec, *, group: str, ranks: int) -> TensorSpec:
    """Mark a value that is whole on every rank and read by lines that compute parts: its gradient is the sum over all ranks.

    A rank computes nothing for it: once a program is differentiated, the pass `erase_replicas` removes the line.
    """
    _require_group(group, ranks)
    return x.like(requires_grad=False)


@shared.vjp
def shared_vjp(g, out, x, *, group, ranks):
    return (wait(all_reduce(clone(g), op="sum", group=group, ranks=ranks)),)
