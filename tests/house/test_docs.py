"""What the documentation shows is what happens: its examples run, its tables are current, its links lead somewhere."""

from __future__ import annotations

import importlib.util
import re

import pytest

pytestmark = pytest.mark.trials

EXECUTED = (
    "README.md",
    "docs/walkthrough.md",
    "docs/life_of_a_call.md",
    "docs/executors.md",
    "docs/explain.md",
    "docs/configuration.md",
    "docs/decisions.md",
    "docs/conformance.md",
    "docs/distributed.md",
    "docs/dynamic_shapes.md",
    "docs/dynamo.md",
    "docs/plugins.md",
    "docs/numpy.md",
    "docs/operations.md",
    "docs/tracing.md",
    "docs/training.md",
)
PLUGINS = tuple(
    f"plugins/{name}/README.md"
    for name in ("torch_exec", "llvm_exec", "onednn_exec", "apex_xentropy", "triton_exec", "nvfuser_exec", "inductor_exec")
)
PAGES = (*EXECUTED, *PLUGINS, "CONTRIBUTING.md", "CHANGELOG.md", "docs/api.md", "docs/options.md", "docs/benchmarks.md", "conformance/README.md")
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")


@pytest.fixture(scope="session")
def build(root):
    found = importlib.util.spec_from_file_location("docs_build", root / "docs" / "build.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", EXECUTED)
def test_the_examples_of_a_page_run_and_print_what_it_says(root, page, new_process):
    runner = root / "tests" / "house" / "pages.py"
    done = new_process([runner, page], cwd=root)  # examples register things for good

    assert done.returncode == 0, done.stderr


def test_the_tables_made_from_the_code_are_current(build):
    late = [page.name for page, text in build.pages().items() if page.read_text() != text]

    assert not late, f"run `make docs`: {late}"


@pytest.mark.parametrize("name", ["dovetail", "dovetail.extend", "dovetail.extend.advanced", "dovetail.prims"])
def test_all_is_what_the_api_page_lists(root, build, name):
    module = importlib.import_module(name)
    section = (root / "docs" / "api.md").read_text().partition(f"## `{name}`\n")[2].partition("\n## ")[0]

    assert set(re.findall(r"^\| `(\w+)", section, re.MULTILINE)) == set(build.public(module))


def test_a_name_that_is_not_imported_on_purpose_is_not_public(build):
    assert "annotations" not in build.public(importlib.import_module("dovetail.extend.advanced"))


def test_the_contract_for_kernel_authors_fits_on_a_page(build):
    first, second = (set(build.public(importlib.import_module(name))) for name in ("dovetail.extend", "dovetail.extend.advanced"))

    assert len(first) < 16 and not first & second


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files(root, page):
    here = (root / page).parent
    gone = [link for link in LINK.findall((root / page).read_text()) if not link.startswith("http") and not (here / link).exists()]

    assert not gone


def test_the_walk_is_short(root):
    assert len((root / "docs" / "walkthrough.md").read_text().splitlines()) < 300
