"""What is compared, eager first: each is a function compiled in its own way, or a sentence on why it is not there."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import dovetail

Subjects = dict[str, Callable | str]


def gpt() -> ModuleType:
    """The example's GPT, so that there is one."""
    return loaded("gpt", "examples/gpt.py")


def loaded(name: str, path: str) -> ModuleType:
    """The file at `path`, below the repository's root, as a module."""
    if name not in sys.modules:
        found = importlib.util.spec_from_file_location(name, Path(__file__).parents[1] / path)
        sys.modules[name] = importlib.util.module_from_spec(found)
        found.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def six_layers() -> tuple[torch.nn.Module, torch.Tensor]:
    """The GPT of every benchmark, without gradients: 6 layers, d=384, vocabulary 8192; and a batch of 4 x 256 tokens."""
    torch.manual_seed(0)
    shape = gpt().Shape(vocabulary=8192, context=256, layers=6, heads=6, width=384)
    return gpt().GPT(shape).eval().requires_grad_(False), torch.randint(shape.vocabulary, (4, 256))


class Loss(torch.nn.Module):
    """The cross-entropy of a language model's logits."""

    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
        logits = self.model(tokens)
        logits = logits[0] if isinstance(logits, tuple) else logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten())


def trained() -> dict[str, tuple[torch.nn.Module, tuple[torch.Tensor, torch.Tensor]]]:
    """The GPT of every benchmark, one with dropout and tied weights, and a Llama, all of one size; each as its loss, with a batch."""
    zoo = loaded("zoo", "tests/models/zoo.py")
    torch.manual_seed(0)
    model, _ = six_layers()
    llama = zoo.Llama(vocabulary=8192, width=384, heads=6, groups=2, layers=6, context=256)
    batch = (torch.randint(8192, (4, 256)), torch.randint(8192, (4, 256)))
    dropout = zoo.GPT(vocabulary=8192, width=384, heads=6, layers=6, context=256, fused=True)
    models = {"GPT": model.requires_grad_(), "GPT, dropout": dropout, "Llama": llama}
    return {name: (Loss(model.train()), batch) for name, model in models.items()}


def subjects(fn: Callable, *args: Any, peers: bool = True) -> Subjects:
    """`fn` eager, by Dovetail, and by whichever peers are installed and can compile it for `args`."""
    torch._dynamo.reset()
    made: Subjects = {"eager": fn, "dovetail": dovetail.jit(fn)}
    if peers:
        made |= {"torch.compile": working(torch.compile(fn, fullgraph=True), args), "lightning-thunder": working(thunder(fn), args)}
    return made


def working(compiled: Callable | str, args: tuple) -> Callable | str:
    """`compiled`, called once; or what kept it from working."""
    if isinstance(compiled, str):
        return compiled
    try:
        with fresh_caches():
            compiled(*args)
    except Exception as error:
        return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"[:80]
    return compiled


def thunder(fn: Callable) -> Callable | str:
    if importlib.util.find_spec("thunder") is None:
        return "not installed"
    return importlib.import_module("thunder").jit(fn)


@contextmanager
def fresh_caches() -> Iterator[None]:
    """torch.compile finds nothing on disk that an earlier run compiled."""
    with tempfile.TemporaryDirectory() as directory, torch._inductor.utils.fresh_cache(dir=directory):
        yield


def split(made: Subjects, *args: Any) -> tuple[dict[str, Callable[[], object]], dict[str, str]]:
    """The subjects that can be called, bound to `args`, and what is to be said of the others."""
    there = {name: (lambda fn=fn: fn(*args)) for name, fn in made.items() if not isinstance(fn, str)}
    return there, {name: said for name, said in made.items() if isinstance(said, str)}
