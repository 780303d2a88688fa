"""The program of one process as that of a rank that has a part of some parameters: what follows from how they are cut.

Each value is whole on every rank, or cut along one dimension.  A rule for each operation says how its result is cut where an operand is; where none
applies, operands are made whole first, so that any program is partitioned.  Four operations change how a value lies; each has the gradient that
goes with it, where the cotangent of a whole value is whole and that of a cut one is cut:

    shared      a whole value is read by lines that compute parts: each rank has a part of its cotangent, and those are added up
    own_part    a whole value is cut; the cotangents of the parts are put together
    whole       parts are put together; each rank takes its part of the cotangent
    summed      each rank has a summand of a whole value; the cotangent is that of each summand

Two more are for values that stay cut along the sequence between layers that compute parts of their width:

    gathered    as `whole` and then `shared`: parts are put together for lines that compute parts; each rank gets its part of the sum of cotangents
    scattered   as `summed` and then `own_part`: each rank gets its part of the sum; the cotangents of the parts are put together
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from dovetail import prims
from dovetail.prims import Symbol, Tag, TensorSpec, collectives
from dovetail.prims.op import register
from dovetail.prims.shape import flat_reshape
from dovetail.prims.spec import prod
from dovetail.trace import BoundSymbol, Proxy, TensorProxy, Trace, proxies, recording, substitute


def _moved(x: Any, source: int, target: int) -> Any:
    """Return x with one dimension at another place."""
    order = [d for d in range(x.spec.rank) if d != source]
    order.insert(target, source)
    return x if source == target else prims.transpose(x, order=tuple(order))


def _whole(x: Any, *, dim: int, rank: int, group: str, ranks: int) -> Any:
    """The parts of all ranks, put together along a dimension."""
    first = prims.clone(_moved(x, dim, 0))
    return prims.clone(_moved(collectives.wait(collectives.all_gather(first, group=group, ranks=ranks)), 0, dim))


def _own_part(x: Any, *, dim: int, rank: int, group: str, ranks: int) -> Any:
    """The part of this rank along a dimension."""
    n = x.spec.shape[dim] // ranks
    starts, stops = [0] * x.spec.rank, list(x.spec.shape)
    starts[dim], stops[dim] = rank * n, (rank + 1) * n
    return prims.clone(prims.strided_slice(x, starts=tuple(starts), stops=tuple(stops), steps=(1,) * x.spec.rank))


def _summed(x: Any, *, group: str, ranks: int) -> Any:
    """The sum of what the ranks have."""
    return collectives.wait(collectives.all_reduce(prims.clone(x), op="sum", group=group, ranks=ranks))


def _gathered(x: Any, *, dim: int, rank: int, group: str, ranks: int) -> Any:
    """The parts of all ranks, put together for lines that compute parts."""
    return _whole(x, dim=dim, rank=rank, group=group, ranks=ranks)


def _scattered(x: Any, *, dim: int, rank: int, group: str, ranks: int) -> Any:
    """The part of this rank of the sum of what the ranks have."""
    first = prims.clone(_moved(x, dim, 0))
    return prims.clone(_moved(collectives.wait(collectives.reduce_scatter(first, op="sum", group=group, ranks=ranks)), 0, dim))


_OPERATIONS = (_whole, _own_part, _summed, _gathered, _scattered)
WHOLE, OWN_PART, SUMMED, GATHERED, SCATTERED = (register(Symbol("dist", fn.__name__[1:], fn)) for fn in _OPERATIONS)


@WHOLE.vjp
def _whole_vjp(g: Any, out: Any, x: Any, **how: Any) -> tuple:
    return (OWN_PART(g, **how),)


@OWN_PART.vjp
def _own_part_vjp(g: Any, out: Any, x: Any, **how: Any) -> tuple:
    return (WHOLE(g, **how),)


@SUMMED.vjp
def _summed_vjp(g: Any, out: Any, x: Any, **how: Any) -> tuple:
    return (g,)


@GATHERED.vjp
def _gathered_vjp(g: Any, out: Any, x: Any, **how: Any) -> tuple:
    return (SCATTERED(g, **how),)


@SCATTERED.vjp
def _scattered_vjp(g: Any, out: Any, x: Any, **how: Any) -> tuple:
    return (WHOLE(g, **how),)


Result = tuple[Any, int | None] | None  # the part, and the dimension along which it is cut; None where a rule does not apply


class _Partition:
    """The trace that is written, and how its values lie: `cut` has the part of this rank, and the dimension along which it is cut.

    `norms` are the parameters of layers that compute parts of the sequence; where there are some, results of layers that are cut along their
    arguments lie in such parts, too.
    """

    def __init__(self, new: Trace, norms: Collection[Proxy], *, rank: int, group: str, ranks: int):
        self.new, self.norms, self.ranks = new, norms, ranks
        self.group, self.named = {"group": group, "ranks": ranks}, {"rank": rank, "group": group, "ranks": ranks}
        self.cut: dict[Proxy, tuple[Proxy, int]] = {}
        self.env: dict[Proxy, Proxy] = {}  # what stands for a value that is whole
        self.read: dict[Proxy, Proxy] = {}  # a whole value, or one in parts, as lines that compute parts read it
        self.broadcast: dict[Proxy, BoundSymbol] = {}  # the lines that repeat whole values along dimensions

    def dim(self, x: Any) -> int | None:
        """Return along which dimension a value is cut; None for a whole one."""
        return self.cut[x][1] if isinstance(x, Proxy) and x in self.cut else None

    def whole(self, x: Any) -> Any:
        """Return a value as a whole."""
        if self.dim(x) is None:
            return self.env.get(x, x) if isinstance(x, Proxy) else x
        part, dim = self.cut[x]
        if x not in self.env:
            self.env[x] = WHOLE(part, dim=dim, **self.named)
        return self.env[x]

    def shared(self, x: Any) -> Any:
        """Return a value as a whole, for a line that computes a part with it."""
        if self.dim(x) is not None and x not in self.env and x.spec.dtype.inexact:
            part, dim = self.cut[x]
            if part not in self.read:
                self.read[part] = GATHERED(part, dim=dim, **self.named)
            return self.read[part]
        x = self.whole(x)
        if isinstance(x, TensorProxy) and x.spec.dtype.inexact:
            if x not in self.read:
                self.read[x] = collectives.shared(x, **self.group)
            return self.read[x]
        return x

    def part(self, x: Any, dim: int) -> Any:
        """Return the part of this rank along a dimension; a number is its own part."""
        if not isinstance(x, TensorProxy):
            return x
        if self.dim(x) == dim:
            return self.cut[x][0]
        line = self.broadcast.get(x)
        if line is not None and dim not in line.kwargs["dims"]:  # a part of what is the same along the dimension
            return prims.broadcast_in_dim(self.shared(line.args[0]), shape=self.local(x.spec.shape, dim), dims=line.kwargs["dims"])
        return OWN_PART(self.whole(x), dim=dim, **self.named)

    def summed(self, x: Any, out: TensorProxy) -> Result:
        """Return the sum over the ranks, as a whole, or in parts of the sequence where norms compute those."""
        dim = self.sequence(out) if self.norms else None
        return (SUMMED(x, **self.group), None) if dim is None else (SCATTERED(x, dim=dim, **self.named), dim)

    def sequence(self, x: Any) -> int | None:
        """Return the dimension of the sequence, the last but one, where the ranks can share it equally."""
        is_sequence = isinstance(x, TensorProxy) and x.spec.rank >= 3 and x.spec.shape[-2] % self.ranks == 0
        return x.spec.rank - 2 if is_sequence else None

    def cut_sequence(self, x: Proxy) -> None:
        """Have a whole value in parts of the sequence, too."""
        dim = self.sequence(x)
        if dim is not None and self.dim(x) is None:
            self.env.setdefault(x, x)
            self.cut[x] = (OWN_PART(self.env[x], dim=dim, **self.named), dim)

    def local(self, shape: tuple[int, ...], dim: int) -> tuple[int, ...]:
        """Return the shape of a part."""
        return (*shape[:dim], shape[dim] // self.ranks, *shape[dim + 1 :])

    def visit(self, line: BoundSymbol) -> None:
        """Write a line as this rank runs it."""
        if any([p in self.norms for p in line.reads]):
            for p in line.reads:
                self.cut_sequence(p)
        if not any([p in self.cut for p in line.reads]):
            if line.symbol is prims.broadcast_in_dim and isinstance(line.args[0], TensorProxy):
                self.broadcast[line.out] = line
            self.new.lines.append(substitute(line, self.env))
            return
        rule = RULES.get(line.symbol) or (_elementwise if Tag.ELEMENTWISE in line.symbol.tags else None)
        result = rule(self, line, *line.args, **line.kwargs) if rule is not None else None
        if result is not None:
            part, dim = result
            if dim is None:
                self.env[line.out] = part
            else:
                self.cut[line.out] = (part, dim)
        elif line.body:
            for inner in line.body:
                self.visit(inner)
        else:
            env = {p: self.whole(p) for p in line.reads}
            self.new.lines.append(substitute(line, env))


def _elementwise(to: _Partition, line: BoundSymbol, *args: Any, **kwargs: Any) -> Result:
    dim = next(d for d in map(to.dim, args) if d is not None)
    return line.symbol(*[to.part(x, dim) for x in args], **kwargs), dim


def _broadcast(to: _Partition, line: BoundSymbol, x: Any, *, shape: tuple[int, ...], dims: tuple[int, ...]) -> Result:
    dim = dims[to.dim(x)]
    if shape[dim] != x.spec.shape[to.dim(x)]:
        return None
    return prims.broadcast_in_dim(to.cut[x][0], shape=to.local(shape, dim), dims=dims), dim


def _reshape(to: _Partition, line: BoundSymbol, x: Any, *, shape: tuple[int, ...]) -> Result:
    before = prod(x.spec.shape[: to.dim(x)])
    for dim, n in enumerate(shape):
        if prod(shape[:dim]) == before and n > 1:
            return (flat_reshape(to.cut[x][0], to.local(shape, dim)), dim) if n % to.ranks == 0 else None
    return None


def _transpose(to: _Partition, line: BoundSymbol, x: Any, *, order: tuple[int, ...]) -> Result:
    return prims.transpose(to.cut[x][0], order=order), order.index(to.dim(x))


def _squeeze(to: _Partition, line: BoundSymbol, x: Any, *, dims: tuple[int, ...]) -> Result:
    return prims.squeeze(to.cut[x][0], dims=dims), to.dim(x) - sum([d < to.dim(x) for d in dims])


def _slice(to: _Partition, line: BoundSymbol, x: Any, *, starts: tuple, stops: tuple, steps: tuple) -> Result:
    dim, shape = to.dim(x), x.spec.shape
    if (starts[dim], stops[dim], steps[dim]) != (0, shape[dim], 1):
        return None
    return prims.strided_slice(to.cut[x][0], starts=starts, stops=to.local(stops, dim), steps=steps), dim


def _cat(to: _Partition, line: BoundSymbol, tensors: list[Any], *, dim: int) -> Result:
    at = next(d for d in map(to.dim, tensors) if d is not None)
    return None if at == dim else (prims.cat([to.part(x, at) for x in tensors], dim=dim), at)


def _linear(to: _Partition, line: BoundSymbol, x: Any, weight: Any) -> Result:
    last = x.spec.rank - 1
    if to.dim(weight) == 0:
        return prims.linear(to.shared(x), to.cut[weight][0]), last
    if to.dim(weight) == 1 or to.dim(x) == last:
        return to.summed(prims.linear(to.part(x, last), to.part(weight, 1)), line.out)
    return prims.linear(to.cut[x][0], to.shared(weight)), to.dim(x)


def _matmul(to: _Partition, line: BoundSymbol, a: Any, b: Any) -> Result:
    rank = a.spec.rank
    if rank != b.spec.rank or rank < 2:
        return None
    for x, dim in ((a, to.dim(a)), (b, to.dim(b))):
        if dim is not None and dim < rank - 2:
            return prims.matmul(to.part(a, dim), to.part(b, dim)), dim
        contracted = rank - 1 if x is a else rank - 2
        if dim == contracted:
            return SUMMED(prims.matmul(to.part(a, rank - 1), to.part(b, rank - 2)), **to.group), None
    if to.dim(a) is not None:
        return prims.matmul(to.cut[a][0], to.shared(b)), rank - 2
    return prims.matmul(to.shared(a), to.cut[b][0]), rank - 1


def _reduction(to: _Partition, line: BoundSymbol, x: Any, *, dims: tuple[int, ...], **kwargs: Any) -> Result:
    dim = to.dim(x)
    if dim not in dims:
        return line.symbol(to.cut[x][0], dims=dims, **kwargs), dim - sum([d < dim for d in dims])
    return (SUMMED(prims.sum(to.cut[x][0], dims=dims, **kwargs), **to.group), None) if line.symbol is prims.sum else None


def _embedding(to: _Partition, line: BoundSymbol, weight: Any, index: Any) -> Result:
    if to.dim(weight) != 1 or to.dim(index) is not None:
        return None
    part = prims.embedding(to.cut[weight][0], to.whole(index))
    return WHOLE(part, dim=index.spec.rank, **to.named), None  # what layers add to is whole


def _same(to: _Partition, line: BoundSymbol, x: Any, **kwargs: Any) -> Result:
    return line.symbol(to.cut[x][0], **kwargs), to.dim(x)


RULES: dict[Symbol, Callable[..., Result]] = {
    prims.broadcast_in_dim: _broadcast,
    prims.reshape: _reshape,
    prims.transpose: _transpose,
    prims.squeeze: _squeeze,
    prims.strided_slice: _slice,
    prims.cat: _cat,
    prims.linear: _linear,
    prims.matmul: _matmul,
    prims.embedding: _embedding,
    **dict.fromkeys((prims.sum, prims.amax, prims.amin), _reduction),
    **dict.fromkeys((prims.clone, prims.stride_order, prims.detach, prims.convert_element_type), _same),
}


def partition(
    trace: Trace, cuts: Mapping[Proxy, int], local: Mapping[Proxy, TensorSpec], norms: Collection[Proxy] = (), *, rank: int, group: str, ranks: int
) -> tuple[Trace, dict[Proxy, Proxy]]:
    """Return the program of a rank, and what stands for the parameters in `cuts`, of which it has a part along these dimensions.

    Lines that read the parameters in `norms` compute parts of the sequence.
    """
    new = trace.derive("tensor_parallel")
    to = _Partition(new, norms, rank=rank, group=group, ranks=ranks)
    inputs = {p: new.tensor(local[p]) for p in cuts}
    to.cut = {p: (inputs[p], dim) for p, dim in cuts.items()}
    new.inputs = [inputs.get(p, p) for p in trace.inputs]
    with recording(new):
        for line in trace.lines:
            to.visit(line)
        new.outputs = substitute(trace.outputs, {p: to.whole(p) for p in proxies(trace.outputs)})
    return new, inputs
