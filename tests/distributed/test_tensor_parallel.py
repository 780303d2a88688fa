"""Weights in parts: the same losses and parameters as in one process, and the collectives that follow from the plan."""

from __future__ import annotations

import tempfile
from functools import cache
from typing import Any

import pytest
import torch
from small_models import LLAMA_LAYERS, PLANS, language_model, optimizer_of, tokens_of, train
from torch import distributed
from torch.distributed import checkpoint
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh

import dovetail
from dovetail_conformance.ranks import Ranks

pytestmark = pytest.mark.xdist_group("distributed")
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}


def wrapped(plan: str, data: int, dtype: torch.dtype = torch.float64, sharded: bool = False) -> tuple[Any, Any, tuple[int, int, Any]]:
    """Return the model of a plan in parts, its optimizer, and which part of the batch belongs to this rank: (rank, of how many, their group)."""
    mesh = init_device_mesh("cpu", (data, distributed.get_world_size() // data), mesh_dim_names=("dp", "tp"))
    model = dovetail.distributed.tensor_parallel(language_model(plan, dtype), mesh if data > 1 else mesh["tp"], PLANS[plan], sharded=sharded)
    return model, optimizer_of(model.parameters()), (mesh.get_local_rank("dp"), data, mesh.get_group("dp"))


def trains(plan: str, steps: int, data: int, dtype: torch.dtype = torch.float64, sharded: bool = False) -> dict[str, int]:
    """Compare training on a mesh of `data` copies with training in one process; return how often each collective runs in the forward."""
    alone, near = language_model(plan, dtype), {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
    expected = train(alone, optimizer_of(alone.parameters()), range(steps))
    fast, optimizer, part = wrapped(plan, data, dtype, sharded)
    held = sum([p.to_local().numel() for p in fast.parameters()])
    losses = train(fast, optimizer, range(steps), *part)
    torch.testing.assert_close(losses, expected, **near)
    cut = 0
    for p, q in zip(fast.parameters(), alone.parameters(), strict=True):
        cut += any([placement.is_shard() for placement in p.placements])
        torch.testing.assert_close(p.full_tensor().detach(), q, **near)
    names = [line.symbol.name for line in dovetail.last_traces(fast)[-1].lines if line.symbol.module == "dist"]
    counted = ("all_reduce", "all_gather", "reduce_scatter", "gather_shards")
    return {name: names.count(name) for name in counted if name in names} | {"cut": cut, "held": held}


def clipped() -> float:
    """Compare training with clipped gradients and an optimizer that steps all parameters at once; return the norm of the last gradients."""
    alone, (fast, _, part) = language_model("llama"), wrapped("llama", 1)
    norms = {}
    for model in (alone, fast):
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2, foreach=True)
        for step in range(3):
            optimizer.zero_grad()
            model(tokens_of(step, *part[:2])).backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
        norms[model] = getattr(norm, "full_tensor", lambda norm=norm: norm)()
    torch.testing.assert_close(norms[fast], norms[alone], rtol=1e-10, atol=0)
    for p, q in zip(fast.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(p.full_tensor().detach(), q, rtol=1e-9, atol=1e-9)
    return norms[alone].item()


def saved(folder: str, plan: str, steps: int, data: int, sharded: bool) -> None:
    """Train a model in parts and save it with its optimizer."""
    model, optimizer, part = wrapped(plan, data, sharded=sharded)
    train(model, optimizer, range(steps), *part)
    model_state, optimizer_state = get_state_dict(model._module, optimizer)
    checkpoint.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=folder)


def resumed(folder: str, plan: str, start: int, stop: int, data: int, sharded: bool) -> list[float]:
    """Load a model into other parts and train on."""
    model, optimizer, part = wrapped(plan, data, sharded=sharded)
    model_state, optimizer_state = get_state_dict(model._module, optimizer)
    state = {"model": model_state, "optimizer": optimizer_state}
    checkpoint.load(state, checkpoint_id=folder)
    set_state_dict(model._module, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return train(model, optimizer, range(start, stop), *part)


def refused() -> list[str]:
    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    sentences = []
    for plan, how in (({"*.w1": "columns"}, {}), ({"*.w9": "column"}, {}), (LLAMA_LAYERS, {"sharded": True})):
        try:
            dovetail.distributed.tensor_parallel(language_model("llama"), mesh, plan, **how)
        except dovetail.DovetailError as error:
            sentences.append(str(error))
    return sentences


@cache
def alone_losses(plan: str, steps: int) -> list[float]:
    model = language_model(plan)
    return train(model, optimizer_of(model.parameters()), range(steps))


def test_weights_in_parts_train_as_whole_ones(two: Ranks) -> None:
    for counts in two.run(trains, "llama", 3, 1):
        del counts["held"]
        assert counts == {"all_reduce": 5, "all_gather": 3, "cut": 16}  # two sums for each of two blocks, one in the loss; logits are cut


def test_norms_compute_parts_of_the_sequence(two: Ranks) -> None:
    """Each sum over the ranks is a scattering, and a gathering before the next layer."""
    for counts in two.run(trains, "llama in parts of the sequence", 3, 1):
        del counts["held"]
        assert counts == {"all_reduce": 1, "all_gather": 8, "reduce_scatter": 4, "cut": 16}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("ranks", ["two", "four"])
@pytest.mark.parametrize("data", [1, 2], ids=["cut", "copied and cut"])
@pytest.mark.parametrize("plan", PLANS)
def test_training_in_parts_is_that_of_one_process(request: pytest.FixtureRequest, ranks: str, plan: str, data: int, dtype: torch.dtype) -> None:
    for counts in request.getfixturevalue(ranks).run(trains, plan, 20, data, dtype):
        assert counts["cut"] > 5


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS)
def test_rows_of_parts_on_four_ranks(four: Ranks, plan: str) -> None:
    """Parameters are sharded over two ranks and cut over two."""
    whole = sum([p.numel() for p in language_model(plan.partition(" ")[0]).parameters()])

    for counts in four.run(trains, plan, 20, 2, torch.float64, True):
        assert counts["gather_shards"] > 2
        assert counts["held"] < 0.4 * whole  # norms and what no rule cuts are held by two ranks each


def test_gradients_of_parts_are_clipped_together(two: Ranks) -> None:
    assert all([norm > 0.1 for norm in two.run(clipped)])


def test_a_checkpoint_of_parts_is_resumed(two: Ranks) -> None:
    """The slow test resumes it with another number of ranks."""
    with tempfile.TemporaryDirectory() as folder:
        two.run(saved, folder, "llama", 2, 1, False)
        losses = two.run(resumed, folder, "llama", 2, 4, 1, False)

    for rank in losses:
        torch.testing.assert_close(rank, alone_losses("llama", 4)[2:], rtol=1e-10, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "before, data, sharded", [("two", 1, False), ("two", 2, True), ("four", 1, False), ("four", 2, False), ("four", 2, True)], ids=str
)
@pytest.mark.parametrize("plan", ["llama", "gpt"])
def test_a_checkpoint_of_parts_is_loaded_by_another_number_of_ranks(
    request: pytest.FixtureRequest, plan: str, before: str, data: int, sharded: bool
) -> None:
    first, second = (request.getfixturevalue(name) for name in ((before, "four") if before == "two" else (before, "two")))
    with tempfile.TemporaryDirectory() as folder:
        first.run(saved, folder, plan, 10, data, sharded)
        losses = [*second.run(resumed, folder, plan, 10, 20, 1, False), *second.run(resumed, folder, plan, 10, 20, 2, True)]

    for rank in losses:
        torch.testing.assert_close(rank, alone_losses(plan, 20)[10:], rtol=1e-10, atol=0)


def test_a_plan_that_names_nothing_is_refused(two: Ranks) -> None:
    word, pattern, sharded = two.run(refused)[0]

    assert "expected 'column', 'row', 'embedding', 'sequence' in the plan, got 'columns'" in word
    assert "the plan names '*.w9', and no module with parameters has such a name" in pattern
    assert "sharded=True needs a mesh of two dimensions" in sharded
