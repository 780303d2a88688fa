"""Training on several ranks is training in one process: losses, parameters, checkpoints, and the bytes that move."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from small_models import language_model, optimizer_of, train
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh

import dovetail
from dovetail_conformance.ranks import Ranks

pytestmark = pytest.mark.xdist_group("distributed")
STEPS = 20
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}


@cache
def mesh() -> Any:
    return init_device_mesh("cpu", (distributed.get_world_size(),), mesh_dim_names=("dp",))


WRAPPED: dict[str, Callable[[nn.Module], Any]] = {
    "replicated": lambda m: dovetail.distributed.data_parallel(m, mesh(), bucket_mb=0.01),
    "sharded": lambda m: dovetail.distributed.fully_sharded(m, mesh()),
    "gathered once": lambda m: dovetail.distributed.fully_sharded(m, mesh(), reshard_after_forward=False),
}


@cache
def expected(model: str, dtype: torch.dtype, steps: int = STEPS) -> tuple[list[float], list[Tensor]]:
    """Return losses and parameters of training in one process."""
    alone = language_model(model, dtype)
    losses = train(alone, optimizer_of(alone.parameters()), range(steps))
    return losses, [p.detach() for p in alone.parameters()]


def whole(p: Tensor) -> Tensor:
    return p.full_tensor().detach() if hasattr(p, "full_tensor") else p.detach()


def trains(names: tuple[str, ...], models: tuple[str, ...], dtypes: tuple[torch.dtype, ...], steps: int) -> int:
    """Train each model in each way; return how many were compared."""
    rank, ranks, compared = distributed.get_rank(), distributed.get_world_size(), 0
    for model in models:
        for dtype in dtypes:
            losses, parameters = expected(model, dtype, steps)
            for name in names:
                wrapped = WRAPPED[name](language_model(model, dtype))
                got = train(wrapped, optimizer_of(wrapped.parameters()), range(steps), rank, ranks)
                where = f"{model}, {dtype}, {name}"
                for a, b in zip(got, losses, strict=True):
                    assert abs(a - b) <= TOLERANCE[dtype] * abs(b), f"{where}: {got} instead of {losses}"
                for a, b in zip(wrapped.parameters(), parameters, strict=True):
                    torch.testing.assert_close(whole(a), b, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype], msg=lambda text, where=where: where + text)
                compared += 1
    return compared


def moved() -> dict[str, tuple[int, int, Any, str]]:
    """Return for each way the bytes that a step moves, those of the parameters, the collectives as they are explained, and the page of that."""
    found = {}
    for name, wrap in WRAPPED.items():
        wrapped = wrap(language_model("llama"))
        size = sum(p.numel() * p.element_size() for p in wrapped.parameters())
        optimizer = optimizer_of(wrapped.parameters())
        train(wrapped, optimizer, [0], distributed.get_rank(), distributed.get_world_size())
        with dovetail.distributed.traffic() as traffic:
            train(wrapped, optimizer, [1], distributed.get_rank(), distributed.get_world_size())
        explained = dovetail.explain(wrapped)
        found[name] = traffic.bytes, size, explained.collectives, explained.to_html()
    return found


def saved(folder: str, steps: int) -> None:
    """Train a sharded model and save it with its optimizer."""
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import get_state_dict

    wrapped = WRAPPED["sharded"](language_model("llama"))
    optimizer = optimizer_of(wrapped.parameters())
    train(wrapped, optimizer, range(steps), distributed.get_rank(), distributed.get_world_size())
    model_state, optimizer_state = get_state_dict(wrapped._module, optimizer)
    checkpoint.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=folder)


def resumed(folder: str, start: int, stop: int) -> list[float]:
    """Load a model into another number of ranks and train on."""
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    wrapped = WRAPPED["sharded"](language_model("llama"))
    optimizer = optimizer_of(wrapped.parameters())
    model_state, optimizer_state = get_state_dict(wrapped._module, optimizer)
    state = {"model": model_state, "optimizer": optimizer_state}
    checkpoint.load(state, checkpoint_id=folder)
    set_state_dict(wrapped._module, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return train(wrapped, optimizer, range(start, stop), distributed.get_rank(), distributed.get_world_size())


def overlapped() -> list[tuple[int, int]]:
    """Return for each program of a sharded step how many sets of parameters are held at once, and how many there are."""
    wrapped = WRAPPED["sharded"](language_model("llama"))
    train(wrapped, optimizer_of(wrapped.parameters()), [0], distributed.get_rank(), distributed.get_world_size())
    counts = []
    for trace in (dovetail.last_traces(wrapped)[-1], dovetail.last_backward_traces(wrapped)[-1]):
        started, most, total = 0, 0, 0
        for line in trace.lines:
            started += line.symbol.name == "gather_shards"
            total += line.symbol.name == "gather_shards"
            started -= line.symbol.name == "wait_shards"
            most = max(most, started)
        counts.append((most, total))
    return counts


class Scaled(nn.Module):
    """A layer with a parameter that is a number."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.scale = nn.Linear(6, 4, dtype=torch.float64), nn.Parameter(torch.tensor(2.0, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return (self.linear(x) * self.scale).square().mean()


def clipped() -> float:
    """Clip all gradients of a sharded module together, and compare with one process; return their norm."""
    alone, sharded = Scaled(), dovetail.distributed.fully_sharded(Scaled(), mesh())
    x, norms = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), []
    for model, part in ((alone, x), (sharded, x.chunk(distributed.get_world_size())[distributed.get_rank()])):
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2, foreach=True)
        model(part).backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        norms.append(whole(norm))
    torch.testing.assert_close(norms[1], norms[0])
    for p, q in zip(sharded.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(whole(p), q.detach())
    return norms[0].item()


def refused() -> str:
    from torch.distributed.tensor import Shard, distribute_tensor

    x = distribute_tensor(torch.ones(4, 4), mesh(), [Shard(0)])
    try:
        dovetail.jit(lambda x: x * 2)(x)
    except dovetail.DovetailError as error:
        return str(error)
    return ""


# --- the tests


def test_training_is_that_of_one_process(two: Ranks) -> None:
    assert two.run(trains, ("replicated", "sharded"), ("llama",), (torch.float64,), 3) == [2, 2]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", ["two", "four"])
def test_training_of_all_models_is_that_of_one_process(ranks: str, request: pytest.FixtureRequest) -> None:
    results = request.getfixturevalue(ranks).run(trains, tuple(WRAPPED), ("gpt", "llama"), (torch.float64, torch.float32), STEPS)

    assert set(results) == {12}


def test_the_bytes_that_move_are_those_of_the_formula(two: Ranks) -> None:
    for found in two.run(moved):
        for name, factor in (("replicated", 2), ("sharded", 3), ("gathered once", 2)):
            bytes, size, collectives, page = found[name]
            assert bytes == factor * size // 2, name
            assert sum([row.sent for row in collectives]) == bytes
            assert any([row.overlapped for row in collectives])
            assert f"<h2>communication: a rank sends {bytes:,} bytes for a call" in page
            assert page.count("<tr>") == 1 + len(collectives)


def test_parameters_are_gathered_one_step_ahead(two: Ranks) -> None:
    for forward, backward in two.run(overlapped):
        assert forward == (2, 3)
        assert backward == (2, 3)


def test_gradients_of_rows_are_clipped_together(two: Ranks) -> None:
    assert all([norm > 0.1 for norm in two.run(clipped)])


def test_a_checkpoint_is_resumed(two: Ranks) -> None:
    """The slow test resumes it with another number of ranks."""
    with tempfile.TemporaryDirectory() as folder:
        two.run(saved, folder, 2)
        losses = two.run(resumed, folder, 2, 4)

    for rank in losses:
        torch.testing.assert_close(rank, expected("llama", torch.float64)[0][2:4], rtol=1e-10, atol=0)


@pytest.mark.slow
def test_a_checkpoint_is_loaded_by_another_number_of_ranks(two: Ranks, four: Ranks) -> None:
    with tempfile.TemporaryDirectory() as folder:
        two.run(saved, folder, 10)
        losses = four.run(resumed, folder, 10, STEPS)

    for rank in losses:
        torch.testing.assert_close(rank, expected("llama", torch.float64)[0][10:], rtol=1e-10, atol=0)


def test_a_dtensor_is_refused_with_the_wrapper_to_use(two: Ranks) -> None:
    for sentence in two.run(refused):
        assert "dovetail.distributed.fully_sharded(module, mesh)" in sentence
