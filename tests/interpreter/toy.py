"""A compiler that compiles nothing: it records torch calls on real tensors, and runs them again where the guards hold.

It shows what a tracked run sees; `dovetail.jit` puts proxies in the place of the tensors.
"""

from __future__ import annotations

import types
from typing import Any

import torch

from dovetail.frontend.interpreter.classes import lookup
from dovetail.frontend.interpreter.frame import NULL
from dovetail.frontend.interpreter.tracking import Recorder, capture
from dovetail.frontend.interpreter.tracking.prologue import prologue

TORCH_MODULES = ("torch.nn.functional", "torch._C", "torch.functional", "torch._tensor", "torch._C._nn", "torch")
METADATA = frozenset({"size", "dim", "numel", "stride", "is_contiguous", "type", "get_device", "__len__", "is_floating_point", "is_complex"})
HOST = frozenset({"item", "tolist", "__bool__", "__int__", "__float__", "__index__", "numpy"})
TABLES = ("_parameters", "_buffers", "_modules")
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
SWITCHES = (torch.is_grad_enabled, torch.get_default_dtype)


class DataDependent(TypeError):
    """The program asks for the value of a tensor."""


def is_torch(function: Any) -> bool:
    """Whether a callable is one of torch's own operations."""
    kind = type(function)
    if kind is types.BuiltinFunctionType:
        owner = function.__self__
        known = isinstance(owner, torch.Tensor) or function.__module__ in TORCH_MODULES
        return known or getattr(torch._C._VariableFunctions, function.__name__, None) is function
    if kind is types.MethodWrapperType:
        return isinstance(function.__self__, torch.Tensor)
    if kind is types.FunctionType:
        return function.__module__ in TORCH_MODULES
    return kind in (types.MethodDescriptorType, types.WrapperDescriptorType) and issubclass(function.__objclass__, torch._C.TensorBase)


class RealTensors(Recorder):
    """Records calls on real tensors: each line is (function, args, kwargs, places of the results)."""

    atoms = frozenset({torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size})

    def __init__(self):
        self.lines, self.inputs, self.kept, self.place = [], [], [], {}

    def is_tensor(self, value):
        return isinstance(value, torch.Tensor)

    def is_module(self, value):
        return isinstance(value, torch.nn.Module)

    def handles(self, function):
        return is_torch(function)

    def place_of(self, tensor):
        """The place of a tensor among what the recorded lines give."""
        if id(tensor) not in self.place:
            raise TypeError("a tensor of unknown origin: an opaque call made it, so that it would be baked in")
        return self.place[id(tensor)]

    def new(self, tensor):
        place = self.place[id(tensor)] = len(self.kept)
        self.kept.append(tensor)
        return place

    def reach(self, tracker, tensor, source):
        if id(tensor) not in self.place:
            facts = type(tensor), tensor.dtype, tensor.shape, tensor.stride(), tensor.device, tensor.requires_grad
            tracker.guard("tensor", source, Check(facts))
            self.inputs.append((source, self.new(tensor)))
            tracker.known[id(tensor)] = tensor, source
        elif tracker.source(tensor) not in (None, source):
            tracker.guard("same", source, tracker.source(tensor))
        return tensor

    def load_attr(self, tracker, owner, name):
        if isinstance(owner, torch.Tensor):
            value = getattr(owner, name)
            return self.record(tracker, getattr, [owner, name], {}) if isinstance(value, torch.Tensor) else value
        if not isinstance(owner, torch.nn.Module) or type(owner).__getattr__ is not torch.nn.Module.__getattr__:
            return NULL
        if lookup(type(owner), name) is not NULL or name in owner.__dict__ or tracker.effects.now(owner, name) is not NULL:
            return NULL
        source = tracker.outside(owner)
        for table in TABLES:
            members = owner.__dict__.get(table, {})
            if name in members:
                if source is None:
                    return members[name]
                tracker.guard("hasnot", tracker.sources.attr(source, "__dict__"), name)
                path = tracker.sources.field(source, table)
                tracker.known.setdefault(id(members), (members, path))
                return tracker.get_item(members, name)
        return NULL

    def operate(self, tracker, op, args):
        if op == "get_item":
            return self.record(tracker, torch.Tensor.__getitem__, args, {})
        if op == "set_item":
            return self.record(tracker, torch.Tensor.__setitem__, args, {})
        if op == "len":
            return args[0].shape[0]
        return self.record(tracker, torch.unbind if op == "iter" else op, args, {})

    def truth(self, tracker, tensor):
        raise DataDependent("the program branches on the value of a tensor")

    def call(self, tracker, function, args, kwargs, frame):
        if isinstance(function, torch.nn.Module):
            return self.call_module(tracker, function, args, kwargs, frame)
        if function in (int, float, complex) and args and isinstance(args[0], torch.Tensor):
            raise DataDependent(f"{function.__name__}() asks for the value of a tensor")
        return self.record(tracker, function, args, kwargs) if is_torch(function) else NULL

    def call_module(self, tracker, module, args, kwargs, frame):
        """Without hooks, nn.Module.__call__ is forward."""
        if type(module).__call__ is not torch.nn.Module.__call__:
            return NULL
        source = tracker.outside(module)
        hooked = any(getattr(module, hooks) for hooks in HOOKS)
        if source is not None and not hooked:
            for hooks in HOOKS:
                tracker.guard("falsy", tracker.sources.field(source, hooks))
        if hooked:
            return tracker.call(torch.nn.Module._call_impl, [module, *args], kwargs, frame)
        return tracker.call(tracker.load_attr(module, "forward"), args, kwargs, frame)

    def record(self, tracker, function, args, kwargs):
        name = getattr(function, "__name__", "")
        if name in HOST:
            raise DataDependent(f"{name}() asks for the value of a tensor")
        if isinstance(function, (types.BuiltinFunctionType, types.MethodWrapperType)) and isinstance(function.__self__, torch.Tensor):
            args, function = [function.__self__, *args], getattr(torch.Tensor, name)
        args, kwargs = [tracker.plain(x) for x in args], {key: tracker.plain(x) for key, x in kwargs.items()}
        out = function(*args, **kwargs)
        several = isinstance(out, (tuple, list))
        results = out if several else (out,)
        made = any(isinstance(x, torch.Tensor) for x in results)
        if not made and name not in ("__setitem__", "_set_grad_enabled"):
            return out
        line_args = [self.template(tracker, x) for x in args]
        line_kwargs = {key: self.template(tracker, x) for key, x in kwargs.items()}
        places = [self.place[id(x)] if id(x) in self.place else self.new(x) for x in results] if made else []
        self.lines.append((function, line_args, line_kwargs, places, several))
        return out

    def template(self, tracker, value):
        """A function of the environment that gives `value` again."""
        if isinstance(value, torch.Tensor):
            place = self.place_of(value)
            return lambda env: env[place]
        if type(value) in (list, tuple):
            parts, kind = [self.template(tracker, x) for x in value], type(value)
            return lambda env: kind(part(env) for part in parts)
        return lambda env: value


class Check:
    """A test of a tensor's metadata."""

    def __init__(self, facts):
        self.facts = facts

    def __call__(self, x):
        return isinstance(x, torch.Tensor) and (type(x), x.dtype, x.shape, x.stride(), x.device, x.requires_grad) == self.facts


class Entry:
    """One trace of a function."""

    def __init__(self, fn, args, kwargs):
        self.recorder = recorder = RealTensors()
        self.tracker, self.captured = capture(fn, args, kwargs, recorder)
        tracker = self.tracker
        for switch in SWITCHES:
            tracker.guard("env", tracker.sources.const(switch), switch())
        self.guards = list(tracker.guards.values())
        sources = [*(source for source, _ in recorder.inputs), *self.captured.sources]
        self.prologue = prologue(self.guards, sources, getattr(fn, "__name__", type(fn).__name__))

    def run(self, found):
        recorder = self.recorder
        env = [None] * len(recorder.kept)
        for (_, place), value in zip(recorder.inputs, found, strict=False):
            env[place] = value
        for function, args, kwargs, places, several in recorder.lines:
            out = function(*[x(env) for x in args], **{key: x(env) for key, x in kwargs.items()})
            for place, value in zip(places, out if several else (out,), strict=False):
                env[place] = value
        return self.captured.finish(env, found[len(recorder.inputs) :])


class Toy:
    """What `toy(fn)` gives: entries, and why each miss happened."""

    def __init__(self, fn):
        self.fn, self.entries, self.misses = fn, [], []

    def __call__(self, *args, **kwargs):
        given = (self.fn, *args, kwargs)
        for entry in self.entries:
            failed, found = entry.prologue(given)
            if failed is None:
                return entry.run(found)
            self.misses.append(str(entry.guards[failed]) if isinstance(failed, int) else failed)
        entry = Entry(self.fn, args, kwargs)
        self.entries.insert(0, entry)
        failed, found = entry.prologue(given)
        assert failed is None, f"the guards of a new trace fail: {entry.guards[failed] if isinstance(failed, int) else failed}\n{entry.prologue.text}"
        return entry.run(found)
