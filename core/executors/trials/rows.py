"""Which lines compute each row from the same row of their inputs, and what such a line computes for some rows alone.

A row is a part of dimension 0.  A line is row-wise where each prim in it is: every prim with a rule in `RULES` names the arguments of which
it needs the same rows as of its result, and those that it needs whole.

    t1 = prims.linear(t0, weight)      rows of t1 need the same rows of t0, and all of weight
    t2 = prims.sum(t1, dims=(0,))      no rule applies: row i of t2 is no function of row i of t1

A value may hold several consecutive slices of dimension 0 for each row: (batch * time, width) after (batch, time, width) was flattened.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dovetail import prims
from dovetail.executors.dispatching.regions import RegionSymbol
from dovetail.executors.trials.reference import parts
from dovetail.langs.torch import TO_TORCH, torch_device
from dovetail.prims import Symbol, Tag
from dovetail.prims.shape import flat_reshape
from dovetail.prims.sizes import is_symbolic
from dovetail.trace import BoundSymbol, Proxy, TensorProxy, Trace, leaves, prims_of, recording, substitute
from dovetail.trace.passes.split import bytes_of

LEAST = 4  # rows that a line must have to be sampled
BLOCK = 8  # consecutive rows that are sampled together
FEW = 64  # rows of the first estimate of what rows cost
MOST = 1 << 16  # rows in one sample


class NotByRows(Exception):
    """A line is not row-wise; the message names the prim."""


class Needs(NamedTuple):
    """What a prim needs to compute some rows of its result.

    Attributes:
        rows: the arguments of which it needs the same rows.
        whole: the arguments that it needs whole.
        sized: the keyword argument that counts the rows of the result in its first place, if any.
    """

    rows: Sequence[Any] = ()
    whole: Sequence[Any] = ()
    sized: str = ""


Rule = Callable[..., Needs | None]


def _all(*args: Any, **kwargs: Any) -> Needs:
    return Needs(rows=list(leaves(args)))


def _where(condition: Callable[[dict], bool], sized: str = "") -> Rule:
    """The rule of prims that need the same rows of all arguments, if their keyword arguments leave dimension 0 alone."""
    return lambda *args, **kwargs: Needs(list(leaves(args)), (), sized) if condition(kwargs) else None


def _reshape(x: Any, *, shape: tuple[int, ...]) -> Needs | None:
    return Needs([x], (), "shape")  # row-major: what belongs to a row stays together, and in order


def _broadcast(x: Any, *, shape: tuple[int, ...], dims: tuple[int, ...]) -> Needs:
    if dims and dims[0] == 0 and x.spec.shape[0] == shape[0]:
        return Needs([x], (), "shape")
    return Needs((), [x], "shape")


def _strided_slice(*args: Any, starts: tuple, stops: tuple, steps: tuple) -> Needs | None:
    complete = starts[0] == 0 and steps[0] == 1 and stops[0] == args[0].spec.shape[0]
    return Needs(args, (), "stops") if complete else None


def _matmul(a: Any, b: Any) -> Needs:
    return Needs([a, b]) if a.spec.rank > 2 else Needs([a], [b])


def _linear(x: Any, weight: Any) -> Needs | None:
    return Needs([x], [weight]) if x.spec.rank > 1 else None


def _take(x: Any, index: Any, *, dim: int) -> Needs:
    return Needs([index], [x]) if dim == 0 else Needs([x], [index])


def _take_along_axis(x: Any, index: Any, *, dim: int) -> Needs | None:
    if dim == 0:
        return None  # out[i, j] = x[index[i, j], j]: needs x whole, which seldom pays
    return Needs([x, index]) if x.spec.shape[0] == index.spec.shape[0] else None


def _scatter(x: Any, index: Any, value: Any, *, dim: int) -> Needs | None:
    return Needs([x, index, value]) if dim != 0 and x.spec.shape[0] == index.spec.shape[0] else None


def _index_add(x: Any, index: Any, value: Any, *, dim: int) -> Needs | None:
    return Needs([x, value], [index]) if dim != 0 else None


def _index(x: Any, indices: list) -> Needs | None:
    return Needs(indices, [x]) if indices[0].spec.rank else None


def _beyond_0(kwargs: dict) -> bool:
    return kwargs["dim"] not in (None, 0)


def _not_over_0(kwargs: dict) -> bool:
    return 0 not in kwargs["dims"]


RULES: dict[Symbol, Rule] = {
    **dict.fromkeys((prims.clone, prims.detach, prims.device_put, prims.bitcast, prims.view_as_real), _all),
    **dict.fromkeys((prims.sum, prims.prod, prims.amax, prims.amin, prims.any, prims.all, prims.var, prims.var_mean), _where(_not_over_0)),
    **dict.fromkeys((prims.squeeze, prims.flip), _where(_not_over_0)),
    **dict.fromkeys((prims.argmax, prims.argmin, prims.cumsum, prims.cumprod, prims.cummax, prims.cummin), _where(_beyond_0)),
    **dict.fromkeys((prims.sort, prims.topk, prims.unfold, prims.cat), _where(_beyond_0)),
    prims.fold_add: _where(_beyond_0, "shape"),
    prims.transpose: _where(lambda kwargs: kwargs["order"][0] == 0),
    prims.stride_order: _all,
    prims.diagonal: _where(lambda kwargs: 0 not in (kwargs["dim1"], kwargs["dim2"])),
    prims.put_diagonal: _where(lambda kwargs: 0 not in (kwargs["dim1"], kwargs["dim2"])),
    prims.pad: _where(lambda kwargs: kwargs["low"][0] == kwargs["high"][0] == kwargs["interior"][0] == 0),
    prims.full: lambda **kwargs: Needs(sized="shape"),
    prims.reshape: _reshape,
    prims.broadcast_in_dim: _broadcast,
    prims.strided_slice: _strided_slice,
    prims.put_slice: _strided_slice,
    prims.matmul: _matmul,
    prims.linear: _linear,
    prims.convolution: lambda x, weight, **window: Needs([x], [weight]),
    prims.convolution_input_grad: lambda g, weight, **window: Needs([g], [weight], "input_shape"),
    prims.embedding: lambda weight, index: Needs([index], [weight]) if index.spec.rank else None,
    prims.take: _take,
    prims.take_along_axis: _take_along_axis,
    prims.scatter: _scatter,
    prims.scatter_add: _scatter,
    prims.index_add: _index_add,
    prims.index_copy: _index_add,
    prims.index: _index,
}


@dataclass(frozen=True)
class Sample:
    """A line for `count` rows: `line` computes them from the inputs that `inputs` selects."""

    count: int
    total: int
    line: BoundSymbol
    original: dict[Proxy, Proxy]  # what stands for which value of the whole line
    rows: frozenset[Proxy]  # values of the whole line of which `line` has rows

    def inputs(self, values: dict[Proxy, Any], chosen: Tensor) -> dict[Proxy, Any]:
        """Select the inputs of `line` for the rows `chosen`, from those of the whole line."""
        pairs = [(p, self.original[p]) for p in self.line.reads]
        return {p: self.select(values[q], chosen) if q in self.rows else values[q] for p, q in pairs}

    def select(self, x: Tensor, chosen: Tensor) -> Tensor:
        """Select the rows `chosen` of a tensor that has `total` of them."""
        return x.detach().index_select(0, self.positions(x, chosen))

    def positions(self, x: Tensor, chosen: Tensor) -> Tensor:
        """Return the indices in dimension 0 of a tensor that belong to the rows `chosen`."""
        each = x.shape[0] // self.total
        indices = chosen if each == 1 else (chosen[:, None] * each + torch.arange(each)).flatten()
        return indices.to(x.device)

    def whole(self, values: dict[Proxy, Any], run: Callable[..., list[Any]]) -> list[Any]:
        """Compute the whole line in blocks of `count` rows, each by `run`."""
        results = [_empty(self.original[p]) for p in self.line.writes]
        for start in [*range(0, self.total - self.count, self.count), self.total - self.count]:
            chosen = torch.arange(start, start + self.count)
            for x, block in zip(results, run(*self.inputs(values, chosen).values()), strict=True):
                each = x.shape[0] // self.total
                x.narrow(0, start * each, self.count * each).copy_(block)
        return results


class RowWise:
    """A line that computes each of its `total` rows from the same row of its inputs."""

    def __init__(self, line: BoundSymbol):
        """Find the rows of `line`; raise NotByRows where there are none."""
        self.original, self.lines = line, list(prims_of(parts(line)))
        for each in self.lines:
            _require(not each.effects, each)  # a write reaches values that no argument names
        computed = {p for each in self.lines for p in each.writes}
        self.inputs = list(dict.fromkeys(p for each in self.lines for p in each.reads if p not in computed))
        self.total, self.needs, self.rows = self._divided()

    def _divided(self) -> tuple[int, dict[int, Needs | None], frozenset[Proxy]]:
        """The largest number of rows that all values divide into, what each line needs, and the values that have rows."""
        total = 0
        while True:
            needs, rows = self._walk()
            count = math.gcd(*[p.spec.shape[0] for p in rows])
            if count < LEAST:
                raise NotByRows(f"its values divide into {count} rows")
            if count == total:
                return total, needs, rows
            total = count

    def _walk(self) -> tuple[dict[int, Needs | None], frozenset[Proxy]]:
        """From the results back to the inputs: what each line needs, None where it runs whole."""
        rows, whole = set(self.original.writes), set[Proxy]()
        needs: dict[int, Needs | None] = {}
        for i in reversed(range(len(self.lines))):
            line = self.lines[i]
            if rows.isdisjoint(line.writes):
                if not whole.isdisjoint(line.writes):
                    needs[i] = None
                    whole.update(line.reads)
                continue
            needs[i] = _needs(line)
            rows.update(p for p in needs[i].rows if isinstance(p, TensorProxy))
            whole.update(p for p in line.reads if p not in rows)
            whole.update(p for p in needs[i].whole if isinstance(p, Proxy))
        for p in rows:
            if p in whole or not isinstance(p, TensorProxy) or not p.spec.shape or p.spec.shape[0] == 0:
                raise NotByRows(f"{p.name} is needed whole, or has no rows")
        return needs, frozenset(rows)

    def sample(self, size: int, cost: Callable[[BoundSymbol], int], most: int | None = None) -> Sample:
        """Return the line for as many rows as `cost` puts at `size` or less, `most` at most; LEAST // 2 at least."""
        count = min(FEW, self.total // 2)
        small, large = (cost(self._recorded(n).line) for n in (LEAST // 2, count))
        each = max((large - small) / max(count - LEAST // 2, 1), 1e-9)
        count = min(max(int((size - small) / each), LEAST // 2), most or MOST, self.total // 2)
        return self._recorded(count - count % BLOCK if count > 4 * BLOCK else count)

    def _recorded(self, count: int) -> Sample:
        """The line for `count` rows, each prim recorded anew."""
        trace, env = Trace("rows", depth=1), dict[Proxy, Proxy]()
        for i, p in enumerate(self.inputs):
            env[p] = type(p)(f"x{i}", p.spec.fresh(self._scaled(p.spec.shape, count)) if p in self.rows else p.spec)
        with recording(trace):
            for i, line in enumerate(self.lines):
                if i in self.needs:
                    self._record(line, self.needs[i], env, count)
        writes = tuple(env[p] for p in self.original.writes)
        inputs = [env[p] for p in self.inputs]
        body = tuple(trace.lines)
        line = BoundSymbol(RegionSymbol("rows", "rows"), tuple(inputs), {}, writes, inputs, body=body, where=self.original.where)
        back = {env[p]: p for p in (*self.inputs, *self.original.writes)}
        return Sample(count, self.total, line, back, self.rows)

    def _record(self, line: BoundSymbol, needs: Needs | None, env: dict[Proxy, Proxy], count: int) -> None:
        args, kwargs = substitute((line.args, line.kwargs), env)
        if needs is not None and needs.sized:
            kwargs = kwargs | {needs.sized: self._scaled(kwargs[needs.sized], count)}
        if needs is not None and line.symbol is prims.reshape:
            out = flat_reshape(args[0], kwargs["shape"])
        else:
            out = line.symbol(*args, **kwargs)
        env.update(zip(line.writes, [leaf for leaf in leaves(out) if isinstance(leaf, Proxy)], strict=True))

    def _scaled(self, shape: tuple[int, ...], count: int) -> tuple[int, ...]:
        return (shape[0] // self.total * count, *shape[1:])


def row_wise(line: BoundSymbol) -> RowWise | None:
    """Return `line` by rows, None where it is not row-wise, or its sizes are symbols."""
    if is_symbolic([p.spec.shape for p in (*line.reads, *line.writes) if isinstance(p, TensorProxy)]):
        return None
    try:
        return RowWise(line)
    except NotByRows:
        return None


def choice(total: int, count: int, seed: int) -> Tensor:
    """Choose `count` of `total` rows in blocks: the first, the last, and one anywhere in each of as many equal parts, by the seed."""
    block = BLOCK if count >= 4 * BLOCK else 1
    generator, blocks = torch.Generator().manual_seed(seed), count // block
    edges = torch.arange(blocks + 1) * total // blocks
    room = edges[1:] - edges[:-1] - block
    starts = edges[:-1] + (torch.rand(blocks, generator=generator, dtype=torch.float64) * (room + 1)).long().clamp(max=room)
    starts[0], starts[-1] = 0, total - block
    return (starts[:, None] + torch.arange(block)).flatten()


def memory(line: BoundSymbol) -> int:
    """Count the bytes that a line's operations write."""
    return sum(bytes_of(p) for part in parts(line) for p in part.writes)


def _needs(line: BoundSymbol) -> Needs:
    """What a prim needs for some rows of its results; raise NotByRows where it has no rule."""
    if Tag.ELEMENTWISE in line.symbol.tags:
        return _all(*line.args)
    rule = RULES.get(line.symbol)
    needs = rule(*line.args, **line.kwargs) if rule is not None else None
    _require(needs is not None, line)
    return needs


def _require(condition: bool, line: BoundSymbol) -> None:
    if not condition:
        raise NotByRows(f"{line.symbol} is not row-wise")


def _empty(p: Proxy) -> Tensor:
    spec = p.spec
    return torch.empty_strided(spec.shape, spec.steps, dtype=TO_TORCH[spec.dtype], device=torch_device(spec.device))
