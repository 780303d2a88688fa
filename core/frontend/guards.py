"""The prologue: a printed program that checks whether a compiled program fits a call, and finds its inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from dovetail import prims
from dovetail.frontend import trees
from dovetail.frontend.tracing import Acquired, any_autocast
from dovetail.prims import Symbol
from dovetail.trace import BoundSymbol, Proxy, Trace

_VALUES = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, slice)
_OWN = set(vars(torch.nn.Module())) - {"training"}


class Miss:
    """What a prologue gives for a call that its program does not fit: `reason` is the guard that failed, as a sentence."""

    __slots__ = ("reason",)

    def __init__(self, reason: str):
        self.reason = reason


def prologue(fn: Any, acquired: Acquired, args: tuple, kwargs: dict, *, written: list[Proxy], run: Callable) -> Trace:
    """A program `prologue(args, kwargs)` that gives what `run` gives for the inputs it finds, or a Miss.

    It guards the arguments, the module's state where `fn` is one, and what the program read of torch's global state; the tensors in
    `written` may share no memory with other inputs.
    """
    build = _Builder(acquired)
    for function, value in _switches(acquired):
        build.check_value(build.unpack(prims.unpack_call, function), value, f"{function.__name__}()")
    if isinstance(fn, torch.nn.Module):
        build.module(fn)
    build.call(args, kwargs)
    if written:
        constants = acquired.trace.constants
        build.trace.constants |= constants
        others = tuple(p for p in (*acquired.trace.inputs, *constants) if p not in set(written))
        build.guard(
            prims.check_disjoint, tuple(written), others, overlap=overlap, reason="an input that the program writes shares memory with another input"
        )
    program = Proxy("computation")
    build.trace.constants[program] = run
    build.line(prims.call_program, (program, *acquired.trace.inputs), {}, None)
    return build.trace


def _switches(acquired: Acquired) -> list[tuple[Callable, Any]]:
    found = [(torch.is_grad_enabled, torch.is_grad_enabled()), (any_autocast, False)]
    if "default_dtype" in acquired.read:
        found.append((torch.get_default_dtype, torch.get_default_dtype()))
    if "default_device" in acquired.read:
        found.append((torch.get_default_device, torch.get_default_device()))
    return found


def overlap(written: tuple, others: tuple) -> bool:
    """Whether a tensor in `written` shares its storage with another in `written` or `others`."""
    storages = [x.untyped_storage().data_ptr() for x in written if x.numel()]
    return len(set(storages)) < len(storages) or not set(storages).isdisjoint([x.untyped_storage().data_ptr() for x in others if x.numel()])


class _Builder:
    """Records the lines of a prologue."""

    def __init__(self, acquired: Acquired):
        self.args, self.kwargs = Proxy("args"), Proxy("kwargs")
        self.trace = Trace("prologue", inputs=[self.args, self.kwargs], made_by="guards", names=acquired.trace.names)
        self.tensors = {id(x): p for x, p in zip(acquired.tensors, acquired.trace.inputs, strict=True)}
        self.found: set[Proxy] = set()  # inputs that a line before has unpacked

    def unpack(self, symbol: Symbol, *args: Any, out: Proxy | None = None, **kwargs: Any) -> Proxy:
        """A line that unpacks something, into `out` or a new name."""
        made = Proxy(f"v{next(self.trace.names)}") if out is None else out
        self.line(symbol, args, kwargs, made)
        return made

    def guard(self, symbol: Symbol, *args: Any, reason: str, **kwargs: Any) -> None:
        """A line that checks something; `reason` is what a miss says."""
        self.line(symbol, args, kwargs | {"miss": Miss(reason)}, None)

    def line(self, symbol: Symbol, args: tuple, kwargs: dict, out: Proxy | None) -> None:
        reads = [a for a in args if isinstance(a, Proxy)]
        self.trace.lines.append(BoundSymbol(symbol, args, kwargs, out, reads))

    def call(self, args: tuple, kwargs: dict) -> None:
        """Guard the arguments of a call, which are always a tuple and a dict."""
        self.guard(prims.check_count, self.args, length=len(args), reason=f"the call no longer has {len(args)} positional arguments")
        for i, item in enumerate(args):
            self.item(self.args, i, item, f"args[{i}]")
        self.guard(prims.check_count, self.kwargs, length=len(kwargs), reason=f"the call no longer has the keyword arguments {list(kwargs)}")
        if kwargs:
            self.nest(self.kwargs, kwargs, "kwargs")
        tensors = [self.tensors[id(x)] for x in dict.fromkeys(x for x in trees.flatten((args, kwargs))[0] if isinstance(x, torch.Tensor))]
        if len(tensors) > 1:
            self.guard(prims.check_distinct, *tensors, reason="one tensor is given twice, or two that were one are not")

    def nest(self, at: Proxy, value: Any, where: str) -> None:
        """Guard the container `value` that stands at `at`, and what is in it."""
        kind = type(value)
        if kind in (tuple, list) or (isinstance(value, tuple) and hasattr(value, "_fields")):
            self.guard(prims.check_length, at, type=kind, length=len(value), reason=f"{where} is no longer a {kind.__name__} of length {len(value)}")
            for i, item in enumerate(value):
                self.item(at, i, item, f"{where}[{i}]")
        elif kind is dict:
            self.guard(prims.check_keys, at, type=kind, keys=tuple(value), reason=f"{where} no longer has the keys {list(value)}")
            for key, item in value.items():
                self.item(at, key, item, f"{where}[{key!r}]")
        elif dataclasses.is_dataclass(value) and kind not in torch.utils._pytree.SUPPORTED_NODES:
            self.guard(prims.check_type, at, type=kind, reason=f"{where} is no longer a {kind.__name__}")
            for field in dataclasses.fields(value):
                self.attribute(at, field.name, getattr(value, field.name), where)
        elif kind in torch.utils._pytree.SUPPORTED_NODES:
            leaves, tree = trees.flatten(value)
            unpacked = Proxy(f"v{next(self.trace.names)}")
            miss = Miss(f"{where} no longer has the structure it had")
            self.line(prims.unpack_leaves, (at,), {"flatten": trees.flatten, "tree": tree, "miss": miss}, unpacked)
            for i, leaf in enumerate(leaves):
                self.item(unpacked, i, leaf, f"{where}, leaf {i}")
        else:
            self.check_value(at, value, where)

    def item(self, at: Proxy, key: Any, value: Any, where: str) -> None:
        if isinstance(value, torch.Tensor):
            self.tensor(prims.unpack_item, at, value, where, key=key)
        else:
            self.nest(self.unpack(prims.unpack_item, at, key=key), value, where)

    def attribute(self, at: Any, name: str, value: Any, where: str) -> None:
        if isinstance(value, torch.Tensor):
            self.tensor(prims.unpack_attr, at, value, f"{where}.{name}", name=name)
        else:
            self.nest(self.unpack(prims.unpack_attr, at, name=name), value, f"{where}.{name}")

    def tensor(self, unpack: Symbol, at: Any, value: torch.Tensor, where: str, **key: Any) -> None:
        proxy = self.tensors[id(value)]
        if proxy in self.found:
            again = self.unpack(unpack, at, **key)
            self.guard(prims.check_identity, again, value=proxy, reason=f"{where} is no longer the same tensor as {proxy.name}")
            return
        self.found.add(proxy)
        self.unpack(unpack, at, out=proxy, **key)
        self.guard(
            prims.check_tensor,
            proxy,
            type=type(value),
            dtype=value.dtype,
            shape=proxy.spec.shape,
            device=None if value.is_cpu else value.device,
            requires_grad=value.requires_grad,
            strides=None if proxy.spec.strides is None else tuple(value.stride()),
            reason=f'{where} is no longer a tensor "{proxy.spec}"' + " that requires grad" * value.requires_grad,
        )

    def check_value(self, at: Proxy, value: Any, where: str) -> None:
        if isinstance(value, _VALUES):
            self.guard(prims.check_value, at, type=type(value), value=value, reason=f"{where} is no longer {value!r}")
        else:
            self.guard(prims.check_identity, at, value=value, reason=f"{where} is no longer the same {type(value).__name__}")

    def module(self, fn: torch.nn.Module) -> None:
        """Parameters and buffers are inputs, read anew at each call; submodules, mode, hooks and plain attributes are guarded."""
        for path, module in fn.named_modules():
            where = f"module.{path}" if path else "module"
            at = Proxy(where.replace(".", "_"))
            self.trace.constants[at] = module
            self.submodules(at, module, where)
            for table in ("_parameters", "_buffers"):
                if held := getattr(module, table):
                    self.table(self.unpack(prims.unpack_attr, at, name=table), held, where)
            self.module_attributes(at, module, where)

    def submodules(self, at: Proxy, module: torch.nn.Module, where: str) -> None:
        if not module._modules:
            return
        table = self.unpack(prims.unpack_attr, at, name="_modules")
        self.guard(prims.check_length, table, type=dict, length=len(module._modules), reason=f"{where} has other submodules")
        for name, child in module._modules.items():
            found = self.unpack(prims.unpack_item, table, key=name)
            self.guard(prims.check_identity, found, value=child, reason=f"{where}.{name} was replaced")

    def table(self, at: Proxy, held: dict, where: str) -> None:
        for name, x in held.items():
            if x is None:
                self.check_value(self.unpack(prims.unpack_item, at, key=name), None, f"{where}.{name}")
            else:
                self.tensor(prims.unpack_item, at, x, f"{where}.{name}", key=name)

    def module_attributes(self, at: Proxy, module: torch.nn.Module, where: str) -> None:
        for name, value in vars(module).items():
            if name not in _OWN and isinstance(value, _VALUES) and name.isidentifier():
                self.check_value(self.unpack(prims.unpack_attr, at, name=name), value, f"{where}.{name}")
        for name in ("_forward_hooks", "_forward_pre_hooks"):
            hooks, found = getattr(module, name), self.unpack(prims.unpack_attr, at, name=name)
            self.guard(prims.check_length, found, type=type(hooks), length=len(hooks), reason=f"{where} has other forward hooks")
