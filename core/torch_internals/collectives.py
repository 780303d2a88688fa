"""Parts of torch.distributed that are not public.  Nothing here imports more than `import torch` does."""

from __future__ import annotations

from typing import Any

from dovetail.torch_internals.internal import Internal


def _takes_group(op: Any) -> bool:
    return any(argument.name == "group_name" for argument in op.default._schema.arguments)


_BLOCKING = "the collective is complete before the next line runs"
# what starts a collective and returns a tensor to wait for, by the name of the prim
FUNCTIONAL: dict[str, Internal] = {
    "all_reduce": Internal("torch.ops._c10d_functional.all_reduce", "start to reduce over a process group", _BLOCKING, probe=_takes_group),
    "all_gather": Internal("torch.ops._c10d_functional.all_gather_into_tensor", "start to gather", _BLOCKING, probe=_takes_group),
    "reduce_scatter": Internal("torch.ops._c10d_functional.reduce_scatter_tensor", "start to reduce and scatter", _BLOCKING, probe=_takes_group),
    "broadcast": Internal("torch.ops._c10d_functional.broadcast", "start to broadcast", _BLOCKING, probe=_takes_group),
    "all_to_all": Internal("torch.ops._c10d_functional.all_to_all_single", "start to exchange rows", _BLOCKING, probe=_takes_group),
    "wait": Internal("torch.ops._c10d_functional.wait_tensor", "complete a collective", "nothing is left to wait for"),
}

FUNCTIONAL_COLLECTIVES = "torch.distributed._functional_collectives"  # what users import; nothing here does
STORE = Internal(
    "torch.distributed.distributed_c10d._get_default_store",
    "compare programs across ranks, and name the rank that failed",
    "programs are not compared, and errors name no rank",
)
RESOLVE_GROUP = Internal(
    "torch.distributed.distributed_c10d._resolve_process_group", "find the group that a functional collective names", "names are refused"
)
ACTIVE_DDP = Internal(
    "torch.nn.parallel.DistributedDataParallel._get_active_ddp_module",
    "hand gradients to DistributedDataParallel while the backward runs",
    "all gradients are handed over at the end of the backward",
)


def functional_collective(name: str) -> Any:
    """Return the overload of torch that starts the collective `name`; None where this torch lacks any of them."""
    usable = all([part.usable is not None for part in FUNCTIONAL.values()])
    return FUNCTIONAL[name].value.default if usable else None
