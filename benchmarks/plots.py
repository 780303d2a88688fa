"""A report as pictures: speed relative to eager, and times of first calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import matplotlib
from machine import span
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from rows import NAME, Report, Row
from subjects import BASELINE

COLOURS = {"eager": "#7f7f7f", "torch.compile": "#e07b39", "lightning-thunder": "#8e6bbf", "dovetail": "#1f77b4"}
OTHERS = ("#2a9d8f", "#c0392b", "#b8860b", "#4b5d67")  # for more of Dovetail, with chosen executors
FORMATS = ("png", "svg")


def colour(report: Report, subject: str) -> str:
    more = [name for name in report.measured if name not in COLOURS]
    return COLOURS.get(subject) or OTHERS[more.index(subject) % len(OTHERS)]


Value, Label = Callable[[Row], float | None], Callable[[float], str]


def bars(report: Report, subjects: list[str], value: Value, label: Label, base: float) -> tuple[Figure, Axes]:
    """Draw a group of bars from `base` on for each workload, the first on top, labelled with their values or states."""
    workloads = report.workloads
    figure = Figure(figsize=(9, 1.4 + len(workloads) * (0.1 + 0.14 * len(subjects))), layout="constrained")
    axes = figure.add_subplot(xscale="log")
    thick = 0.82 / max(len(subjects), 1)
    for i, workload in enumerate(workloads):
        for j, subject in enumerate(subjects):
            row, at = report.row(workload, subject), i + (j - (len(subjects) - 1) / 2) * thick
            number = value(row) if row is not None and row.ok else None
            if number is not None:
                axes.barh(at, number - base, height=0.9 * thick, left=base, color=colour(report, subject))
            message = label(number) if number is not None else "" if row is None else row.state
            end, left = number or base, number is not None and number < base
            beside = {"xytext": (-3 if left else 3, 0), "textcoords": "offset points", "ha": "right" if left else "left"}
            axes.annotate(message, (end, at), va="center", fontsize=7, **beside)
    axes.set_yticks(range(len(workloads)), [report.titles[name] for name in workloads])
    axes.set_ylim(len(workloads) - 0.4, -0.6)
    axes.margins(x=0.15)
    axes.tick_params(labelsize=8)
    axes.grid(axis="x", which="major", alpha=0.3)
    axes.set_axisbelow(True)
    shades = [Patch(color=colour(report, subject), label=subject) for subject in subjects]
    figure.legend(handles=shades, loc="outside lower center", ncols=len(subjects), frameon=False, fontsize=8)
    return figure, axes


def speed(report: Report) -> Figure:
    subjects = [name for name in report.measured if name != BASELINE]
    figure, axes = bars(report, subjects, lambda row: row.speed, lambda speed: f"{speed:.2f}x", 1.0)
    axes.axvline(1.0, color=COLOURS[BASELINE], linewidth=1.2)
    axes.set_xlabel("calls while eager makes one (log scale); bars to the right are faster than eager", fontsize=8)
    axes.set_title("A warm call, beside eager", fontsize=10)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}x")
    return figure


def first_call(report: Report) -> Figure:
    least = min([row.first for row in report.rows if row.ok], default=1.0)
    figure, axes = bars(report, report.measured, lambda row: row.first, span, least / 2)
    axes.set_xlabel("seconds (log scale), in a new process with empty caches; shorter is better", fontsize=8)
    axes.set_title("The first call", fontsize=10)
    axes.xaxis.set_major_formatter(lambda x, _: span(x))
    return figure


def draw(report: Report, folder: Path) -> list[Path]:
    """Write the pictures to `folder` and return their paths; the same report gives the same files."""
    paths = []
    with matplotlib.rc_context({"svg.hashsalt": NAME, "svg.fonttype": "none"}):
        for name, figure in {"speed": speed(report), "first_call": first_call(report)}.items():
            for form in FORMATS:
                paths.append(folder / f"{NAME}_{name}.{form}")
                figure.savefig(paths[-1], dpi=130, metadata={"Date": None} if form == "svg" else None)
    return paths
