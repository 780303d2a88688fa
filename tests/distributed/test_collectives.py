"""Collectives on processes of this machine: torch's own calls in a compiled function, against eager."""

from __future__ import annotations

import pytest
import torch
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as with_gradient
from eager_versions import OLDEST
from torch import Tensor, distributed
from torch.distributed.device_mesh import init_device_mesh

import dovetail
from dovetail.prims import SYMBOLS, Tag, TensorSpec
from dovetail_conformance.collectives import COLLECTIVES, CollectiveInfo
from dovetail_conformance.ranks import Ranks
from dovetail_torch_exec.collectives import COLLECTIVES as IMPLEMENTED

pytestmark = pytest.mark.xdist_group("distributed")


def test_the_torch_executor_runs_every_collective() -> None:
    assert {s for s in SYMBOLS.values() if s.module == "dist" and s.is_prim} == set(IMPLEMENTED)
    assert all([symbol.vjp_rule and symbol.doc for symbol in IMPLEMENTED])


@pytest.mark.parametrize("info", [info for info in COLLECTIVES if {Tag.COLLECTIVE, Tag.ORDERED} & set(info.symbol.tags)], ids=str)
def test_a_group_of_one_name_and_ranks_is_expected(info: CollectiveInfo) -> None:
    sample = next(info.samples(dovetail.dtypes.float32, 2))
    operands = [TensorSpec(shape, dovetail.dtypes.float32) for shape in sample.shapes[0]]

    with pytest.raises(RuntimeError, match="expected the name of a process group"):
        info.symbol.meta(*operands, **sample.keywords[0], group=None, ranks=2)


# --- what runs in the ranks


def in_place(x: Tensor) -> Tensor:
    y = x * 2
    distributed.all_reduce(y)
    return y + 1


def asynchronous(x: Tensor) -> Tensor:
    gathered = x.new_empty(distributed.get_world_size() * x.shape[0])
    work = distributed.all_gather_into_tensor(gathered, x * 2, async_op=True)
    z = x.sin()
    work.wait()
    return gathered.sum() + z


def scattered(x: Tensor) -> Tensor:
    part = x.new_empty(x.shape[0] // distributed.get_world_size())
    distributed.reduce_scatter_tensor(part, x * 3, distributed.ReduceOp.MAX)
    return part.cos()


def from_one(x: Tensor) -> Tensor:
    y = x * 3
    distributed.broadcast(y, 1)
    return y * (distributed.get_rank() + 1)


def exchanged(x: Tensor) -> Tensor:
    received = torch.empty_like(x)
    distributed.all_to_all_single(received, x.exp())
    return received * 2


def repeated(x: Tensor) -> Tensor:
    """The same collective twice: neither is merged or removed."""
    first, second = x.clone(), x.clone()
    distributed.all_reduce(first)
    distributed.all_reduce(second)
    distributed.all_reduce(x.clone())
    return first * 2


def functionals(x: Tensor) -> Tensor:
    world = distributed.group.WORLD
    total = functional.all_reduce(x * 2, "sum", world)
    gathered = functional.all_gather_tensor_autograd(total.sin(), 0, world)
    part = functional.reduce_scatter_tensor_autograd(gathered, "sum", 0, world)
    n = x.shape[0] // distributed.get_world_size()
    sizes = [n] * distributed.get_world_size()
    return functional.wait_tensor(functional.all_to_all_single_autograd(part * x, sizes, sizes, world)) * 1


def columns(x: Tensor) -> Tensor:
    rows = functional.all_gather_tensor(x.reshape(2, -1), 1, distributed.group.WORLD)
    return functional.reduce_scatter_tensor(rows * 2, "avg", 1, distributed.group.WORLD) + functional.broadcast(
        x.reshape(2, -1), 1, distributed.group.WORLD
    )


def listed(x: Tensor) -> Tensor:
    parts = [torch.empty_like(x) for _ in range(distributed.get_world_size())]
    distributed.all_gather(parts, x * (distributed.get_rank() + 1))
    numbers = [torch.empty((), dtype=x.dtype) for _ in parts]
    distributed.all_gather(numbers, x.sum(), async_op=True).wait()
    return torch.stack([part * number for part, number in zip(parts, numbers, strict=True)])


def in_lists(x: Tensor) -> Tensor:
    """Exchange lists with one tensor for each rank."""
    ranks, part = distributed.get_world_size(), torch.empty_like(x)
    distributed.reduce_scatter(part, [x * i for i in range(ranks)], distributed.ReduceOp.MAX)
    received = [x.new_empty(2, 4) for _ in range(ranks)]
    if not OLDEST:  # gloo has it since torch 2.11
        distributed.all_to_all(received, [(x + i).reshape(2, 4) for i in range(ranks)], async_op=True).wait()
    return torch.cat([part, *[rows.flatten() for rows in received if not OLDEST]])


def by_one(x: Tensor) -> Tensor:
    """Let one rank collect, reduce and hand out."""
    ranks, own = distributed.get_world_size(), distributed.get_rank()
    gathered = [torch.empty_like(x) for _ in range(ranks)] if own == 1 else None
    distributed.gather(x * 2, gathered, dst=1)
    mine, total = torch.empty_like(x), x.exp()
    distributed.scatter(mine, [x * i for i in range(ranks)] if own == 0 else None)
    distributed.reduce(total, 1, async_op=True).wait()
    return torch.cat([mine, *([*gathered, total] if gathered else [])])


CALLS = (in_place, asynchronous, scattered, from_one, exchanged, repeated, functionals, columns, listed, in_lists, by_one)


def as_in_eager() -> list[int]:
    """Compare each call with eager, also its gradient; return how many collectives each program has."""
    counts = []
    for call in CALLS:
        x = torch.randn(8, dtype=torch.float64, generator=torch.Generator().manual_seed(distributed.get_rank()))
        fast, results = dovetail.jit(call), []
        for fn in (call, fast, fast):
            argument = x.clone().requires_grad_(call is in_place or (call is functionals and not OLDEST))  # torch 2.10 has no gradient of these
            out = fn(argument)
            if argument.requires_grad:
                (out * (distributed.get_rank() + 1)).sum().backward()
            results.append((out.detach(), argument.grad))
        for result in results[1:]:
            torch.testing.assert_close(result, results[0])
        counts.append(sum(Tag.COLLECTIVE in line.symbol.tags for line in dovetail.last_traces(fast)[-1].lines))
    return counts


def in_groups() -> list[float]:
    """Sum over a group that is a mesh, one dimension of a mesh, and a list of ranks."""
    ranks = distributed.get_world_size()
    sums = []
    for group in (init_device_mesh("cpu", (ranks,)), (init_device_mesh("cpu", (1, ranks)), 1), list(range(ranks))):
        sums.append(dovetail.jit(lambda x, group=group: functional.all_reduce(x, "sum", group) * 2)(torch.ones(())).item())
    return sums


def in_other_groups() -> list[list[float]]:
    """Sum over another group at each call, and over another mesh."""
    ranks = range(distributed.get_world_size())
    own = [distributed.new_group([rank]) for rank in ranks][distributed.get_rank()]
    meshes = init_device_mesh("cpu", (len(ranks), 1))
    groups = own, distributed.group.WORLD, own, distributed.group.WORLD

    def summed(x: Tensor, group: object) -> Tensor:
        total = x * 2
        distributed.all_reduce(total, group=group)
        return total

    over_group, over_mesh = dovetail.jit(summed), dovetail.jit(lambda x, mesh, dim: functional.all_reduce(x, "sum", (mesh, dim)) * 2)
    x = torch.ones(())
    return [[over_group(x, group).item() for group in groups], [over_mesh(x, meshes, dim).item() for dim in (0, 1, 0)]]


def gathered_with_gradient() -> list[Tensor]:
    """Gather a value that has a gradient: the backward of torch's function scatters from each rank, with what depends on no gradient elsewhere."""
    x, gradients = torch.randn(4, generator=torch.Generator().manual_seed(distributed.get_rank())), []

    def loss(x: Tensor) -> Tensor:
        return torch.cat(with_gradient.all_gather(x.sin())).square().sum()

    for fn in (loss, dovetail.jit(loss)):
        leaf = x.clone().requires_grad_()
        fn(leaf).backward()
        gradients.append(leaf.grad)
    return gradients


def printed() -> str:
    fast = dovetail.jit(in_place)
    fast(torch.ones(4))
    return str(dovetail.last_traces(fast)[0])


def refused() -> list[str]:
    def barrier(x: Tensor) -> Tensor:
        distributed.barrier()
        return x

    def scattered(x: Tensor) -> Tensor:
        distributed.scatter(torch.empty_like(x), [x])  # one is missing on the first rank, and the others pass none
        return x

    def uneven(x: Tensor) -> Tensor:
        parts = [torch.empty_like(x), torch.empty(1)]
        distributed.all_gather(parts, x)
        return parts[0]

    sentences = []
    for call in (barrier, scattered, uneven):
        try:
            dovetail.jit(call)(torch.ones(2))
        except dovetail.DovetailError as error:
            sentences.append(str(error))
    return sentences


# --- the tests


def test_calls_in_a_compiled_function_are_those_of_eager(two: Ranks) -> None:
    counts = two.run(as_in_eager)

    assert counts[0] == counts[1]
    assert dict(zip([call.__name__ for call in CALLS], counts[0], strict=True))["repeated"] == 3


@pytest.mark.slow
def test_calls_in_a_compiled_function_are_those_of_eager_on_four_ranks(four: Ranks) -> None:
    assert len(set(map(tuple, four.run(as_in_eager)))) == 1


def test_a_group_is_a_mesh_or_its_ranks(two: Ranks) -> None:
    assert two.run(in_groups) == [[4.0] * 3] * 2


def test_each_call_may_have_another_group(two: Ranks) -> None:
    assert two.run(in_other_groups) == [[[2.0, 4.0, 2.0, 4.0], [4.0, 2.0, 4.0]]] * 2


def test_collectives_of_a_backward_run_in_the_backward(two: Ranks) -> None:
    for expected, got in two.run(gathered_with_gradient):
        torch.testing.assert_close(got, expected)


def test_a_program_names_the_group_and_its_ranks(two: Ranks) -> None:
    for program in two.run(printed):
        assert "dist.all_reduce(t2, op='sum', group='world', ranks=2)" in program
        assert "dist.wait(t3)" in program


def test_what_is_not_the_same_on_all_ranks_is_refused(two: Ranks) -> None:
    (barrier, scattered, uneven), (_, elsewhere, _) = two.run(refused)

    assert "call it outside the compiled function" in barrier
    assert "expected for scatter_list the shapes and dtypes" in scattered
    assert "expected scatter_list on the one rank that sends or receives all tensors" in elsewhere
    assert "all_gather is traced for tensors of one shape: expected [(2,), (2,)] for the results, got [(2,), (1,)]" in uneven
