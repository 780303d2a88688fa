"""The page on other libraries, from what `make ecosystem` kept; `make docs` writes it."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

RESULT = Path(__file__).parents[1] / "results" / "ecosystem.json"
COLUMNS = ("right", "eager", "refused", "wrong", "crashed", "stopped")
INTRODUCTION = """Models and functions of other libraries, unchanged, compiled with `dovetail.jit` and run beside eager mode from the same seeds:
outputs, gradients of all parameters and buffers, in four calls. `make ecosystem` runs this table again, in an environment of its own
with the versions below; `make ecosystem ONLY="timm .* train"` tries a part of it. For your own model, `dovetail.verify(model, *args)`
compares line by line, and `dovetail.explain` says what runs where.

A case is *right* where everything agrees (to 1e-4 of the largest value, 1e-2 under bf16, or eight times eager's own distance from
float64; where rounding decides on which side of a jump a value lies, as that of a ReLU's gradient, the case has to agree in float64,
and in float32 with other weights and inputs; a model that asks `torch.compiler.is_compiling()` is compared with what it computes
where that is true), *eager* where it agrees and a part of it ran without being compiled, *refused* where an
error names the line and a way out. A loop of training (mode *fit*) builds and compiles its model anew, so it has no warm call.
Models are the smallest of their family, with random weights."""


def text() -> str:
    """Return the page."""
    kept = json.loads(RESULT.read_text())
    outcomes = [each for each in kept["outcomes"] if each["verdict"] != "unusable"]
    about = kept["about"]
    lines = ["# Does my model work?", "", INTRODUCTION, "", f"Python {about['python']}, torch {about['torch']}, {about['date']}.", ""]
    lines += ["| library | version | cases | " + " | ".join(COLUMNS) + " | first call | median warm call beside eager |"]
    lines += ["|---|---|---:|" + "---:|" * (len(COLUMNS) + 2)]
    for library in sorted({each["library"] for each in outcomes}):
        lines.append(row(library, about.get(library, ""), [each for each in outcomes if each["library"] == library]))
    lines += [row("all", "", outcomes), "", *faults(outcomes), *explained(outcomes), "## What was right", ""]
    for library in sorted({each["library"] for each in outcomes}):
        right = dict.fromkeys(each["name"] for each in outcomes if each["library"] == library and each["verdict"] == "right")
        lines += [f"**{library}**: {', '.join(right)}.", ""]
    return "\n".join(lines).rstrip() + "\n"


def row(library: str, version: str, outcomes: list[dict]) -> str:
    counts = Counter(each["verdict"] for each in outcomes)
    timed = [each for each in outcomes if each["first"] is not None]
    first = f"{statistics.median(each['first'] for each in timed):.2f} s" if timed else ""
    ratios = [each["warm"] / max(each["eager"], 1e-9) for each in timed if each["warm"] is not None]
    warm = f"{statistics.median(ratios):.2f}" if ratios else ""
    return f"| {library} | {version} | {len(outcomes)} | {' | '.join(str(counts[column]) for column in COLUMNS)} | {first} | {warm} |"


def explained(outcomes: list[dict]) -> Iterator[str]:
    """Yield a table of what differs from eager mode and is right all the same, with the reasons."""
    if rows := [each for each in outcomes if each["verdict"] == "right" and each["reason"]]:
        yield from ("## What differs and is right", "", "| library | case | mode | reason |", "|---|---|---|---|")
        yield from (f"| {each['library']} | {each['name']} | {each['mode']} | {each['reason']} |" for each in rows)
        yield ""


def faults(outcomes: list[dict]) -> Iterator[str]:
    """Yield a table of what was not right, with the reasons."""
    yield from ("## What was not", "", "| library | case | mode | verdict | reason |", "|---|---|---|---|---|")
    for each in outcomes:
        if each["verdict"] != "right":
            reason = each["reason"].replace("|", "\\|").replace("<", "&lt;")
            yield f"| {each['library']} | {each['name']} | {each['mode']} | {each['verdict']} | {reason} |"
    yield ""
