"""Models of plain torch.nn trained through dovetail.jit: gradients, buffers and hooks are eager's."""

from __future__ import annotations

import inspect

import pytest
import torch
import zoo
from torch import nn
from twins import Twins, close, inexact, loss

import dovetail

NAMES = list(zoo.cases())
TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-12}
WITHIN_FLOAT32 = {"llama", "mixtral", "t5"}  # their norms, routers or positions compute in float32 whatever the model's dtype is


@pytest.mark.parametrize("dtype", [torch.float64, pytest.param(torch.float32, marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_scenario_61_gradients_and_buffers_are_eagers_and_accumulate(name, dtype):
    twins = Twins.named(name, dtype)
    tolerance = TOLERANCES[torch.float32 if name in WITHIN_FLOAT32 else dtype]

    for _ in range(2):  # the second adds to the gradients of the first
        twins.backward()
        twins.assert_alike(tolerance)

    assert any(p.grad is not None and p.grad.abs().max() > 0 for p in twins.model.parameters())
    assert dovetail.cache_misses(twins.compiled) == ["the first call"]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", NAMES)
def test_scenario_61_losses_and_results_in_training_mode_are_eagers(name):
    twins = Twins.named(name)
    ours, theirs = ([*inexact(made), loss(made)] for made in (call() for call, _ in twins.sides()))

    for x, y in zip(ours, theirs, strict=True):
        close(x, y, 1e-5, "a result")
        assert x.requires_grad and x.grad_fn is not None


@pytest.mark.one_in(3)
@pytest.mark.parametrize("recompute", ["none", "all"])
@pytest.mark.parametrize("name", ["gpt with loss", "resnet", "bert"])
def test_scenario_61_gradients_do_not_depend_on_what_is_recomputed(name, recompute):
    twins = Twins.named(name, torch.float64)
    twins.compiled = dovetail.jit(twins.model, recompute=recompute)

    twins.backward()

    twins.assert_alike(1e-12)


def test_scenario_7_batch_norm_counts_and_averages_as_eager_does_over_three_calls():
    twins = Twins.named("resnet")

    for _ in range(3):
        twins.backward()
        twins.assert_alike(1e-5)

    counts = [x.item() for name, x in twins.model.named_buffers() if name.endswith("num_batches_tracked")]
    assert counts and set(counts) == {3}


@pytest.mark.parametrize("set_to_none", [True, False])
def test_zero_grad_starts_again(set_to_none):
    twins = Twins.named("gpt with loss")
    twins.backward()

    for module in (twins.compiled, twins.eager):
        module.zero_grad(set_to_none=set_to_none)
    assert all(p.grad is None if set_to_none else not p.grad.any() for p in twins.model.parameters())

    twins.backward()
    twins.assert_alike(1e-5)


def test_gradients_are_added_to_those_that_are_there_in_place():
    twins = Twins.named("gpt with loss")
    twins.backward()
    before = {name: p.grad for name, p in twins.model.named_parameters()}

    twins.backward()

    assert all(p.grad is before[name] for name, p in twins.model.named_parameters())


def test_hooks_on_parameters_fire_and_may_change_the_gradient():
    twins = Twins.named("gpt with loss")
    seen: dict[str, list[str]] = {}
    for call, model in twins.sides():
        fired = seen.setdefault("compiled" if model is twins.model else "eager", [])
        for name, p in model.named_parameters():
            p.register_hook(lambda g, name=name, fired=fired: fired.append(name) or g * 2)
            p.register_post_accumulate_grad_hook(lambda p, name=name, fired=fired: fired.append(f"{name} accumulated"))
        loss(call()).backward()

    twins.assert_alike(1e-5)
    assert sorted(seen["compiled"]) == sorted(seen["eager"])
    assert len(seen["compiled"]) == 2 * len(list(twins.model.parameters()))


def test_frozen_parameters_get_no_gradient_and_thawing_compiles_again():
    twins = Twins.named("vit")
    for model in (twins.model, twins.eager):
        model.blocks.requires_grad_(False)
    twins.backward()
    twins.assert_alike(1e-5)
    assert all(p.grad is None for p in twins.model.blocks.parameters())

    for model in (twins.model, twins.eager):
        model.blocks.requires_grad_(True)
    twins.backward()

    twins.assert_alike(1e-5)
    assert all(p.grad is not None for p in twins.model.blocks.parameters())
    assert len(dovetail.cache_misses(twins.compiled)) == 2


def test_torch_autograd_grad_of_parameters_and_inputs():
    twins = Twins.named("mixtral", torch.float64)
    found = []
    for (call, model), args in zip(twins.sides(), (twins.args, twins.eager_args), strict=True):
        found.append(torch.autograd.grad(loss(call()), [*model.parameters(), *args]))

    for x, y in zip(*found, strict=True):
        close(x, y, 1e-6, "a gradient", strides=False)  # its router computes in float32
    assert all(p.grad is None for p in twins.model.parameters())


def test_training_and_evaluating_in_turns():
    twins = Twins.of(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout(0.5)), torch.randn(2, 3, 6, 6))
    for training in (True, False, True, False):
        for module in (twins.compiled, twins.eager):
            module.train(training)
        twins.backward()
        twins.assert_alike(1e-5)

    assert len(dovetail.cache_misses(twins.compiled)) == 2


def test_autocast_casts_the_float32_weight_of_a_product_with_bfloat16():
    layer = torch.nn.Linear(4, 4, bias=False)

    def program(x):
        return layer(layer(x)) @ layer.weight, torch.nn.functional.layer_norm(layer(x), (4,), layer.weight[0])

    with torch.autocast("cpu", torch.bfloat16):
        x = torch.randn(2, 4)
        for ours, eager in zip(dovetail.jit(program)(x), program(x), strict=True):
            assert ours.dtype is eager.dtype
            torch.testing.assert_close(ours, eager, rtol=2e-2, atol=2e-2)


def test_the_forward_of_a_compiled_module_has_the_signature_of_the_models_own():
    model = torch.nn.TransformerEncoderLayer(8, 2)
    compiled = dovetail.jit(model)

    assert inspect.signature(compiled.forward) == inspect.signature(model.forward)
    torch.testing.assert_close(compiled.eval().forward(torch.ones(2, 3, 8)), model.eval()(torch.ones(2, 3, 8)))
