"""The native front end: run the function itself, on proxies that torch takes for tensors."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from dovetail import prims
from dovetail.errors import Unsupported, require, require_function
from dovetail.frontend import trees
from dovetail.frontend.arrays.detection import has_arrays
from dovetail.frontend.autograd.custom_autograd import custom_backwards
from dovetail.frontend.environment import AUTOCAST, Acquired, RecordingMode, TorchEnvironment, is_plain, lift_leaf, refuse_seeding
from dovetail.frontend.guards.arguments import ArgumentGuards
from dovetail.frontend.guards.overlap import memory_overlap
from dovetail.frontend.guards.prologue import prologue
from dovetail.frontend.guards.source import Sources
from dovetail.frontend.guards.symbolic_sizes import SymbolicSizes
from dovetail.langs.context import Language
from dovetail.langs.torch import (
    LANGUAGE,
    SymbolicInt,
    check_copied_views,
    check_copies,
    know_imported,
    spec_of,
    symint,
    traceable,
    world,
)
from dovetail.prims.sizes import Atom
from dovetail.torch_internals import any_autocast
from dovetail.trace import Proxy, Trace, is_proxy, leaves, recording
from dovetail.trace.collector import without_collector

_SETTINGS = {  # of torch, each with its name in `read`; those without one are guarded in each program
    torch.is_grad_enabled: "",
    any_autocast: "",
    torch.get_default_dtype: "default_dtype",
    torch.get_default_device: "default_device",
    torch.is_inference_mode_enabled: "inference_mode",
    world: "process_group",
}
_LANGUAGES = {"torch": "dovetail.langs.torch", "numpy": "dovetail.langs.numpy"}  # imported when first named: the package runs without NumPy


def acquire(fn: Callable, args: tuple, kwargs: dict, sizes: SymbolicSizes | None = None, *, language: Language = LANGUAGE) -> Acquired:
    """Run `fn` on proxies for the tensors in its arguments, and for its parameters and buffers where it is a module.

    Inputs: the module's tensors, each once, then those of the arguments, each once.  With `sizes`, those of tensors and ints that are arguments
    themselves may be symbols, as `torch.SymInt`: for functions that do not look at types, such as graphs.
    """
    arguments, tree = trees.flatten((args, kwargs))
    arguments = [language.foreign(x) for x in arguments] if language.foreign is not None else arguments
    know_imported()
    environment = TorchEnvironment(language)
    trace = Trace(language=language, environment=environment)
    inputs = _Inputs(trace, sizes)
    with without_collector(), refuse_seeding(), recording(trace):
        began = time.perf_counter()
        with inputs.of_module(fn), record_torch_calls(), custom_backwards():
            if sizes is not None and len(arguments) == len(args):
                traced = [inputs.argument(x, i) for i, x in enumerate(args)]
            else:
                traced = [inputs.proxy(x) if isinstance(x, torch.Tensor) else x for x in arguments]
            nest = tree.build(traced)
            result = fn(*nest[0], **nest[1])
            _refuse_changes(nest, traced, tree)
        outputs, out = trees.flatten(result)
        outputs = [lift_leaf(x, trace) if isinstance(x, torch.Tensor) else x for x in outputs]
        outputs = [prims.integer(value=x.size) if type(x) is SymbolicInt else x for x in outputs]
        plain = is_plain(out.build(outputs))
        trace.outputs = out.build(outputs) if plain else tuple(outputs)
        check_copies(trace)
        check_copied_views(trace)
        trace.took = time.perf_counter() - began
    return _Native(fn, args, kwargs, inputs, None if plain else out)


class _Native(Acquired):
    """A function that ran on proxies; `out` is the structure of its result, None where the outputs of the trace are the result."""

    def __init__(self, fn: Callable, args: tuple, kwargs: dict, inputs: _Inputs, out: trees.Tree | None):
        super().__init__(inputs.trace, inputs.tensors)
        self.fn, self.args, self.kwargs, self.inputs = fn, args, kwargs, inputs
        if out is not None:
            self.build = lambda outputs, objects: out.build(outputs)

    def prologue(self, *, written: list[Proxy], run: Callable) -> Trace:
        """Guard the arguments, the state of a module, and the global settings of torch that the program read."""
        if has_arrays(self.fn, self.args, self.kwargs):
            raise Unsupported('functions of NumPy arrays are not traced natively; compile them with interpretation="bytecode", the default')
        guards, read = ArgumentGuards(self.inputs.proxies, self.inputs.layouts, self.inputs.ints), self.trace.environment.read
        for setting, name in _SETTINGS.items():
            if not name or name in read:
                guards.add("equal", guards.sources.setting(setting), setting())
        if isinstance(self.fn, torch.nn.Module):
            guards.module(self.fn)
        guards.call(self.args, self.kwargs)
        tensors = [(source, p) for p, source in guards.inputs.items()]
        real = dict(zip(self.trace.inputs, self.tensors, strict=True))
        if written and memory_overlap(tuple([real[p] for p in written]), (), tuple(guards.buffers.values())):
            raise Unsupported("the function writes into a tensor that shares memory with an array in its arguments; pass a copy of one of them")
        more = {"distinct": list(guards.of_arguments), "buffers": list(guards.buffers), "sizes": self.inputs.sizes}
        return prologue(guards.guards, tensors, (), self.trace, written=written, run=run, **more)


def make_trace(fn: Callable, *, language: Language | str = LANGUAGE) -> Callable[..., Trace]:
    """Return a function that traces `fn`: `make_trace(fn)(*args, **kwargs)` is the program of `fn` for arguments like these.

    `fn` runs once on proxies; a tensor in the arguments, or a parameter of a module, becomes an input, everything else a constant.
    `language` ("torch", "numpy") decides what the methods and operators of tensors mean.
    """
    require_function("make_trace", fn)
    chosen = language_named(language) if isinstance(language, str) else language

    def traced(*args: Any, **kwargs: Any) -> Trace:
        return acquire(fn, args, kwargs, language=chosen).trace

    return traced


def language_named(name: str) -> Language:
    """Return the language called "torch" or "numpy"."""
    require(name in _LANGUAGES, "unknown language {!r}; the languages are {}", name, ", ".join(_LANGUAGES), error=ValueError)
    return importlib.import_module(_LANGUAGES[name]).LANGUAGE


class _Inputs:
    """The inputs of a trace: one proxy for each distinct tensor, and for each int that is a symbol."""

    def __init__(self, trace: Trace, sizes: SymbolicSizes | None = None):
        self.trace, self.sizes, self.sources = trace, sizes, Sources()
        self.layouts: dict[Proxy, dict[str, Any]] = {}  # shapes and strides with symbols
        self.ints: dict[int, Atom] = {}  # the positions of arguments that are symbols
        self.tensors: list[torch.Tensor] = []
        self.proxies: dict[int, Proxy] = {}

    def proxy(self, x: torch.Tensor) -> Proxy:
        """Return the input that stands for a tensor."""
        if id(x) not in self.proxies:
            self.proxies[id(x)] = p = self.trace.tensor(spec_of(traceable(x)))
            self.trace.inputs.append(p)
            self.tensors.append(x)
        return self.proxies[id(x)]

    def argument(self, x: Any, position: int) -> Any:
        """Return what stands for an argument, with symbols for its sizes."""
        source = self.sources.item(self.sources.arg("args"), position)
        if type(x) is int and (size := self.sizes.integer(x, source)) is not None:
            self.trace.relations = self.sizes.relations
            self.ints[position] = atom = self.sizes.places[repr(source), None]
            self.trace.inputs.append(atom.proxy)
            self.tensors.append(x)
            return symint(size)
        if not isinstance(x, torch.Tensor):
            return x
        if id(x) not in self.proxies:
            spec, symbols, strides = self.sizes.spec(spec_of(traceable(x)), x, source)
            self.proxies[id(x)] = p = self.trace.tensor(spec)
            self.trace.inputs.append(p)
            self.tensors.append(x)
            if symbols:
                self.trace.relations, self.sizes.of_tensor[p] = self.sizes.relations, symbols
                self.layouts[p] = {"shape": spec.shape, "strides": strides}
        return self.proxies[id(x)]

    @contextmanager
    def of_module(self, fn: Any) -> Iterator[None]:
        """Put proxies in the place of the parameters and buffers of `fn` while open."""
        modules = list(fn.modules()) if isinstance(fn, torch.nn.Module) else []
        tables = [table for module in modules for table in (module._parameters, module._buffers)]
        before, attributes = [dict(table) for table in tables], [dict(vars(module)) for module in modules]
        try:
            for table in tables:
                table.update({name: self.proxy(x) for name, x in table.items() if x is not None})
            inside = [dict(table) for table in tables]
            yield
            self._refuse_state_changes(modules, tables, inside)
        finally:
            for table, old in zip(tables, before, strict=True):
                table.clear()
                table.update(old)
            for module, old in zip(modules, attributes, strict=True):
                _forget_proxies(vars(module), old)

    def _refuse_state_changes(self, modules: list, tables: list[dict], inside: list[dict]) -> None:
        """Raise Unsupported for a tensor that was put into a module while tracing: it would be lost, or leak."""
        for table, was in zip(tables, inside, strict=True):
            for name, x in table.items():
                if was.get(name) is not x:
                    raise Unsupported(f"the module assigns its tensor {name!r} while it runs; write into it instead: self.{name}.copy_(value)")
        for module in modules:
            for name, x in vars(module).items():
                if is_proxy(x):
                    raise Unsupported(f"{type(module).__name__} keeps a traced tensor in self.{name}; return it, or write into a buffer with copy_")


def _forget_proxies(now: dict[str, Any], before: dict[str, Any]) -> None:
    """Restore attributes of a module that hold traced tensors, as the lists of weights of torch.nn.LSTM do."""
    for name in [name for name, value in now.items() if value is not before.get(name) and any(map(is_proxy, leaves(value)))]:
        if name in before:
            now[name] = before[name]
        else:
            del now[name]


def _refuse_changes(nest: Any, traced: list[Any], tree: trees.Tree) -> None:
    """Raise Unsupported for a list or dict argument that `fn` has changed: the caller's would keep its old content."""
    now, structure = trees.flatten(nest)
    if structure != tree or any(a is not b for a, b in zip(now, traced, strict=True)):
        raise Unsupported("the function changes a list or dict among its arguments, which the caller would not see; return the new value instead")


@contextmanager
def record_torch_calls() -> Iterator[None]:
    """Record calls of torch while open; autocast has to be off."""
    if any_autocast():
        raise Unsupported(AUTOCAST)
    with RecordingMode():
        yield
