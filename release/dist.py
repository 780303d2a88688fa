"""Build the sdist and the wheel of every distribution, with the same bytes wherever and whenever they are built.

python release/dist.py [--output dist] [--repository https://...]
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path

import click
from build import ProjectBuilder
from pyproject_hooks import quiet_subprocess_runner
from readme_links import absolute
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
EXTRAS = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "MANIFEST.in")
URLS = {"Homepage": "", "Documentation": "/tree/{tag}/docs", "Changelog": "/blob/{tag}/CHANGELOG.md", "Source": "/tree/{tag}", "Issues": "/issues"}


@click.command()
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), default=ROOT / "dist", show_default=True, help="The folder to fill.")
@click.option("--repository", default=None, help="The forge's address of the repository; [tool.dovetail-release] in pyproject.toml by default.")
def main(output: Path, repository: str | None) -> None:
    """Build all distributions into one folder, check them with twine, and print their checksums."""
    console = Console(highlight=False)
    modified = git("status", "--porcelain")
    if modified:
        console.print("[yellow]Some files are not committed: these packages are not those of any commit.[/yellow]")
    shutil.rmtree(output, ignore_errors=True)
    files = build_all(output, repository)
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *map(str, files)], check=True)
    sums = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    (output / "SHA256SUMS").write_text("".join(f"{digest}  {name}\n" for name, digest in sums.items()))
    table = Table("file", "bytes", "sha256", box=None)
    for file in files:
        table.add_row(file.name, f"{file.stat().st_size:,}", sums[file.name][:16])
    console.print(table)


def folders(root: Path = ROOT) -> dict[str, str]:
    """Return the name of each distribution by its folder, the core first."""
    projects = [root, *sorted(file.parent for file in root.glob("plugins/*/pyproject.toml")), root / "conformance"]
    return {folder.relative_to(root).as_posix(): read(folder)["project"]["name"] for folder in projects}


def read(folder: Path) -> dict:
    return tomllib.loads((folder / "pyproject.toml").read_text())


def build_all(output: Path, repository: str | None = None, only: Iterable[str] | None = None) -> list[Path]:
    """Build the distributions in these folders (all by default); return the files in `output`, an sdist and a wheel for each."""
    output.mkdir(parents=True, exist_ok=True)
    repository = read(ROOT)["tool"]["dovetail-release"]["repository"] if repository is None else repository
    files = []
    mask = os.umask(0o022)  # wheels keep the permissions of what is written while they are built
    try:
        for folder in folders() if only is None else only:
            with tempfile.TemporaryDirectory() as scratch:
                source = export(folder, Path(scratch), repository.rstrip("/"))
                files += build(source, output)
    finally:
        os.umask(mask)
    return files


def export(folder: str, scratch: Path, repository: str) -> Path:
    """Copy what belongs to one distribution, with uniform permissions, its urls filled in, and the links of its README made absolute."""
    project, source = read(ROOT / folder), scratch / "source"
    source.mkdir()
    mapping = project["tool"]["setuptools"].get("package-dir", {})
    packages = {mapping.get(name, name) for name in project["tool"]["setuptools"]["packages"] if "." not in name}
    for path in tracked(ROOT / folder):
        if path in EXTRAS or path.partition("/")[0] in packages:
            target = source / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / folder / path, target)
            target.chmod(0o644)
    tag = f"v{project['project']['version']}"
    readme = source / "README.md"
    readme.write_text(absolute(readme.read_text(), "" if folder == "." else folder, repository, tag))
    if repository:
        urls = "".join(f'{name} = "{repository}{path.format(tag=tag)}"\n' for name, path in URLS.items())
        with (source / "pyproject.toml").open("a") as file:
            file.write(f"\n[project.urls]\n{urls}")
    return source


def tracked(folder: Path) -> list[str]:
    """Return the paths below `folder` that are, or are about to be, in the repository."""
    listed = git("ls-files", "-co", "--exclude-standard", cwd=folder)
    return sorted(path for path in listed.splitlines() if (folder / path).is_file())


def git(*words: str, cwd: Path = ROOT) -> str:
    done = subprocess.run(["git", *words], cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        raise click.ClickException(f"`git {' '.join(words)}` failed in {cwd}: {done.stderr.strip()}. Packages are built from a git checkout.")
    return done.stdout


def epoch() -> int:
    """Return the time that the packages' files bear: SOURCE_DATE_EPOCH, else that of the last commit."""
    return int(os.environ.get("SOURCE_DATE_EPOCH") or git("log", "-1", "--format=%ct"))


def build(source: Path, output: Path) -> list[Path]:
    """Build an sdist from `source`, and the wheel from that sdist, as an installer without wheels would."""
    when = epoch()

    def quietly(command, cwd=None, extra_environ=None):
        quiet_subprocess_runner(command, cwd, {**(extra_environ or {}), "SOURCE_DATE_EPOCH": str(when)})

    sdist = Path(ProjectBuilder(source, runner=quietly).build("sdist", output))
    normalize(sdist, when)
    unpacked = source.parent / "unpacked"
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="tar")
    (inner,) = unpacked.iterdir()
    return [sdist, Path(ProjectBuilder(inner, runner=quietly).build("wheel", output))]


def normalize(sdist: Path, when: int) -> None:
    """Write an sdist anew, its members in order and without owners, permissions and times of this machine: setuptools keeps those."""
    packed = io.BytesIO()
    with tarfile.open(sdist) as old, tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda each: each.name):
            plain = tarfile.TarInfo(member.name)
            plain.type, plain.size, plain.mtime, plain.mode = member.type, member.size, when, 0o755 if member.isdir() else 0o644
            new.addfile(plain, old.extractfile(member) if member.isfile() else None)
    with sdist.open("wb") as file, gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=when) as zipped:
        zipped.write(packed.getvalue())


if __name__ == "__main__":
    main()
