"""What keeps the house in order: layers, sizes, names, and what an import brings with it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PLUGINS = ("torch_exec", "triton_exec", "nvfuser", "apex_xentropy", "llvm_exec", "onednn", "inductor_exec")
HEAVY = ("click", "matplotlib", "numpy", "rich", "scipy", "sympy", "torch._dynamo", "torch._inductor")
LONGEST = 700


def test_the_import_contracts_hold(root, tmp_path):
    command = Path(sys.executable).with_name("lint-imports")
    young = ":".join(str(folder) for folder in (root / "plugins").iterdir())  # those that are installed for their own tests alone
    environment = os.environ | {"PYTHONPATH": young}
    done = subprocess.run([command, "--no-logo", "--cache-dir", str(tmp_path)], cwd=root, capture_output=True, text=True, env=environment)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", PLUGINS)
def test_the_core_names_no_plugin(root, name):
    naming = [file.relative_to(root) for file in (root / "core").rglob("*.py") if name in file.read_text()]

    assert not naming, f"the core knows executors by the hook alone, and {naming} names {name}"


def test_no_file_is_long(root, files):
    long = {str(file.relative_to(root)): n for file in files if file.suffix == ".py" and (n := len(file.read_text().splitlines())) > LONGEST}

    assert not long, f"over {LONGEST} lines, so two ideas: {long}"


def test_no_file_names_a_machine(root, files):
    machine = re.compile(r"(?<![\w.])/(?:work|root|home|tmp)/\w")
    found = [file.relative_to(root) for file in files if machine.search(file.read_text(errors="ignore"))]

    assert not found


def test_importing_dovetail_brings_nothing_heavy(python):
    printed = python("import sys, torch; before = set(sys.modules); import dovetail; print(*(set(sys.modules) - before))")
    new = set(printed.split())

    assert "dovetail.compiler.pipeline" in new and "dovetail.jit" not in new
    assert not [module for module in new if module.startswith(HEAVY)]
