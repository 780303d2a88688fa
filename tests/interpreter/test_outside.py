"""What is outside is read anew at each call and written at each call, by whatever way the program reaches it."""

from __future__ import annotations

import array
import bisect
import collections
import contextvars
import copy
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import hashlib
import heapq
import importlib.util
import inspect
import itertools
import json
import math
import operator
import pickle
import random
import re
import statistics
import string
import struct
import sys
import textwrap
import threading
import types
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch

import dovetail


def _load(file):
    spec = importlib.util.spec_from_file_location(f"interpreter_{file}", Path(__file__).parent / f"{file}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def programs(file):
    """Return the programs in a text by name."""
    parts = _load(file).TEXT.strip().removeprefix("== ").split("\n== ")
    return {name: program for name, _, program in (part.partition("\n") for part in parts)}


PROGRAMS = programs("moving_numbers") | programs("written_attributes")
LIBRARIES = (
    *(array, bisect, collections, contextvars, copy, dataclasses, datetime, decimal, enum, fractions, functools, hashlib, heapq, inspect),
    *(itertools, json, math, operator, pickle, random, re, statistics, string, struct, textwrap, threading, torch, types, weakref),
)
NUMBERS = (1, 2, 5, 10, 3, 17, 2)
VALUES = _load("outside_values")
READS = [(path, kind) for path in VALUES.PATHS for kind in VALUES.KINDS if path != "set" or kind in VALUES.HASHABLE]
USES = _load("uses_of_ints")
INTS = (3, 4, 5, 3, 7, 1, 2, 8, 6)


@pytest.fixture(autouse=True)
def no_program_left():
    yield
    sys.modules.pop("program", None)


def module_of(program):
    """Return a module with a program in it."""
    sys.modules["program"] = module = types.ModuleType("program")
    vars(module).update({library.__name__: library for library in LIBRARIES}, np=np)
    exec(compile(program, "<program>", "exec", dont_inherit=True), vars(module))
    return module


def outcomes(jit, program):
    """Return the result of each call, and what it left outside."""
    module = module_of(program)
    compiled, results = jit(module.f), []
    for number in NUMBERS:
        if hasattr(module, "put"):
            module.put(number)
        results.append(repr(compiled(torch.ones(1))))
        results.append(repr(module.seen()) if hasattr(module, "seen") else None)
    return results


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_call_does_as_in_eager_mode(program):
    assert outcomes(dovetail.jit, PROGRAMS[program]) == outcomes(lambda function: function, PROGRAMS[program])


def test_there_are_at_least_a_hundred_programs():
    assert len(PROGRAMS) >= 100


def reads(jit, path, kind):
    """Return what each call makes of a value that has become another one."""
    module = module_of(VALUES.program(path, kind))
    compiled, results = jit(module.f), []
    for value in VALUES.KINDS[kind][0]:
        module.put(value)
        try:
            results.append(repr(compiled(torch.ones(1))))
        except TypeError:  # a function that the path binds to its object
            results.append("a TypeError")
    return results


@pytest.mark.one_in(6)
@pytest.mark.filterwarnings("ignore:.*was compiled .* times", "ignore:.*is compiled for each value")
@pytest.mark.parametrize("path, kind", READS)
def test_a_value_is_read_as_it_is_now(path, kind):
    assert reads(dovetail.jit, path, kind) == reads(lambda function: function, path, kind)


def uses(jit, expression, of_size):
    """Return what each call makes of an int: an argument, or the size of one."""
    names = {library.__name__: library for library in LIBRARIES} | vars(USES) | {"np": np}
    fn = eval(f"lambda x: (lambda n: ({expression}))(x.shape[0])" if of_size else f"lambda x, n: ({expression})", names)
    compiled, results = jit(fn), []
    for n in INTS:
        random.seed(0)
        np.random.seed(0)
        torch.manual_seed(0)
        results.append(repr(compiled(torch.ones(n)) if of_size else compiled(torch.ones(1), n)))
    return results


@pytest.mark.filterwarnings("ignore:.*is compiled for each value", "ignore:.*each size is compiled separately")
@pytest.mark.parametrize("of_size", (False, True))
@pytest.mark.parametrize("expression", USES.TEXT.strip().splitlines())
def test_an_int_is_what_it_is_in_eager_mode(expression, of_size):
    assert uses(dovetail.jit, expression, of_size) == uses(lambda function: function, expression, of_size)
