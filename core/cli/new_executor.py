"""`dovetail new-executor`: create a package with an executor that installs, runs, and passes its own tests."""

from __future__ import annotations

import keyword
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template

import click
from packaging.version import Version

import dovetail
from dovetail.executors.discovery.requirements import API

REFERENCE = "torch"
TEMPLATES = {  # path of a file: its template
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    ".gitignore": "gitignore",
    ".github/workflows/ci.yml": "ci.yml",
    "$package/__init__.py": "init.py",
    "$package/executor.py": "executor.py",
    "tests/test_$name.py": "test.py",
}


@click.command("new-executor", short_help="Create a package with an executor, its tests and its CI file.")
@click.argument("name")
@click.option("--into", type=click.Path(path_type=Path, file_okay=False), help="The folder to create; by default dovetail-NAME here.")
def new_executor(name: str, into: Path | None) -> None:
    """Create a package with the executor NAME, its tests, and a CI file that runs them."""
    words = names(name)
    if words["name"] == REFERENCE:
        raise click.ClickException(f"{REFERENCE} is the name of the reference executor, which results are compared with; choose another name")
    folder = into or Path(words["distribution"])
    if folder.exists() and any(folder.iterdir()):
        raise click.ClickException(f"{folder} exists and is not empty; choose another folder with --into")
    for path, text in rendered(words).items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        click.echo(f"  {file}")
    steps = [f'pip install -e "{folder}[test]"', "dovetail doctor", f"pytest {folder}", f"dovetail conformance {words['name']}"]
    if find_spec("dovetail_conformance") is None:
        steps.insert(0, "pip install CLONE/conformance    # where CLONE is a clone of Dovetail: the suite that its tests use")
    click.echo("\n  ".join([f"Created the executor {words['name']}. Next steps:", *steps]))


def names(argument: str) -> dict[str, str]:
    """Return the substitutions of the templates: the names of the executor, its package and its distribution."""
    name = argument.removeprefix("dovetail-").removeprefix("dovetail_").replace("-", "_")
    if not name.isidentifier() or keyword.iskeyword(name) or name != name.lower() or not name.isascii():
        raise click.ClickException(f"expected a lower-case Python identifier as the name of an executor, since programs print it, got {argument!r}")
    return {"name": name, "package": f"dovetail_{name}", "distribution": f"dovetail-{name.replace('_', '-')}", "range": compatible(), "api": str(API)}


def compatible() -> str:
    """Return the version range of Dovetail with the current executor API."""
    now = Version(dovetail.__version__)
    return f">={now.major}.{now.minor},<{now.major}.{now.minor + 1}" if now.major == 0 else f">={now.major}.{now.minor},<{now.major + 1}"


def rendered(words: dict[str, str]) -> dict[str, str]:
    """Return the text of each file of the package, by path."""
    templates = files("dovetail.cli") / "template"
    return {
        Template(path).substitute(words): Template((templates / f"{template}.template").read_text()).substitute(words)
        for path, template in TEMPLATES.items()
    }
