"""No generated program that calls C code gives a stale result, and what reads the world outside is read at every call."""

from __future__ import annotations

import datetime
import importlib.util
import os
import random
import re
import time
import uuid
import warnings
from pathlib import Path

import numpy
import pytest
import torch

import dovetail
from dovetail.errors import Unsupported

HERE = Path(__file__).parent
SEED = 0


def _load(name):
    spec = importlib.util.spec_from_file_location(f"interpreter_{name}", HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generated = _load("generated")


def stale_programs(programs):
    counts, wrong, _ = generated.run(programs)
    refused = sum(row["refused"] for row in counts.values())
    assert refused < len(programs) / 20, "most programs have to run, or nothing is shown"
    return wrong


def test_no_program_of_the_first_is_stale():
    assert stale_programs(generated.generate(500, SEED)) == []


@pytest.mark.slow
def test_no_program_is_stale():
    assert stale_programs(generated.generate(5000, SEED)[500:]) == []


def test_a_believed_callable_would_be_noticed(monkeypatch):
    """The generator sees a rule that is missing: without mirrors `range(o)` believes what `__index__` gave."""
    programs = [program for program in generated.generate(1000, SEED) if program.name == "range" and "Index" in program.text]
    monkeypatch.setattr("dovetail.frontend.interpreter.tracking.tracker.Tracker.mirror", lambda tracker, value: value)

    assert stale_programs(programs) and any(["__index__" in call for call in generated.native_calls(programs[:4])])


X = torch.zeros(1, dtype=torch.float64)
GENERATOR = numpy.random.default_rng(0)
READ_ANEW = {
    "random": lambda x: x + random.random(),
    "random.uniform": lambda x: x + random.uniform(1, 2),
    "numpy.random": lambda x: x + numpy.random.rand(),
    "a generator of NumPy's": lambda x: x + GENERATOR.random(),
    "a clock": lambda x: x + time.perf_counter(),
    "a clock that is returned": lambda x: x * 0 + time.monotonic_ns() + 0 * x,
}


@pytest.mark.parametrize("name", READ_ANEW)
def test_the_world_outside_is_read_at_every_call(name):
    compiled = dovetail.jit(READ_ANEW[name])

    assert len({float(compiled(X)) for _ in range(4)}) == 4
    assert len(compiled._cache.entries) == 1


def test_draws_come_in_the_order_of_the_program():
    def draws(x):
        random.seed(3)
        return x + random.random() * torch.ones(1), x + random.uniform(1, 2)

    compiled = dovetail.jit(draws)

    for _ in range(2):
        torch.testing.assert_close(compiled(X), draws(X))
    random.seed(5)
    drawn = [float(dovetail.jit(lambda x: x + random.random())(X)) for _ in range(2)]
    random.seed(5)
    assert drawn == pytest.approx([random.random(), random.random()])


def test_what_python_may_branch_on_is_guarded(tmp_path):
    compiled = dovetail.jit(lambda x: x + len(os.listdir(tmp_path.as_posix())))

    assert float(compiled(X)) == 0
    (tmp_path / "file").touch()
    assert float(compiled(X)) == 1


def test_a_file_that_comes_and_goes_is_looked_for_at_every_call(tmp_path):
    file = tmp_path / "file"
    compiled = dovetail.jit(lambda x: x + os.path.exists(file.as_posix()))

    found = []
    for change in (file.exists, file.touch, file.unlink, file.touch):
        change()
        found.append(float(compiled(X)))
    assert found == [0, 1, 0, 1]


def test_a_replaced_function_of_numpy_is_seen(monkeypatch):
    compiled = dovetail.jit(lambda x, a: (x + numpy.sin(1.0), numpy.sum(a), numpy.exp(a)))
    array = numpy.ones(2)

    for name, other in (("sin", numpy.cos), ("sum", numpy.max), ("exp", numpy.log)):
        compiled(X, array)
        monkeypatch.setattr(numpy, name, other)
        torch.testing.assert_close(compiled(X, array), (X + numpy.sin(1.0), numpy.sum(array), numpy.exp(array)))


REFUSED = {
    "numpy.random.bytes": lambda x: x + len(numpy.random.bytes(2)),
    "datetime.datetime.now": lambda x: x + datetime.datetime.now().microsecond,
    "_io.open": lambda x: x + len(open("/dev/null").read()),  # noqa: SIM115
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_anew_is_refused_by_name(name):
    with pytest.raises(Unsupported, match=rf"{name.rpartition('.')[2]}\(\) is not supported in compiled functions: .*outside"):
        dovetail.jit(REFUSED[name])(X)


def test_names_that_are_unique_are_new_at_every_call():
    def named(x):
        name = f"t{uuid.uuid4().hex}"
        return {name: x * 2, "sum": x.sum()}

    compiled = dovetail.jit(named)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = [compiled(X + i) for i in range(4)]
    assert len({name for result in results for name in result}) == 5
    torch.testing.assert_close([[*result.values()] for result in results], [[(X + i) * 2, (X + i).sum()] for i in range(4)])
    # where uuid4 has no `if` between the draw and the name, as in some releases of Python 3.14, a line of it runs eagerly
    assert re.search(r"until .*uuid\.py:\d+; it runs eagerly|os\.urandom\(\) at .* had 2 outcomes", str(caught[0].message))


def test_an_outside_buffer_is_written():
    array = numpy.zeros(2)

    def program(x, a):
        a += 1
        return x + float(a.sum())

    for turn in range(1, 4):
        assert dovetail.jit(program)(X, array).tolist() == (X + 2 * turn).tolist()
        assert array.tolist() == [turn, turn]
