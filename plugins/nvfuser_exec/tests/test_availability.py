"""What a machine lacks for nvFuser is told apart, each a sentence with a way out, and nothing is imported to find out."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from dovetail.errors import ExecutorError
from dovetail_nvfuser_exec import availability, dovetail_doctor
from dovetail_nvfuser_exec.executor import nvfuser_executors

FOLDER = Path(__file__).parents[1]
BUILT_FOR_THIS = f"nvfuser-cu128-torch{torch.__version__.split('.')[0]}{torch.__version__.split('.')[1]}"


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """Makes a distribution with a module `nvfuser_direct`, which is found before any other; it may be of another torch, or fail to import."""

    def make(name: str = BUILT_FOR_THIS, version: str = "0.2.36.dev20260301", code: str | None = ""):
        if code is not None:
            package = tmp_path / "nvfuser_direct"
            package.mkdir()
            (package / "__init__.py").write_text(textwrap.dedent(code))
        info = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, "nvfuser_direct", raising=False)
        return tmp_path

    return make


@pytest.fixture
def cuda(monkeypatch):
    """A torch for CUDA, with or without a device."""

    def pretend(device: bool, version: str | None = "12.8"):
        monkeypatch.setattr(torch.version, "cuda", version)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: device)

    return pretend


def nothing_installed(monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "nvfuser_direct" else real(name, *more))


def test_absent_where_there_is_none_for_this_python_and_torch(monkeypatch):
    nothing_installed(monkeypatch)
    monkeypatch.setattr(availability, "installed", lambda: None)
    monkeypatch.setattr(torch, "__version__", "2.13.0+cpu")
    monkeypatch.setattr(sys, "version_info", (3, 13, 0, "final", 0))
    message = availability.available()

    assert message.startswith(
        "nvFuser is not installed; there is no wheel for Python 3.13 with torch 2.13.0+cpu, only for Python 3.12 with torch 2.8 to 2.10;"
    )
    assert message.endswith("make an environment of Python 3.12 and torch 2.10 for CUDA 12.8, and there pip install --pre nvfuser-cu128-torch210")


@pytest.mark.parametrize(("version", "of", "name"), [("2.10.0+cu128", "12.8", "cu128-torch210"), ("2.9.1+cu130", "13.0", "cu130-torch29")])
def test_absent_where_there_is_one(version, of, name, monkeypatch, cuda):
    nothing_installed(monkeypatch)
    cuda(True, of)
    monkeypatch.setattr(availability, "installed", lambda: None)
    monkeypatch.setattr(torch, "__version__", version)
    monkeypatch.setattr(sys, "version_info", (3, 12, 1, "final", 0))

    assert availability.available() == f"nvFuser is not installed; pip install --pre nvfuser-{name}"


def test_the_obsolete_distribution_is_not_it(wheel, monkeypatch):
    wheel("nvfuser", "0.0.9.dev20230508", code=None)
    nothing_installed(monkeypatch)
    monkeypatch.setattr(availability, "_WHEEL", availability.re.compile("none"))

    assert "expected nvfuser_direct, which nvfuser 0.0.9.dev20230508 does not bring; pip uninstall nvfuser" in availability.available()


def test_one_for_another_torch_is_not_imported_and_both_versions_are_named(wheel, cuda):
    wheel("nvfuser-cu130-torch28", code="raise SystemExit('it was imported')")
    cuda(True)
    message = availability.available()

    assert (
        f"nvfuser-cu130-torch28 0.2.36.dev20260301 was built for torch 2.8, and torch {torch.__version__} is installed; pip install torch==2.8.*"
        in message
    )
    assert availability.imports() == message


def test_one_that_is_too_old(wheel, cuda):
    wheel(version="0.2.33.dev20250901")
    cuda(True)

    assert (
        "expected nvFuser 0.2.34 or later, and " in availability.available()
        and f"pip install --pre --upgrade {BUILT_FOR_THIS}" in availability.available()
    )


def test_a_torch_without_cuda(wheel, cuda):
    wheel()
    cuda(False, None)

    assert "is built without it; pip install torch==" in availability.available() and "/whl/cu128" in availability.available()


def test_no_device_or_no_driver(wheel, cuda):
    wheel(code="raise SystemExit('it was imported')")
    cuda(False)

    assert availability.available() == "needs a CUDA device with its driver, and PyTorch sees none; check nvidia-smi and CUDA_VISIBLE_DEVICES"


@pytest.mark.parametrize("error", ["ImportError('undefined symbol: _ZN3c1013MessageLoggerC1EPKciib')", "OSError('libtorch_cuda.so: no such file')"])
def test_one_that_does_not_import(wheel, cuda, error):
    wheel(code=f"raise {error}")
    cuda(True)
    message, torch_is = availability.available(), ".".join(torch.__version__.split(".")[:2])

    assert f"{BUILT_FOR_THIS} 0.2.36.dev20260301, built for torch {torch_is}, does not import with torch {torch.__version__}, " in message
    assert f"{error.partition('(')[0]}: {error.split(chr(39))[1]}; make an environment" in message
    with pytest.raises(ExecutorError, match="does not import with torch"):
        availability.module()
    ((name, check),) = dovetail_doctor()
    assert name == "nvfuser_direct imports" and check() == message


def test_all_is_there(wheel, cuda):
    wheel(code="marked = True")
    cuda(True)

    assert availability.available() is True and availability.module().marked
    assert [ex.available() for ex in nvfuser_executors()] == [True, True]
    assert [ex.name for ex in nvfuser_executors()] == ["nvfuser_attention", "nvfuser"]


def test_the_doctor_has_nothing_to_ask_where_it_is_absent(monkeypatch):
    monkeypatch.setattr(availability, "installed", lambda: None)

    assert dovetail_doctor() == []


PROGRAM = """
import json, sys, dovetail, torch
rows = {row.name: [row.status, row.reason or ""] for row in dovetail.extend.advanced.plugins()}
run = dovetail.jit(lambda x: torch.softmax(x * 2, -1))
assert torch.equal(run(torch.zeros(2)), torch.full((2,), 0.5))
print(json.dumps([*rows["nvfuser"], "nvfuser_direct" in sys.modules]))
"""


def status_of(**environment: str) -> list:
    """[status, reason, whether nvFuser was imported] of a process that lists its plugins and runs a program."""
    environment = os.environ | {"DOVETAIL_PLUGINS": str(FOLDER), "CUDA_VISIBLE_DEVICES": ""} | environment
    return json.loads(subprocess.check_output([sys.executable, "-c", PROGRAM], env=environment, text=True))


@pytest.mark.slow
def test_the_plugin_is_a_row_and_everything_else_works(wheel):
    broken = wheel(code="raise SystemExit('it was imported')")
    status, reason, imported = status_of(PYTHONPATH=os.pathsep.join([str(broken), *filter(None, sys.path)]))

    assert status == "unavailable" and not imported
    assert "torch" in reason or "CUDA device" in reason
