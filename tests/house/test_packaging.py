"""Each distribution stands on its own: what it says it holds is what is there, and its wheel works without the others' source."""

from __future__ import annotations

import ast
import doctest
import email
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
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


def built_once(test):
    """Mark a test that looks into built distributions: one worker builds them once, in a minute of processor time."""
    return pytest.mark.slow(pytest.mark.xdist_group("wheels")(test))


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
            assert init.is_file() and init.read_text().startswith('"""'), f"{init.relative_to(root)} expects a docstring"


@every_distribution
def test_the_distributions_agree(project, folder):
    metadata_table = project(folder)["project"]

    assert metadata_table["name"] == DISTRIBUTIONS[folder]
    assert metadata_table["requires-python"] == ">=3.11,<3.15"
    assert metadata_table["license"] == "Apache-2.0"


def test_plugins_depend_on_the_core_and_the_core_on_no_plugin(project):
    needed = {name: {Requirement(r).name for r in project(folder)["project"]["dependencies"]} for folder, name in DISTRIBUTIONS.items()}

    assert all("dovetail" in needed[name] for name in needed if name != "dovetail")
    assert not any(name.startswith("dovetail") for name in needed["dovetail"])


def test_the_core_has_the_dependencies_that_contributing_explains(root, project):
    explained = (root / "CONTRIBUTING.md").read_text()

    for requirement in (*project(".")["project"]["dependencies"], *project(".")["dependency-groups"]["dev"]):
        assert re.search(rf"^\| .*`{Requirement(requirement).name}`.* \|", explained, re.MULTILINE), (
            f"CONTRIBUTING.md does not say why {requirement} is there"
        )


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
    declared += (root / "benchmarks" / "ecosystem" / "requirements.txt").read_text().splitlines()
    known = {canonicalize_name(Requirement(r).name) for r in declared} | set(DISTRIBUTIONS.values())
    sources = [file for file in files if file.suffix == ".py"]
    ours = {file.stem for file in sources} | {file.parent.name for file in sources if "tests" in file.parts}
    ours |= {
        "thunder",
        "jax",
        "optax",
        "nvfuser_direct",
    }  # used where they are there: peers in the benchmarks; what several distributions bring, by torch version
    elsewhere = {
        "blitz": "blitz-bayesian-pytorch",
        "chronos": "chronos-forecasting",
        "esm": "fair-esm",
        "neuralop": "neuraloperator",
        "open_clip": "open-clip-torch",
        "pyro": "pyro-ppl",
        "segment_anything": "segment-anything-py",
        "tltorch": "tensorly-torch",
        "torch_frame": "pytorch-frame",
        "torchcrf": "pytorch-crf",
        "whisper": "openai-whisper",
    }
    brings = {module: [distribution] for module, distribution in elsewhere.items()}  # those of the ecosystem's environment alone
    brings |= importlib.metadata.packages_distributions()

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


@pytest.fixture(scope="session")
def dist(root):
    """The module release/dist.py."""
    sys.path.insert(0, str(root / "release"))
    try:
        return importlib.import_module("dist")
    finally:
        sys.path.remove(str(root / "release"))


@pytest.fixture(scope="session")
def distributions(dist, tmp_path_factory) -> Path:
    """A folder with the sdist and the wheel of every distribution, as `make dist` builds them."""
    out = tmp_path_factory.mktemp("dist")
    dist.build_all(out)
    return out


@pytest.fixture(scope="session")
def wheels(distributions) -> dict[str, Path]:
    """The wheel of each distribution."""
    return {name: next(distributions.glob(f"{name.replace('-', '_')}-*.whl")) for name in DISTRIBUTIONS.values()}


@pytest.fixture(scope="session")
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
program = dovetail.make_trace(lambda x: torch.sin(x) * 2)(torch.ones(3))
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


@built_once
@every_distribution
def test_an_sdist_holds_what_its_wheel_is_built_from(wheels, distributions, folder):
    name = DISTRIBUTIONS[folder].replace("-", "_")
    with tarfile.open(next(distributions.glob(f"{name}-[0-9]*.tar.gz"))) as archive:
        inside = {member.partition("/")[2] for member in archive.getnames()}
    in_wheel = {path for path in zipfile.ZipFile(wheels[DISTRIBUTIONS[folder]]).namelist() if ".dist-info/" not in path}

    assert {f"{SOURCES[folder][path.partition('/')[0]]}/{path.partition('/')[2]}" for path in in_wheel} <= inside
    assert {"LICENSE", "README.md", "pyproject.toml"} <= inside
    assert ("CHANGELOG.md" in inside) == (folder == ".")
    assert not any(path.startswith("tests/") for path in inside)


@built_once
def test_distributions_built_again_are_the_same_bytes_and_pass_twine(root, dist, distributions, tmp_path):
    """Under another umask, in another time zone and another folder."""
    command = [sys.executable, str(root / "release" / "dist.py"), "--output", str(tmp_path / "again")]
    environment = os.environ | {"TZ": "Asia/Kathmandu", "SOURCE_DATE_EPOCH": str(dist.epoch())}
    done = subprocess.run(command, capture_output=True, text=True, umask=0o077, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    built = {file.name: file.read_bytes() for file in distributions.iterdir()}
    again = {file.name: file.read_bytes() for file in (tmp_path / "again").iterdir() if file.name != "SHA256SUMS"}

    assert len(built) == 2 * len(DISTRIBUTIONS)
    assert [name for name in built.keys() | again.keys() if built.get(name) != again.get(name)] == []
    assert done.stdout.count("PASSED") == len(built)


def metadata(wheel: Path) -> email.message.Message:
    inside = zipfile.ZipFile(wheel)
    return email.message_from_bytes(inside.read(next(name for name in inside.namelist() if name.endswith(".dist-info/METADATA"))))


INSIDE = re.compile(r"\]\((?!https?://|#)[^)\s]+\)")  # a link that leads nowhere outside of the repository


@built_once
@every_distribution
def test_a_readme_has_no_link_that_only_the_repository_has(wheels, folder):
    about = metadata(wheels[DISTRIBUTIONS[folder]])

    assert about["Description-Content-Type"] == "text/markdown"
    assert len(about.get_payload()) > 500 and not INSIDE.findall(about.get_payload())
    assert about["License-Expression"] == "Apache-2.0"


def test_urls_and_links_are_those_of_the_repository_where_it_has_an_address(dist, tmp_path):
    files = dist.build_all(tmp_path, "https://forge.example/us/dovetail/", ["plugins/onednn_exec"])
    about = metadata(files[1])

    assert "Changelog, https://forge.example/us/dovetail/blob/v0.1.0/CHANGELOG.md" in about.get_all("Project-URL")
    assert "[Dovetail](https://forge.example/us/dovetail/blob/v0.1.0/README.md)" in about.get_payload()
    assert "[below](#packed-weights)" in about.get_payload() and not INSIDE.findall(about.get_payload())


def test_links_in_code_stay(dist):
    links = sys.modules["readme_links"]

    assert doctest.testmod(links).attempted == 2 and not doctest.testmod(links).failed
    assert links.absolute("```python\nf[a](b)\n```\n[`x`](y)", "", "", "v1") == "```python\nf[a](b)\n```\n`x`"


@every_distribution
def test_classifiers_name_the_pythons_that_it_runs_on(project, folder):
    about = project(folder)["project"]
    named = {line.rpartition(" ")[2] for line in about["classifiers"] if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", line)}
    allowed = SpecifierSet(about["requires-python"])

    assert named == {f"3.{minor}" for minor in range(30) if allowed.contains(f"3.{minor}")}


@every_distribution
def test_type_checkers_are_told_of_the_annotations(root, project, folder):
    (source,) = SOURCES[folder].values()

    assert (root / folder / source / "py.typed").is_file()
    assert "Typing :: Typed" in project(folder)["project"]["classifiers"]


EXTRAS = {"cpu": "executors for CPUs", "cuda": "executors for NVIDIA GPUs"}


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_readme_installs_from_the_clone_what_the_extra_brings(root, project, extra):
    wanted = {Requirement(line).name for line in project(".")["project"]["optional-dependencies"][extra]}
    (line,) = re.findall(rf"^    pip install \. (.*?) +# {EXTRAS[extra]}", (root / "README.md").read_text(), re.MULTILINE)

    assert {DISTRIBUTIONS[folder.removeprefix("./")] for folder in line.split()} == wanted


@pytest.fixture(scope="session")
def stranger(distributions, beside_torch, tmp_path_factory) -> Path:
    """A new environment into which `dovetail[cpu]` was installed, from the built files and what is here already."""
    folder = tmp_path_factory.mktemp("stranger")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python3.*/site-packages")
    (site / "beside_torch.pth").write_text(f"{beside_torch}\n")
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet", "--no-index"]
    done = subprocess.run([*pip, "--find-links", str(distributions), "dovetail[cpu]"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@built_once
def test_the_readmes_first_example_runs_in_a_new_environment(root, stranger, wheels, tmp_path):
    """As on the package's page: the text is that of the wheel, the folder any other."""
    first = re.search(r"^```python\n.*?^```$\s+^```text\n.*?^```$", metadata(wheels["dovetail"]).get_payload(), re.MULTILINE | re.DOTALL)
    (tmp_path / "example.md").write_text(first[0])
    command = [str(stranger / "bin" / "python"), "-P", str(root / "tests" / "house" / "pages.py"), "example.md"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})

    assert done.returncode == 0, done.stdout + done.stderr


@built_once
def test_the_extra_brings_executors_that_work(stranger, tmp_path):
    done = subprocess.run([str(stranger / "bin" / "dovetail"), "doctor"], cwd=tmp_path, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr
    assert all(name in done.stdout for name in ("torch", "llvm", "onednn"))
