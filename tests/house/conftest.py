"""The repository as the tests of it see it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def project(root):
    """project("plugins/torch_exec") is what the pyproject.toml there says."""
    return lambda folder: tomllib.loads((root / folder / "pyproject.toml").read_text())


@pytest.fixture(scope="session")
def files(root) -> list[Path]:
    """Every file that is, or is about to be, in the repository."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=root, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("the files are listed by git, and this is no git checkout")
    return [path for line in listed.stdout.splitlines() if (path := root / line).is_file()]


@pytest.fixture
def python(tmp_path):
    """python("print(1)", env=...) is what a new interpreter, started outside the repository, prints."""

    def run(program: str, *, flags: tuple[str, ...] = ("-P",), **more) -> str:
        done = subprocess.run([sys.executable, *flags, "-c", program], cwd=tmp_path, capture_output=True, text=True, **more)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
