"""Row 28 with executors of this repository: a GPT for which torch, llvm and apex_xentropy are asked, in training and without gradients."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
import torch
import zoo

import dovetail

PLUGINS = Path(__file__).parents[2] / "plugins"


def brought(name: str):
    """The executor of one of the plugins here, whether or not that is installed."""
    folder = str(PLUGINS / name)
    if folder not in sys.path:
        sys.path.append(folder)
    (ex,) = importlib.import_module(f"dovetail_{name}").dovetail_executors()
    return ex


@pytest.fixture(scope="session")
def executors():
    pytest.importorskip("llvmlite", reason="the LLVM executor compiles with llvmlite")
    return [brought("apex_xentropy"), brought("llvm_exec"), "torch"]


@pytest.fixture(scope="session")
def trained(executors):
    """A GPT, called once with its loss, and its backward."""
    torch.manual_seed(0)
    jitted = dovetail.jit(zoo.GPT(), executors=executors)
    jitted(zoo.tokens(101), zoo.tokens(101))[1].backward()
    return jitted


@pytest.fixture(scope="session")
def inferred(executors):
    """The GPT alone, called once without gradients."""
    torch.manual_seed(0)
    jitted = dovetail.jit(zoo.GPT(), executors=executors)
    with torch.no_grad():
        jitted(zoo.tokens(101))
    return jitted


def sentence(words: str) -> bool:
    """Several words, no representation of an object, and more than the word that there is no reason."""
    return len(words.split()) >= 3 and "<" not in words.replace("< ", "") and "\n" not in words and words != "gave no reason"


@pytest.mark.parametrize("which", ["trained", "inferred"])
def test_28_every_operation_is_accounted_for(which, request):
    found = dovetail.explain(request.getfixturevalue(which))

    assert [each.name for each in found.executors] == ["apex_xentropy", "llvm", "torch"]
    for row in found.rows:
        message = {each.executor: each for each in row.candidates}
        assert set(message) == {"apex_xentropy", "llvm", "torch"} or set(message) >= {"python"}, row  # everybody is spoken of
        if row.actual not in (None, "python"):
            assert message[row.actual].status == "runs" and [c.executor for c in row.candidates if c.status == "runs"] == [row.actual]
    for program in found.programs:
        for line in program.lines:
            assert not line.executor or line.rows, line  # a line that runs came from operations, and they are rows
            assert {found.rows[i].actual for i in line.rows} <= {line.executor, None}, line


@pytest.mark.parametrize("which", ["trained", "inferred"])
def test_28_every_refusal_is_a_sentence(which, request):
    found = dovetail.explain(request.getfixturevalue(which))
    refusals = [(row.operation, each.executor, each.message) for row in found.rows for each in row.refusals]

    assert {name for _, name, _ in refusals} >= {"apex_xentropy"} and len(refusals) > 20
    assert [each for each in refusals if not sentence(each[2])] == []


def test_28_the_kernels_own_operation_is_refused_for_its_device(trained):
    found = dovetail.explain(trained)
    (message,) = [message for message in found.differentiated if "torch.nn.functional.cross_entropy" in message]

    assert "torch.nn.functional.cross_entropy: apex_xentropy refuses: expected tensors on cuda, got t" in message
    assert f"refusals of operations that were differentiated:\n  {message}\n" in str(found)


def test_28_json_and_page_hold_the_same_rows(trained):
    found = dovetail.explain(trained)

    assert len(found.to_dict()["rows"]) == len(found.rows) > 50
    assert all(each.message in str(found) for row in found.rows for each in row.refusals)
    assert len(found.to_html()) < 2_000_000
