"""Tests here share the executors in stand_ins.py, and small plugins that are written where a test wants them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dovetail.executors.discovery.registry import REGISTRY

HERE = Path(__file__).parent
sys.path[:0] = [str(folder) for folder in (HERE, HERE.parent / "models") if str(folder) not in sys.path]

GOOD = """
import torch
from dovetail.extend import OperatorExecutor, hookimpl

@hookimpl
def dovetail_executors():
    ex = OperatorExecutor({name!r}, version="1.0")
    ex.implements(torch.sin, lambda input: torch.sin(input))
    return [ex]
"""


@pytest.fixture(autouse=True)
def the_reference_alone():
    """Tests here name the executors that they put beside the reference; what else is installed stays out of their orders."""
    REGISTRY.refresh()  # where a test before has changed sys.path or the configuration, the test itself would look again
    installed = {row.name for row in REGISTRY.plugins}  # a plugin's own tests may have put another executor in the place of its own
    out = {name: ex for name, ex in REGISTRY.executors.items() if (ex.place is not None or name in installed) and not ex.last_resort}
    for name in out:
        del REGISTRY.executors[name]
    yield
    REGISTRY.executors.update({name: ex for name, ex in out.items() if name not in REGISTRY.executors})


@pytest.fixture(autouse=True)
def no_trials(monkeypatch):
    """Executors here count their calls, or compute something else on purpose; test_trial.py switches trials on."""
    monkeypatch.setenv("DOVETAIL_TRIAL", "off")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Switch trials on, and keep their disagreements in a folder of the test's own."""
    monkeypatch.setenv("DOVETAIL_TRIAL_FOLDER", str(tmp_path / "trial"))
    monkeypatch.delenv("DOVETAIL_TRIAL", raising=False)
    return tmp_path / "trial"


@pytest.fixture
def good():
    """good("fast") is the source of a plugin with the executor `fast`, which runs torch.sin."""
    return lambda name: GOOD.format(name=name)


@pytest.fixture
def site(tmp_path, monkeypatch):
    """site("mine", source) installs a distribution `dovetail-mine` with one module into a folder on sys.path, as pip would."""
    folder = tmp_path / "site"
    (folder / "__pycache__").mkdir(parents=True)  # writing bytecode leaves the folder as it is then
    monkeypatch.syspath_prepend(str(folder))
    before = set(sys.modules)

    def install(
        name: str, source: str | None, *, distribution: str = "", version: str = "1.0", value: str = "", points: str = "", headers: str = ""
    ) -> Path:
        distribution = distribution or f"dovetail-{name}"
        module = value.partition(":")[0].partition(" ")[0] or f"{distribution.replace('-', '_')}"
        if source is not None:
            (folder / f"{module}.py").write_text(source)
        info = folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {distribution}\nVersion: {version}\n{headers}")
        (info / "entry_points.txt").write_text(points or f"[dovetail.executors]\n{name} = {value or module}\n")
        return info

    install.folder = folder
    yield install
    for module in set(sys.modules) - before:
        if str(folder) in str(getattr(sys.modules[module], "__file__", "") or ""):
            del sys.modules[module]
