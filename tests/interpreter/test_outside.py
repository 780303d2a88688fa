"""What is outside is read anew at each call and written at each call, by whatever way the program reaches it."""

from __future__ import annotations

import array
import collections
import contextvars
import copy
import dataclasses
import enum
import functools
import importlib.util
import inspect
import operator
import sys
import threading
import types
import weakref
from pathlib import Path

import pytest
import torch

import dovetail


def programs(file):
    """Return the programs in a text by name."""
    spec = importlib.util.spec_from_file_location(f"interpreter_{file}", Path(__file__).parent / f"{file}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    parts = module.TEXT.strip().removeprefix("== ").split("\n== ")
    return {name: program for name, _, program in (part.partition("\n") for part in parts)}


PROGRAMS = programs("moving_numbers") | programs("written_attributes")
LIBRARIES = (array, collections, contextvars, copy, dataclasses, enum, functools, inspect, operator, threading, torch, types, weakref)
NUMBERS = (1, 2, 5, 10, 3, 17, 2)


@pytest.fixture(autouse=True)
def no_program_left():
    yield
    sys.modules.pop("program", None)


def outcomes(jit, program):
    """Return the result of each call, and what it left outside."""
    sys.modules["program"] = module = types.ModuleType("program")
    vars(module).update({library.__name__: library for library in LIBRARIES})
    exec(compile(program, "<program>", "exec", dont_inherit=True), vars(module))
    compiled, results = jit(module.f), []
    for number in NUMBERS:
        if hasattr(module, "put"):
            module.put(number)
        results.append(compiled(torch.ones(1)).item())
        results.append(repr(module.seen()) if hasattr(module, "seen") else None)
    return results


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_call_does_as_in_eager_mode(program):
    assert outcomes(dovetail.jit, PROGRAMS[program]) == outcomes(lambda function: function, PROGRAMS[program])


def test_there_are_at_least_a_hundred_programs():
    assert len(PROGRAMS) >= 100
