"""Lanes: what `make lane` says, what it keeps, and the table of it."""

from __future__ import annotations

import importlib
import sys
import types

import pytest
import torch
from packaging.version import Version

doctor = importlib.import_module("dovetail.cli.doctor")  # the command of that name hides the module


@pytest.fixture(scope="module")
def release(root):
    """release("lane") is that module of release/."""
    sys.path.insert(0, str(root / "release"))
    yield importlib.import_module
    sys.path.remove(str(root / "release"))


JUNIT = """<testsuites><testsuite>
<testcase classname="tests.a" name="test_good"/>
<testcase classname="tests.a" name="test_gpu[0]"><skipped type="pytest.skip" message="needs a
 CUDA device"/></testcase>
<testcase classname="tests.a" name="test_gpu[1]"><skipped type="pytest.skip" message="needs a CUDA device"/></testcase>
<testcase classname="tests.a" name="test_known"><skipped type="pytest.xfail" message="a bug"/></testcase>
<testcase classname="tests.a" name="test_bad"><failure message="1 != 2"/></testcase>
<testcase classname="tests.a" name="test_bad"><error message="and its teardown"/></testcase>
</testsuite></testsuites>"""


@pytest.fixture
def result(release, tmp_path):
    results = release("lane_results")
    (tmp_path / "junit.xml").write_text(JUNIT)
    about = ("3.13.0", "2.15.0+cu130", "Linux", "abcdef0123456789", "2026-11-22", 61)
    return results.Result(*about, **results.outcomes(tmp_path / "junit.xml"))


def test_a_result_counts_tests_by_how_they_ended(result):
    assert result.skipped == {"needs a CUDA device": 2}
    assert result.failed == ["tests.a::test_bad"]
    assert result.summary() == "1 failed, 1 passed, 2 skipped, 1 xfailed"


def test_reasons_name_no_folders_of_the_machine(release):
    reason = "/usr/bin/g++ fails: /opt/p/a.h:3:12: x86_64/a.h is missing; see https://a.org/b/c or docs/a.md"
    assert release("lane_results").without_folders(reason) == "g++ fails: a.h:3:12: x86_64/a.h is missing; see https://a.org/b/c or docs/a.md"


def test_levels_are_kept_beside_one_another(release, result, tmp_path, monkeypatch):
    results = release("lane_results")
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    results.write("3.13-2.15.0", "all", result, tmp_path)
    results.write("3.13-2.15.0", "smoke", result, tmp_path)

    assert list(results.read("3.13-2.15.0")) == ["smoke", "all"]
    assert results.read("3.13-2.15.0")["all"] == result
    assert results.newest_torch() == "2.15"
    assert "| 3.13 | 2.15.0 | 1 failed, 1 passed, 2 skipped, 1 xfailed; 2026-11-22, `abcdef012` | not run |" in results.table()


def test_each_result_is_of_a_pair_that_is_kept_up_and_a_failure_is_explained(release):
    results = release("lane_results")
    notes = {f"{lane['python']}-{lane['torch']}": lane.get("note", "") for lane in results.lanes()}

    for file in results.RESULTS.glob("*.json"):
        assert file.stem in notes, f"{file.name} is not in lanes.toml, so no table shows it"
        for level, result in results.read(file.stem).items():
            assert f"{file.stem}-".startswith(f"{Version(result.python).major}.{Version(result.python).minor}-{Version(result.torch).public}-")
            assert notes[file.stem] or not result.failed, f"tests failed in {file.stem} at level {level}, and its note in lanes.toml does not say why"


def test_the_newest_torch_that_the_doctor_knows_is_that_of_the_lanes(release):
    assert release("lane_results").newest_torch() == doctor.NEWEST_TORCH


def test_a_newer_torch_is_a_note(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "9.1.0+cu999")
    (note,) = [each for each in doctor.host([object()]) if each.check == "torch"]

    assert note.result == "note" and "torch 9.1.0+cu999 is newer than" in note.message


@pytest.mark.parametrize("version", [f"{doctor.NEWEST_TORCH}.7", "2.10.0", f"{doctor.NEWEST_TORCH}.1+cpu"])
def test_a_torch_that_was_tested_is_not_mentioned(monkeypatch, version):
    monkeypatch.setattr(torch, "__version__", version)

    assert not [each for each in doctor.host([object()]) if each.check == "torch"]


def test_a_lane_says_how_much_it_downloads(release):
    message = release("lane").announce({"torch-2.15.0-cp313.whl": 900_000_000, "numpy-2.whl": 20_000_000, "private-1.whl": None})

    assert message == "Downloads 920.0 MB in 3 files (torch 900.0 MB, numpy 20.0 MB), and 1 of unknown size, less what pip has in its cache."


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ("three", "is no version; write one such as 3.13"),
        ("3.99", "Python 3.99 is neither on the PATH nor in pyenv or uv"),
        ("/nowhere/python3", "does not run as a Python"),
    ],
)
def test_a_python_that_is_not_here(release, wanted, error):
    with pytest.raises(Exception, match=error):
        release("environments").find_python(wanted)


def test_the_python_of_this_version_is_found(release):
    environments = release("environments")
    version = ".".join(map(str, sys.version_info[:2]))

    assert environments.version_of(environments.find_python(version)).startswith(f"{version}.")
    assert environments.find_python(sys.executable).samefile(sys.executable)


def test_an_import_from_the_source_of_what_is_installed_is_noticed(release, monkeypatch, tmp_path):
    """The plugin that lanes load: editable installs are such imports."""
    plugin = release("wheels_only")
    module = types.ModuleType("dovetail_made_up")
    module.__file__ = str(tmp_path / "source" / "dovetail_made_up.py")
    monkeypatch.setitem(sys.modules, "dovetail_made_up", module)
    monkeypatch.setattr(plugin.importlib.metadata, "packages_distributions", lambda: {"dovetail_made_up": ["dovetail-made-up"]})

    assert plugin.elsewhere(tmp_path / "site") == [module.__file__]
    assert plugin.elsewhere(tmp_path / "source") == []
