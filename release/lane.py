"""Run the tests with one pair of Python and torch, from wheels, in an environment of its own; `make lane` calls it.

python release/lane.py --python 3.13 --torch 2.15.0 [--tests smoke|core|all] [--workers 2]
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click
from environments import Environment, find_python
from filelock import FileLock, Timeout
from lane_results import LEVELS, Result, outcomes, write
from packaging.version import Version
from rich.console import Console
from rich.filesize import decimal

ROOT = Path(__file__).parents[1]
README = "tests/house/test_docs.py::test_the_examples_of_a_page_run_and_print_what_it_says[README.md]"
SELECTIONS = {  # what pytest is told at each level: `core` is make test, `all` is make test-all
    "smoke": (
        *("-m", "", "tests/house/test_installed.py", README),
        *(f"tests/interpreter/{name}.py" for name in ("test_interpret", "test_jit_python", "test_jit_modules")),
        *(f"tests/{name}.py" for name in ("trace/test_docstrings", "training/test_modes", "grad/test_functional")),
    ),
    "core": ("--conformance-level", "quick"),
    "all": ("-m", ""),
}
DUE = {"CONTRIBUTING.md", "core/cli/doctor.py", "release/lanes.toml"}  # what changes when a result does
console = Console(highlight=False, soft_wrap=True)


@click.command()
@click.option("--python", "wanted", required=True, help="A version, such as 3.13, or the path of an interpreter.")
@click.option("--torch", required=True, help="The version of PyTorch, such as 2.15.0.")
@click.option("--tests", "level", type=click.Choice(LEVELS), default="smoke", show_default=True)
@click.option("--workers", default=2, show_default=True, help="How many processes run the tests.")
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), default=ROOT / ".lanes", envvar="LANES", help="Where environments lie.")
@click.option("--distribution", "distributions", multiple=True, envvar="DISTRIBUTIONS", help="Folders of what is installed; all by default.")
def main(wanted: str, torch: str, level: str, workers: int, folder: Path, distributions: tuple[str, ...]) -> None:
    """Install wheels of this clone beside one torch on one Python, run the tests there, and keep the result."""
    if not wanted or not re.fullmatch(r"\d+\.\d+\.\d+\S*", torch):
        raise click.ClickException(f"which pair? make lane PYTHON=3.13 TORCH=2.15.0 is one; got PYTHON={wanted} TORCH={torch}")
    base = find_python(wanted)
    minor = subprocess.run([base, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True).stdout.strip()
    pair = f"{minor}-{Version(torch)}"
    lane = folder.absolute() / pair
    lane.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(lane / "lock", timeout=0):
            console.print(f"Lane {pair} with {base}, level {level}, in {lane}")
            commit, modified = checkout(lane / "checkout")
            environment = Environment(lane / "env")
            prepare(environment, base, torch, lane, distributions)
            result = test(environment, lane, ["-n", str(workers), *SELECTIONS[level]], commit)
    except Timeout:
        raise click.ClickException(f"another run uses {lane}") from None
    keep(pair, level, result, lane, modified)
    sys.exit(1 if result.failed else 0)


def checkout(target: Path) -> tuple[str, bool]:
    """Copy the repository as it is now, so that later edits do not affect the run; return the commit, and whether files differ from it."""
    commit = git("rev-parse", "HEAD").strip()
    shutil.rmtree(target, ignore_errors=True)
    git("clone", "--quiet", "--no-checkout", str(ROOT), str(target))
    git("checkout", "--quiet", "--detach", commit, cwd=target)
    changed = git("diff", "--name-only", "HEAD").splitlines() + git("ls-files", "--others", "--exclude-standard").splitlines()
    for path in changed:
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / path).exists():
            shutil.copy(ROOT / path, target / path)
        else:
            (target / path).unlink(missing_ok=True)
    return commit, any(path not in DUE and not path.startswith("release/results/") for path in changed)


def git(*words: str, cwd: Path = ROOT) -> str:
    done = subprocess.run(["git", *words], cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        raise click.ClickException(f"`git {' '.join(words)}` failed in {cwd}: {done.stderr.strip()}. A lane tests a git checkout.")
    return done.stdout


def prepare(environment: Environment, base: Path, torch: str, lane: Path, distributions: Sequence[str]) -> None:
    """Install torch, what the packages and their tests need, where that changed, and the wheels of this checkout."""
    wheels = build(lane, distributions)
    install(environment, base, wheels, *select(torch, lane))
    (site,) = environment.folder.glob("lib/python3.*/site-packages")
    shutil.copy(Path(__file__).with_name("wheels_only.py"), site)


def install(environment: Environment, base: Path, wheels: Sequence[Path], arguments: Sequence[str], requirements: Sequence[str]) -> None:
    """Install what `arguments` tell pip, where the requirements changed, and these wheels, into an environment of `base`."""
    environment.create(base)
    if not environment.has(requirements):
        arguments = [*arguments, *map(str, wheels)]
        console.print(announce(environment.downloads(arguments)))
        environment.install(arguments)
        environment.note(requirements)
    environment.install(["--force-reinstall", "--no-deps", *map(str, wheels)])


def build(lane: Path, distributions: Sequence[str]) -> list[Path]:
    """Build all distributions from the checkout; return the wheels of those that are to be installed."""
    source, output = lane / "checkout", lane / "dist"
    done = subprocess.run([sys.executable, source / "release" / "dist.py", "--output", output], capture_output=True, text=True)
    if done.returncode:
        raise click.ClickException(f"the packages could not be built:\n{done.stdout}{done.stderr}")
    names = [project(source / folder)["name"].replace("-", "_") for folder in distributions]
    return [next(output.glob(f"{name}-*.whl")) for name in names] if names else sorted(output.glob("*.whl"))


def project(folder: Path) -> dict:
    return tomllib.loads((folder / "pyproject.toml").read_text())["project"]


def select(torch: str, lane: Path) -> tuple[list[str], list[str]]:
    """Return what to tell pip beside the wheels, and all requirements as lines: where these are unchanged, so is the environment."""
    source = lane / "checkout"
    pins = [line for line in (source / "constraints.txt").read_text().splitlines() if not line.startswith(UNPINNED)]
    constraints = lane / "constraints.txt"
    constraints.write_text("\n".join(pins))
    group = f"{source / 'pyproject.toml'}:dev"
    development = tomllib.loads((source / "pyproject.toml").read_text())["dependency-groups"]["dev"]
    needed = [line for file in sorted(source.glob("**/pyproject.toml")) for line in project(file.parent)["dependencies"]]
    arguments = [f"torch=={torch}", "--group", group, "--constraint", str(constraints)]
    return arguments, [f"torch=={torch}", *pins, *development, *needed]


def announce(downloads: dict[str, int | None]) -> str:
    """Return a sentence on what is about to be downloaded."""
    sizes = {name: bytes for name, bytes in downloads.items() if bytes is not None}
    unknown = f", and {len(downloads) - len(sizes)} of unknown size" if len(sizes) < len(downloads) else ""
    largest = ", ".join(f"{name.partition('-')[0]} {decimal(sizes[name])}" for name in sorted(sizes, key=sizes.__getitem__, reverse=True)[:3])
    about = f" ({largest}{', ...' if len(sizes) > 3 else ''})" if sizes else ""
    return f"Downloads {decimal(sum(sizes.values()))} in {len(downloads)} files{about}{unknown}, less what pip has in its cache."


def test(environment: Environment, lane: Path, arguments: Sequence[str], commit: str) -> Result:
    """Run pytest in the checkout, which nothing is imported from, and return how it ended."""
    junit, log = lane / "junit.xml", lane / "pytest.log"
    junit.unlink(missing_ok=True)
    options = ["--dist", "loadgroup", "-p", "wheels_only", "-p", "no:cacheprovider", "--junitxml", str(junit)]
    variables = surroundings() | {"PATH": f"{environment.bin}{os.pathsep}{os.environ['PATH']}", "VIRTUAL_ENV": str(environment.folder)}
    began = time.monotonic()
    command = [environment.bin / "pytest", *options, *arguments]  # the program: `python -m pytest` would look for modules in the checkout
    process = subprocess.Popen(command, cwd=lane / "checkout", env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    with log.open("wb") as file:
        while piece := process.stdout.read1():
            for out in (sys.stdout.buffer, file):
                out.write(piece)
                out.flush()
    if process.wait() not in (0, 1) or not junit.exists():
        raise click.ClickException(f"pytest ended with code {process.returncode}, so there is no result; its output is in {log}")
    about = subprocess.run([environment.bin / "python", "-c", ABOUT], capture_output=True, text=True, check=True).stdout.split()
    today, seconds = datetime.now(UTC).date().isoformat(), round(time.monotonic() - began)
    return Result(*about, commit, today, seconds, **outcomes(junit))


UNPINNED = ("torch==", "setuptools==")  # some versions of torch exclude the newest setuptools
ABOUT = "import platform as p, torch; print(p.python_version(), torch.__version__, '-'.join((p.system(), p.machine(), *p.libc_ver())))"
INHERITED = ("PYTHON", "TORCH", "TESTS", "WORKERS", "LANES", "DISTRIBUTIONS", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")  # of `make lane`


def surroundings() -> dict[str, str]:
    """Return the environment variables of a process that imports nothing of this clone and has one thread."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME", *INHERITED)}
    return kept | {"OMP_NUM_THREADS": "1"}


def keep(pair: str, level: str, result: Result, lane: Path, modified: bool) -> None:
    """Write the result where it can be committed, or beside the environment where it is not that of a commit."""
    console.print(f"Python {result.python}, torch {result.torch}: {result.summary()} in {result.seconds} s")
    for reason, count in result.skipped.items():
        console.print(f"  {count} skipped: {reason}", markup=False)
    for test in result.failed:
        console.print(f"  failed: {test}", markup=False)
    if modified:
        file = write(pair, level, result, lane / "results")
        console.print(f"Files are not committed, so the result is no commit's; it is in {file}")
    else:
        file = write(pair, level, result)
        console.print(f"Written to {file.relative_to(ROOT)}; `make docs` puts it into the table of CONTRIBUTING.md")


if __name__ == "__main__":
    main()
