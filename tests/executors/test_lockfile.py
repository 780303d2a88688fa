"""Row 23: a lock file that names plugins, their content and the order, and what a frozen process does when they are others."""

from __future__ import annotations

import os
import platform
import subprocess
import tomllib
from pathlib import Path

import pytest
import torch

import dovetail
from dovetail.errors import ExecutorError
from dovetail.executors.discovery import lockfile
from dovetail.executors.discovery.lockfile import Lock, Locked

PLUGIN = """
import pathlib, torch
pathlib.Path(__file__).with_name("imported").touch()
from dovetail.extend import OperatorExecutor, hookimpl

@hookimpl
def dovetail_executors():
    return [OperatorExecutor("mine", version="1.0")]
"""


@pytest.fixture
def command(tmp_path, new_process):
    """command("lock") runs `dovetail lock` in a new process, in a folder with the plugin `mine` in development."""
    (tmp_path / "dovetail.toml").write_text('plugins = ["plugin/mine.py"]\n')
    (tmp_path / "plugin").mkdir()
    (tmp_path / "plugin" / "mine.py").write_text(PLUGIN)

    def run(*words: str, **variables: str) -> subprocess.CompletedProcess:
        (tmp_path / "plugin" / "imported").unlink(missing_ok=True)
        env = {name: words for name, words in os.environ.items() if not name.startswith("DOVETAIL_")}
        env |= {"XDG_CONFIG_HOME": str(tmp_path), "DOVETAIL_ALLOW": "mine,torch"} | variables
        return new_process(["-c", words[0]] if "\n" in words[0] else ["dovetail", *words], cwd=tmp_path, env=env)

    return run


JIT = "import dovetail, torch\nprint(dovetail.jit(lambda x: x + 1)(torch.ones(1)).item())\n"


def test_row_23_the_file_names_distribution_version_content_and_order(command, tmp_path):
    done = command("lock")
    message = tomllib.loads((tmp_path / "dovetail.lock").read_text())

    assert done.stdout.splitlines() == ["+ mine: a path", "+ torch: dovetail-torch-exec 0.1.0", "+ order: mine, torch", "dovetail.lock written."]
    assert message["order"] == ["mine", "torch"]
    assert message["versions"] == {"dovetail": dovetail.__version__, "torch": torch.__version__, "python": platform.python_version()}
    rows = {row.pop("name"): row for row in message["plugin"]}
    assert rows["torch"]["distribution"] == "dovetail-torch-exec" and rows["torch"]["version"] == "0.1.0"
    assert all(row["hash"].startswith("sha256:") and len(row["hash"]) == 71 for row in rows.values())


def test_row_23_frozen_passes_where_nothing_changed_and_writes_nothing(command, tmp_path):
    command("lock")
    before = (tmp_path / "dovetail.lock").read_text()

    done = command("lock", "--frozen")
    assert done.returncode == 0 and "dovetail.lock matches: 2 plugins, in the order mine, torch." in done.stdout
    assert command(JIT, DOVETAIL_FROZEN="1").stdout == "2.0\n"
    assert (tmp_path / "dovetail.lock").read_text() == before
    assert command("lock").stdout.endswith("is unchanged.\n")


def test_row_23_changed_content_fails_before_the_plugin_is_imported(command, tmp_path):
    command("lock")
    (tmp_path / "plugin" / "mine.py").write_text(PLUGIN + "# one line more\n")

    for done in (command("lock", "--frozen"), command(JIT, DOVETAIL_FROZEN="true")):
        assert done.returncode == 1
        assert "  - mine: a path, sha256:" in done.stderr and "  + mine: a path, sha256:" in done.stderr
        assert "Install the locked versions, or update the lock: dovetail lock" in done.stderr
        assert not (tmp_path / "plugin" / "imported").exists()


@pytest.mark.slow
def test_row_23_another_order_fails(command):
    command("lock")

    for done in (
        command("lock", "--frozen", DOVETAIL_EXECUTORS="torch > mine"),
        command(JIT, DOVETAIL_FROZEN="1", DOVETAIL_EXECUTORS="torch > mine"),
    ):
        assert done.returncode == 1
        assert "  - order: mine, torch\n  + order: torch, mine\n" in done.stderr


@pytest.mark.slow
def test_row_23_a_plugin_more_or_less_fails(command, tmp_path):
    command("lock")
    (tmp_path / "dovetail.toml").write_text("frozen = true\n")
    done = command(JIT)

    assert done.returncode == 1 and "  - mine: a path" in done.stderr


def test_what_a_program_adds_itself_is_not_locked(command):
    command("lock")
    added = "from dovetail.extend import add_operator_executor\nadd_operator_executor('own', {})\n"

    assert command(added + JIT, DOVETAIL_FROZEN="1").stdout == "2.0\n"


def test_a_missing_or_damaged_file_says_how_to_make_one(command, tmp_path):
    done = command(JIT, DOVETAIL_FROZEN="1")
    assert "there is no lock file dovetail.lock; make one with `dovetail lock`" in done.stderr
    for text, message in (("format = 9\n", "has format 9, and this version reads 1"), ("format = 1\n", "is no lock file"), ("[", "is no lock file")):
        (tmp_path / "x.lock").write_text(text)
        with pytest.raises(ExecutorError, match=message):
            lockfile.read(tmp_path / "x.lock")


def test_differences_are_those_that_there_are(tmp_path):
    was = Lock((Locked("a", "dovetail-a", "1.0", "sha256:1"), Locked("b", "dovetail-b", "1.0", "sha256:2")), ("a", "b"))
    now = Lock((Locked("a", "dovetail-a", "1.1", "sha256:3"), Locked("c", "dovetail-c", "2.0", "sha256:2")), ("a", "b"))

    assert was.differences(was) == []
    assert was.differences(now) == ["- a: dovetail-a 1.0", "+ a: dovetail-a 1.1", "- b: dovetail-b 1.0", "+ c: dovetail-c 2.0"]
    path = Path(tmp_path / "dovetail.lock")
    path.write_text(was.written())
    assert lockfile.read(path) == was
