"""What is installed here works: the first things that a lane tests, on any pair of Python and torch."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys

import pytest
import torch

import dovetail


@pytest.mark.slow
def test_the_doctor_finds_nothing_wrong(tmp_path):
    command = [sys.executable, "-P", "-c", "from dovetail.cli import main; main()", "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=os.environ | {"DOVETAIL_CONFIG": "off"})
    failed = [row for row in json.loads(done.stdout) if row["result"] == "failed"]

    assert not failed and done.returncode == 0, done.stderr


def test_importing_warns_of_nothing(python):
    python("import warnings; warnings.simplefilter('error'); import torch, dovetail, dovetail.extend", flags=("-P", "-X", "dev"))


def test_the_version_is_that_of_the_distribution():
    assert importlib.metadata.version("dovetail") == dovetail.__version__


def test_a_network_trains_as_it_does_with_eager():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.GELU(), torch.nn.Linear(16, 4))
    x, target = torch.randn(32, 8), torch.randint(4, (32,))
    parameters = list(model.parameters())
    wanted = torch.autograd.grad(torch.nn.functional.cross_entropy(model(x), target), parameters)
    compiled = dovetail.jit(model)

    torch.testing.assert_close(torch.autograd.grad(torch.nn.functional.cross_entropy(compiled(x), target), parameters), wanted)
