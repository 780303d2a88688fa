"""Each distribution stands on its own: what it says it holds is what is there, and its wheel works without the others' source."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import dovetail

DISTRIBUTIONS = {
    ".": "dovetail",
    "plugins/apex_xentropy": "dovetail-apex-xentropy",
    "plugins/inductor_exec": "dovetail-inductor-exec",
    "plugins/llvm_exec": "dovetail-llvm-exec",
    "plugins/nvfuser_exec": "dovetail-nvfuser-exec",
    "plugins/onednn_exec": "dovetail-onednn-exec",
    "plugins/triton_exec": "dovetail-triton-exec",
    "plugins/torch_exec": "dovetail-torch-exec",
    "conformance": "dovetail-conformance",
}
SOURCES = {  # where each distribution's package lies, below its folder
    ".": {"dovetail": "core"},
    "plugins/apex_xentropy": {"dovetail_apex_xentropy": "dovetail_apex_xentropy"},
    "plugins/inductor_exec": {"dovetail_inductor_exec": "dovetail_inductor_exec"},
    "plugins/llvm_exec": {"dovetail_llvm_exec": "dovetail_llvm_exec"},
    "plugins/nvfuser_exec": {"dovetail_nvfuser_exec": "dovetail_nvfuser_exec"},
    "plugins/onednn_exec": {"dovetail_onednn_exec": "dovetail_onednn_exec"},
    "plugins/triton_exec": {"dovetail_triton_exec": "dovetail_triton_exec"},
    "plugins/torch_exec": {"dovetail_torch_exec": "dovetail_torch_exec"},
    "conformance": {"dovetail_conformance": "dovetail_conformance"},
}

every_distribution = pytest.mark.parametrize("folder", DISTRIBUTIONS, ids=DISTRIBUTIONS.values())
built_once = pytest.mark.xdist_group("wheels")  # one worker, so that the wheels are built once


def modules(folder: Path, package: str) -> set[str]:
    """The paths in a wheel of the Python files under `folder`, which is imported as `package`."""
    return {f"{package}/{file.relative_to(folder).as_posix()}" for file in folder.rglob("*.py")}


def everything(folder: Path, package: str) -> set[str]:
    """The paths in a wheel of all files under `folder`: Python, pages and templates."""
    files = [file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    return {f"{package}/{file.relative_to(folder).as_posix()}" for file in files}


@every_distribution
def test_the_package_list_is_the_folders(root, project, folder):
    found = set()
    for package, source in SOURCES[folder].items():
        found |= {path.rpartition("/")[0].replace("/", ".") for path in modules(root / folder / source, package)}

    assert set(project(folder)["tool"]["setuptools"]["packages"]) == found


@every_distribution
def test_a_package_has_an_init_whose_docstring_says_what_lives_there(root, folder):
    for source in SOURCES[folder].values():
        for package in {file.parent for file in (root / folder / source).rglob("*.py")}:
            init = package / "__init__.py"
            assert init.is_file() and init.read_text().startswith('"""'), f"{init.relative_to(root)} wants a docstring"


@every_distribution
def test_the_distributions_agree(project, folder):
    said = project(folder)["project"]

    assert said["name"] == DISTRIBUTIONS[folder]
    assert said["requires-python"] == ">=3.11,<3.15"
    assert said["license"] == "Apache-2.0"


def test_plugins_depend_on_the_core_and_the_core_on_no_plugin(project):
    needed = {name: {Requirement(r).name for r in project(folder)["project"]["dependencies"]} for folder, name in DISTRIBUTIONS.items()}

    assert all("dovetail" in needed[name] for name in needed if name != "dovetail")
    assert not any(name.startswith("dovetail") for name in needed["dovetail"])


def test_the_core_has_the_dependencies_that_contributing_explains(root, project):
    explained = (root / "CONTRIBUTING.md").read_text()

    for requirement in (*project(".")["project"]["dependencies"], *project(".")["dependency-groups"]["dev"]):
        assert f"| `{Requirement(requirement).name}` |" in explained, f"CONTRIBUTING.md does not say why {requirement} is there"


def test_the_version_is_the_same_in_the_package_and_in_its_metadata(project):
    assert dovetail.__version__ == project(".")["project"]["version"]


def test_every_development_tool_is_pinned(root, project):
    pinned = {Requirement(line).name for line in (root / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")}

    assert pinned >= {Requirement(r).name for r in (*project(".")["project"]["dependencies"], *project(".")["dependency-groups"]["dev"])}


def test_every_import_is_of_something_declared(root, project, files):
    """A module that happens to be installed here would be missing on a fresh machine."""
    parts = [project(folder) for folder in DISTRIBUTIONS]
    declared = [r for part in parts for r in (*part["project"]["dependencies"], *part.get("dependency-groups", {}).get("dev", ()))]
    declared += [r for part in parts for extra in part["project"].get("optional-dependencies", {}).values() for r in extra]
    known = {Requirement(r).name for r in declared} | set(DISTRIBUTIONS.values())
    sources = [file for file in files if file.suffix == ".py"]
    ours = {file.stem for file in sources}
    ours |= {"thunder", "nvfuser_direct"}  # used where they are there: a peer in the benchmarks; what several distributions bring, by torch version
    brings = importlib.metadata.packages_distributions()

    for module in set().union(*map(imported, sources)) - sys.stdlib_module_names - ours:
        brought = {canonicalize_name(module), *map(canonicalize_name, brings.get(module, ()))}
        assert known & brought, f"{module} is imported, and no pyproject.toml declares what brings it"


def imported(file: Path) -> set[str]:
    """The top-level modules that a file imports."""
    nodes = list(ast.walk(ast.parse(file.read_text())))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    return {name.partition(".")[0] for name in names}


def test_importing_core_raises_with_a_hint(root):
    done = subprocess.run([sys.executable, "-c", "import core"], cwd=root, capture_output=True, text=True)

    assert done.returncode and "write `import dovetail`" in done.stderr


@pytest.fixture(scope="module")
def wheels(root, tmp_path_factory) -> dict[str, Path]:
    """The wheel of each distribution, each built from a copy of its own files alone."""
    out = tmp_path_factory.mktemp("wheels")
    made = {}
    for folder, name in DISTRIBUTIONS.items():
        alone = tmp_path_factory.mktemp("source") / name
        alone.mkdir()
        for file in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(root / folder / file, alone / file)
        for source in SOURCES[folder].values():
            shutil.copytree(root / folder / source, alone / source, ignore=shutil.ignore_patterns("__pycache__"))
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(out), str(alone)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        (made[name],) = out.glob(f"{name.replace('-', '_')}-*.whl")
    return made


@pytest.fixture(scope="module")
def beside_torch(tmp_path_factory) -> Path:
    """A folder with everything that is installed here except Dovetail."""
    folder = tmp_path_factory.mktemp("site")
    for item in Path(torch.__file__).parents[1].iterdir():
        if not item.name.startswith(("dovetail", "__editable__", "_")) or item.name.startswith("_pytest"):
            (folder / item.name).symlink_to(item)
    return folder


@pytest.fixture
def installed(wheels, beside_torch, tmp_path, python):
    """installed(names)(program) is what `program` prints where only these wheels are installed."""

    def install(*names: str):
        target = tmp_path / "target"
        chosen = [str(wheels[name]) for name in names]
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), *chosen], check=True)
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(target), str(beside_torch)]), "OMP_NUM_THREADS": "1"}
        return lambda program: python(program, flags=("-P", "-S"), env=environment)

    return install


@built_once
@every_distribution
def test_a_wheel_holds_the_source_and_nothing_else(root, wheels, folder):
    wanted = set().union(*(everything(root / folder / source, package) for package, source in SOURCES[folder].items()))
    inside = zipfile.ZipFile(wheels[DISTRIBUTIONS[folder]]).namelist()

    assert {name for name in inside if ".dist-info/" not in name} == wanted
    assert any(name.endswith("licenses/LICENSE") for name in inside)


@built_once
def test_a_wheel_brings_its_entry_points(wheels):
    def entry_points(name: str) -> str:
        wheel = zipfile.ZipFile(wheels[name])
        return next((wheel.read(n).decode() for n in wheel.namelist() if n.endswith("entry_points.txt")), "")

    assert "[dovetail.executors]\ntorch = dovetail_torch_exec" in entry_points("dovetail-torch-exec")
    assert "dovetail = dovetail.cli:main" in entry_points("dovetail")


TRACES = """
import dovetail, torch
print("site" in dovetail.__file__ or "target" in dovetail.__file__)
program = dovetail.trace(lambda x: torch.sin(x) * 2)(torch.ones(3))
print([line.symbol.name for line in program.lines])
"""


@built_once
def test_the_core_alone_traces_and_says_what_is_missing_to_run(installed):
    run = installed("dovetail")
    printed = run(
        TRACES + "import dovetail.errors\n"
        "try: dovetail.jit(lambda x: torch.sin(x))(torch.ones(3))\n"
        "except dovetail.errors.Unclaimed as error: print(error)"
    )

    assert "True\n['sin', 'mul']\n" in printed
    assert "no executor is installed" in printed


@built_once
def test_the_command_alone_says_what_is_missing(installed):
    run = installed("dovetail")

    assert "No executor is installed" in run("import sys; sys.argv = ['dovetail', 'executors']; from dovetail.cli import main; main()")


@built_once
def test_with_the_plugin_it_runs(installed):
    run = installed("dovetail", "dovetail-torch-exec")

    assert run("import dovetail, torch; print(dovetail.jit(lambda x: torch.sin(x) * 2)(torch.zeros(3)).tolist())") == "[0.0, 0.0, 0.0]\n"


@built_once
def test_the_conformance_suite_imports_without_the_torch_executor(installed):
    run = installed("dovetail", "dovetail-conformance")

    assert run("import dovetail_conformance; print('there')") == "there\n"
