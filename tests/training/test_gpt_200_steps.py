"""A small GPT trained for 200 steps on the standard library's source, compiled and eager from one seed."""

from __future__ import annotations

import copy
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import zoo
from torch import Tensor, nn
from twins import close

import dovetail

STEPS, BATCH, LENGTH = 200, 8, 32


@pytest.fixture(scope="module")
def text() -> Tensor:
    """Characters of the standard library's source, as numbers up to 127."""
    files = (Path(sysconfig.get_path("stdlib")) / name for name in ("argparse.py", "ast.py", "dataclasses.py", "functools.py"))
    return torch.tensor([byte for file in files for byte in file.read_bytes() if byte < 128])


def trained(model: nn.Module, run: Callable, text: Tensor) -> list[float]:
    """The loss of each step; batches and dropout are those of one seed."""
    torch.manual_seed(1)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
    losses = []
    for step in range(STEPS):
        for group in optimiser.param_groups:
            group["lr"] = 3e-3 * min(1, (step + 1) / 20)
        pieces = text[torch.randint(len(text) - LENGTH - 1, (BATCH, 1)) + torch.arange(LENGTH + 1)]
        _, loss = run(pieces[:, :-1], pieces[:, 1:].contiguous())
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        losses.append(loss.item())
    return losses


def determined(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The parameters whose values training decides.

    The bias of keys adds the same to all scores of a row, so its true gradient is zero: AdamW divides rounding errors by their own size there.
    """
    for name, p in model.named_parameters():
        p = p.detach()
        if name.endswith("qkv.bias"):
            query, _, value = p.chunk(3)
            p = torch.cat([query, value])
        yield name, p


@pytest.mark.slow
@pytest.mark.parametrize("fused", [pytest.param(False, marks=pytest.mark.slow), True], ids=["written out", "scaled_dot_product_attention"])
def test_the_loss_of_every_step_is_eagers(fused, text):
    model = zoo.GPT(vocabulary=128, width=64, heads=4, layers=2, context=LENGTH, fused=fused).train()
    eager = copy.deepcopy(model)
    compiled = dovetail.jit(model)

    ours, theirs = trained(model, compiled, text), trained(eager, eager, text)

    apart = [abs(a - b) / b for a, b in zip(ours, theirs, strict=True)]
    assert max(apart) < 1e-4, f"step {apart.index(max(apart))} is {max(apart):.1e} from eager"
    assert sum(ours[-20:]) / 20 < 0.7 * ours[0]  # it learns
    for (name, p), (_, q) in zip(determined(model), determined(eager), strict=True):
        close(p, q, 1e-3, name)
    assert dovetail.cache_misses(compiled) == ["the first call"]
