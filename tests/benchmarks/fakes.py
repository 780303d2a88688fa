"""Tiny workloads and subjects, good and bad, as `benchmarks/worker.py` takes them."""

from __future__ import annotations

import os
import time

import torch
from subjects import Subject
from workloads import BOTH, Case, Suite

SUITE = Suite()


@SUITE.workload("double", "x + x", dtypes=BOTH)
def double():
    return Case(lambda x: x + x, (torch.randn(8),))


@SUITE.workload("train", "the sum of squares and its gradient", dtypes=BOTH, training=True)
def train():
    x = torch.randn(8, requires_grad=True)
    return Case(lambda x: (x * x).sum(), (x,), leaves=[x])


@SUITE.workload("write", "x += 1")
def write():
    x = torch.zeros(8)
    return Case(lambda x: x.add_(1), (x,), inputs=[], state=[x])


@SUITE.workload("lossy", "(x + 1e6) - 1e6, of which few digits are left")
def lossy():
    return Case(lambda x: (x + 1e6) - 1e6, (torch.randn(8),))


def dies(fn):
    os.abort()


def sleeps(fn):
    time.sleep(60)


def raises(fn):
    raise RuntimeError("no such kernel\nand more that nobody wants to read")


def baked(fn):
    """Right in the first call, whose result it keeps."""
    results = []
    return lambda *args: results[0] if results else results.append(fn(*args)) or results[0]


COMPILERS = {
    "eager": lambda fn: fn,
    "same": lambda fn: lambda *args: fn(*args),
    "wrong": lambda fn: lambda *args: fn(*args) + 1,
    "other dtype": lambda fn: lambda *args: fn(*args).double(),
    "careful": lambda fn: lambda x: fn(x.double()).float(),
    "nothing": lambda fn: lambda *args: None,
    "baked": baked,
    "no gradient": lambda fn: lambda x: fn(x.detach()) + 0 * x[0],
    "writes nothing": lambda fn: lambda x: x + 1,
    "dies": dies,
    "sleeps": sleeps,
    "raises": raises,
}


def subject(name):
    return Subject(name, COMPILERS[name])
