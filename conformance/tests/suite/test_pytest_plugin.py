"""The suite as one line of a test file, in a folder that has nothing to do with this repository."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

HEAD = "from dovetail_conformance import suite\n"


@pytest.fixture
def run(new_process, tmp_path) -> Callable[..., subprocess.CompletedProcess]:
    """run(text, *words) runs pytest on a test file in an empty folder."""

    def call(text: str, *words: str) -> subprocess.CompletedProcess:
        Path(tmp_path, "test_mine.py").write_text(HEAD + text)
        return new_process(["-m", "pytest", "-p", "no:cacheprovider", "-rs", *words], cwd=tmp_path)

    return call


@pytest.mark.slow
def test_an_installed_executor_by_its_name(run) -> None:
    done = run('test_it = suite("torch", level="smoke", devices=["cpu"])\n', "-v", "-k", "unfold")

    assert done.returncode == 0, done.stdout
    assert "test_it[torch-torch.Tensor.unfold-float32-cpu] PASSED" in done.stdout
    assert "test_it[torch-prims.unfold-float32-cpu] PASSED" in done.stdout


def test_failures_name_operation_and_check_and_bring_a_script(run) -> None:
    where = 'level="quick", operations=["torch.nn.functional.gelu"], dtypes=["float32"], devices=["cpu"]'

    done = run(f'test_it = suite("dovetail_conformance.broken:ignores_an_argument", {where})\n')

    assert done.returncode == 1
    assert "torch.nn.functional.gelu-float32-cpu-forward: fail" in done.stdout
    assert "To see it without the suite:" in done.stdout and "def program(x0):" in done.stdout


def test_a_crash_fails_one_test(run) -> None:
    where = 'level="smoke", operations=["torch.sin"], dtypes=["float32", "int64"], devices=["cpu"]'

    done = run(f'test_it = suite("dovetail_conformance.broken:crashes", {where})\n', "-q")

    assert "2 failed" in done.stdout and "crashed with SIGSEGV" in done.stdout


@pytest.mark.slow
def test_an_executor_of_the_test_file_itself(run) -> None:
    text = (
        "import torch\nfrom dovetail.extend import OperatorExecutor\n"
        'ex = OperatorExecutor("mine")\nex.implements("torch.sin", torch.sin)\n'
        'test_it = suite(ex, operations=["torch.sin", "torch.cos"], devices=["cpu"], dtypes=["float32"])\n'
    )

    done = run(text, "-q")

    assert done.returncode == 0, done.stdout
    assert "1 passed in" in done.stdout
    assert "conformance: 1 cells of mine are deselected: its declaration excludes them" in done.stdout


@pytest.mark.slow
def test_a_declaration_that_excludes_everything_is_an_error(run) -> None:
    text = (
        "import torch\nfrom dovetail.extend import OperatorExecutor\n"
        'ex = OperatorExecutor("mine")\nex.implements("torch.sin", torch.sin)\ntest_it = suite(ex, operations=["torch.cos"])\n'
    )

    done = run(text)

    assert done.returncode != 0
    assert "the declaration of mine excludes every requested operation" in done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "2"])
def test_the_report_of_a_run(run, tmp_path, workers) -> None:
    file = tmp_path / "report.json"

    run('test_it = suite("torch", level="smoke", operations=["cumsum"], devices=["cpu"])\n', "-n", workers, "--conformance-json", str(file))

    report = json.loads(file.read_text())
    assert report["executor"]["name"] == "torch" and report["level"] == "smoke"
    assert {row["operation"] for row in report["rows"]} == {"prims.cumsum", "torch.cumsum", "torch.Tensor.cumsum_"}


def test_a_mistake_is_said_when_tests_are_collected(run) -> None:
    done = run('test_it = suite("torch", operations=["sinusoid"])\n')

    assert done.returncode != 0
    assert "no operation matches sinusoid" in done.stdout + done.stderr
