"""`pytest --dovetail`: the tests of others, compiled."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

TESTS = """
import unittest
import pytest
import torch
from hypothesis import given, settings, strategies


@pytest.fixture
def weight():
    return torch.ones(3, requires_grad=True)


def is_traced(x):
    return torch.compiler.is_compiling()


def test_function(weight):
    (weight * 2).sum().backward()
    assert weight.grad.tolist() == [2.0, 2.0, 2.0] and is_traced(weight)


@pytest.mark.parametrize("size", [1, 2])
def test_parameters(size):
    assert torch.ones(size).sum() == size and is_traced(size)


class TestPlain:
    def test_method(self):
        assert torch.ones(2).mean() == 1 and is_traced(self)


class TestCase(unittest.TestCase):
    def setUp(self):
        self.x = torch.ones(2)
        assert not is_traced(self.x)

    def test_case(self):
        self.assertEqual(self.x.sum().item(), 2)
        self.assertTrue(is_traced(self.x))


@settings(max_examples=3, deadline=None)
@given(strategies.integers(1, 5))
def test_drawn(size):
    assert torch.ones(size).sum() == size and is_traced(size)


def test_eager():
    assert torch.ones(3).to_sparse().to_dense().sum() == 3


def test_failing():
    assert torch.ones(3).sum() == 4
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own_tests")
    (folder / "test_own.py").write_text(TESTS)

    def pytest_with(*options):
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error::UserWarning", *options, str(folder)]
        environment = {name: x for name, x in os.environ.items() if not name.startswith(("PYTEST_", "DOVETAIL_"))}
        return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, cwd=folder).stdout

    return pytest_with


def test_functions_methods_and_drawn_examples_run_compiled(run):
    output = run("--dovetail")

    assert "dovetail: 6 test functions were compiled, 1 ran in eager mode" in output
    assert "1 torch.Tensor.to_sparse is not traced: tensors that are not strided are not traced" in output
    assert "1 failed, 7 passed" in output
    assert "assert tensor(3.) == 4" in output  # as without the option


def test_nothing_is_compiled_without_the_option(run):
    output = run()

    assert "dovetail:" not in output
    assert "7 failed, 1 passed" in output
