"""Try other libraries with compiled code, in an environment of its own with wheels of this clone; `make ecosystem` calls it.

python release/ecosystem.py [--python 3.12] [--only REGEX] [FAMILY ...]
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
from environments import Environment, find_python
from filelock import FileLock, Timeout
from lane import ROOT, build, checkout, install, surroundings

RESULT = ROOT / "benchmarks" / "results" / "ecosystem.json"


@click.command()
@click.argument("families", nargs=-1)
@click.option("--python", "wanted", default="3.12", show_default=True, help="A version, such as 3.12, or the path of an interpreter.")
@click.option("--only", default="", help="Try what contains this regular expression: library, name and mode.")
@click.option("--workers", default=2, show_default=True, help="How many processes there are.")
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), default=ROOT / ".lanes", envvar="LANES", help="Where environments lie.")
@click.option("--distribution", "distributions", multiple=True, envvar="DISTRIBUTIONS", help="Folders of what is installed; all by default.")
def main(families: tuple[str, ...], wanted: str, only: str, workers: int, folder: Path, distributions: tuple[str, ...]) -> None:
    """Install the libraries beside wheels of this clone, and try every case."""
    place = folder.absolute() / "ecosystem"
    place.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(place / "lock", timeout=0):
            commit, modified = checkout(place / "checkout")
            environment = Environment(place / "env")
            requirements = place / "checkout" / "benchmarks" / "ecosystem" / "requirements.txt"
            pins = ["--requirement", str(requirements)], requirements.read_text().splitlines()
            install(environment, find_python(wanted), build(place, distributions), *pins)
            command = [environment.bin / "python", place / "checkout" / "benchmarks" / "ecosystem", *families, "--workers", str(workers)]
            command += ["--only", only, "--output", RESULT, "--commit", commit[:9] + " and changes" * modified]
            sys.exit(subprocess.run(command, cwd=place, env=surroundings()).returncode)
    except Timeout:
        raise click.ClickException(f"another run uses {place}") from None


if __name__ == "__main__":
    main()
