"""What `import dovetail` takes beyond `import torch`, each time in a new process."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

from costs import Costs, progress, script
from machine import span

ROUNDS = 7
PROGRAM = """
import time, sys, json
a = time.perf_counter(); import torch
b = time.perf_counter(); had = len(sys.modules); import dovetail
c = time.perf_counter(); print(json.dumps({"torch": b - a, "dovetail": c - b, "modules": len(sys.modules) - had}))
"""


@script
def main() -> Iterator[Costs]:
    """Measure imports, each time in a new process."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    run = partial(subprocess.check_output, [sys.executable, "-c", PROGRAM], text=True, env=environment)
    run()  # so that there is bytecode, as there is for users after the first time
    runs = [json.loads(run()) for _ in progress(range(ROUNDS), "new processes")]
    medians, least = ({what: summary(run[what] for run in runs) for what in runs[0]} for summary in (statistics.median, min))
    rows = [(f"import {what}", span(medians[what]), span(least[what])) for what in ("torch", "dovetail")]
    how = f"{ROUNDS} new processes; `import dovetail` after `import torch`; it adds {medians['modules']} modules."
    yield Costs("import_time", "Importing", how, ("", "median", "minimum"), rows, {"median": medians, "minimum": least})


if __name__ == "__main__":
    main()
