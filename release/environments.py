"""Environments for lanes: a Python of the wanted version, a virtual environment of it, and what is installed there."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import click

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input")


def find_python(wanted: str) -> Path:
    """Return the interpreter at this path, or one of this version (`3.13`) on the PATH, of pyenv or of uv."""
    if "/" in wanted:
        if version_of(wanted) is None:
            raise click.ClickException(f"{wanted} does not run as a Python; name the program itself, such as FOLDER/bin/python3")
        return Path(wanted).absolute()
    if not re.fullmatch(r"3\.\d+(\.\d+)?", wanted):
        raise click.ClickException(f"PYTHON={wanted} is no version; write one such as 3.13, or the path of an interpreter")
    minor = ".".join(wanted.split(".")[:2])
    managed = [Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions", Path("~/.local/share/uv/python").expanduser()]
    beside = [path for folder in managed for path in sorted(folder.glob(f"*{minor}*/bin/python{minor}"), reverse=True)]
    for candidate in (shutil.which(f"python{minor}"), sys.executable, *beside):
        version = candidate and version_of(candidate)
        if version and f"{version}.".startswith(f"{wanted}."):
            return Path(candidate).absolute()
    raise click.ClickException(f"Python {wanted} is neither on the PATH nor in pyenv or uv; name it by its path: PYTHON=/.../bin/python{minor}")


def version_of(python: str | Path) -> str | None:
    """Return the version that an interpreter reports, or None where it does not run."""
    try:
        done = subprocess.run([python, "-c", "import platform; print(platform.python_version())"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


@dataclass(frozen=True)
class Environment:
    """A virtual environment in `folder`; the file beside it says what was installed into it."""

    folder: Path

    @property
    def bin(self) -> Path:
        return self.folder / "bin"

    @property
    def stamp(self) -> Path:
        return self.folder.with_suffix(".installed")

    def create(self, base: Path) -> None:
        """Create the environment from `base`, and anew where it is of another version; not every Python brings a pip along."""
        if version_of(self.bin / "python") != version_of(base):
            shutil.rmtree(self.folder, ignore_errors=True)
            self.stamp.unlink(missing_ok=True)
            subprocess.run([base, "-m", "venv", "--without-pip", self.folder], check=True)
        if not (self.bin / "pip").exists():
            self.install(["pip>=25.1"])

    def has(self, requirements: Sequence[str]) -> bool:
        return self.stamp.exists() and self.stamp.read_text() == digest(requirements)

    def note(self, requirements: Sequence[str]) -> None:
        self.stamp.write_text(digest(requirements))

    def install(self, arguments: Sequence[str]) -> None:
        done = subprocess.run([*PIP, "--python", self.bin / "python", "install", "--quiet", "--quiet", "--no-compile", *arguments])
        if done.returncode:
            raise click.ClickException(f"pip could not install into {self.folder}; its message is above")

    def downloads(self, arguments: Sequence[str]) -> dict[str, int | None]:
        """Return the bytes of each file that installing this would download, None where its server does not say."""
        report = self.folder.with_suffix(".report.json")
        options = ("--quiet", "--quiet", "--dry-run", "--use-feature=fast-deps", "--report", str(report))
        done = subprocess.run([*PIP, "--python", self.bin / "python", "install", *options, *arguments], capture_output=True, text=True)
        if done.returncode:
            raise click.ClickException(f"pip finds no set of packages for this pair: {done.stderr.strip()}")
        urls = [each["download_info"]["url"] for each in json.loads(report.read_text())["install"]]
        remote = [url for url in urls if not url.startswith("file:")]
        with ThreadPoolExecutor(max_workers=8) as pool:
            return dict(zip((url.rpartition("/")[2] for url in remote), pool.map(size, remote)))


def size(url: str) -> int | None:
    """Return the length of a file on a server, None where it is not told."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=30) as answer:
            return int(answer.headers["Content-Length"])
    except (OSError, TypeError, ValueError):
        return None


def digest(lines: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
