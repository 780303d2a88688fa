"""What the training of whole models becomes on a GPU, seen without one: how many kernels, and what is left to others."""

import pytest
from layers import MODELS, trained

import dovetail

LEFT = {"matmul", "linear", "flash_attention", "flash_attention_backward", "embedding_backward"}
MOVES = {"reshape", "transpose", "squeeze", "strided_slice", "broadcast_in_dim", "view", "permute", "unbind", "chunk", "flatten"}  # views


@pytest.fixture(scope="module", params=MODELS)
def models(request):
    """A model of one and of three layers."""
    return [trained(request.param, layers) for layers in (1, 3)]


def test_a_layer_trains_in_twelve_kernels(models):
    one, three = (sum(len(region.launches) for region in regions) for _, regions in models)
    assert 6 < (three - one) / 2 <= 12


def test_all_that_memory_bounds_is_fused(models):
    ours, _ = models[1]
    lines = [line for trace in (dovetail.last_traces(ours)[-1], dovetail.last_backward_traces(ours)[-1]) for line in trace.lines]
    others = {line.symbol.name for line in lines if line.implementation and line.implementation.executor != "triton"}
    assert others <= LEFT | MOVES
    assert {"linear", "flash_attention", "flash_attention_backward"} <= others


def test_every_region_has_a_kernel(models):
    assert all(region.launches for _, regions in models for region in regions)


def test_layers_share_their_kernels(models):
    _, regions = models[1]
    assert len({region.text for region in regions}) < len(regions) - 5
