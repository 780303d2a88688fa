"""Weights in parts: the same losses and parameters as in one process, and the collectives that follow from the plan."""

from __future__ import annotations

import pytest
import torch
from small_models import language_model, optimizer_of, train
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh

import dovetail
from dovetail_conformance.ranks import Ranks

pytestmark = pytest.mark.xdist_group("distributed")
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}
LLAMA = {"*.w[qkv]": "column", "*.wo": "row", "*.w1": "column", "*.w3": "column", "*.w2": "row", "*.tokens": "embedding", "*.head": "column"}
GPT = {"*.qkv": "column", "*.attention.out": "row", "*.mlp.0": "column", "*.mlp.2": "row", "*.tokens": "embedding"}
PLANS = {"llama": LLAMA, "gpt": GPT, "llama in parts of the sequence": LLAMA | {"*norm": "sequence"}}


def trains(plan: str, steps: int, data: int, dtype: torch.dtype = torch.float64, sharded: bool = False) -> dict[str, int]:
    """Compare training on a mesh of `data` copies with training in one process; return how often each collective runs in the forward."""
    ranks, model = distributed.get_world_size(), plan.partition(" ")[0]
    mesh = init_device_mesh("cpu", (data, ranks // data), mesh_dim_names=("dp", "tp"))
    rank = mesh.get_local_rank("dp")
    alone, near = language_model(model, dtype), {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
    expected = train(alone, optimizer_of(alone.parameters()), range(steps))
    fast = dovetail.distributed.tensor_parallel(language_model(model, dtype), mesh if data > 1 else mesh["tp"], PLANS[plan], sharded=sharded)
    held = sum([p.to_local().numel() if hasattr(p, "to_local") else p.numel() for p in fast.parameters()])
    losses = train(fast, optimizer_of(fast.parameters()), range(steps), rank, data, mesh.get_group("dp"))
    torch.testing.assert_close(losses, expected, **near)
    cut = 0
    for p, q in zip(fast.parameters(), alone.parameters(), strict=True):
        cut += hasattr(p, "full_tensor")
        torch.testing.assert_close(p.full_tensor().detach() if hasattr(p, "full_tensor") else p, q, **near)
    names = [line.symbol.name for line in dovetail.last_traces(fast)[-1].lines if line.symbol.module == "dist"]
    counted = ("all_reduce", "all_gather", "reduce_scatter", "gather_shards")
    return {name: names.count(name) for name in counted if name in names} | {"cut": cut, "held": held}


def refused() -> list[str]:
    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    sentences = []
    for plan, how in (({"*.w1": "columns"}, {}), ({"*.w9": "column"}, {}), (LLAMA, {"sharded": True})):
        try:
            dovetail.distributed.tensor_parallel(language_model("llama"), mesh, plan, **how)
        except dovetail.DovetailError as error:
            sentences.append(str(error))
    return sentences


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
@pytest.mark.parametrize("data", [1, 2])
@pytest.mark.parametrize("plan", PLANS)
def test_weights_in_parts_on_four_ranks(four: Ranks, plan: str, data: int, dtype: torch.dtype) -> None:
    assert len(four.run(trains, plan, 20, data, dtype)) == 4


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS)
def test_rows_of_parts_on_four_ranks(four: Ranks, plan: str) -> None:
    """Parameters are sharded over two ranks and cut over two."""
    whole = sum([p.numel() for p in language_model(plan.partition(" ")[0]).parameters()])

    for counts in four.run(trains, plan, 20, 2, torch.float64, True):
        assert counts["gather_shards"] > 2
        assert counts["held"] < 0.4 * whole  # norms and what no rule cuts are held by two ranks each


def test_a_plan_that_names_nothing_is_refused(two: Ranks) -> None:
    word, pattern, sharded = two.run(refused)[0]

    assert "expected 'column', 'row', 'embedding', 'sequence' in the plan, got 'columns'" in word
    assert "the plan names '*.w9', and no module with parameters has such a name" in pattern
    assert "sharded=True needs a mesh of two dimensions" in sharded
