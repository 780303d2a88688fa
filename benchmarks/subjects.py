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
    if "gpt" not in sys.modules:
        found = importlib.util.spec_from_file_location("gpt", Path(__file__).parents[1] / "examples" / "gpt.py")
        sys.modules["gpt"] = importlib.util.module_from_spec(found)
        found.loader.exec_module(sys.modules["gpt"])
    return sys.modules["gpt"]


def six_layers() -> tuple[torch.nn.Module, torch.Tensor]:
    """The GPT of every benchmark, without gradients: 6 layers, d=384, vocabulary 8192; and a batch of 4 x 256 tokens."""
    torch.manual_seed(0)
    shape = gpt().Shape(vocabulary=8192, context=256, layers=6, heads=6, width=384)
    return gpt().GPT(shape).eval().requires_grad_(False), torch.randint(shape.vocabulary, (4, 256))


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
