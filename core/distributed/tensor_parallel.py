"""Tensor parallel training: each rank has a part of the weights of some modules, and computes with that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn

from dovetail.compiler.api import distributed
from dovetail.distributed.parameters import broadcast_state, group_of, places_of
from dovetail.distributed.partition import partition
from dovetail.distributed.rewriting import replicate
from dovetail.distributed.training import BUCKET
from dovetail.errors import DovetailError
from dovetail.frontend.shards import is_dtensor, local_spec
from dovetail.trace import Proxy, Trace

DIMS = {  # the dimension along which parameters are cut
    "column": {"weight": 0, "bias": 0},
    "row": {"weight": 1},
    "embedding": {"weight": 1},
    "sequence": {},
}


@dataclass
class Partitioned:
    """Each rank has a part of some parameters; `data` is the group of ranks with the same parts and other batches, None where there is none."""

    rank: int
    group: str
    ranks: int
    data: tuple[str, int] | None
    module: nn.Module = field(repr=False)
    norms: tuple[nn.Parameter, ...] = field(default=(), repr=False)  # of layers that compute parts of the sequence

    def knows(self, x: torch.Tensor) -> bool:
        """Return whether x is a parameter of the module."""
        return any([x is p for p in self.module.parameters()])

    def rewrite(self, computation: Trace, tensors: Mapping[Proxy, torch.Tensor]) -> list[Trace]:
        """Return the program that computes with the parts of this rank."""
        cuts = {p: x.placements[0].dim for p, x in tensors.items() if is_dtensor(x)}
        local = {p: local_spec(tensors[p]) for p in cuts}
        norms = frozenset([p for p, x in tensors.items() if any([x is norm for norm in self.norms])])
        program, inputs = partition(computation, cuts, local, norms, rank=self.rank, group=self.group, ranks=self.ranks)
        if self.data is None:
            return [program]
        params = [inputs.get(p, p) for p, x in tensors.items() if isinstance(x, nn.Parameter)]
        return [program, replicate(program, params, group=self.data[0], ranks=self.data[1], bucket_bytes=BUCKET << 20)]


def tensor_parallel(module: nn.Module, mesh: Any, plan: Mapping[str, str], **options: Any) -> Any:
    """Compile a module for ranks that each have a part of the weights of some linear layers and embeddings.

    Those parameters become DTensors in place; make the optimizer afterwards.  What follows for other values follows from the program: they
    are computed in parts as far as rules go, and made whole where there is none, so the module itself needs no change.

    Args:
        module: a torch.nn.Module.
        mesh: a DeviceMesh of one dimension, or of two: over the first, batches differ, and gradients are averaged.
        plan: for patterns of the names of modules ("*.attention.wq") "column", "row" or "embedding": a linear layer cut along its results, one
            cut along its arguments, an embedding cut along its width.  A weight whose size the ranks do not share equally stays whole.
            "sequence" is for norms: each rank normalizes a part of the sequence, and what lies between layers is cut along it, too.
        options: those of `dovetail.jit`.

    Raises DovetailError for an unknown word, and for a pattern that names nothing.
    """
    if mesh.ndim == 2:
        first, second = mesh.mesh_dim_names
        data, mesh = mesh[first], mesh[second]
        broadcast_state(module, data)
    else:
        data = None
    group, ranks = group_of(mesh)
    broadcast_state(module, mesh)
    _cut_parameters(module, mesh, plan)
    norms = tuple([p for name, _, _, p in places_of(module) if (pattern := _pattern(name, plan)) is not None and plan[pattern] == "sequence"])
    rewriting = Partitioned(mesh.get_local_rank(), group, ranks, None if data is None else group_of(data), module, norms)
    return distributed(module, rewriting, **options)


def _pattern(name: str, plan: Mapping[str, str]) -> str | None:
    """Return the first pattern of the plan that matches the module of a parameter."""
    return next((each for each in plan if fnmatchcase(name.rpartition(".")[0], each)), None)


def _cut_parameters(module: nn.Module, mesh: Any, plan: Mapping[str, str]) -> None:
    """Replace the parameters that the plan names by DTensors."""
    from torch.distributed.tensor import DTensor, Shard  # 3 s, and who shards needs it

    if unknown := sorted(set(plan.values()) - set(DIMS)):
        raise DovetailError(f"expected {', '.join(map(repr, DIMS))} in the plan, got {unknown[0]!r}")
    rank, ranks, used, new = mesh.get_local_rank(), mesh.size(), set[str](), dict[int, nn.Parameter]()
    places = list(places_of(module))
    for name, _, attribute, p in places:
        pattern = _pattern(name, plan)
        used.add(pattern)
        dim = DIMS[plan[pattern]].get(attribute) if pattern is not None else None
        if dim is None or id(p) in new or p.shape[dim] % ranks:
            continue
        local = p.detach().chunk(ranks, dim)[rank].contiguous()
        cut = DTensor.from_local(local, mesh, [Shard(dim)], run_check=False, shape=p.shape, stride=p.stride())
        new[id(p)] = nn.Parameter(cut, requires_grad=p.requires_grad)
    if missing := sorted(set(plan) - used):
        raise DovetailError(f"the plan names {missing[0]!r}, and no module with parameters has such a name; patterns are those of fnmatch")
    for _, part, attribute, p in places:
        if id(p) in new:
            part._parameters[attribute] = new[id(p)]
