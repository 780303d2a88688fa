"""The native front end: run the Python on proxies that torch takes for tensors."""

from __future__ import annotations

import functools
import importlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from dovetail.errors import Unsupported, require
from dovetail.frontend import trees
from dovetail.frontend.autograd.custom_autograd import custom_backwards
from dovetail.frontend.environment import AUTOCAST, Acquired, Factories, TorchEnvironment, compiling, is_plain, lifted, no_draws
from dovetail.frontend.guards.arguments import Everything
from dovetail.frontend.guards.prologue import prologue
from dovetail.langs.context import Language
from dovetail.langs.torch import (
    LANGUAGE,
    check_copies,
    check_positions,
    spec_of,
    traceable,
)
from dovetail.torch_internals import any_autocast
from dovetail.trace import Proxy, Trace, is_proxy, leaves, recording

_LANGUAGES = {"torch": "dovetail.langs.torch", "numpy": "dovetail.langs.numpy"}  # imported when first named: the package runs without NumPy


def acquire(fn: Callable, args: tuple, kwargs: dict, *, language: Language = LANGUAGE) -> Acquired:
    """Run `fn` on proxies for the tensors in its arguments, and for its parameters and buffers where it is a module.

    Inputs: the module's tensors, each once, then those of the arguments, each once.
    """
    given_args, given_kwargs = args, kwargs
    given, tree = trees.flatten((args, kwargs))
    given = [language.foreign(x) for x in given] if language.foreign is not None else given
    environment = TorchEnvironment(language)
    new = Trace(language=language, environment=environment)
    inputs = _Inputs(new)
    with compiling(), no_draws(), recording(new):
        began = time.perf_counter()
        with inputs.of_module(fn), watching(), custom_backwards():
            placed = [inputs.proxy(x) if isinstance(x, torch.Tensor) else x for x in given]
            args, kwargs = tree.build(placed)
            result = fn(*args, **kwargs)
            _unchanged((args, kwargs), placed, tree)
        flat, out = trees.flatten(result)
        flat = [lifted(x, new) if isinstance(x, torch.Tensor) else x for x in flat]
        plain = is_plain(result)
        new.outputs = out.build(flat) if plain else tuple(flat)
        check_copies(new)
        check_positions(new)
        new.took = time.perf_counter() - began
    guards = functools.partial(_prologue, fn, given_args, given_kwargs, inputs, environment.read)
    return Acquired(new, inputs.tensors, None if plain else lambda outputs, found: out.build(outputs), guards)


def _prologue(fn: Any, args: tuple, kwargs: dict, inputs: _Inputs, read: set[str], *, written: list[Proxy], run: Callable) -> Trace:
    """Guards on the arguments, on the module's state where `fn` is one, and on what the program read of torch's global state."""
    seen = Everything(inputs.proxies)
    for ask, name in (
        (torch.is_grad_enabled, ""),
        (any_autocast, ""),
        (torch.get_default_dtype, "default_dtype"),
        (torch.get_default_device, "default_device"),
        (torch.is_inference_mode_enabled, "inference_mode"),
    ):
        if not name or name in read:
            seen.add("equal", seen.sources.setting(ask), ask())
    if isinstance(fn, torch.nn.Module):
        seen.module(fn)
    seen.call(args, kwargs)
    where = [(source, p) for p, source in seen.found.items()]
    return prologue(seen.guards, where, (), inputs.trace, written=written, run=run, distinct=list(seen.given))


def make_trace(fn: Callable, *, language: Language | str = LANGUAGE) -> Callable[..., Trace]:
    """`make_trace(fn)(*args, **kwargs)` is the program that `fn` is for arguments like these.

    `fn` runs once on proxies; a tensor in the arguments, or a parameter of a module, becomes an input, everything else a constant.
    `language` ("torch", "numpy") decides what the methods and operators of tensors mean.
    """
    chosen = language_named(language) if isinstance(language, str) else language

    def traced(*args: Any, **kwargs: Any) -> Trace:
        return acquire(fn, args, kwargs, language=chosen).trace

    return traced


def language_named(name: str) -> Language:
    """The language called "torch" or "numpy"."""
    require(name in _LANGUAGES, "there is no language {!r}, only {}", name, ", ".join(_LANGUAGES), error=ValueError)
    return importlib.import_module(_LANGUAGES[name]).LANGUAGE


class _Inputs:
    """One proxy for each distinct tensor."""

    def __init__(self, new: Trace):
        self.trace = new
        self.tensors: list[torch.Tensor] = []
        self.proxies: dict[int, Proxy] = {}

    def proxy(self, x: torch.Tensor) -> Proxy:
        if id(x) not in self.proxies:
            self.proxies[id(x)] = p = self.trace.tensor(spec_of(traceable(x)))
            self.trace.inputs.append(p)
            self.tensors.append(x)
        return self.proxies[id(x)]

    @contextmanager
    def of_module(self, fn: Any) -> Iterator[None]:
        """While open, the parameters and buffers of `fn` are proxies."""
        modules = list(fn.modules()) if isinstance(fn, torch.nn.Module) else []
        tables = [table for module in modules for table in (module._parameters, module._buffers)]
        before, attributes = [dict(table) for table in tables], [dict(vars(module)) for module in modules]
        try:
            for table in tables:
                table.update({name: self.proxy(x) for name, x in table.items() if x is not None})
            inside = [dict(table) for table in tables]
            yield
            self._state_unchanged(modules, tables, inside)
        finally:
            for table, old in zip(tables, before, strict=True):
                table.clear()
                table.update(old)
            for module, old in zip(modules, attributes, strict=True):
                _forget_proxies(vars(module), old)

    def _state_unchanged(self, modules: list, tables: list[dict], inside: list[dict]) -> None:
        """A tensor put into a module while tracing would be lost, or leak: refuse it."""
        for table, was in zip(tables, inside, strict=True):
            for name, x in table.items():
                if was.get(name) is not x:
                    raise Unsupported(f"the module assigns its tensor {name!r} while it runs; write into it instead: self.{name}.copy_(value)")
        for module in modules:
            for name, x in vars(module).items():
                if is_proxy(x):
                    raise Unsupported(f"{type(module).__name__} keeps a traced tensor in self.{name}; return it, or write into a buffer with copy_")


def _forget_proxies(now: dict[str, Any], before: dict[str, Any]) -> None:
    """Give a module's attributes back what they were, where they hold traced tensors, as the lists of weights of torch.nn.LSTM do."""
    for name in [name for name, value in now.items() if value is not before.get(name) and any(map(is_proxy, leaves(value)))]:
        if name in before:
            now[name] = before[name]
        else:
            del now[name]


def _unchanged(nest: Any, placed: list[Any], tree: trees.Tree) -> None:
    """A list or dict argument that `fn` changed would keep its old content outside: refuse it."""
    now, shape = trees.flatten(nest)
    if shape != tree or any(a is not b for a, b in zip(now, placed, strict=True)):
        raise Unsupported("the function changes a list or dict that it was given, which the caller would not see; return the new value instead")


@contextmanager
def watching() -> Iterator[None]:
    """While open, calls of torch are seen, with autocast off."""
    if any_autocast():
        raise Unsupported(AUTOCAST)
    with Factories():
        yield
