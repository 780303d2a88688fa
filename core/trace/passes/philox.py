"""Random numbers by counters: a draw from the generator becomes a function of a seed, which fuses and can be computed again.

>>> def computation(t0):
...     t1 = prims.uniform(shape=(2, 3), low=0.0, high=1.0, dtype=dtypes.float32, device=devices.device("cpu"))
...     t2 = prims.mul(t0, t1)
...     return t2

becomes

>>> def computation(t0):
...     t1 = prims.randint(shape=(), low=0, high=9223372036854775807, dtype=dtypes.int64, device=devices.device("cpu"))
...     t2 = prims.full(shape=(), value=0, dtype=dtypes.int64, device=devices.device("cpu"))
...     t3 = prims.uniform_philox(t1, t2, dtype=dtypes.float32, device=devices.device("cpu"), shape=(2, 3), low=0.0, high=1.0)
...     t4 = prims.mul(t0, t3)
...     return t4

Each call takes one seed from the generator of each device, so `torch.manual_seed` still decides every number; each draw has an offset of its
own.  Expects a pure trace.  Operations that draw inside are taken apart; integers, permutations and draws with computed probabilities stay
with the generator.
"""

from __future__ import annotations

from typing import Any

from dovetail import dtypes, prims
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.prims import TensorSpec
from dovetail.trace.ir import BoundSymbol, Trace, recording, substitute
from dovetail.trace.proxies import Proxy

SEEDS = 2**63 - 1
COUNTED = {prims.uniform: prims.uniform_philox, prims.normal: prims.normal_philox}
REPEATING = frozenset((prims.broadcast_in_dim, prims.convert_element_type))  # of one known number they make that number


def philox(trace: Trace) -> Trace:
    """Return the trace with its uniform and normal numbers, and those that decide with a known probability, drawn by counters."""
    new = trace.derive("philox")
    draws = _Draws(new)
    with recording(new):
        for line in trace.lines:
            draws.add(line)
    new.outputs = substitute(trace.outputs, draws.env)
    return new


class _Draws:
    """What became of the lines so far: the seed of each device, how many draws there are, and which values are one known number."""

    def __init__(self, new: Trace):
        self.new = new
        self.seeds: dict[Device, Proxy] = {}
        self.count = 0
        self.known: set[Proxy] = set()
        self.env: dict[Proxy, Any] = {}

    def add(self, line: BoundSymbol, where: Any = None) -> None:
        """`line`, or what stands in its place; `where` is the source line of the operation that it is a part of."""
        where = line.where or where
        if line.body and line.effects:
            for inner in line.body:
                self.add(inner, where)
            return
        before = len(self.new.lines)
        if line.symbol in COUNTED:
            self.env[line.out] = self.drawn(COUNTED[line.symbol], **line.kwargs)
        elif line.symbol is prims.bernoulli and line.args[0] in self.known:
            self.env[line.out] = self.decided(line.args[0], line.out.spec)
        else:
            self.keep(line)
        self.new.lines[before:] = [new_line if new_line.where else new_line.replace(where=where) for new_line in self.new.lines[before:]]

    def keep(self, line: BoundSymbol) -> None:
        self.new.lines.append(substitute(line, self.env))
        if line.effects:
            self.seeds.clear()  # it may set the generator
        if line.symbol is prims.full or (line.symbol in REPEATING and line.args[0] in self.known):
            self.known.add(line.out)

    def drawn(self, symbol: prims.Symbol, *, dtype: DType, device: Device, **kwargs: Any) -> Proxy:
        """The next numbers of the device's seed."""
        if device not in self.seeds:
            self.seeds[device] = prims.randint(shape=(), low=0, high=SEEDS, dtype=dtypes.int64, device=device)
        offset = prims.full(shape=(), value=self.count, dtype=dtypes.int64, device=device)
        self.count += 1
        return symbol(self.seeds[device], offset, dtype=dtype, device=device, **kwargs)

    def decided(self, p: Proxy, spec: TensorSpec) -> Proxy:
        """1 where a number from [0, 1) is less than the probability."""
        wide = dtypes.float64 if spec.dtype is dtypes.float64 else dtypes.float32
        u = self.drawn(prims.uniform_philox, shape=spec.shape, low=0.0, high=1.0, dtype=wide, device=spec.device)
        chances = _as(p, wide)
        if chances.spec.rank != spec.rank:
            chances = prims.broadcast_in_dim(chances, shape=spec.shape, dims=())
        return _as(prims.lt(u, chances), spec.dtype)


def _as(x: Proxy, dtype: DType) -> Proxy:
    return x if x.spec.dtype is dtype else prims.convert_element_type(x, dtype=dtype)
