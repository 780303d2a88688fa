"""Tensor parallel training: each rank has a part of the weights of some modules, and computes with that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn

from dovetail.compiler.api import distributed
from dovetail.distributed.parameters import broadcast_state, group_of, places_of, rows_of
from dovetail.distributed.partition import partition
from dovetail.distributed.rewriting import replicate
from dovetail.distributed.training import BUCKET, sharded_steps
from dovetail.errors import DovetailError
from dovetail.frontend.dtensors import is_dtensor
from dovetail.frontend.shards import local_spec
from dovetail.prims import TensorSpec
from dovetail.trace import Proxy, Trace

DIMS = {  # the dimension along which parameters are cut
    "column": {"weight": 0, "bias": 0},
    "row": {"weight": 1},
    "embedding": {"weight": 1},
    "sequence": {},
}


@dataclass
class Partitioned:
    """Each rank has a part of some parameters; `data` is the group of ranks with the same parts and other batches, None where there is none.

    With `sharded`, each of those has some rows of the parts.
    """

    rank: int
    group: str
    ranks: int
    data: tuple[str, int] | None
    module: nn.Module = field(repr=False)
    norms: tuple[nn.Parameter, ...] = field(default=(), repr=False)  # of layers that compute parts of the sequence
    sharded: bool = False

    def owns(self, x: torch.Tensor) -> bool:
        """Return whether x is a parameter of the module."""
        return any([x is p for p in self.module.parameters()])

    def rewrite(self, computation: Trace, tensors: Mapping[Proxy, torch.Tensor]) -> list[Trace]:
        """Return the program that computes with the parts of this rank."""
        cuts = {p: x.placements[0].dim for p, x in tensors.items() if is_dtensor(x) and x.placements[0].is_shard()}
        local = {p: self.part_spec(tensors[p], dim) for p, dim in cuts.items()}
        norms = frozenset([p for p, x in tensors.items() if any([x is norm for norm in self.norms])])
        program, inputs = partition(computation, cuts, local, norms, rank=self.rank, group=self.group, ranks=self.ranks)
        if self.data is None:
            return [program]
        group, ranks = self.data
        if self.sharded:
            parts = {p: (inputs.get(p, p), x) for p, x in tensors.items()}
            return [program, *sharded_steps(program, parts, self.module, group=group, ranks=ranks, keep=False)]
        params = [inputs.get(p, p) for p, x in tensors.items() if isinstance(x, nn.Parameter)]
        return [program, replicate(program, params, group=group, ranks=ranks, bucket_bytes=BUCKET << 20)]

    def part_spec(self, x: torch.Tensor, dim: int) -> TensorSpec:
        """Return the spec of the part of a parameter that this rank computes with, of which it may hold some rows."""
        spec = local_spec(x)
        if not self.sharded:
            return spec
        shape = tuple([n // self.ranks if d == dim else n for d, n in enumerate(x.shape)])
        return spec.fresh(shape).like(requires_grad=x.requires_grad)


def tensor_parallel(module: nn.Module, mesh: Any, plan: Mapping[str, str], *, sharded: bool = False, **options: Any) -> Any:
    """Compile a module for ranks that each have a part of the weights of some linear layers and embeddings.

    Parameters become DTensors in place; make the optimizer afterwards.  What follows for other values follows from the program: they
    are computed in parts as far as rules go, and made whole where there is none, so the module itself needs no change.

    Args:
        module: a torch.nn.Module.
        mesh: a DeviceMesh of one dimension, or of two: over the first, batches differ, and gradients are averaged.
        plan: for patterns of the names of modules ("*.attention.wq") "column", "row" or "embedding": a linear layer cut along its results, one
            cut along its arguments, an embedding cut along its width.  A weight whose size the ranks do not share equally stays whole.
            "sequence" is for norms: each rank normalizes a part of the sequence, and what lies between layers is cut along it, too.
        sharded: whether the ranks of the first of two dimensions each have some rows of all parameters, as with `fully_sharded`, not copies.
        options: those of `dovetail.jit`.

    Raises DovetailError for an unknown word, for a pattern that names nothing, and for `sharded` with a mesh of one dimension.
    """
    if mesh.ndim == 2:
        first, second = mesh.mesh_dim_names
        whole, data, mesh = mesh, mesh[first], mesh[second]
        broadcast_state(module, data)
    elif sharded:
        raise DovetailError("sharded=True needs a mesh of two dimensions: rows of parameters lie on the first, and the plan is for the second")
    else:
        whole = data = None
    words = words_of(module, plan)
    group, ranks = group_of(mesh)
    broadcast_state(module, mesh)
    _cut_parameters(module, Pieces(mesh, data, _turned(whole)) if sharded else Pieces(mesh), words)
    norms = tuple([p for name, _, _, p in places_of(module) if words.get(name) == "sequence"])
    rewriting = Partitioned(mesh.get_local_rank(), group, ranks, None if data is None else group_of(data), module, norms, sharded)
    return distributed(module, rewriting, **options)


def _turned(mesh: Any) -> Any:
    """Return a mesh of two dimensions with the second one first: DTensor cuts along the first dimension of a mesh first."""
    from torch.distributed.device_mesh import DeviceMesh  # 3 s, and who shards needs it

    return DeviceMesh(mesh.device_type, mesh.mesh.t().contiguous(), mesh_dim_names=mesh.mesh_dim_names[::-1])


@dataclass(frozen=True)
class Pieces:
    """The mesh along which the plan cuts parameters; where rows of the parts are sharded, the mesh of that, and both as one."""

    mesh: Any
    data: Any = None
    both: Any = None

    def of(self, p: nn.Parameter, dim: int | None) -> torch.Tensor:
        """Return the DTensor of a parameter that is cut along `dim`, None for whole.

        A whole one is a DTensor, too, since torch refuses operations with both, as the norm of all gradients.
        """
        from torch.distributed.tensor import DTensor, Replicate, Shard  # 3 s, and who shards needs it

        local = p.detach() if dim is None else p.detach().chunk(self.mesh.size(), dim)[self.mesh.get_local_rank()].contiguous()
        mesh, placements = self.mesh, [Replicate() if dim is None else Shard(dim)]
        if self.data is not None and p.dim() == 0:
            mesh, placements = self.both, [Replicate(), Replicate()]
        elif self.data is not None:
            local = rows_of(local, self.data.size(), self.data.get_local_rank())
            mesh, placements = self.both, [*placements, Shard(0)]
        return DTensor.from_local(local, mesh, placements, run_check=False, shape=p.shape, stride=p.stride())


def _pattern(name: str, plan: Mapping[str, str]) -> str | None:
    """Return the first pattern of the plan that matches the module of a parameter."""
    return next((each for each in plan if fnmatchcase(name.rpartition(".")[0], each)), None)


def words_of(module: nn.Module, plan: Mapping[str, str]) -> dict[str, str]:
    """Return what the plan says of each parameter that it names, by the parameter's name.  Raises DovetailError where the plan is wrong."""
    if unknown := sorted(set(plan.values()) - set(DIMS)):
        raise DovetailError(f"expected {', '.join(map(repr, DIMS))} in the plan, got {unknown[0]!r}")
    patterns = {name: _pattern(name, plan) for name, *_ in places_of(module)}
    if missing := sorted(set(plan) - set(patterns.values())):
        raise DovetailError(f"the plan names {missing[0]!r}, and no module with parameters has such a name; patterns are those of fnmatch")
    return {name: plan[pattern] for name, pattern in patterns.items() if pattern is not None}


def cuts_of(module: nn.Module, words: Mapping[str, str], ranks: int) -> dict[int, int | None]:
    """Return for the id of each parameter the dimension along which it is cut, None for whole; a tied one as its first name that is cut."""
    cuts: dict[int, int | None] = {}
    for name, _, attribute, p in places_of(module):
        dim = DIMS[words[name]].get(attribute) if name in words else None
        dim = None if dim is not None and p.shape[dim] % ranks else dim
        cuts[id(p)] = dim if cuts.get(id(p)) is None else cuts[id(p)]
    return cuts


def _cut_parameters(module: nn.Module, pieces: Pieces, words: Mapping[str, str]) -> None:
    """Replace parameters by DTensors."""
    new, places, cuts = dict[int, nn.Parameter](), list(places_of(module)), cuts_of(module, words, pieces.mesh.size())
    for _, _, _, p in places:
        if id(p) not in new:
            new[id(p)] = nn.Parameter(pieces.of(p, cuts[id(p)]), requires_grad=p.requires_grad)
    for _, part, attribute, p in places:
        if id(p) in new:
            part._parameters[attribute] = new[id(p)]
