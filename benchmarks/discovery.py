"""What finding and loading 20 plugins costs: the first time, and after that."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from costs import Costs, progress, script
from machine import span

ROUNDS, PLUGINS = 7, 20
PLUGIN = """
from dovetail.extend import OperatorExecutor, hookimpl

@hookimpl
def dovetail_executors():
    return [OperatorExecutor("plugin_{i}")]
"""
PROGRAM = """
import json, time, torch, dovetail
from dovetail.executors.discovery import registry
from dovetail.executors.discovery import find_plugins

def seconds(fn, times=1):
    began = time.perf_counter()
    for _ in range(times):
        fn()
    return (time.perf_counter() - began) / times

took = {"first": seconds(dovetail.extend.advanced.plugins)}
rows = dovetail.extend.advanced.plugins()
took["later"] = seconds(dovetail.extend.advanced.plugins, 1000)
took["unchanged"] = seconds(registry.REGISTRY.refresh, 100)
took["scan"] = seconds(find_plugins.scan, 10)
took["plugins"] = sum(row.name.startswith("plugin_") and row.status == "ready" for row in rows)
took["loading"] = sum(row.seconds for row in rows if row.name.startswith("plugin_"))
print(json.dumps(took))
"""
WHAT = {
    "first": "the first time executors are asked for: found, checked, imported, registered",
    "loading": "of it, importing the 20 and calling their hooks",
    "later": "asking again",
    "unchanged": "looking whether something was installed meanwhile",
    "scan": "reading the metadata of every distribution again",
}


def install(folder: Path) -> None:
    """Create twenty distributions with one module each, as pip installs them."""
    for i in range(PLUGINS):
        (folder / f"dovetail_plugin_{i}.py").write_text(PLUGIN.format(i=i))
        info = folder / f"dovetail_plugin_{i}-1.0.dist-info"
        info.mkdir()
        requires = "Requires-Dist: dovetail>=0.1\nRequires-Dist: torch>=2.10\n"
        (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: dovetail-plugin-{i}\nVersion: 1.0\n{requires}")
        (info / "entry_points.txt").write_text(f"[dovetail.executors]\nplugin_{i} = dovetail_plugin_{i}\n")


@script
def main() -> Iterator[Costs]:
    """Measure finding and loading 20 plugins, each time in a new process."""
    with tempfile.TemporaryDirectory() as folder:
        install(Path(folder))
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment |= {"PYTHONPATH": folder, "DOVETAIL_CONFIG": "off"}
        run = partial(subprocess.check_output, [sys.executable, "-P", "-c", PROGRAM], text=True, env=environment)
        run()  # so that there is bytecode, as there is for users after the first time
        runs = [json.loads(run()) for _ in progress(range(ROUNDS), "new processes")]
    if any(each["plugins"] != PLUGINS for each in runs):
        raise SystemExit(f"of {PLUGINS} plugins {runs[0]['plugins']} were ready")
    medians, least = ({what: summary(run[what] for run in runs) for what in WHAT} for summary in (statistics.median, min))
    rows = [(words, span(medians[what]), span(least[what])) for what, words in WHAT.items()]
    how = f"{PLUGINS} plugins beside what is installed; {ROUNDS} new processes, in which Dovetail is imported already."
    yield Costs("discovery", "Finding plugins", how, ("", "median", "minimum"), rows, {"median": medians, "minimum": least})


if __name__ == "__main__":
    main()
