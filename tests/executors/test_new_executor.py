"""Row 16: the scaffold installs, is found, passes its own tests, and says how it is tested continuously."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib

import pytest
from click.testing import CliRunner
from packaging.requirements import Requirement

import dovetail
from dovetail.cli import main


@pytest.fixture
def scaffold(tmp_path):
    """scaffold("my-fast") makes a package and gives its folder."""

    def make(name: str):
        folder = tmp_path / "made"
        result = CliRunner().invoke(main, ["new-executor", name, "--into", str(folder)])
        assert result.exit_code == 0 and result.output.endswith(f"  dovetail conformance {name.replace('-', '_')}\n"), result.output
        return folder

    return make


@pytest.mark.slow
def test_row_16_the_package_installs_and_passes_its_tests(scaffold, tmp_path):
    folder, target = scaffold("my-fast"), tmp_path / "target"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    done = subprocess.run([*command, "--target", str(target), str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    environment = os.environ | {"PYTHONPATH": str(target), "OMP_NUM_THREADS": "1", "DOVETAIL_CONFIG": "off"}

    def run(*words: str) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, "-P", *words], capture_output=True, text=True, env=environment, cwd=tmp_path)

    # its own tests, and of the conformance suite what is about its operation
    done = run(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder / "tests"), "-k", "functional.softmax or not conformance"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "11 passed" in done.stdout

    file = target / "dovetail_my_fast" / "dovetail-manifest.json"
    assert run("-c", CLI, "executors", "manifest", "my_fast", "--check").returncode == 1
    assert run("-c", CLI, "executors", "manifest", "my_fast").returncode == 0
    (declared,) = json.loads(file.read_text())["executors"]
    assert declared["operations"]["torch.nn.functional.softmax"]["checker"] is True
    assert (declared["before"], declared["after"], declared["options"]) == ([], [], {})
    assert "matches the declarations of my_fast" in run("-c", CLI, "executors", "manifest", "my_fast", "--check").stdout

    # what its CI file runs, for its operation
    words = shlex.split(re.search(r"run: dovetail (conformance .*)", (folder / ".github/workflows/ci.yml").read_text()).group(1))
    done = run("-c", CLI, *[word.replace("$GITHUB_STEP_SUMMARY", "summary.md") for word in words], "-k", "softmax")
    assert done.returncode == 0 and re.search(r"my_fast 0.1.0 at level core: 100 % \(\d+ of \d+\) passed", done.stdout), done.stdout + done.stderr
    assert {"summary.md", "conformance.html", "conformance.json"} <= {each.name for each in tmp_path.iterdir()}


CLI = "from dovetail.cli import main; main()"


def test_what_the_package_says_of_itself(scaffold):
    folder = scaffold("my-fast")
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    (needs,) = [Requirement(each) for each in project["dependencies"] if each.startswith("dovetail")]

    assert project["name"] == "dovetail-my-fast"
    assert project["entry-points"]["dovetail.executors"] == {"my_fast": "dovetail_my_fast"}
    assert needs.specifier.contains(dovetail.__version__) and needs.extras == {"api1"}
    workflow = (folder / ".github/workflows/ci.yml").read_text()
    assert "python-version: ${{ matrix.python }}" in workflow and '--markdown "$GITHUB_STEP_SUMMARY"' in workflow
    assert re.search(r"- run: dovetail conformance my_fast -n 2 ", workflow) and "- run: dovetail doctor --verbose" in workflow
    assert "dovetail-conformance" in project["optional-dependencies"]["test"]
    assert not [file for file in folder.rglob("*") if file.is_file() and "$name" in file.read_text()]


@pytest.mark.parametrize("name", ["2fast", "class", "My", "a b", ""])
def test_a_name_that_programs_could_not_print(name):
    result = CliRunner().invoke(main, ["new-executor", name])

    assert result.exit_code == 1 and "expected a lower-case Python identifier" in result.output


def test_what_is_there_is_not_written_over(tmp_path):
    (tmp_path / "mine").write_text("")
    result = CliRunner().invoke(main, ["new-executor", "mine", "--into", str(tmp_path)])

    assert result.exit_code == 1 and "exists and is not empty" in result.output


def test_without_the_conformance_suite_it_is_the_first_to_install(tmp_path, monkeypatch):
    def steps(folder: str) -> list[str]:
        output = CliRunner().invoke(main, ["new-executor", "mine", "--into", str(tmp_path / folder)]).output
        return output.partition("Next steps:\n")[2].splitlines()

    folder = tmp_path / "with"
    assert steps("with") == [f'  pip install -e "{folder}[test]"', "  dovetail doctor", f"  pytest {folder}", "  dovetail conformance mine"]
    monkeypatch.setitem(sys.modules, "dovetail_conformance", None)
    assert steps("without")[0].startswith("  pip install CLONE/conformance ")
