"""Tuning: each kernel's few candidate tiles are timed once on each kind of device, and the fastest is written down.

It is asked for with the option `tune` of the executor.  The candidates are a fixed list; the choice is kept beside the generated source, in a
folder named after the device, so that programs of one machine run alike.  Nothing is tuned in the interpreter.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import torch

from dovetail_triton_exec import files
from dovetail_triton_exec.tiles import Tile, candidates

_LOCK = Lock()  # one kernel is timed at a time
Start = Callable[[Tile], Callable[[], Any]]  # a kernel with a tile, ready to run


class Choices:
    """The tiles that were chosen for one kind of device: a file for each, so that processes that tune at once lose nothing."""

    def __init__(self, folder: Path):
        self.folder = folder

    def get(self, key: str, allowed: Sequence[Tile] = ()) -> Tile | None:
        """Return what was chosen for a kernel, among the `allowed` tiles where they are given.

        None where nothing was, nothing that can be read, or what was chosen for another kernel or device.
        """
        try:
            record = json.loads((self.folder / f"{key}.json").read_text())
            tile = Tile(*record["tile"]) if (record["device"], record["kernel"]) == (self.folder.name, key) else None
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            return None
        return tile if not allowed or tile in allowed else None

    def put(self, key: str, tile: Tile, allowed: Sequence[Tile] = ()) -> Tile:
        """Write a choice down in one step; gives the one that holds, which is another process's where that was first."""
        previous = self.get(key, allowed)
        if previous is not None:
            return previous
        self.folder.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=self.folder, suffix=".tmp")
        with os.fdopen(handle, "w") as file:
            json.dump({"device": self.folder.name, "kernel": key, "tile": list(tile)}, file)
        os.replace(draft, self.folder / f"{key}.json")
        return tile


def choices(device: str, folder: str = "") -> Choices:
    """Return the choices for one kind of device."""
    return Choices(files.folder(folder) / f"tiles-{re.sub(r'[^A-Za-z0-9]+', '-', device)}")


def fastest(tiles: list[Tile], seconds: Callable[[Tile], float]) -> Tile:
    """Return the tile that takes the least time, the first of equals; one that cannot run takes no part."""
    timed = []
    for number, tile in enumerate(tiles):
        try:
            timed.append((seconds(tile), number))
        except Exception:  # of CUDA, of the compiler, or of triton, which finds that a device has too little of something
            continue
    return tiles[min(timed)[1]] if timed else tiles[0]


def seconds(run: Callable[[], Any]) -> float:
    """Return what a launch takes on the device, in the unit of all others."""
    from triton.testing import do_bench

    return do_bench(run, warmup=5, rep=20)


def kind(device: torch.device) -> str:
    """Return what devices of its kind are called."""
    return torch.cuda.get_device_name(device)


def chosen(region: Any, launch: Any, device: torch.device, start: Start) -> Tile:
    """Return the tile for a kernel of a region on a device, timed where none is written down yet."""
    table = choices(kind(device), region.folder)
    key = f"{files.digest(region.text)}-{launch.name}"
    with _LOCK:
        tiles = candidates(launch.kernel)
        return table.get(key, tiles) or table.put(key, fastest(tiles, lambda tile: seconds(start(tile))), tiles)
