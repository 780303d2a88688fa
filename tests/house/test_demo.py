"""The demo and the benchmarks, run briefly as a user runs them."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def harness(root, monkeypatch, tmp_path):
    found = importlib.util.spec_from_file_location("harness", root / "benchmarks" / "harness.py")
    module = importlib.util.module_from_spec(found)
    monkeypatch.setitem(sys.modules, "harness", module)
    found.loader.exec_module(module)
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    return module


def test_the_demo_trains_compiles_and_samples(root, tmp_path):
    command = [sys.executable, str(root / "examples" / "gpt.py"), "--steps", "4", "--no-compile"]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | {"COLUMNS": "120"}, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert "Losses of all 4 steps equal to eager's" in done.stdout
    assert f"Loss curves: {Path('out', 'gpt_loss.png')}" in done.stdout
    assert (tmp_path / "out" / "gpt_loss.png").read_bytes().startswith(b"\x89PNG")
    assert "Logits equal to eager's" in done.stdout
    assert "def computation(...):" in done.stdout and "torch.nn.functional.layer_norm(" in done.stdout
    assert "prims.var_mean(" in done.stdout
    assert "left out with --no-compile" in done.stdout


def test_subjects_take_turns_and_ratios_are_to_the_first(harness):
    called: list[str] = []
    slow = [0] * 2000
    timings = harness.interleaved(
        {"one": lambda: called.append("one") or sum(slow), "two": lambda: called.append("two") or sum(slow + slow)}, rounds=3, a_round=1e-3
    )

    assert [t.name for t in timings] == ["one", "two"]
    assert timings[0].ratio == 1.0
    assert all(0 < t.minimum <= t.median for t in timings)
    assert set(called) == {"one", "two"}


def test_a_report_is_kept_with_date_and_machine_and_names_no_host(harness, tmp_path):
    harness.Report("trial", "A trial", "Once.", ("", "takes"), [("a", "1 ms")], {"a": 1e-3}).write()
    kept = json.loads((tmp_path / "trial.json").read_text())

    assert kept["figures"] == {"a": 1e-3}
    assert {"date", "cpu", "cores", "torch", "python"} <= set(kept)
    assert os.uname().nodename not in json.dumps(kept)
    assert "| a | 1 ms |" in (tmp_path / "trial.md").read_text()


@pytest.mark.parametrize(("seconds", "words"), [(11.5, "11.5 s"), (0.0123, "12.3 ms"), (1.42e-6, "1.42 us"), (5e-9, "5 ns")])
def test_durations_have_three_digits(harness, seconds, words):
    assert harness.span(seconds) == words


@pytest.mark.parametrize("name", ["call_overhead", "discovery", "first_call", "gpt_forward", "import_time", "trace_cost", "train_step"])
def test_every_benchmark_is_run_by_make_bench(root, name):
    assert (root / "benchmarks" / f"{name}.py").is_file()
    assert name in (root / "Makefile").read_text().partition("BENCHMARKS :=")[2].partition("\n")[0].split()
