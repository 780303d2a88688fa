"""Parameters on the ranks of a mesh: which groups there are, and how a module gets its part of each parameter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import distributed, nn

from dovetail.errors import DovetailError
from dovetail.langs.torch.process_groups import group_name


def group_of(mesh: Any) -> tuple[str, int]:
    """Return the name of the group of a mesh of one dimension, and how many ranks it has.  Raises DovetailError for other meshes."""
    if getattr(mesh, "ndim", None) != 1:
        raise DovetailError(
            f"expected a device mesh of one dimension, got {mesh!r}; make one with torch.distributed.device_mesh.init_device_mesh, or take "
            'a dimension of a larger one, mesh["dp"]'
        )
    return group_name(mesh.get_group()), mesh.size()


def broadcast_state(module: nn.Module, mesh: Any) -> None:
    """Copy parameters and buffers of the first rank of the mesh to all of its ranks."""
    group = mesh.get_group()
    with torch.no_grad():
        for x in (*module.parameters(), *module.buffers()):
            if x.numel():
                own = x.detach().contiguous()
                distributed.broadcast(own, group=group, group_src=0)
                if own.data_ptr() != x.data_ptr():
                    x.copy_(own)


def units_of(module: nn.Module) -> dict[str, int]:
    """Return the unit of each parameter, by its name: the items of the outermost lists of modules are units, all else is one more.

    What belongs to one unit is gathered together.
    """
    units: dict[str, int] = {}
    roots: list[str] = []
    for name, part in module.named_modules():
        if isinstance(part, (nn.ModuleList, nn.Sequential)) and not any(name.startswith(root + ".") or name == root for root in roots):
            roots += [f"{name}.{i}" if name else str(i) for i, _ in part.named_children()]
    for name, _ in module.named_parameters():
        units[name] = next((i for i, root in enumerate(roots, 1) if name.startswith(root + ".")), 0)
    return units


def places_of(module: nn.Module) -> Iterator[tuple[str, nn.Module, str, nn.Parameter]]:
    """Yield (name, submodule, attribute, parameter) of each place in which a module holds a parameter; a tied one has several."""
    for prefix, part in module.named_modules(remove_duplicate=True):
        for attribute, p in part._parameters.items():
            if p is not None:
                yield (f"{prefix}.{attribute}" if prefix else attribute), part, attribute, p


def rows_of(p: torch.Tensor, ranks: int, rank: int) -> torch.Tensor:
    """Return the rows of a tensor that belong to a rank, as DTensor cuts them."""
    parts = p.detach().chunk(ranks, 0) if p.shape[0] else ()
    return (parts[rank] if rank < len(parts) else p.detach()[:0]).clone()


def shard_parameters(module: nn.Module, mesh: Any) -> None:
    """Replace each parameter by a DTensor, of which this rank holds some rows; a number is whole on every rank."""
    from torch.distributed.tensor import DTensor, Replicate, Shard  # 3 s, and who shards needs it

    rank, new = mesh.get_local_rank(), dict[int, nn.Parameter]()
    for _, part, attribute, p in list(places_of(module)):
        if type(p) is not nn.Parameter:
            continue
        if id(p) not in new:
            whole = torch.empty_strided(p.shape, torch.empty(p.shape, device="meta").stride(), device="meta")
            local = rows_of(p, mesh.size(), rank) if p.dim() else p.detach().clone()
            sharded = DTensor.from_local(local, mesh, [Shard(0) if p.dim() else Replicate()], run_check=False, shape=p.shape, stride=whole.stride())
            new[id(p)] = nn.Parameter(sharded, requires_grad=p.requires_grad)
            new[id(local)] = p  # keeps the old parameter, and with it its id, until the end
        part._parameters[attribute] = new[id(p)]
