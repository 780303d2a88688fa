"""Models that were compiled, trained and dropped leave nothing behind: no objects, no tensors, no programs' texts, no open files."""

from __future__ import annotations

import gc
import linecache
import os
import weakref
from collections import Counter

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dovetail

WARM, ROUNDS = 2, 3


class DenseLayer(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(channels), nn.Conv2d(channels, 4, 3, padding=1, bias=False)

    def forward(self, x):
        return torch.cat([x, self.conv(F.relu(self.norm(x)))], 1)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        q, k, v = self.qkv(self.norms[0](x)).chunk(3, -1)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        return x + self.mlp(self.norms[1](x))


def dense():
    model = nn.Sequential(*[DenseLayer(4 + 4 * i) for i in range(3)], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5))
    return model, [torch.randn(n, 4, 6, 6) for n in (2, 3)]


def transformer():
    model = nn.Sequential(nn.Embedding(20, 16), Block(16), Block(16), nn.Linear(16, 20))
    return model, [torch.randint(0, 20, (n, 6)) for n in (2, 3)]


def train(build, compile):
    """Train a new model for a step with each batch; return a weak reference to it."""
    model, batches = build()
    compiled, optimizer = compile(model), torch.optim.AdamW(model.parameters())
    for batch in batches:
        optimizer.zero_grad()
        compiled(batch).square().mean().backward()
        optimizer.step()
    return weakref.ref(model)


def held():
    """Count what the process holds: Dovetail's objects by class, tensors, texts of programs, open files."""
    gc.collect()
    kinds = Counter(type(x) for x in gc.get_objects())
    counts = {f"{kind.__module__}.{kind.__qualname__}": n for kind, n in kinds.items() if str(kind.__module__).startswith("dovetail")}
    tensors = sum(n for kind, n in kinds.items() if issubclass(kind, torch.Tensor))
    return counts | {"tensors": tensors, "texts": len(linecache.cache), "files": len(os.listdir("/proc/self/fd"))}


def growth(build, compile):
    """Return what grows while so many models are trained and dropped, after the first ones; and the references to them."""
    models = [train(build, compile) for _ in range(WARM)]
    before = held()
    models += [train(build, compile) for _ in range(ROUNDS)]
    after = held()
    return {name: n - before.get(name, 0) for name, n in after.items() if n > before.get(name, 0)}, models


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="open files are counted in /proc")
@pytest.mark.parametrize("build", [dense, transformer])
def test_models_that_are_dropped_leave_nothing_behind(build):
    more, models = growth(build, dovetail.jit)

    assert more == {}
    assert [model() for model in models] == [None] * (WARM + ROUNDS)


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="open files are counted in /proc")
def test_a_model_that_is_kept_is_counted():
    kept = []

    def compile(model):
        kept.append(dovetail.jit(model))
        return kept[-1]

    more, models = growth(transformer, compile)

    assert more["tensors"] >= ROUNDS * len(list(kept[0].parameters()))
    assert None not in [model() for model in models]
