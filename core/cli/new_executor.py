"""`dovetail new-executor`: a package with an executor in it that installs, runs, and passes its own tests."""

from __future__ import annotations

import keyword
from importlib.resources import files
from pathlib import Path
from string import Template

import click
from packaging.version import Version

import dovetail
from dovetail.executors.discovery.requirements import API

REFERENCE = "torch"
TEMPLATES = {  # where a file goes: the template that it is made from
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    ".gitignore": "gitignore",
    ".github/workflows/ci.yml": "ci.yml",
    "$package/__init__.py": "init.py",
    "$package/executor.py": "executor.py",
    "tests/test_$name.py": "test.py",
}


@click.command("new-executor", short_help="Make a package: an executor, its tests, its CI file.")
@click.argument("name")
@click.option("--into", type=click.Path(path_type=Path, file_okay=False), help="The folder to make; dovetail-NAME here where it is not given.")
def new_executor(name: str, into: Path | None) -> None:
    """Make a package with the executor NAME, its tests, and the file that runs them in continuous integration."""
    words = names(name)
    if words["name"] == REFERENCE:
        raise click.ClickException(f"{REFERENCE} is the name of the reference executor, which results are compared with; choose another name")
    folder = into or Path(words["distribution"])
    if folder.exists() and any(folder.iterdir()):
        raise click.ClickException(f"{folder} is there and not empty; name another folder with --into")
    for path, text in rendered(words).items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        click.echo(f"  {file}")
    steps = (f"pip install -e {folder}", "dovetail doctor", f"pytest {folder}", f"dovetail conformance {words['name']}")
    click.echo("\n  ".join([f"Made the executor {words['name']}. What is next:", *steps]))


def names(given: str) -> dict[str, str]:
    """What the templates call the executor, its package and its distribution."""
    name = given.removeprefix("dovetail-").removeprefix("dovetail_").replace("-", "_")
    if not name.isidentifier() or keyword.iskeyword(name) or name != name.lower() or not name.isascii():
        raise click.ClickException(f"an executor's name is a Python identifier in small letters, since programs print it; got {given!r}")
    return {"name": name, "package": f"dovetail_{name}", "distribution": f"dovetail-{name.replace('_', '-')}", "range": compatible(), "api": str(API)}


def compatible() -> str:
    """The versions of Dovetail that have today's executor API: from this one to the next that may break it."""
    now = Version(dovetail.__version__)
    return f">={now.major}.{now.minor},<{now.major}.{now.minor + 1}" if now.major == 0 else f">={now.major}.{now.minor},<{now.major + 1}"


def rendered(words: dict[str, str]) -> dict[str, str]:
    """Each file of the package, by its path."""
    templates = files("dovetail.cli") / "template"
    return {
        Template(path).substitute(words): Template((templates / f"{template}.template").read_text()).substitute(words)
        for path, template in TEMPLATES.items()
    }
