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


PLACES = {  # of an int: an argument, also of a function that needs a value, or the size of one
    "argument": "lambda x, n: (...)",
    "size": "lambda x: (lambda n: (...))(x.shape[0])",
    "beside a decision": "lambda x, n: (...) if x.sum() > 0 else None",
}


def uses(jit, expression, place):
    """Return what each call makes of an int."""
    names = {library.__name__: library for library in LIBRARIES} | vars(USES) | {"np": np}
    fn = eval(PLACES[place].replace("...", expression), names)
    compiled, results = jit(fn), []
    for n in INTS:
        random.seed(0)
        np.random.seed(0)
        torch.manual_seed(0)
        results.append(repr(compiled(torch.ones(n)) if place == "size" else compiled(torch.ones(1), n)))
    return results


@pytest.mark.filterwarnings("ignore:.*is compiled for each value", "ignore:.*each size is compiled separately")
@pytest.mark.parametrize(
    "expression, place",
    [
        (expression, place)
        for expression in USES.TEXT.strip().splitlines()
        for place in PLACES
        if place != "beside a decision" or not expression.startswith(("json.", "Ix("))  # such calls run eagerly, with a notice
    ],
)
def test_an_int_is_what_it_is_in_eager_mode(expression, place):
    assert uses(dovetail.jit, expression, place) == uses(lambda function: function, expression, place)
