"""Data parallel and fully sharded training: modules whose programs contain the collectives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from dovetail.compiler.api import distributed
from dovetail.distributed.parameters import broadcast_state, group_of, shard_parameters, units_of
from dovetail.distributed.rewriting import replicate, shard
from dovetail.frontend.dtensors import is_dtensor
from dovetail.frontend.shards import local_spec
from dovetail.trace import Proxy, Trace

BUCKET = 25  # MB of gradients that one collective reduces


@dataclass
class Replicated:
    """Each rank has a copy of every parameter, and its own part of the batch."""

    group: str
    ranks: int
    bucket_bytes: int

    def owns(self, x: torch.Tensor) -> bool:
        """Return False: all parameters are plain tensors."""
        return False

    def rewrite(self, computation: Trace, tensors: Mapping[Proxy, torch.Tensor]) -> list[Trace]:
        """Return the program with gradients that are averaged over the ranks."""
        params = [p for p, x in tensors.items() if isinstance(x, nn.Parameter)]
        return [replicate(computation, params, group=self.group, ranks=self.ranks, bucket_bytes=self.bucket_bytes)]


@dataclass
class Sharded:
    """Each rank has some rows of every parameter, and its own part of the batch."""

    group: str
    ranks: int
    keep: bool
    module: nn.Module = field(repr=False)

    def owns(self, x: torch.Tensor) -> bool:
        """Return whether x is a parameter of the module."""
        return any([x is p for p in self.module.parameters()])

    def rewrite(self, computation: Trace, tensors: Mapping[Proxy, torch.Tensor]) -> list[Trace]:
        """Return the program that gathers parameters and scatters gradients."""
        return sharded_steps(computation, {p: (p, x) for p, x in tensors.items()}, self.module, group=self.group, ranks=self.ranks, keep=self.keep)


def in_rows(x: torch.Tensor) -> bool:
    """Return whether the ranks have some rows of x each: a number has none."""
    return is_dtensor(x) and x.dim() > 0


def sharded_steps(
    program: Trace, tensors: Mapping[Proxy, tuple[Proxy, torch.Tensor]], module: nn.Module, *, group: str, ranks: int, keep: bool
) -> list[Trace]:
    """Return the program that gathers DTensors, and then the one that averages the gradients of other parameters.

    `tensors` has for each input of the traced program what stands for it in `program`, and the tensor.
    """
    named = units_of(module)
    unit = {id(p): named[name] for name, p in module.named_parameters()}
    units: dict[int, list[Proxy]] = {}
    for p, x in tensors.values():
        if in_rows(x):
            units.setdefault(unit[id(x)], []).append(p)
    local = {p: local_spec(x) for p, x in tensors.values() if in_rows(x)}
    plain = [p for p, x in tensors.values() if isinstance(x, nn.Parameter) and not in_rows(x)]
    steps = [shard(program, list(units.values()), local, group=group, ranks=ranks, keep=keep)]
    if plain:
        steps.append(replicate(steps[-1], plain, group=group, ranks=ranks, bucket_bytes=BUCKET << 20))
    return steps


def data_parallel(fn: Callable, mesh: Any, *, bucket_mb: float = BUCKET, **options: Any) -> Any:
    """Compile a module or function for ranks that each have a copy of the parameters and a part of the batch.

    Gradients are averaged over the ranks while the backward runs.  The parameters of a module are those of the first rank from then on.

    Args:
        fn: a torch.nn.Module, or a function that reads torch.nn.Parameters.
        mesh: a torch.distributed DeviceMesh of one dimension.
        bucket_mb: how many MB of gradients one collective reduces; small buckets start early, large ones are fewer.
        options: those of `dovetail.jit`.
    """
    group, ranks = group_of(mesh)
    if isinstance(fn, nn.Module):
        broadcast_state(fn, mesh)
    return distributed(fn, Replicated(group, ranks, int(bucket_mb * 2**20)), **options)


def fully_sharded(module: nn.Module, mesh: Any, *, reshard_after_forward: bool = True, **options: Any) -> Any:
    """Compile a module for ranks that each have some rows of every parameter and a part of the batch.

    The parameters become DTensors in place, those of the first rank; make the optimizer afterwards.  The program gathers those of a block before
    the block runs, one block ahead, and averages and scatters its gradients.

    Args:
        module: a torch.nn.Module; the items of its outermost ModuleList or Sequential are the blocks.
        mesh: a torch.distributed DeviceMesh of one dimension.
        reshard_after_forward: whether the backward gathers parameters again, rather than hold all of them from the forward on.
        options: those of `dovetail.jit`.
    """
    group, ranks = group_of(mesh)
    broadcast_state(module, mesh)
    shard_parameters(module, mesh)
    return distributed(module, Sharded(group, ranks, not reshard_after_forward, module), **options)
