"""A disagreement as a script that stands alone: the program, its inputs beside it, and the comparison.

The script has what was tried: the operations of one line with the values of their inputs.  It needs nothing but Dovetail and the
executor, and exits with 1 while the two disagree.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from dovetail.executors.contract.executor import Executor
from dovetail.executors.discovery.plugin_errors import named
from dovetail.executors.trials.reference import parts, sizes_of
from dovetail.prims.sizes import Size
from dovetail.trace import BoundSymbol, Proxy, Trace, tree_map
from dovetail.trace.printing import save

SCRIPT = '''"""{title}

{message}

Found with {versions}.  Run it to see whether it is so still: it exits with 1 while the two disagree.
"""

import pathlib
import sys

import torch
from dovetail import replay

{program}

inputs = torch.load(pathlib.Path(__file__).with_suffix(".pt"))
outcome = replay({name}, inputs, executor={executor!r})
print(outcome)
sys.exit(not outcome)
'''


def write(folder: Path, name: str, line: BoundSymbol, inputs: dict[Proxy, Any], ex: Executor, message: str) -> str:
    """Write the script that replays `line` on `inputs` into `folder`, and the inputs beside it; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.py"
    case = Trace("case", inputs=list(inputs), outputs=tuple(line.writes))
    sizes = sizes_of(inputs)
    case.lines = [_of_sizes(part.replace(implementation=None), sizes) for part in parts(line)]
    save(case, path)
    versions = f"{named(ex)}, torch {torch.__version__}, Python {platform.python_version()}"
    title = f"{ex.name} disagreed with the reference in {line.symbol}."
    text = SCRIPT.format(title=title, message=message, versions=versions, program=path.read_text(), name=case.name, executor=ex.name)
    path.write_text(text)
    torch.save([x.detach().cpu() if isinstance(x, torch.Tensor) else x for x in inputs.values()], path.with_suffix(".pt"))
    return str(path)


def _of_sizes(line: BoundSymbol, sizes: Mapping[str, int]) -> BoundSymbol:
    """Return a line with its symbolic sizes as they are in this call."""
    args, kwargs = tree_map(lambda x: x.evaluate(sizes) if type(x) is Size else x, (line.args, line.kwargs))
    return line.replace(args=args, kwargs=kwargs)
