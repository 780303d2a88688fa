"""Where Inductor cannot compile, the plugin says so, and everything else works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import dovetail
from dovetail.errors import ExecutorError
from dovetail.extend.advanced import torch_internals
from dovetail_inductor_exec import dovetail_doctor, machine
from dovetail_inductor_exec.executor import inductor_executor

FOLDER = Path(__file__).parents[1]
COMPILES = machine.compiles()


def test_a_machine_without_a_compiler(monkeypatch, tmp_path):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    message = machine.available()
    assert "there is no compiler" in message and "apt install g++" in message
    assert machine.compiles() == f"there is no C++ compiler; {machine.REMEDY}"
    assert inductor_executor().available() == message
    assert inductor_executor(backend="torchscript").available() is True
    with pytest.raises(ExecutorError, match="there is no compiler"):
        dovetail.jit(lambda x: torch.softmax(x, -1), executors=[inductor_executor(), "torch"])(torch.ones(2))


def test_the_compiler_is_the_one_that_cxx_names(monkeypatch, tmp_path):
    mine = tmp_path / "mine"
    mine.write_text("#!/bin/sh\necho 'mine: no such thing as C++' >&2\nexit 1\n")
    mine.chmod(0o755)
    monkeypatch.setenv("CXX", str(mine))

    assert machine.compiler() == str(mine) and machine.available() is True
    assert machine.compiles() == f"{mine} fails: mine: no such thing as C++"


@pytest.mark.skipif(COMPILES is not True, reason=str(COMPILES))
def test_a_python_without_headers(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "headers", lambda: str(tmp_path))

    assert "includes Python.h" in machine.available() and "apt install python3-dev" in machine.available()
    (tmp_path / "Python.h").write_text('#include "pyconfig.h"\n')
    assert machine.available() is True
    assert "pyconfig.h" in machine.compiles()


def test_a_torch_whose_inductor_does_not_import(monkeypatch):
    part = torch_internals.dynamo.COMPILE_FX_INNER
    broken = torch_internals.Internal("torch._inductor.nothing.compile_fx_inner", part.purpose, part.fallback)
    monkeypatch.setattr(torch_internals.dynamo, "COMPILE_FX_INNER", broken)

    assert machine.available().endswith("; install a torch from 2.10 on whose Inductor imports")


@pytest.mark.skipif(COMPILES is not True, reason=str(COMPILES))
def test_the_doctor_compiles_a_line():
    ((name, check),) = dovetail_doctor()

    assert name == "a C++ compiler that works" and check() is True


PROGRAM = """
import json, dovetail, torch
rows = {row.name: [row.status, row.reason or ""] for row in dovetail.extend.advanced.plugins()}
def ran_by(**how):
    run = dovetail.jit(lambda x: torch.softmax(x * 2, -1), **how)
    assert torch.equal(run(torch.zeros(2)), torch.full((2,), 0.5))
    return "inductor_exec" in str(dovetail.last_traces(run)[-1])
named = [ran_by(executors=how) for how in ("+inductor", ["inductor", "torch"])] if rows["inductor"][0] == "ready" else []
print(json.dumps([rows["inductor"], ran_by(), named]))
"""


def status_of(**environment: str) -> list:
    """[the plugin's row, whether it runs things by default, whether where it is named] of a process."""
    environment = os.environ | {"DOVETAIL_PLUGINS": str(FOLDER), "DOVETAIL_OPTIONS": "inductor.backend=torch"} | environment
    return json.loads(subprocess.check_output([sys.executable, "-c", PROGRAM], env=environment, text=True))


@pytest.mark.skipif(COMPILES is not True, reason=str(COMPILES))
@pytest.mark.slow
def test_it_is_asked_where_somebody_names_it():
    assert status_of() == [["ready", ""], False, [True, True]]


@pytest.mark.slow
def test_without_a_compiler_it_is_a_row_with_the_remedy(tmp_path):
    (status, reason), by_default, _ = status_of(CXX=str(tmp_path / "none"), DOVETAIL_OPTIONS="")
    assert status_of(CXX=str(tmp_path / "none")) == [["ready", ""], False, [True, True]], "the other backends need none"

    assert status == "unavailable" and "there is no compiler" in reason and not by_default
