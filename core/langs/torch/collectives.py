"""Collectives of torch.distributed, and the functional ones.

A collective in place is the functional one, whose result is written into the argument.  As in eager PyTorch autograd does not see that write;
the functional collectives have gradients.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import distributed

from dovetail import prims
from dovetail.errors import require, require_traced
from dovetail.langs.torch.binding.names import not_traced
from dovetail.langs.torch.binding.refused import REFUSED
from dovetail.langs.torch.binding.symbol import TABLE, Tensor, torchquery
from dovetail.langs.torch.process_groups import group_name, process_group
from dovetail.prims import collectives, recorder
from dovetail.torch_internals import FUNCTIONAL_COLLECTIVES, RESOLVE_GROUP


class TracedWork:
    """What an asynchronous collective returns while a function is traced.

    The program completes the collective before it reads the result, so `wait` has nothing to do.
    """

    def wait(self, timeout: Any = None) -> bool:
        """Return True: the program waits where it reads the result."""
        return True

    def is_completed(self) -> bool:
        """Refuse to answer: the program has not run yet."""
        raise not_traced("Work.is_completed", "whether a collective is complete depends on how the program runs; call work.wait()")

    is_success = get_future = result = exception = is_completed


def _group(group: Any) -> dict[str, Any]:
    """Return the keywords that name a group, which the prologue of the program guards."""
    recorder.get().environment.read.add("process_group")
    name = group_name(_resolved(group))
    ranks = distributed.get_world_size(process_group(name))
    require(ranks > 0, "this process is no rank of the process group {!r}", name)
    return {"group": name, "ranks": ranks}


def _resolved(group: Any) -> Any:
    """Return the process group that a functional collective was passed: by itself, by name, as a device mesh, or by its ranks."""
    if isinstance(group, str):
        return RESOLVE_GROUP.value(group)
    mesh, *dim = group if isinstance(group, tuple) else (group,)
    if hasattr(mesh, "get_group"):
        return mesh.get_group(*dim)
    if isinstance(group, list):
        require_traced(group == list(range(distributed.get_world_size())), "ranks {} as a group are not traced; pass the process group", group)
        return None
    return group


def _rank(group: Any, rank: int | None, group_rank: int | None) -> int:
    """Return a rank of the group, of which either the global number is passed or the one in the group."""
    if group_rank is not None:
        return group_rank
    require(rank is not None, "expected a rank, src or group_src")
    return rank if group is None else distributed.get_group_rank(group, rank)


def _reduction(op: Any) -> str:
    name = str(op).rpartition(".")[2].lower() if not isinstance(op, str) else op.lower()
    known = name in collectives.REDUCTIONS
    require_traced(known, "the reduction {} is not traced; use one of {}", op, ", ".join(collectives.REDUCTIONS))
    return name


def _contiguous(x: Tensor) -> Tensor:
    return x if x.spec.strides is None else prims.clone(x)


def _write(target: Tensor, value: Tensor) -> None:
    """Write the result of a collective, unseen by autograd."""
    if value.spec.shape != target.spec.shape:
        value = prims.reshape(value, shape=target.spec.shape)
    prims.copy_(prims.detach(target), value)


def _in_place(target: Tensor, start: Callable[[Tensor], Tensor], source: Tensor, async_op: bool) -> TracedWork | None:
    """Run a collective on `source` without its history, and write the result into `target`."""
    _write(target, collectives.wait(start(prims.detach(_contiguous(source)))))
    return TracedWork() if async_op else None


@torchquery("torch.distributed.all_reduce")
def all_reduce(tensor: Tensor, op: Any = distributed.ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
    """Reduce a tensor over all ranks, in place."""
    kwargs = {"op": _reduction(op), **_group(group)}
    return _in_place(tensor, lambda x: collectives.all_reduce(x, **kwargs), tensor, async_op)


@torchquery("torch.distributed.broadcast")
def broadcast(tensor: Tensor, src: int | None = None, group: Any = None, async_op: bool = False, group_src: int | None = None) -> Any:
    """Copy a tensor from one rank to all, in place."""
    kwargs = {"src": _rank(group, src, group_src), "rank": distributed.get_rank(group), **_group(group)}
    return _in_place(tensor, lambda x: collectives.broadcast(x, **kwargs), tensor, async_op)


@torchquery("torch.distributed.all_gather")
def all_gather(tensor_list: Sequence[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Any:
    """Gather the tensors of all ranks into a list."""
    kwargs = _group(group)
    expected, got = [tensor.spec.shape] * kwargs["ranks"], [x.spec.shape for x in tensor_list]
    require(got == expected, "all_gather is traced for tensors of one shape: expected {} for the results, got {}", expected, got)
    gathered = collectives.wait(collectives.all_gather(prims.detach(_contiguous(_rows(tensor))), **kwargs))
    for target, part in zip(tensor_list, torch.chunk(gathered, kwargs["ranks"], 0), strict=True):
        _write(target, part)
    return TracedWork() if async_op else None


@torchquery("torch.distributed.all_gather_into_tensor")
def all_gather_into_tensor(output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False) -> Any:
    """Gather the tensors of all ranks into one."""
    kwargs = _group(group)
    return _in_place(output_tensor, lambda x: collectives.all_gather(_rows(x), **kwargs), input_tensor, async_op)


@torchquery("torch.distributed.reduce_scatter_tensor")
def reduce_scatter_tensor(output: Tensor, input: Tensor, op: Any = distributed.ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
    """Reduce a tensor over all ranks, of which each keeps one part."""
    kwargs = {"op": _reduction(op), **_group(group)}
    return _in_place(output, lambda x: collectives.reduce_scatter(_rows(x), **kwargs), input, async_op)


@torchquery("torch.distributed.all_to_all_single")
def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Any = None,
    async_op: bool = False,
) -> Any:
    """Exchange rows between all ranks."""
    kwargs = _group(group)
    sizes = {"outputs": _parts(output, output_split_sizes, kwargs["ranks"]), "inputs": _parts(input, input_split_sizes, kwargs["ranks"])}
    return _in_place(output, lambda x: collectives.all_to_all(x, **sizes, **kwargs), input, async_op)


@torchquery("torch.distributed.reduce_scatter")
def reduce_scatter(
    output: Tensor, input_list: Sequence[Tensor], op: Any = distributed.ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Any:
    """Reduce a list of tensors over all ranks, of which each keeps the one at its place."""
    kwargs = {"op": _reduction(op), **_group(group)}
    _require_one_for_each("reduce_scatter", input_list, output, kwargs["ranks"])
    return _in_place(output, lambda x: collectives.reduce_scatter(x, **kwargs), _in_line(input_list), async_op)


@torchquery("torch.distributed.all_to_all")
def all_to_all(output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: Any = None, async_op: bool = False) -> Any:
    """Exchange tensors between all ranks; their shapes may differ."""
    return _exchange(input_tensor_list, output_tensor_list, _group(group), async_op)


@torchquery("torch.distributed.reduce")
def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: Any = distributed.ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Any:
    """Reduce a tensor over all ranks, in place on the rank `dst`; the others keep theirs, which is undefined in eager mode."""
    kwargs = {"op": _reduction(op), **_group(group)}
    total = collectives.wait(collectives.all_reduce(prims.detach(_contiguous(tensor)), **kwargs))
    if distributed.get_rank(group) == _rank(group, dst, group_dst):
        _write(tensor, total)
    return TracedWork() if async_op else None


@torchquery("torch.distributed.gather")
def gather(
    tensor: Tensor,
    gather_list: Sequence[Tensor] | None = None,
    dst: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Any:
    """Gather the tensors of all ranks into a list on the rank `dst`."""
    kwargs = _group(group)
    to, own = _rank(group, _zero_unless(dst, group_dst), group_dst), distributed.get_rank(group)
    _require_list("gather_list", gather_list, tensor, own == to, kwargs["ranks"])
    return _exchange([tensor if i == to else None for i in range(kwargs["ranks"])], gather_list or [None] * kwargs["ranks"], kwargs, async_op)


@torchquery("torch.distributed.scatter")
def scatter(
    tensor: Tensor,
    scatter_list: Sequence[Tensor] | None = None,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Any:
    """Send each rank one tensor of a list that the rank `src` has."""
    kwargs = _group(group)
    sender, own = _rank(group, _zero_unless(src, group_src), group_src), distributed.get_rank(group)
    _require_list("scatter_list", scatter_list, tensor, own == sender, kwargs["ranks"])
    return _exchange(scatter_list or [None] * kwargs["ranks"], [tensor if i == sender else None for i in range(kwargs["ranks"])], kwargs, async_op)


def _zero_unless(rank: int | None, group_rank: int | None) -> int | None:
    return 0 if rank is None and group_rank is None else rank


def _require_list(name: str, tensors: Sequence[Tensor] | None, own: Tensor, here: bool, ranks: int) -> None:
    """Raise ValueError unless there is a list on the one rank that has to pass it, and there alone."""
    require(bool(tensors) == here, "expected {} on the one rank that sends or receives all tensors, and on no other", name, error=ValueError)
    if tensors:
        _require_one_for_each(name, tensors, own, ranks)


def _require_one_for_each(name: str, tensors: Sequence[Tensor], own: Tensor, ranks: int) -> None:
    """Raise ValueError unless `tensors` are one for each rank, all like `own`."""
    expected, got = [(own.spec.shape, own.spec.dtype)] * ranks, [(x.spec.shape, x.spec.dtype) for x in tensors]
    require(got == expected, "expected for {} the shapes and dtypes {}, got {}", name, expected, got, error=ValueError)


def _in_line(tensors: Sequence[Tensor]) -> Tensor:
    """Return the elements of all tensors in one dimension."""
    return prims.cat([prims.reshape(prims.detach(_contiguous(x)), shape=(x.spec.numel,)) for x in tensors], dim=0)


def _exchange(sent: Sequence[Tensor | None], received: Sequence[Tensor | None], kwargs: dict[str, Any], async_op: bool) -> TracedWork | None:
    """Send each rank its tensor of `sent`, and write what comes from each into its tensor of `received`; None is nothing."""
    inputs, outputs = (tuple([0 if x is None else x.spec.numel for x in tensors]) for tensors in (sent, received))
    mine, theirs = ([x for x in tensors if x is not None] for tensors in (sent, received))
    like = (mine or theirs)[0]
    line = _in_line(mine) if mine else prims.full(shape=(0,), value=0, dtype=like.spec.dtype, device=like.spec.device)
    exchanged = collectives.wait(collectives.all_to_all(line, outputs=outputs, inputs=inputs, **kwargs))
    for x, part in zip(received, torch.split(exchanged, outputs), strict=True):
        if x is not None:
            _write(x, part)
    return TracedWork() if async_op else None


def _rows(x: Tensor) -> Tensor:
    """Give a number a dimension, by which it can be gathered."""
    return x if x.spec.rank else prims.reshape(x, shape=(1,))


def _parts(x: Tensor, sizes: Sequence[int] | None, ranks: int) -> tuple[int, ...]:
    """Return how many rows each rank has: as many as each other where `sizes` is empty."""
    if sizes:
        return tuple(sizes)
    rows = x.spec.shape[0]
    require(rows % ranks == 0, "expected rows that {} ranks share equally, got {}; pass split sizes", ranks, x.spec)
    return (rows // ranks,) * ranks


# The module of functional collectives takes a while to import: what is in there is known once the user has imported it.


def functional_all_reduce(self: Tensor, reduceOp: str, group: Any, tag: str = "") -> Tensor:
    """Reduce over all ranks."""
    return collectives.wait(collectives.all_reduce(_contiguous(self), op=_reduction(reduceOp), **_group(group)))


def functional_broadcast(self: Tensor, src: int, group: Any, tag: str = "") -> Tensor:
    """Copy from the rank `src` of the group to all."""
    named = _group(group)
    rank = distributed.get_rank(process_group(named["group"]))
    return collectives.wait(collectives.broadcast(_contiguous(self), src=src, rank=rank, **named))


def functional_all_gather(self: Tensor, gather_dim: int, group: Any, tag: str = "") -> Tensor:
    """Gather along a dimension."""
    named = _group(group)
    gathered = collectives.wait(collectives.all_gather(_contiguous(self), **named))
    return gathered if gather_dim == 0 else torch.cat(torch.chunk(gathered, named["ranks"], 0), gather_dim)


def functional_reduce_scatter(self: Tensor, reduceOp: str, scatter_dim: int, group: Any, tag: str = "") -> Tensor:
    """Reduce over all ranks, and keep one part along a dimension."""
    named = _group(group)
    rows = self if scatter_dim == 0 else torch.cat(torch.chunk(self, named["ranks"], scatter_dim), 0)
    return collectives.wait(collectives.reduce_scatter(_contiguous(rows), op=_reduction(reduceOp), **named))


def functional_all_to_all(self: Tensor, output_split_sizes: Any, input_split_sizes: Any, group: Any, tag: str = "") -> Tensor:
    """Exchange rows."""
    named = _group(group)
    inputs = _parts(self, input_split_sizes, named["ranks"])
    outputs = _parts(self, output_split_sizes, named["ranks"])
    return collectives.wait(collectives.all_to_all(_contiguous(self), outputs=outputs, inputs=inputs, **named))


def wait_tensor(tensor: Tensor) -> Tensor:
    """Return the result of a collective; the program waits where it reads it."""
    return tensor


_FUNCTIONAL: dict[str, Callable] = {
    "wait_tensor": wait_tensor,
    "all_reduce": functional_all_reduce,
    "broadcast": functional_broadcast,
    **dict.fromkeys(("all_gather_tensor", "all_gather_tensor_autograd", "all_gather_single", "all_gather_single_autograd"), functional_all_gather),
    **dict.fromkeys(("reduce_scatter_tensor", "reduce_scatter_tensor_autograd"), functional_reduce_scatter),
    **dict.fromkeys(("reduce_scatter_single", "reduce_scatter_single_autograd"), functional_reduce_scatter),
    **dict.fromkeys(("all_to_all_single", "all_to_all_single_autograd"), functional_all_to_all),
}
_NO_SYMBOL = "use all_reduce, broadcast, all_gather_tensor, reduce_scatter_tensor or all_to_all_single"
_OTHERS = ("permute_tensor", "all_reduce_coalesced", "all_gather_into_tensor_coalesced", "reduce_scatter_tensor_coalesced")


_DTENSORS = "torch.distributed.tensor"
_NO_DTENSOR = (
    "a DTensor made while tracing is not traced; wrap the module by dovetail.distributed.tensor_parallel(module, mesh, plan) rather than by "
    "parallelize_module, or call it outside the compiled function"
)


def know_imported() -> None:
    """Add the functional collectives and what makes DTensors to the tables, once their modules are imported."""
    if (tensors := sys.modules.get(_DTENSORS)) is not None and tensors.DTensor.from_local not in REFUSED:
        REFUSED.update(dict.fromkeys([tensors.DTensor.from_local, tensors.distribute_tensor], _NO_DTENSOR))
    module = sys.modules.get(FUNCTIONAL_COLLECTIVES)
    if module is None or module.wait_tensor in TABLE:
        return
    TABLE.update({fn: answer for name, answer in _FUNCTIONAL.items() if (fn := getattr(module, name, None)) is not None})
    REFUSED.update({fn: _NO_SYMBOL for name in _OTHERS if (fn := getattr(module, name, None)) is not None})


# Who takes part.


@torchquery("torch.distributed.get_rank")
def get_rank(group: Any = None) -> int:
    """Return the number of this process in the group."""
    recorder.get().environment.read.add("process_group")
    return distributed.get_rank(group)


@torchquery("torch.distributed.get_world_size")
def get_world_size(group: Any = None) -> int:
    """Return how many ranks the group has."""
    recorder.get().environment.read.add("process_group")
    return distributed.get_world_size(group)


@torchquery("torch.distributed.is_initialized")
def is_initialized() -> bool:
    """Return whether this process is a rank of a process group."""
    recorder.get().environment.read.add("process_group")
    return distributed.is_initialized()


_POINT_TO_POINT = "it is not the same on all ranks, or returns Python objects; call it outside the compiled function"
_UNTRACED = (
    *("send", "recv", "isend", "irecv", "batch_isend_irecv", "barrier", "monitored_barrier"),
    *("all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list", "new_group", "init_process_group"),
    *("destroy_process_group", "send_object_list", "recv_object_list"),
)
if distributed.is_available():
    REFUSED.update({fn: _POINT_TO_POINT for name in _UNTRACED if (fn := getattr(distributed, name, None)) is not None})
