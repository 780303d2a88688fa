"""Tuning: each kernel's few candidate tiles are timed once on each kind of device, and the fastest is written down.

It is asked for with the option `tune` of the executor.  The candidates are a fixed list, the choice is kept in a file beside the generated source,
named after the device, so that programs of one machine run alike.  Nothing is tuned in the interpreter.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

import torch

from dovetail_triton_exec import files
from dovetail_triton_exec.tiles import Tile, candidates

_LOCK = Lock()


class Choices:
    """The tiles that were chosen for one kind of device, as a file holds them."""

    def __init__(self, path: Path):
        self.path = path
        try:
            self.rows: dict[str, list] = json.loads(path.read_text())
        except (FileNotFoundError, ValueError):
            self.rows = {}

    def get(self, key: str) -> Tile | None:
        """What was chosen for a kernel."""
        found = self.rows.get(key)
        return None if found is None else Tile(*found)

    def put(self, key: str, tile: Tile) -> None:
        """Write a choice down, with those that other processes wrote meanwhile."""
        self.rows = Choices(self.path).rows | self.rows | {key: list(tile)}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_suffix(f".{os.getpid()}.tmp")
        draft.write_text(json.dumps(self.rows, indent=1, sort_keys=True))
        os.replace(draft, self.path)


_BY_PATH: dict[Path, Choices] = {}


def choices(device: str, folder: str = "") -> Choices:
    """The choices for one kind of device."""
    path = files.folder(folder) / f"tiles-{re.sub(r'[^A-Za-z0-9]+', '-', device)}.json"
    return _BY_PATH.setdefault(path, Choices(path))


def fastest(tiles: list[Tile], seconds: Callable[[Tile], float]) -> Tile:
    """The tile that takes the least time, the first of equals; one that cannot run takes no part."""
    timed = []
    for number, tile in enumerate(tiles):
        try:
            timed.append((seconds(tile), number))
        except RuntimeError:
            continue
    return tiles[min(timed)[1]] if timed else tiles[0]


def chosen(region: Any, launch: Any, kernel: Any, args: list[torch.Tensor]) -> Tile:
    """The tile for a kernel on the device of its arguments, timed where none is written down yet."""
    from triton.testing import do_bench

    from dovetail_triton_exec.regions import bound

    def seconds(run: Callable[..., Any]) -> float:
        return do_bench(lambda: run(*args), warmup=5, rep=20)

    table = choices(torch.cuda.get_device_name(args[0].device), region.folder)
    key = f"{files.digest(region.text)}.{launch.name}"
    with _LOCK:
        found = table.get(key)
        if found is None:
            found = fastest(candidates(launch.kernel), lambda tile: seconds(bound(kernel, launch, tile)))
            table.put(key, found)
    return found
