"""The models that are timed, all of plain torch.nn and without dropout: some from the examples and the tests, some written here."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn
from torch.nn import functional as F

VOCABULARY, CONTEXT, WIDTH, HEADS, LAYERS = 8192, 256, 384, 6, 6  # of every transformer here


def gpt() -> ModuleType:
    """Return the example module that defines the GPT."""
    return loaded("gpt", "examples/gpt.py")


def zoo() -> ModuleType:
    """Return the module with the models of the tests."""
    return loaded("zoo", "tests/models/zoo.py")


def loaded(name: str, path: str) -> ModuleType:
    """Import the file at `path`, below the repository's root, as a module."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[1] / path)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def six_layers() -> nn.Module:
    """Return the GPT of every benchmark."""
    return gpt().GPT(gpt().Shape(vocabulary=VOCABULARY, context=CONTEXT, layers=LAYERS, heads=HEADS, width=WIDTH))


def llama() -> nn.Module:
    """Return a Llama: grouped queries, rotary positions, SwiGLU."""
    return zoo().Llama(vocabulary=VOCABULARY, width=WIDTH, heads=HEADS, groups=2, layers=LAYERS, context=CONTEXT)


def tokens() -> Tensor:
    """Return a batch of 4 x 256 tokens."""
    return torch.randint(VOCABULARY, (4, CONTEXT))


def mlp() -> nn.Module:
    """Return an MLP of four layers, d=64."""
    return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 64))


def digits() -> nn.Module:
    """Return a classifier of 28 x 28 pixels, as in first exercises."""
    return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))


class Loss(nn.Module):
    """The cross-entropy of a model's logits, classes in the last dimension."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, wanted: Tensor) -> Tensor:
        logits = self.model(x)
        return F.cross_entropy(logits.flatten(0, -2), wanted.flatten())


class Encoder(nn.Module):
    """BERT's shape: nn.TransformerEncoder over words and places, normalised after each part, and a class for each word."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.layers(self.norm(self.words(tokens) + self.places(places))))


class ViT(nn.Module):
    """Images of 64 x 64 in patches of 8 x 8; layers that normalise before each part."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 8, stride=8)
        self.first = nn.Parameter(torch.randn(1, 1, WIDTH) * 0.02)
        self.places = nn.Parameter(torch.randn(1, 65, WIDTH) * 0.02)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, norm=nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 1000)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.first.expand(x.shape[0], -1, -1), x), dim=1) + self.places
        return self.head(self.layers(x)[:, 0])


class ResNet(nn.Module):
    """The residual blocks of the tests' ResNet in the depth and the widths of ResNet-18."""

    def __init__(self) -> None:
        super().__init__()
        block = zoo().Residual
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        widths = ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2))
        self.layers = nn.Sequential(*(nn.Sequential(block(i, o, stride), block(o, o, 1)) for i, o, stride in widths))
        self.head = nn.Linear(512, 1000)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.layers(self.stem(images)).mean((2, 3)))


def adamw_shapes() -> list[tuple[int, ...]]:
    """Return the shapes of the parameters of the GPT's layers: 72 tensors, 10.6 million numbers."""
    d = WIDTH
    of_a_layer = [(d,), (d,), (3 * d, d), (3 * d,), (d, d), (d,), (d,), (d,), (4 * d, d), (4 * d,), (d, 4 * d), (d,)]
    return of_a_layer * LAYERS


def adamw(parameters: list[Tensor], gradients: list[Tensor], means: list[Tensor], squares: list[Tensor], step: Tensor) -> None:
    """Run one step of AdamW in place, with the defaults of torch.optim.AdamW; `step` counts the steps."""
    step += 1
    of_mean, of_square = 1 - 0.9**step, 1 - 0.999**step
    for p, g, m, v in zip(parameters, gradients, means, squares):
        p *= 1 - 1e-3 * 1e-2
        m.lerp_(g, 1 - 0.9)
        v.mul_(0.999).addcmul_(g, g, value=1 - 0.999)
        p -= 1e-3 / of_mean * m / ((v / of_square).sqrt() + 1e-8)
