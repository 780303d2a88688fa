"""Checks of classes and dictionaries are skipped while these stay what they were, and run again after each change."""

from __future__ import annotations

import sys
from contextlib import contextmanager

import pytest
import torch
from llvm_against_eager import assert_same, compiled
from torch.autograd import forward_ad

import dovetail
from dovetail.extend.advanced import torch_internals
from dovetail.frontend.guards.guard import Miss
from dovetail_llvm_exec.call import entry as entries
from dovetail_llvm_exec.call import versions


class Base:
    factor = 2.0


class Other:
    factor = 3.0


class Derived(Base):
    pass


class Meta(type):
    pass


class Bound(metaclass=Meta):
    bound = 1.0


OFFSET = 1.0
HOOKS: list[int] = []


def scaled(x):
    if HOOKS:
        return x
    return x * Derived.factor + OFFSET + Bound.bound


@contextmanager
def appended(items):
    items.append(1)
    yield
    items.clear()


@contextmanager
def autocast_of(device):
    torch.set_autocast_enabled(device, True)
    yield
    torch.set_autocast_enabled(device, False)


@contextmanager
def patched(owner, name, value):
    own = name in vars(owner) or name in ("__bases__", "__code__")
    before = getattr(owner, name, None)
    setattr(owner, name, value)
    yield
    if own:
        setattr(owner, name, before)
    else:
        delattr(owner, name)


CHANGES = {
    "an attribute of a class": lambda: patched(Derived, "factor", 3.0),
    "an attribute of a base": lambda: patched(Base, "factor", 3.0),
    "the bases": lambda: patched(Derived, "__bases__", (Other,)),
    "an attribute of a metaclass": lambda: patched(Meta, "bound", property(lambda cls: 3.0)),
    "a global": lambda: patched(sys.modules[__name__], "OFFSET", 3.0),
    "what a global holds": lambda: appended(HOOKS),
    "a global that holds another list": lambda: patched(sys.modules[__name__], "HOOKS", [1]),
    "a method of tensors": lambda: patched(torch.Tensor, "__mul__", lambda x, y: x),
    "the code of the function": lambda: patched(scaled, "__code__", (lambda x: x).__code__),
    "a level of forward-mode differentiation": forward_ad.dual_level,
    **{f"autocast of {device}": lambda device=device: autocast_of(device) for device in ("cpu", "cuda", "xpu")},
}


@pytest.fixture(params=["watched", "unwatched"])
def way(request, monkeypatch):
    """Classes and dictionaries have versions, or none that are known."""
    if request.param == "unwatched":
        monkeypatch.setattr(versions, "are_known", lambda: False)
        monkeypatch.setattr(versions, "tag_offset", lambda: None)
        monkeypatch.setattr(versions, "code_offset", lambda: None)
    return request.param


def test_each_change_is_seen_and_what_is_as_before_fits_again(way):
    fn, x = compiled(scaled), torch.randn(4)
    expected = fn(x)
    run = fn._cache.entries[0].call
    assert type(run).__name__ == "builtin_function_or_method"
    for name, change in CHANGES.items():
        for _ in range(3):
            assert_same(run((x,), {}), expected)
        with change():
            assert [type(run((x,), {})) for _ in range(3)] == [Miss] * 3, name


@pytest.mark.skipif(not versions.are_known(), reason="dictionaries of this Python have no version that is known")
def test_what_can_be_skipped_is_watched():
    fn = compiled(scaled)
    fn(torch.randn(4))
    plan = entries.Plan(dovetail.last_prologue_traces(fn)[-1])
    assert {Derived, Bound, Meta} == set(plan.classes.values())
    assert id(globals()) in plan.tables and id(torch_internals.FORWARD_AD) in plan.tables


class Lazy:
    def __get__(self, instance, owner):
        return 1.0


class Strange(type):
    def __getattribute__(cls, name):
        return 1.0


@pytest.mark.parametrize(
    "kind, name",
    [
        (type("K", (), {"v": Lazy()}), "v"),
        (type("K", (), {"v": classmethod(len)}), "v"),
        (type("K", (), {"v": Base()}), "v"),
        (Strange("K", (), {"v": 1.0}), "v"),
        (Meta("K", (), {}), "missing"),
        (Base, "__name__"),
        (Base, "__dict__"),
    ],
)
def test_an_attribute_that_may_run_code_is_read_at_each_call(kind, name):
    assert versions.classes_behind(kind, name) is None


def test_versions_of_classes_and_the_code_of_functions_are_where_they_are_looked_for():
    assert versions.tag_offset() is not None and versions.code_offset() is not None
