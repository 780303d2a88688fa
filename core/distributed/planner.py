"""What each way of training would take: memory of a rank and bytes that it sends, from the program that a rank would run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from dovetail.compiler.compilation import Compilation
from dovetail.compiler.pipeline import infer, train
from dovetail.distributed.parameters import units_of
from dovetail.distributed.partition import partition
from dovetail.distributed.rewriting import replicate, shard
from dovetail.distributed.tensor_parallel import cuts_of, words_of
from dovetail.distributed.training import BUCKET
from dovetail.errors import DovetailError
from dovetail.executors import resolve_executors
from dovetail.executors.reports.communication import collective_rows
from dovetail.frontend import native
from dovetail.prims import TensorSpec
from dovetail.prims.spec import ceildiv
from dovetail.trace import BackwardTrace, Proxy, Trace, functionalize, peak_bytes

STATES = 2  # tensors like a parameter that the optimizer keeps: AdamW's
DATA, PARTS = "dp", "tp"  # the dimensions of a mesh, as the programs of a plan name them


@dataclass(frozen=True)
class Way:
    """One way of training.

    Attributes:
        name: "one process", "data_parallel", "fully_sharded", "tensor_parallel" or "sharded and cut", `tensor_parallel` with `sharded=True`.
        parameters: the bytes of the parameters that a rank holds.
        gradients: those of their gradients.
        optimizer: those of the state of the optimizer.
        activations: the most bytes that forward and backward hold besides: what is saved between them, gathered parameters, and other buffers.
        total: the most bytes that a rank holds in a step before which its gradients were freed, but for what the optimizer computes with.
        sent: the bytes that a rank sends for a step, as a ring of ranks sends them.
    """

    name: str
    parameters: int
    gradients: int
    optimizer: int
    activations: int
    total: int
    sent: int


@dataclass(frozen=True)
class Plan:
    """The ways of training a module on `ranks` ranks."""

    ranks: int
    ways: tuple[Way, ...]

    def __getitem__(self, name: str) -> Way:
        """Return the way of this name."""
        return next(way for way in self.ways if way.name == name)

    def __str__(self) -> str:
        columns = ("parameters", "gradients", "optimizer", "activations", "total", "sent")
        head = f"{'a rank of ' + str(self.ranks):<16}" + "".join(f"{name:>14}" for name in columns)
        return "\n".join([head, *(f"{way.name:<16}" + "".join(f"{_short(getattr(way, name)):>14}" for name in columns) for way in self.ways)])


def _short(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} TiB"


def plan(module: nn.Module, mesh: Any, batch: Sequence[Any] | Any, *, layers: Mapping[str, str] | None = None, states: int = STATES) -> Plan:
    """Return what each way of training takes of a rank, from the program that it would run: nothing runs.

    Args:
        module: its parameters may be on the meta device, which takes no memory.
        mesh: a DeviceMesh, or the number of ranks, or the sizes of a mesh.
        batch: the arguments of one call on one rank, a tuple where there are several; on the device of the module.
        layers: the plan of `tensor_parallel`, which cuts layers over the last dimension of the mesh; None for a plan without that way.
        states: how many tensors like a parameter the optimizer keeps: two for AdamW, one for SGD with momentum.

    Raises DovetailError for a mesh without ranks, one of more than two dimensions with `layers`, and where `layers` are wrong.
    """
    sizes = tuple(mesh) if isinstance(mesh, (tuple, list)) else (mesh,) if isinstance(mesh, int) else tuple(mesh.shape)
    ranks = math.prod(sizes)
    if ranks < 1:
        raise DovetailError(f"expected a mesh of one rank at least, got {mesh!r}")
    planned = _Planned(module, batch if isinstance(batch, tuple) else (batch,), states)
    ways = [planned.alone(), planned.copied(ranks), planned.sharded(ranks)]
    if layers is not None:
        if len(sizes) > 2:
            raise DovetailError(f"layers are cut on a mesh of one dimension or two, got one of {len(sizes)}: {mesh!r}")
        data, parts = sizes if len(sizes) == 2 else (1, ranks)
        ways.append(planned.cut(layers, data, parts, sharded=False))
        if data > 1:
            ways.append(planned.cut(layers, data, parts, sharded=True))
    return Plan(ranks, tuple(ways))


def _whole(p: Tensor) -> int:
    return p.numel() * p.element_size()


def _rows(p: Tensor, ranks: int) -> int:
    """Return the bytes of the rows of a parameter that lie on one of the ranks, on the first if they do not share them equally."""
    return _whole(p) // p.shape[0] * ceildiv(p.shape[0], ranks) if p.dim() and p.shape[0] else _whole(p)


def _spec(p: Proxy, shape: tuple[int, ...]) -> TensorSpec:
    """Return the spec of the part of a parameter that has this shape."""
    return p.spec.fresh(shape).like(requires_grad=p.spec.requires_grad)


class _Planned:
    """A module whose program is traced, and the ways of training it."""

    def __init__(self, module: nn.Module, batch: tuple, states: int):
        self.module, self.states = module, states
        acquired = native.acquire(module, batch, {})
        self.program, _ = functionalize(acquired.trace)
        tensors = dict(zip(acquired.trace.inputs, acquired.tensors, strict=True))
        self.params: dict[Proxy, nn.Parameter] = {p: x for p, x in tensors.items() if isinstance(x, nn.Parameter)}

    def alone(self) -> Way:
        """Return what one process takes."""
        return self.way("one process", self.program, _whole)

    def copied(self, ranks: int) -> Way:
        """Return what `data_parallel` takes."""
        return self.way("data_parallel", replicate(self.program, list(self.params), group=DATA, ranks=ranks, bucket_bytes=BUCKET << 20), _whole)

    def sharded(self, ranks: int) -> Way:
        """Return what `fully_sharded` takes."""
        return self.way("fully_sharded", self._in_rows(self.program, {p: p for p in self.params}, ranks), lambda p: _rows(p, ranks))

    def _in_rows(self, program: Trace, inputs: Mapping[Proxy, Proxy], ranks: int) -> Trace:
        """Return the program of a rank that has some rows of the parameters; `inputs` is what stands for them in `program`."""
        named, units = units_of(self.module), dict[int, list[Proxy]]()
        unit = {id(x): named[name] for name, x in self.module.named_parameters()}
        for p, x in self.params.items():
            if x.dim():
                units.setdefault(unit[id(x)], []).append(inputs[p])
        local = {p: _spec(p, (ceildiv(p.spec.shape[0], ranks), *p.spec.shape[1:])) for unit in units.values() for p in unit}
        whole = [inputs[p] for p, x in self.params.items() if not x.dim()]
        program = shard(program, list(units.values()), local, group=DATA, ranks=ranks, keep=False)
        return replicate(program, whole, group=DATA, ranks=ranks, bucket_bytes=BUCKET << 20) if whole else program

    def cut(self, layers: Mapping[str, str], data: int, parts: int, *, sharded: bool) -> Way:
        """Return what `tensor_parallel` takes on a mesh of `data` times `parts` ranks."""
        words = words_of(self.module, layers)
        dims = cuts_of(self.module, words, parts)
        norms = {id(x) for name, x in self.module.named_parameters(remove_duplicate=False) if words.get(name) == "sequence"}
        cuts = {p: dims[id(x)] for p, x in self.params.items() if dims[id(x)] is not None}
        local = {p: _spec(p, tuple([n // parts if d == dim else n for d, n in enumerate(p.spec.shape)])) for p, dim in cuts.items()}
        of_norms = {p for p, x in self.params.items() if id(x) in norms}
        program, new = partition(self.program, cuts, local, of_norms, rank=0, group=PARTS, ranks=parts)
        inputs = {p: new.get(p, p) for p in self.params}
        if sharded:
            program = self._in_rows(program, inputs, data)
        elif data > 1:
            program = replicate(program, list(inputs.values()), group=DATA, ranks=data, bucket_bytes=BUCKET << 20)

        def held(p: nn.Parameter) -> int:
            dim = dims[id(p)]
            if dim is None:
                return _rows(p, data) if sharded else _whole(p)
            rows = p.shape[0] // (parts if dim == 0 else 1)
            return _whole(p) // parts // rows * ceildiv(rows, data if sharded else 1) if rows else 0

        return self.way("sharded and cut" if sharded else "tensor_parallel", program, held)

    def way(self, name: str, program: Trace, held: Callable[[nn.Parameter], int]) -> Way:
        """Return what a way takes whose ranks run `program`; `held` says how many bytes of a parameter lie on a rank."""
        params = list(self.module.parameters())
        parameters, gradients = (sum(map(held, some)) for some in (params, [p for p in params if p.requires_grad]))
        optimizer, programs = self.states * gradients, list(_compiled(program))
        peaks = [peak_bytes(trace, outside=program.inputs) for trace in programs]
        besides = [peak - gradients * isinstance(trace, BackwardTrace) for trace, peak in zip(programs, peaks, strict=True)]
        sent = sum([row.sent for trace in programs for row in collective_rows(trace)])
        return Way(name, parameters, gradients, optimizer, max(besides), parameters + optimizer + max(peaks), sent)


def _compiled(program: Trace) -> Iterator[Trace]:
    """Yield the programs that a rank runs for a step, as the reference executor runs them."""
    compilation = Compilation(resolve_executors(["torch"]))
    trained = train(program, compilation)
    if trained is None:
        yield infer(program, compilation)[-1]
    else:
        yield from (trained.forward[-1], trained.backward[-1])
