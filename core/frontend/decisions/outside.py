"""Calls of PyTorch that run by themselves between two segments, on real values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any

import torch

from dovetail.frontend.classify_calls import is_torch
from dovetail.frontend.decisions.state import Same
from dovetail.langs.torch import TorchSymbol
from dovetail.trace import Proxy, tree_map

_WRITING = ("batch_norm", "instance_norm", "embedding")  # may write their arguments: running statistics, rows that are renormalized


@dataclass(frozen=True)
class Slot:
    """Stands for the value number `index` of those that a step gets."""

    index: int


def caller(function: Callable, template: Any, count: int) -> Callable:
    """Return a function of `count` values that calls `function` with them in their places: plain Python, since every call pays for it."""
    names: dict[str, Any] = {"function": function}

    def constant(x: Any) -> str:
        names[name := f"constant_{len(names)}"] = x
        return name

    def text(x: Any) -> str:
        if type(x) is Slot:
            return f"value_{x.index}"
        if type(x) is slice:
            return f"slice({text(x.start)}, {text(x.stop)}, {text(x.step)})"
        if type(x) is list:
            return f"[{', '.join(map(text, x))}]"
        if type(x) is tuple:
            return f"({''.join([f'{text(item)}, ' for item in x])})"
        if type(x) is dict:
            return f"{{{', '.join([f'{constant(key)}: {text(item)}' for key, item in x.items()])}}}"
        return constant(x)

    args, kwargs = template
    keywords = "".join([f"{name}={text(x)}, " for name, x in kwargs.items()])
    values = ", ".join([f"value_{i}" for i in range(count)])
    exec(f"def call({values}):\n    return function({''.join([f'{text(x)}, ' for x in args])}{keywords})", names)
    return names["call"]


def mapped(fn: Callable[[Any], Any], tree: Any) -> Any:
    """Apply `fn` to the leaves of an argument, and to the parts of slices in it."""
    if type(tree) is slice:
        return slice(*[mapped(fn, part) for part in (tree.start, tree.stop, tree.step)])
    if type(tree) in (list, tuple):
        return type(tree)([mapped(fn, item) for item in tree])
    if type(tree) is dict:
        return {key: mapped(fn, item) for key, item in tree.items()}
    return tree_map(fn, tree)


def proxies_in(tree: Any) -> list[Proxy]:
    """Return the traced values among arguments."""
    traced: list[Proxy] = []
    mapped(lambda x: traced.append(x) if isinstance(x, Proxy) else None, tree)
    return traced


def template_of(arguments: Any) -> tuple[list[Proxy], Any]:
    """Return the traced values among arguments, and the arguments with slots in their places."""
    reads = list(dict.fromkeys(proxies_in(arguments)))
    slots = {p: Slot(i) for i, p in enumerate(reads)}  # by identity: `==` of two numbers of the program is a decision
    return reads, mapped(lambda x: slots[x] if isinstance(x, Proxy) else x, arguments)


def frozen(tree: Any) -> Any:
    """Return arguments as a key that is equal for equal calls."""
    if isinstance(tree, (tuple, list)):
        return type(tree), tuple(map(frozen, tree))
    if isinstance(tree, dict):
        return tuple([(key, frozen(item)) for key, item in tree.items()])
    if type(tree) is slice:
        return slice, tuple(map(frozen, (tree.start, tree.stop, tree.step)))
    return (type(tree), repr(tree)) if type(tree) in (int, float, bool, str, type(None), Slot, type(...)) else Same(tree)


def assigned(tensor: torch.Tensor, key: Any, value: Any) -> torch.Tensor:
    """Return `tensor` with `value` written at `key`."""
    result = tensor.clone()
    result[key] = value
    return result


def runnable(arguments: Sequence[Any], kwargs: dict) -> tuple[Callable, Sequence[Any]] | None:
    """Return the function of PyTorch among what records a call, and its arguments; None where that cannot run by itself."""
    heads = [x.callable if isinstance(x, TorchSymbol) else x for x in arguments[:2]]
    place = next((i for i, x in enumerate(heads) if not isinstance(x, Proxy) and callable(x) and is_torch(x)), None)
    if place is None:
        return None
    function, args = heads[place], arguments[place + 1 :]
    named = [kwargs.get(name) is not None for name in ("out", "generator")]
    return None if writes(function) or any(named) or any([x is True for x in (*args, *kwargs.values())]) else (function, args)


@cache
def writes(function: Callable) -> bool:
    """Return whether a function of PyTorch may write its arguments, in-place methods aside."""
    name = getattr(function, "__name__", "")
    return any([word in name for word in _WRITING]) or (type(function) is FunctionType and not _packets(name))


@cache
def draws(function: Callable) -> bool:
    """Return whether a function of PyTorch draws random numbers."""
    packets = _packets(getattr(function, "__name__", ""))
    return any([torch.Tag.nondeterministic_seeded in getattr(packet, overload).tags for packet in packets for overload in packet.overloads()])


def _packets(name: str) -> list[Any]:
    return [packet for each in {name, name.strip("_")} if (packet := getattr(torch.ops.aten, each, None)) is not None]


def is_in_place(function: Callable) -> bool:
    """Return whether a function of PyTorch writes its first argument."""
    name = getattr(function, "__name__", "")
    return name.endswith("_") and not name.endswith("__")


@cache
def on_copy(function: Callable) -> Callable:
    """Return the function that does what an in-place one does to a copy of its first argument, a tensor or a list of tensors."""

    def call(x: torch.Tensor | list[torch.Tensor], /, *args: Any, **kwargs: Any) -> torch.Tensor | list[torch.Tensor]:
        if isinstance(x, torch.Tensor):
            return function(x.clone(), *args, **kwargs)
        copies = [each.clone() for each in x]
        function(copies, *args, **kwargs)
        return copies

    call.__name__ = function.__name__
    return call
