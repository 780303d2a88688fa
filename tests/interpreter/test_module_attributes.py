"""Attributes that a module computes: by descriptors of its class, and by `__getattr__` and `__getattribute__`; programs change what they read."""

from __future__ import annotations

import functools
import operator
from types import ModuleType

import pytest
import torch

import dovetail


class Field:
    def __get__(self, module, cls):
        return module.box[0]

    def __set__(self, module, value):
        module.box[0] = value

    def __delete__(self, module):
        module.box[0] = 100.0


class WithProperty(ModuleType):
    @property
    def scale(self):
        return self.box[0]

    @scale.setter
    def scale(self, value):
        self.box[0] = value

    @scale.deleter
    def scale(self):
        self.box[0] = 100.0


class WithDescriptor(ModuleType):
    scale = Field()


class WithHooks(ModuleType):
    def __getattr__(self, name):
        if name == "scale":
            return self.box[0]
        raise AttributeError(name)

    def __setattr__(self, name, value):
        if name == "scale":
            self.box[0] = value
        else:
            super().__setattr__(name, value)

    def __delattr__(self, name):
        if name == "scale":
            self.box[0] = 100.0
        else:
            super().__delattr__(name)


class WithLookup(ModuleType):
    def __getattribute__(self, name):
        value = super().__getattribute__("box" if name == "scale" else name)
        return value[0] if name == "scale" else value


class WithCache(ModuleType):
    @functools.cached_property
    def scale(self):
        return self.box[0]


def with_function() -> ModuleType:
    """Return a module with a `__getattr__` of its own (PEP 562)."""
    module = ModuleType("with_function")
    exec("def __getattr__(name):\n    if name == 'scale':\n        return box[0]\n    raise AttributeError(name)", vars(module))
    return module


MODULES = {kind.__name__: functools.partial(kind, "computing") for kind in (WithProperty, WithDescriptor, WithHooks, WithLookup, WithCache)}
MODULES["with_function"] = with_function


def changed(module, x):
    module.box[0] = 5.0
    return x * module.scale


def by_name(module, x):
    module.box[0] = 6.0
    return x * getattr(module, "scale", 0.0) + operator.attrgetter("scale")(module) + hasattr(module, "scale") + hasattr(module, "other")


def stored(module, x):
    module.scale = module.scale + 3.0
    return x * module.scale


def deleted(module, x):
    del module.scale
    return x * module.scale


def results(call, module, x):
    """Return what three calls return, and what they leave in the module."""
    returned = []
    for value in (1.0, 2.0, 2.0):
        module.box = [value]
        vars(module).pop("scale", None)
        returned.append((call(module, x).tolist(), module.box, vars(module).get("scale")))
    return returned


STORING = ("WithProperty", "WithDescriptor", "WithHooks")
PROGRAMS = [
    *[(program, kind) for program in (changed, by_name) for kind in MODULES],
    *[(program, kind) for program in (stored, deleted) for kind in STORING],
]


@pytest.mark.filterwarnings("error", "ignore:.*in eager mode, since the program writes to a WithCache")
@pytest.mark.parametrize(("program", "kind"), PROGRAMS)
def test_what_a_program_changes_is_seen_by_what_a_module_computes(program, kind):
    x = torch.ones(2)
    assert results(dovetail.jit(program), MODULES[kind](), x) == results(program, MODULES[kind](), x)


def test_a_property_of_a_module_that_is_replaced_is_read_again(monkeypatch):
    module = WithProperty("computing")
    module.box = [2.0]
    compiled = dovetail.jit(lambda x: x * module.scale)
    assert compiled(torch.ones(1)).item() == 2.0
    monkeypatch.setattr(WithProperty, "scale", property(lambda self: 7.0))
    assert compiled(torch.ones(1)).item() == 7.0
