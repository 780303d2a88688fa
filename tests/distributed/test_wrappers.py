"""What users of torch.distributed write already: DistributedDataParallel inside and outside of `jit`."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import dovetail
from dovetail_conformance.ranks import Ranks

pytestmark = pytest.mark.xdist_group("distributed")
TINY = 0.0005  # MB of a bucket: several for a small model


def small_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.LayerNorm(16), nn.Linear(16, 4))


WRAPPED: dict[str, Callable[[nn.Module], Any]] = {
    "eager": lambda m: DistributedDataParallel(m, bucket_cap_mb=TINY),
    "compiled inside": lambda m: DistributedDataParallel(dovetail.jit(m), bucket_cap_mb=TINY),
    "compiled": lambda m: dovetail.jit(DistributedDataParallel(m, bucket_cap_mb=TINY)),
}


def trained(wrap: Callable, accumulate: bool) -> tuple[list[float], list[torch.Tensor], list[str], Any]:
    """Train four steps; return losses, parameters, and what happened in the last backward, in order."""
    model, events = small_model(), []
    wrapped, optimizer = wrap(model), torch.optim.SGD(model.parameters(), 0.1)
    for name, p in model.named_parameters():
        p.register_post_accumulate_grad_hook(lambda p, name=name: events.append(name))
    losses = []
    for step in range(4):
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(2 * step + distributed.get_rank()))
        if accumulate:
            with wrapped.no_sync():
                wrapped(x).square().mean().backward()
        events.clear()
        loss = wrapped(2 * x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, [p.detach() for p in model.parameters()], events, wrapped


def as_in_eager() -> dict[str, list[str]]:
    """Compare the wrappers; return the order in which gradients were accumulated."""
    orders = {}
    for accumulate in (False, True):
        expected = trained(WRAPPED["eager"], accumulate)
        for name in ("compiled inside", "compiled"):
            losses, parameters, orders[name], wrapped = trained(WRAPPED[name], accumulate)
            torch.testing.assert_close(losses, expected[0])
            torch.testing.assert_close(parameters, expected[1])
    assert list(wrapped.state_dict()) == [f"module.{name}" for name in small_model().state_dict()]
    assert wrapped.cache_info().misses == 1
    return orders


def delivered_while_it_runs() -> list[str]:
    """Record the lines of the backward and the accumulation of gradients in one list."""
    model, events = small_model(), []
    fast = dovetail.jit(DistributedDataParallel(model, bucket_cap_mb=TINY), executors=["torch"], passes=[lambda trace: noted(trace, events)])
    for name, p in model.named_parameters():
        p.register_post_accumulate_grad_hook(lambda p, name=name: events.append(name))
    fast(torch.randn(4, 8)).sum().backward()
    return events


def noted(trace: Any, events: list[str]) -> Any:
    """Return a backward whose products are noted as they run."""
    if trace.name == "backward":
        for line in trace.lines:
            if line.symbol.name == "matmul":
                run = line.implementation.fn
                fn = lambda *args, run=run, **kwargs: (events.append("product"), run(*args, **kwargs))[1]  # noqa: E731
                line.implementation = copy.copy(line.implementation)
                vars(line.implementation).update(fn=fn, path=None, name=f"noted_{len(trace.lines)}_{line.out.name}")
    return trace


def unused() -> bool:
    """Train a model of which a part is unused, with one output unused: gradients that are absent are those of eager."""

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.a(x), self.b(x)

    def gradients(compile: Callable) -> list[torch.Tensor | None]:
        torch.manual_seed(0)
        model = Two()
        wrapped = compile(DistributedDataParallel(model, find_unused_parameters=True, bucket_cap_mb=TINY))
        wrapped(torch.ones(2, 4))[0].sum().backward()
        return [p.grad for p in model.parameters()]

    torch.testing.assert_close(gradients(dovetail.jit), gradients(lambda wrapped: wrapped))
    return True


class Tower(nn.Module):
    """Blocks, and layers that belong to none."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(3)])
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def in_shards(model: nn.Module, **how: Any) -> nn.Module:
    return fully_shard(model, mesh=init_device_mesh("cpu", (distributed.get_world_size(),)), **how)


def sharded(model: nn.Module, block: Callable[[nn.Module], nn.Module], **how: Any) -> nn.Module:
    """Shard the blocks of a model by FSDP2, `block` made of each before, and then the rest."""
    for i, each in enumerate(model.blocks):
        model.blocks[i] = in_shards(block(each), **how)
    return in_shards(model, **how)


def blocks_inside(model: nn.Module, **how: Any) -> nn.Module:
    """Compile blocks that belong to one group of parameters."""
    for i, block in enumerate(model.blocks):
        model.blocks[i] = dovetail.jit(block)
    return in_shards(model, **how)


FSDP2: dict[str, Callable[..., nn.Module]] = {
    "eager": lambda model, **how: sharded(model, lambda block: block, **how),
    "blocks that are compiled": lambda model, **how: sharded(model, dovetail.jit, **how),
    "blocks inside": blocks_inside,
    "all of it": lambda model, **how: dovetail.jit(sharded(model, lambda block: block, **how)),
    "all of it, one group": lambda model, **how: fully_shard(
        dovetail.jit(model), mesh=init_device_mesh("cpu", (distributed.get_world_size(),)), **how
    ),
}
POLICIES: dict[str, dict[str, Any]] = {
    "by default": {},
    "kept": {"reshard_after_forward": False},
    "bfloat16": {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)},
}


def trained_in_shards(way: str, policy: str, steps: int = 3) -> tuple[list[float], list[torch.Tensor]]:
    """Train and evaluate a model in turn, gradients of two batches at a time; return losses and parameters."""
    torch.manual_seed(0)
    model, losses = FSDP2[way](Tower(), **POLICIES[policy]), []
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    for step in range(steps):
        for part in range(2):
            model.set_requires_gradient_sync(part == 1)
            x = torch.randn(4, 8, generator=torch.Generator().manual_seed(4 * step + 2 * part + distributed.get_rank()))
            loss = model(x).square().mean()
            loss.backward()
            losses.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            losses.append(model(torch.ones(2, 8)).sum().item())
        model.train()
    return losses, [(p.full_tensor() if hasattr(p, "full_tensor") else p).detach().float() for p in model.parameters()]


def compiled_in_shards(ways: tuple[str, ...], policies: tuple[str, ...]) -> int:
    """Compare the ways with eager mode; return how many were compared."""
    for policy in policies:
        near = {"rtol": 2e-2, "atol": 2e-2} if policy == "bfloat16" else {"rtol": 1e-5, "atol": 1e-5}
        expected = trained_in_shards("eager", policy)
        for way in ways:
            torch.testing.assert_close(trained_in_shards(way, policy), expected, msg=lambda text, way=way: f"{way}: {text}", **near)
    return len(ways) * len(policies)


def refused_around() -> str:
    """Return the sentence with which a function of a sharded module is refused."""
    model = FSDP2["eager"](Tower())
    try:
        dovetail.jit(lambda x: model(x) * 2)(torch.ones(2, 8))
    except dovetail.DovetailError as error:
        return str(error)
    return ""


def refused_parts() -> str:
    """Return the sentence with which a module of torch's tensor parallelism is refused."""
    mesh, plan = init_device_mesh("cpu", (distributed.get_world_size(),)), {"0": ColwiseParallel(), "4": RowwiseParallel()}
    try:
        dovetail.jit(parallelize_module(small_model(), mesh, plan))(torch.ones(2, 8))
    except dovetail.DovetailError as error:
        return str(error)
    return ""


def test_fsdp2_shards_compiled_blocks(two: Ranks) -> None:
    assert two.run(compiled_in_shards, ("blocks that are compiled", "all of it"), ("by default",)) == [2, 2]


@pytest.mark.slow
def test_fsdp2_shards_whatever_is_compiled(two: Ranks) -> None:
    ways = tuple(FSDP2)[1:]
    assert two.run(compiled_in_shards, ways, tuple(POLICIES)) == [len(ways) * len(POLICIES)] * 2


def test_a_function_of_a_module_that_fsdp2_shards_is_refused(two: Ranks) -> None:
    for sentence in two.run(refused_around):
        assert "dovetail.distributed.fully_sharded(module, mesh)" in sentence
        assert "compile the module that fully_shard returns, not a function that calls it" in sentence


def test_a_module_of_parallelize_module_is_refused(two: Ranks) -> None:
    for sentence in two.run(refused_parts):
        assert "dovetail.distributed.tensor_parallel(module, mesh, plan) rather than by parallelize_module" in sentence


def test_data_parallel_wrappers_train_as_eager_does(two: Ranks) -> None:
    for orders in two.run(as_in_eager):
        for order in orders.values():
            assert sorted(order) == sorted(small_model().state_dict())
            assert set(order[-2:]) == {"0.weight", "0.bias"}


def test_gradients_are_handed_over_while_the_backward_runs(two: Ranks) -> None:
    for events in two.run(delivered_while_it_runs):
        assert "4.weight" in events[: len(events) - events[::-1].index("product")], events


def test_gradients_of_unused_parameters(two: Ranks) -> None:
    assert two.run(unused) == [True, True]
