"""The guards of native tracing, which does not see what the program reads: all that is in the arguments, and the state of a module."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any

import torch

from dovetail.errors import Unsupported
from dovetail.frontend import trees
from dovetail.frontend.guards.guard import Guard
from dovetail.frontend.guards.source import Source, Sources
from dovetail.frontend.guards.tensor_checks import tensor_facts
from dovetail.prims.sizes import Atom
from dovetail.torch_internals import SUPPORTED_NODES
from dovetail.trace import NumberProxy, Proxy

_VALUES = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, slice)
_LARGE = 1 << 16  # bytes of an array that are compared at each call
_OWN = set(vars(torch.nn.Module())) - {"training"}


class ArgumentGuards:
    """`guards` on all that is in the arguments and in a module; `inputs` has where each input is read, `of_arguments` those in the arguments.

    Args:
        proxies: the inputs by the ids of tensors.
        layouts: shapes and strides of inputs that have symbols.
        ints: the symbols that are positional arguments, by position.
    """

    def __init__(self, proxies: dict[int, Proxy], layouts: Mapping[Proxy, dict[str, Any]] = {}, ints: Mapping[int, Atom] = {}):
        self.sources, self.proxies, self.layouts, self.ints = Sources(), proxies, layouts, ints
        self.guards: list[Guard] = []
        self.inputs: dict[Proxy, Source] = {}
        self.of_arguments: dict[Proxy, None] = {}
        self.buffers: dict[Source, Any] = {}  # arrays whose content is guarded

    def add(self, kind: str, source: Source, value: Any = None) -> None:
        """Append a guard."""
        self.guards.append(Guard(kind, source, value))

    def call(self, args: tuple, kwargs: dict) -> None:
        """Guard the arguments of a call."""
        positional, named = self.sources.arg("args"), self.sources.arg("kwargs")
        before = set(self.inputs)
        self.add("len", positional, len(args))
        for i, item in enumerate(args):
            if i in self.ints:
                self.inputs[self.ints[i].proxy] = source = self.sources.item(positional, i)
                self.add("integer", source, self.ints[i])
            else:
                self.nest(item, self.sources.item(positional, i))
        self.add("keys", named, list(kwargs))
        for key, item in kwargs.items():
            self.nest(item, self.sources.item(named, key))
        self.of_arguments = {p: None for p in self.inputs if p not in before and not isinstance(p, NumberProxy)}

    def nest(self, value: Any, source: Source) -> None:
        """Guard the value at a source, and the values in it."""
        kind, sources = type(value), self.sources
        if isinstance(value, torch.Tensor):
            self.tensor(value, source)
        elif kind in (tuple, list) or (isinstance(value, tuple) and hasattr(value, "_fields")):
            self.add("type", source, kind)
            self.add("len", source, len(value))
            for i, item in enumerate(value):
                self.nest(item, sources.item(source, i))
        elif kind is dict:
            self.add("type", source, kind)
            self.add("keys", source, list(value))
            self.add("key types", source, list(map(type, value)))
            for key, item in value.items():
                self.nest(item, sources.item(source, key))
        elif dataclasses.is_dataclass(value) and kind not in SUPPORTED_NODES and not isinstance(value, type):
            self.add("type", source, kind)
            for field in dataclasses.fields(value):
                self.nest(getattr(value, field.name), sources.attr(source, field.name))
        elif kind in SUPPORTED_NODES:
            leaves, tree = trees.flatten(value)
            inside = sources.make("leaves", source, tree)
            for i, leaf in enumerate(leaves):
                self.nest(leaf, sources.item(inside, i))
        elif isinstance(value, getattr(sys.modules.get("numpy"), "ndarray", ())):
            self.content(value, source)
        else:
            self.add("equal" if isinstance(value, _VALUES) else "is", source, value)

    def content(self, value: Any, source: Source) -> None:
        """Guard an array of NumPy's by its content, which native tracing makes a constant."""
        sources = self.sources
        if value.nbytes > _LARGE or value.dtype.hasobject:
            raise Unsupported(f"an array of {value.nbytes} bytes would become a constant of the program; make it a tensor, whose values are inputs")
        self.buffers[source] = value
        self.add("type", source, type(value))
        self.add("equal", sources.attr(source, "shape"), value.shape)
        self.add("equal", sources.attr(sources.attr(source, "dtype"), "str"), value.dtype.str)
        self.add("equal", sources.call(sources.attr(source, "tobytes")), value.tobytes())

    def tensor(self, value: torch.Tensor, source: Source) -> None:
        """Guard an input, or that it is an earlier one."""
        proxy = self.proxies[id(value)]
        if proxy in self.inputs:
            self.add("same", source, self.inputs[proxy])
        else:
            self.inputs[proxy] = source
            self.add("tensor", source, tensor_facts(value, proxy.spec.strides) | self.layouts.get(proxy, {}))

    def module(self, fn: torch.nn.Module) -> None:
        """Guard submodules, mode, hooks and plain attributes; parameters and buffers are inputs, read anew at each call."""
        for path, module in fn.named_modules():
            at = self.sources.const(module)
            at.path = Source("arg", None, f"module.{path}" if path else "module")
            self.add("type", at, type(module))
            children = self.sources.field(at, "_modules")
            self.add("len", children, len(module._modules))
            for name, child in module._modules.items():
                self.add("equal" if child is None else "is", self.sources.item(children, name), child)
            for table in ("_parameters", "_buffers"):
                for name, x in getattr(module, table).items():
                    self.nest(x, self.sources.item(self.sources.field(at, table), name))
            for name, value in vars(module).items():
                if name not in _OWN and isinstance(value, _VALUES):
                    self.add("equal", self.sources.field(at, name), value)
            for name in ("_forward_hooks", "_forward_pre_hooks"):
                self.add("len", self.sources.field(at, name), len(getattr(module, name)))
