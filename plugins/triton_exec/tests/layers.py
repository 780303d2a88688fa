"""Models as a GPU would train them, of one shape with those that are measured: GPT, Llama, BERT; and a GPU that is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import nn

import dovetail
from dovetail.devices import device
from dovetail.extend import Trace
from dovetail.langs.torch import TO_TORCH, attention
from dovetail.langs.torch.binding import bridge
from dovetail.prims.spec import dense
from dovetail_triton_exec.executor import TritonExecutor
from dovetail_triton_exec.regions import Region, compiled

VOCABULARY, WIDTH, HEADS, BATCH, LENGTH = 8192, 768, 12, 8, 1024


class Block(nn.Module):
    """A layer of GPT: attention and a feed-forward net, each with its norm and residual."""

    def __init__(self, width: int = WIDTH, heads: int = HEADS):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, s, w = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(b, s, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, s, w)
        x = x + self.out(a)
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class LlamaBlock(nn.Module):
    """A layer of Llama: rotary positions, SwiGLU, RMSNorm."""

    def __init__(self, width: int = WIDTH, heads: int = HEADS):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.RMSNorm(width, eps=1e-6), nn.RMSNorm(width, eps=1e-6)])
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up, self.down = (nn.Linear(i, o, bias=False) for i, o in ((width, 3 * width), (width, 3 * width), (3 * width, width)))
        half = width // heads // 2
        angles = torch.outer(torch.arange(LENGTH).float(), 10000.0 ** (-torch.arange(half) / half)).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, s, w = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(b, s, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(self.rotated(q), self.rotated(k), v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, s, w))
        y = self.norms[1](x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))

    def rotated(self, x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        return x * self.cos + torch.cat([-b, a], -1) * self.sin


class BertBlock(Block):
    """A layer of BERT: normalised after each part, and attention to both sides."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, s, w = x.shape
        q, k, v = self.qkv(x).view(b, s, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, s, w)
        x = self.norms[0](x + self.out(a))
        return self.norms[1](x + self.down(F.gelu(self.up(x))))


class Model(nn.Module):
    """Words, layers, a norm, and the loss of what comes next."""

    def __init__(self, layer: Callable[[], nn.Module], layers: int):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.Sequential(*(layer() for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens) + self.places.weight
        return F.cross_entropy(self.head(self.norm(self.layers(x))).flatten(0, 1), wanted.flatten())


MODELS = {"GPT": Block, "Llama": LlamaBlock, "BERT": BertBlock}


class OnGPU(TritonExecutor):
    """Plans the regions of a GPU, and runs none: their results are tensors without memory."""

    available = True

    def __init__(self) -> None:
        super().__init__(devices=["cuda"])
        self.regions: list[Region] = []

    def fuse(self, region: Trace) -> Callable[..., tuple]:
        self.regions.append(compiled(region, interpreted=False))
        specs = [p.spec for p in region.outputs]
        return lambda *inputs: tuple(torch.empty_strided(s.shape, s.steps, dtype=TO_TORCH[s.dtype], device="meta") for s in specs)


@contextmanager
def no_gpu() -> Iterator[None]:
    """Tensors without memory, of the device "meta", are taken for a GPU's; attention lies as flash attention leaves it."""
    known, gpu = bridge.device_of, device("cuda:0")
    with (
        mock.patch.object(bridge, "device_of", lambda d: gpu if str(d) == "meta" else known(d)),
        mock.patch.object(attention, "_like", lambda q, *_: dense(q)),
    ):
        yield


def unreal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A tensor without memory."""
    return torch.empty(shape, dtype=dtype, device="meta")


def on_gpu(fn: Callable, *args: torch.Tensor, train: bool = False) -> list[Region]:
    """The regions of a function for tensors without memory; with `train` those of its backward too."""
    ex = OnGPU()
    with no_gpu():
        out = dovetail.jit(fn, executors=[ex, "torch"])(*args)
        if train:
            out.backward(torch.empty_like(out))
    return ex.regions


def trained(name: str, layers: int, dtype: torch.dtype = torch.bfloat16) -> tuple[Any, list[Region]]:
    """A model that was compiled for a GPU and did one step of training, and its regions."""
    model, ex = Model(MODELS[name], layers).to(device="meta", dtype=dtype), OnGPU()
    ours = dovetail.jit(model, executors=[ex, "torch"])
    words = unreal(BATCH, LENGTH, dtype=torch.int64)
    with no_gpu():
        ours(words, words).backward()
    return ours, ex.regions
