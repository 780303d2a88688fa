"""Compiled functions see the world around them: what they depend on is guarded, what they write is written at every call."""

from __future__ import annotations

import abc
import collections
import contextlib
import contextvars
import dataclasses
import enum
import functools
import importlib.util
import itertools
import math
import operator
import sys
import threading
import types
import weakref
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dovetail
from dovetail.errors import TracedValueError, Unsupported
from dovetail.frontend.bytecode import acquire
from dovetail.frontend.interpreter.tracebacks import is_own, is_stub

HERE = Path(__file__).parent
jit = functools.partial(dovetail.jit, interpretation="bytecode")


def _load(name):
    spec = importlib.util.spec_from_file_location(f"interpreter_{name}", HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FILES = ("programs", "objects", "tensors", "constants", "registries", "classes", "python314")
values, objects, tensors, constants, registries, classes, newest = (_load(f"stale_{name}") for name in FILES)
PROGRAMS = [
    *values.programs(values.TEXT),
    *values.programs(objects.TEXT, BOX=objects.BOX, ITEMS=objects.ITEMS, OWN=objects.OWN),
    *values.programs(tensors.TEXT, NET=tensors.NET),
    *values.programs(constants.TEXT, CLASSES=constants.CLASSES),
    *values.programs(registries.TEXT),
    *values.programs(classes.TEXT),
    *(values.programs(newest.TEXT) if sys.version_info >= (3, 14) else ()),
]
LIBRARIES = (abc, collections, contextlib, contextvars, dataclasses, enum, functools, itertools, math, operator, threading, types, weakref, torch)


@pytest.fixture(autouse=True)
def switches():
    silu = F.silu
    yield
    getattr(sys.modules.pop("program", None), "reset", lambda: None)()
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    F.silu = silu


def module_of(program):
    """A fresh module with a program in it."""
    sys.modules["program"] = made = types.ModuleType("program")
    vars(made).update({library.__name__: library for library in LIBRARIES}, nn=nn, F=F)
    run(program, made)
    return made


def run(program, made):
    exec(compile(program, "<program>", "exec", dont_inherit=True), vars(made))


def arguments(made, i):
    return made.args(i) if hasattr(made, "args") else (torch.arange(16.0).reshape(4, 4) / 7,)


def agree(compiled, eager, args):
    for shift in (0, 1):  # other values, so that none can have been baked in
        given = [x + shift if isinstance(x, torch.Tensor) else x for x in args]
        torch.testing.assert_close(compiled(*given), eager(*given))


@pytest.mark.parametrize("program, change", [pytest.param(program, change, id=name) for name, program, change in PROGRAMS])
def test_a_change_outside_is_seen(program, change):
    made = module_of(program)
    compiled = jit(made.f)
    agree(compiled, made.f, arguments(made, 0))
    assert len(compiled._cache.entries) == 1, dovetail.cache_misses(compiled)
    run(change, made)
    agree(compiled, made.f, arguments(made, 1))


def test_there_are_at_least_a_hundred_programs():
    assert len(PROGRAMS) >= 100
    assert len({name for name, _, _ in PROGRAMS}) == len(PROGRAMS)


def test_no_code_of_the_program_runs_natively_while_it_is_traced():
    seen = collections.Counter()

    def watch(frame, event, arg):
        code, caller = frame.f_code, frame.f_back
        users = code.co_filename == "<program>" and not is_stub(code)
        if event == "call" and users and caller is not None and is_own(caller):
            seen[code.co_qualname] += 1

    for _, program, _ in PROGRAMS:
        made = module_of(program)
        args = arguments(made, 0)
        sys.setprofile(watch)
        try:
            acquire(made.f, args, {})
        finally:
            sys.setprofile(None)
    seen.pop("O.__class__", None)  # which isinstance() calls, also the interpreter's own
    seen.pop("M.__getattribute__", None)  # which reading a flag of a class calls
    for name in ("behind_cache", "O.behind_cache"):
        seen.pop(name)  # which functools.lru_cache calls where it has no result
    seen.pop("K.__hash__", None)  # which dicts call, where keys are found by hashes that may have changed
    assert not seen


EFFECTS = {  # program with f, read and reset; how many traces four calls may take
    "appends": (
        "log = []\ndef f(t):\n    log.append(t.sum())\n    log.append(3)\n    return t + 1\n"
        "def read(): return [float(v) for v in log]\ndef reset(): log.clear()",
        1,
    ),
    "append, then read": (
        "log = []\ndef f(t):\n    log.append(2.0)\n    return t * len(log) * log[-1]\ndef read(): return list(log)\ndef reset(): log.clear()",
        4,
    ),
    "an attribute is written and read": (
        "class Box: pass\nb = Box()\ndef f(t):\n    b.v = t.sum()\n    b.new = {'k': [t, 1]}\n    return t * b.v\n"
        "def read(): return float(b.v), float(b.new['k'][0].sum())\ndef reset(): pass",
        1,
    ),
    "a counter": (
        "class Box: pass\nb = Box()\ndef f(t):\n    b.v += 1\n    return t * b.v\ndef read(): return b.v\ndef reset(): b.v = 0",
        4,
    ),
    "an item is set and read": (
        "state = {}\ndef f(t):\n    state['last'] = t * 2\n    state['n'] = 1\n    return state['last'] + 1\n"
        "def read(): return float(state['last'].sum())\ndef reset(): state.clear()",
        2,
    ),
    "a global": (
        "total = 0.0\ndef f(t):\n    global total\n    total = t.sum() * 2\n    return t + total\n"
        "def read(): return float(total)\ndef reset(): globals().update(total=0.0)",
        1,
    ),
    "a variable of a closure": (
        "def make():\n    n = 0\n    def f(t):\n        nonlocal n\n        n = t.mean()\n        return t + n\n"
        "    return f, lambda: float(n)\nf, read = make()\ndef reset(): pass",
        1,
    ),
    "a fresh object escapes": (
        "log = []\nclass Box:\n    def __init__(self, v): self.v, self.items = v, [1.0]\n"
        "def f(t):\n    log.append(Box(2.0))\n    log[-1].v = 5.0\n    return t\n"
        "def read(): return [(b.v, b.items) for b in log], len({id(b) for b in log})\ndef reset(): log.clear()",
        4,
    ),
    "the dict of an instance is written": (
        "class Box: pass\nb = Box()\ndef f(t):\n    b.__dict__['v'] = 3.0\n    b.__dict__.update(w=t.sum())\n    return t * b.v + b.w\n"
        "def read(): return b.v, float(b.w)\ndef reset(): pass",
        1,
    ),
    "an attribute is deleted": (
        "class Box: pass\nb = Box()\ndef f(t):\n    del b.v\n    return t + 1 if hasattr(b, 'v') else t\n"
        "def read():\n    had = hasattr(b, 'v')\n    b.v = 1\n    return had\ndef reset(): b.v = 1",
        1,
    ),
    "an attribute is deleted by a descriptor": (
        "class D:\n    def __get__(self, owner, cls): return owner.v\n    def __delete__(self, owner): owner.v = n\n"
        "class C: p = D()\nc, n = C(), 3.0\nc.v = 2.0\ndef f(t):\n    t = t * c.p\n    del c.p\n    return t + c.p\n"
        "def read(): return c.v\ndef reset(): c.v = 2.0",
        2,
    ),
    "attributes of a class are properties of its metaclass": (
        "class M(type):\n    @property\n    def p(cls): return cls.v\n    @p.setter\n    def p(cls, value): cls.v = value * 2\n"
        "    @p.deleter\n    def p(cls): cls.v += 1.0\nclass C(metaclass=M): v = 1.0\n"
        "def f(t):\n    C.p = 2.0\n    del C.p\n    return t + C.p\ndef read(): return C.v\ndef reset(): C.v = 1.0",
        2,
    ),
    "printed": (
        "message = []\nimport builtins\ndef f(t):\n    print('message', 3, file=out)\n    return t\nimport io\nout = io.StringIO()\n"
        "def read(): return out.getvalue()\ndef reset(): out.truncate(0), out.seek(0)",
        1,
    ),
    "a counter of collections": (
        "import collections\nc = collections.Counter()\ndef f(t):\n    c.update('ab')\n    c['a'] += 1\n    return t * c['a']\n"
        "def read(): return dict(c)\ndef reset(): c.clear()",
        4,
    ),
    "what is inside a written container is written": (
        "d = {'l': []}\ndef f(t):\n    d['x'] = 1.0\n    d['l'].append(2.0)\n    return t * len(d) * len(d['l'])\n"
        "def read(): return list(d['l']), sorted(d)\ndef reset():\n    d.clear()\n    d['l'] = []",
        4,
    ),
    "an outside list goes through fresh containers": (
        "log, few = [], [1.0]\ndef f(t):\n    held = [[]]\n    held.append(log)\n    held[1].append(3.0)\n    {'k': log}.get('k', few).append(4.0)\n"
        "    return t * len(held)\ndef read(): return list(log)\ndef reset(): log.clear()",
        1,
    ),
    "a list is sorted by a function": (
        "ns, sign = [1.0, 3.0, 2.0], -1\ndef f(t):\n    ns.sort(key=lambda v: v * sign)\n    return t * ns[0]\n"
        "def read(): return list(ns)\ndef reset(): ns[:] = [1.0, 3.0, 2.0]",
        2,
    ),
    "an outside list is extended in place": (
        "log = []\ndef f(t):\n    global log\n    log += [t.sum(), 1.0]\n    return t\n"
        "def read(): return [float(v) for v in log]\ndef reset(): log.clear()",
        4,
    ),
}


@pytest.mark.parametrize("name", EFFECTS)
def test_writes_happen_at_every_call_and_in_order(name):
    program, most = EFFECTS[name]
    given = [torch.ones(4) + i for i in range(4)]
    eager = module_of(program)
    eager.reset()
    wanted = [(eager.f(x), eager.read()) for x in given]
    made = module_of(program)
    made.reset()
    compiled = jit(made.f)
    for x, (value, seen) in zip(given, wanted, strict=True):
        torch.testing.assert_close(compiled(x), value)
        assert made.read() == seen
    assert len(compiled._cache.entries) <= most, dovetail.cache_misses(compiled)


def test_tracing_writes_nothing():
    made = module_of("log = []\ndef f(t):\n    log.append(1)\n    global g\n    g = 2\n    return t")
    acquire(made.f, (torch.ones(2),), {})
    assert made.log == [] and not hasattr(made, "g")


def test_results_are_made_anew_at_every_call():
    def f(t):
        inner = [t, t + 1]
        return {"a": inner, "b": inner, "f": lambda v: v * inner[0]}

    compiled = jit(f)
    x = torch.ones(2)
    one, other = compiled(x), compiled(x + 1)
    assert len(compiled._cache.entries) == 1
    assert one["a"] is one["b"] is not other["a"]
    torch.testing.assert_close(other["f"](torch.full((2,), 3.0)), torch.full((2,), 6.0))


MODELS = {
    "encoder layer": lambda: nn.TransformerEncoderLayer(16, 2, dropout=0.0, batch_first=True),
    "encoder layer in eval mode": lambda: nn.TransformerEncoderLayer(16, 2, batch_first=True).eval(),
    "sequential": lambda: nn.Sequential(nn.Linear(16, 4), nn.GELU(), nn.LayerNorm(4), nn.Dropout(0.0)),
    "batch norm": lambda: nn.Sequential(nn.BatchNorm1d(5), nn.Linear(16, 4)),
    "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(16, 4)),
    "multi-head attention": lambda: Attends(),
    "lstm": lambda: nn.Sequential(nn.LSTM(16, 8, batch_first=True)),
}


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


@pytest.mark.parametrize("name", MODELS)
def test_a_module_is_traced_once_and_agrees(name):
    torch.manual_seed(0)
    model = MODELS[name]()
    compiled, x = jit(model), torch.randn(2, 5, 16)
    for given in (x, x + 1):
        torch.testing.assert_close(compiled(given), model(given))
    assert len(compiled._cache.entries) == 1, dovetail.cache_misses(compiled)


def test_a_branch_on_a_tensor_is_an_error_with_the_users_line():
    def f(t):
        if t.sum() > 0:
            return t
        return -t

    with pytest.raises(TracedValueError) as caught:
        jit(f, decisions="error")(torch.ones(2))
    assert caught.traceback[-1].lineno + 1 == f.__code__.co_firstlineno + 1 or "f" in [entry.name for entry in caught.traceback]


def test_an_iterator_from_outside_is_refused():
    numbers = iter([1.0, 2.0])
    with pytest.raises(Unsupported, match="list_iterator that was created outside"):
        jit(lambda t: t * next(numbers))(torch.ones(2))


def test_a_generator_that_escapes_is_refused():
    with pytest.raises(Unsupported, match="leaves the program before it has ended"):
        jit(lambda t: (t * i for i in range(2)))(torch.ones(2))
