"""Decide whether oneDNN runs a case, from times that are measured once per class of cases and machine."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import RLock
from time import monotonic
from typing import Any

import torch

from dovetail.extend import Claim, Verdict
from dovetail_onednn_exec import store
from dovetail_onednn_exec.cases import Case, Product
from dovetail_onednn_exec.measure import BESIDE, FLOAT32, PACKED, USUAL, Row, race, speed

NAME = "onednn"
MODES = ("measure", "frozen", "always", "never")
OPTIONS: dict[str, Any] = {"choose": "measure", "pack": False, "margin": 1.05, "folder": ""}
CROWD, PAUSE = 3, 30.0  # measurements, and seconds
LONGEST = 0.001  # seconds of one run of a measurement, about: the class of a longer case is decided by a smaller one
PROBE = Product(torch.float32, 256, 384, 256)
CLEARLY = 2 / 3  # share of the rounds that the faster way has to win


class Choices:
    """Measurements by machine and folder, in memory; the number of threads is part of the machine."""

    def __init__(self) -> None:
        self.rows: dict[Path, dict[str, Row]] = {}
        self.lock = RLock()
        self.speeds: dict[tuple[torch.dtype, int], float] = {}
        self.crowded, self.since = 0, 0.0  # how many measurements in a row were disturbed, and when the last one was

    def known(self, case: Case, folder: str = "") -> Row | None:
        """Return the stored measurement of the class of `case`, by this or an earlier process; None where there is none."""
        of = store.machine()
        path = store.path_of(of, folder)
        with self.lock:
            if path not in self.rows:
                self.rows[path] = store.read(path, of)
            return self.rows[path].get(case.key)

    def row(self, case: Case, folder: str = "", *, packs: bool = False) -> Row:
        """Return the measurement of the class of `case`, and measure it first if there is none; that takes a few milliseconds.

        `packs`: whether a packed weight is measured, too.
        """
        known = self.known(case, folder)
        if known is not None and known.covers(packs):
            return known
        of = store.machine()
        path = store.path_of(of, folder)
        with self.lock, store.Held(path) as held:
            rows = self.rows.setdefault(path, {})
            rows.update({**store.read(path, of), **rows})  # another process may have measured meanwhile
            if case.key not in rows or not rows[case.key].covers(packs):
                rows[case.key] = self._measured(case, packs)
                if held.holds:
                    with suppress(OSError):
                        store.write(path, of, {key: row for key, row in rows.items() if not row.disturbed})
            return rows[case.key]

    def _measured(self, case: Case, packs: bool = False) -> Row:
        """Measure a case. On a busy machine that takes long and yields nothing, so a few disturbed measurements are followed by a pause."""
        if self.crowded >= CROWD and monotonic() - self.since < PAUSE:
            return Row({}, disturbed="other processes disturbed earlier measurements")
        row = race(case.smaller(LONGEST * self._speed(case.dtype)).ways(packs=packs))
        if packs and PACKED not in row.times:
            row.lost.setdefault(PACKED, "oneDNN has no layout of its own for the weight")
        self.crowded, self.since = self.crowded + 1 if row.disturbed else 0, monotonic()
        return row

    def _speed(self, dtype: torch.dtype) -> float:
        """Return about how many multiplications per second PyTorch does; measured once, in a millisecond."""
        at = dtype, torch.get_num_threads()
        if at not in self.speeds:
            self.speeds[at] = speed(PROBE.rows * PROBE.inner * PROBE.columns, replace(PROBE, dtype=dtype).ways()["torch"])
        return self.speeds[at]

    def forget(self, folder: str = "") -> None:
        """Delete the measurements of this machine."""
        path = store.path_of(store.machine(), folder)
        with self.lock, store.Held(path):
            self.rows.pop(path, None)
            with suppress(OSError):
                path.unlink()


CHOICES = Choices()  # the registry of measurements


def faster(row: Row, way: str, margin: float) -> bool:
    """Return whether a way beats PyTorch by the margin and in most rounds, and PyTorch in float32."""
    return way in row.wins and usual(row) >= margin * row.times[way] and row.wins[way] >= CLEARLY


def usual(row: Row) -> float:
    """Return the microseconds without oneDNN."""
    return min([row.times[way] for way in (USUAL, FLOAT32) if way in row.times])


def verdict(case: Case, how: dict[str, Any], *, packs: bool) -> Verdict:
    """Return a Claim with both times where oneDNN is faster, otherwise a refusal.

    `packs`: whether the weight may be packed, because it does not change between calls.
    """
    mode = how["choose"]
    if mode not in MODES:
        return f"invalid option choose={mode!r}; use one of {', '.join(MODES)}"
    if mode in ("always", "never"):
        return mode == "always" or f"the option {NAME}.choose is never"
    packs = packs and how["pack"]
    row = CHOICES.known(case, how["folder"]) if mode == "frozen" else CHOICES.row(case, how["folder"], packs=packs)
    if row is None:
        return f"{case} has no measurement on this machine, and the option {NAME}.choose is frozen"
    if row.disturbed:
        return f"{case} could not be measured: {row.disturbed}; the next process tries again"
    ways = (PACKED, "onednn") if packs else ("onednn",)
    won = [way for way in ways if faster(row, way, how["margin"])]
    if won:
        return Claim(f"{case} is of a class that takes {times(row, min(won, key=row.times.get))}")
    return slower(case, row, ways, how["margin"])


def pays(case: Product, how: dict[str, Any]) -> bool:
    """Return whether oneDNN's product with an epilogue also beats the lower bound of a product and a fusion executor's epilogue."""
    row = CHOICES.known(case, how["folder"])
    if how["choose"] == "always" or row is None:
        return how["choose"] == "always"
    apart = [us for way, us in row.times.items() if way.startswith(BESIDE)]
    return bool(apart) and min(apart) >= how["margin"] * row.times.get("onednn", float("inf"))


def table(folder: str = "") -> str:
    """Return the measurements of this machine as text, one line per class."""
    of = store.machine()
    path = store.path_of(of, folder)
    rows = store.read(path, of)
    width = max(map(len, rows), default=0)
    message = [f"{key.ljust(width)}  " + ", ".join(f"{way} {us:g} us" for way, us in row.times.items()) for key, row in sorted(rows.items())]
    return "\n".join([f"{path}: {len(rows)} classes, PyTorch {of['torch']}, {of['threads']} threads", *message])


def slower(case: Case, row: Row, ways: tuple[str, ...], margin: float) -> str:
    """Return the refusal: both times."""
    tried = [way for way in ways if way in row.times]
    if not tried:
        return f"{case}: {row.lost.get(ways[-1], 'oneDNN has no way to compute it')}"
    best = min(tried, key=row.times.get)
    return f"{case} is of a class that takes {times(row, best)}; expected {margin:g} times the speed"


def times(row: Row, way: str) -> str:
    """Format both times: `10 us with oneDNN and 15 us without`."""
    packing = ", its weight packed," if way == PACKED else ""
    return f"{row.times[way]:g} us with oneDNN{packing} and {usual(row):g} us without"
