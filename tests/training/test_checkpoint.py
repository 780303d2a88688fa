"""Scenario 9: torch.utils.checkpoint inside a compiled model, and around one."""

from __future__ import annotations

import contextlib
import warnings

import pytest
import torch
import zoo
from torch import Tensor, nn
from torch.utils import checkpoint as checkpointing
from torch.utils.checkpoint import checkpoint
from twins import Twins, close, loss

import dovetail
from dovetail.errors import Unsupported


class Blocks(nn.Module):
    """Blocks of a GPT, each checkpointed, or none."""

    def __init__(self, checkpointed: bool, fused: bool = False, layers: int = 3):
        super().__init__()
        self.checkpointed = checkpointed
        attention = zoo.FusedCausalAttention if fused else zoo.CausalAttention
        self.blocks = nn.ModuleList(zoo.GPTBlock(attention(32, 4, 16), 32) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return x


class Checkpointed(nn.Module):
    def __init__(self, inner: nn.Module, use_reentrant: bool):
        super().__init__()
        self.inner, self.use_reentrant = inner, use_reentrant

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.inner, x, use_reentrant=self.use_reentrant)


def saved_bytes(compiled: nn.Module) -> int:
    return dovetail.last_backward_traces(compiled)[0].saved_bytes


@pytest.mark.parametrize("fused", [False, True])
def test_scenario_9_a_checkpointed_block_has_eagers_gradients_and_saves_less(fused):
    twins = Twins.of(Blocks(True, fused), torch.randn(2, 16, 32), dtype=torch.float64)

    for _ in range(2):
        twins.backward()
        twins.assert_alike(1e-12)

    plain = Twins.of(Blocks(False, fused), torch.randn(2, 16, 32), dtype=torch.float64)
    plain.backward()
    assert saved_bytes(twins.compiled) < 0.6 * saved_bytes(plain.compiled)


def test_scenario_9_without_random_draws_only_the_inputs_of_blocks_are_saved():
    x = torch.randn(2, 16, 32)
    twins = Twins.of(Blocks(True), x)
    for module in (*twins.model.modules(), *twins.eager.modules()):
        if isinstance(module, nn.Dropout):
            module.p = 0.0

    twins.backward()

    twins.assert_alike(1e-5)
    assert saved_bytes(twins.compiled) <= 3 * x.nbytes


def test_scenario_9_reentrant_checkpoints_are_the_same_here():
    layers = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))
    twins = Twins.of(Checkpointed(layers, use_reentrant=True), torch.randn(3, 4), dtype=torch.float64)

    twins.backward()

    twins.assert_alike(1e-12)


def test_scenario_9_a_block_that_writes_outside_runs_in_eager_mode_which_writes_twice():
    layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
    twins = Twins.of(Checkpointed(layers, use_reentrant=False).train(), torch.randn(2, 3, 6, 6))

    with pytest.warns(UserWarning, match="writes into a tensor from outside") as caught:
        for _ in range(3):
            twins.backward()

    assert len(caught) == 1 and "test_checkpoint.py:" in str(caught[0].message)
    twins.assert_alike(0)
    assert twins.model.inner[1].num_batches_tracked.item() == 6

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        ours, theirs = (call() for call, _ in twins.sides())
    close(ours, theirs, 1e-5, "the result without gradients, which nothing runs again")
    assert dovetail.last_traces(twins.compiled)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_block_that_may_draw_other_numbers_again_runs_in_eager_mode(reentrant):
    layer, drop = nn.Linear(4, 8), nn.Dropout(0.5)

    def gradients(x):
        return checkpoint(lambda x: drop(layer(x)), x, use_reentrant=reentrant, preserve_rng_state=False).square().sum()

    results = []
    for call in (gradients, dovetail.jit(gradients)):
        torch.manual_seed(0)
        x = torch.ones(3, 4, requires_grad=True)
        with pytest.warns(UserWarning, match="preserve_rng_state=False") if call is not gradients else contextlib.nullcontext():
            for _ in range(3):
                call(x).backward()
        results.append((x.grad, torch.rand(1)))
    torch.testing.assert_close(*results)

    compiled = dovetail.jit(lambda x: checkpoint(layer, x, use_reentrant=reentrant, preserve_rng_state=False).sum())
    compiled(x).backward()
    assert compiled.cache_info().programs == 1  # which draws nothing


def test_scenario_9_a_block_that_writes_into_its_own_tensors_is_compiled():
    twins = Twins.of(Checkpointed(nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 4)), use_reentrant=False), torch.randn(3, 4))

    twins.backward()

    twins.assert_alike(1e-5)
    assert dovetail.last_backward_traces(twins.compiled)


def test_scenario_9_results_in_a_nest_keyword_arguments_and_values_from_outside():
    def block(x, *, scale, shift):
        return {"up": (x * scale).exp(), "same": x, "parts": [x.sin() * shift, 3]}

    def fn(x, shift):
        made = checkpoint(block, x * 2, use_reentrant=False, scale=0.5, shift=shift)
        return made["up"].sum() + (made["same"] * made["parts"][0]).sum() * made["parts"][1]

    found = []
    for run in (dovetail.jit(fn), fn):
        torch.manual_seed(0)
        given = [torch.randn(5, dtype=torch.float64).requires_grad_() for _ in range(2)]
        out = run(*given)
        found.append((out.detach(), torch.autograd.grad(out, given)))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("draws", [0.0, 0.5])
def test_scenario_9_checkpoint_around_a_compiled_model(draws):
    twins = Twins.of(nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Dropout(draws), nn.Linear(8, 4)), torch.randn(3, 4))
    for model, run, args in ((twins.model, twins.compiled, twins.args), (twins.eager, twins.eager, twins.eager_args)):
        torch.manual_seed(3)
        loss(checkpoint(run, *args, use_reentrant=False)).backward()
        assert all(p.grad is not None for p in model.parameters())

    twins.assert_alike(1e-5)


def test_without_gradients_a_checkpoint_is_a_call():
    twins = Twins.of(Blocks(True), torch.randn(2, 16, 32))
    with torch.no_grad():
        ours, theirs = (call() for call, _ in twins.sides())

    close(ours, theirs, 1e-5, "the result")
    assert "with_backward" not in str(dovetail.last_traces(twins.compiled)[0])


def test_a_context_of_ones_own_is_refused():
    def contexts():
        return checkpointing.noop_context_fn()

    with pytest.raises(Unsupported, match=r"context_fn is not traced[\s\S]*test_checkpoint\.py:\d+"):
        dovetail.jit(lambda x: checkpoint(torch.sin, x, use_reentrant=False, context_fn=contexts))(torch.ones(2, requires_grad=True))
