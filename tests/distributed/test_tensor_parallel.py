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
LLAMA = {"*.w[qkv]": "column", "*.wo": "row", "*.w1": "column", "*.w3": "column", "*.w2": "row", "*.tokens": "embedding", "*.head": "column"}
GPT = {"*.qkv": "column", "*.attention.out": "row", "*.mlp.0": "column", "*.mlp.2": "row", "*.tokens": "embedding"}
PLANS = {"llama": LLAMA, "gpt": GPT, "llama in parts of the sequence": LLAMA | {"*norm": "sequence"}}


def trains(plan: str, steps: int, data: int) -> dict[str, int]:
    """Compare training on a mesh of `data` copies with training in one process; return how often each collective runs in the forward."""
    ranks, model = distributed.get_world_size(), plan.partition(" ")[0]
    mesh = init_device_mesh("cpu", (data, ranks // data), mesh_dim_names=("dp", "tp"))
    rank = mesh.get_local_rank("dp")
    alone = language_model(model)
    expected = train(alone, optimizer_of(alone.parameters()), range(steps))
    fast = dovetail.distributed.tensor_parallel(language_model(model), mesh if data > 1 else mesh["tp"], PLANS[plan])
    losses = train(fast, optimizer_of(fast.parameters()), range(steps), rank, data, mesh.get_group("dp"))
    torch.testing.assert_close(losses, expected, rtol=1e-12, atol=1e-12)
    cut = 0
    for p, q in zip(fast.parameters(), alone.parameters(), strict=True):
        cut += hasattr(p, "full_tensor")
        torch.testing.assert_close(p.full_tensor().detach() if hasattr(p, "full_tensor") else p, q, rtol=1e-12, atol=1e-12)
    names = [line.symbol.name for line in dovetail.last_traces(fast)[-1].lines if line.symbol.module == "dist"]
    return {name: names.count(name) for name in ("all_reduce", "all_gather", "reduce_scatter") if name in names} | {"cut": cut}


def refused() -> list[str]:
    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    sentences = []
    for plan in ({"*.w1": "columns"}, {"*.w9": "column"}):
        try:
            dovetail.distributed.tensor_parallel(language_model("llama"), mesh, plan)
        except dovetail.DovetailError as error:
            sentences.append(str(error))
    return sentences


def test_weights_in_parts_train_as_whole_ones(two: Ranks) -> None:
    for counts in two.run(trains, "llama", 3, 1):
        assert counts == {"all_reduce": 5, "all_gather": 3, "cut": 16}  # two sums for each of two blocks, one in the loss; logits are cut


def test_norms_compute_parts_of_the_sequence(two: Ranks) -> None:
    for counts in two.run(trains, "llama in parts of the sequence", 3, 1):
        assert counts == {
            "all_reduce": 1,
            "all_gather": 8,
            "reduce_scatter": 4,
            "cut": 16,
        }  # for each sum one scattering, and a gathering before a layer


@pytest.mark.slow
@pytest.mark.parametrize("data", [1, 2])
@pytest.mark.parametrize("plan", PLANS)
def test_weights_in_parts_on_four_ranks(four: Ranks, plan: str, data: int) -> None:
    assert len(four.run(trains, plan, 20, data)) == 4


def test_a_plan_that_names_nothing_is_refused(two: Ranks) -> None:
    word, pattern = two.run(refused)[0]

    assert "expected 'column', 'row', 'embedding', 'sequence' in the plan, got 'columns'" in word
    assert "the plan names '*.w9', and no module with parameters has such a name" in pattern
