"""Reports as one page that needs nothing else: operations x dtypes for each executor, and each result at a click."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from dovetail_conformance.render import parts
from dovetail_conformance.report import STATES, WORST, Report, Row

PAGE = "page.html"
WORDS = ("operation", "check", "dtype", "device", "state", "message", "replay", "reason")  # columns of strings


def html(reports: Sequence[Report]) -> str:
    """Render the page.  Its data is packed, so that tens of thousands of rows stay small; a browser unpacks it without a server."""
    packed = gzip.compress(json.dumps(data(reports), separators=(",", ":")).encode(), mtime=0)
    page = files("dovetail_conformance.render").joinpath(PAGE).read_text(encoding="utf-8")
    names = ", ".join(dict.fromkeys(report.name for report in reports))
    filled = {"title": escape(names), "overview": "".join(map(_overview, reports)), "data": base64.b64encode(packed).decode()}
    return re.sub(r"\{\{(\w+)\}\}", lambda hole: filled[hole[1]], page)


def _overview(report: Report) -> str:
    """Summarize what is worth knowing before anything is clicked; readable without scripts."""
    notices = "".join(f"<p class=notice>{escape(message)}</p>" for message in parts.notices(report))
    counts = ", ".join(f"{n:,} {state}" for state, n in report.counts.items())
    head = f"<h2>{escape(parts.title(report))}: {escape(parts.score(report))} passed</h2>"
    return f"<section>{head}<p>{escape(counts)}</p>{notices}{_one_way(report)}<p class=quiet>{escape(parts.about(report))}</p></section>"


def _one_way(report: Report) -> str:
    """List the conditions of the executor's own code that went one way only."""
    conditions = parts.one_way(report)
    if not conditions:
        return ""
    items = "".join(f"<li>{escape(condition)}" for condition in conditions)
    return f"<details><summary>{len(conditions):,} conditions of its own code went one way only</summary><ul>{items}</ul></details>"


def data(reports: Sequence[Report]) -> dict[str, Any]:
    """Return the rows column by column; each distinct string once, as its place among `words`."""
    words: dict[str, int] = {"": 0}
    dtypes = parts.sorted_dtypes(row for report in reports for row in report)
    return {
        "reports": [{"name": report.name, "title": parts.title(report), "columns": _columns(report.rows, words)} for report in reports],
        "dtypes": [[dtype, parts.short(dtype)] for dtype in dtypes],
        "states": [[state, parts.LETTERS[state][0], int(fails), says] for state, (fails, says) in STATES.items()],
        "worst": WORST,
        "whole": parts.WHOLE,
        "words": list(words),
    }


def _columns(rows: Iterable[Row], words: dict[str, int]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {}
    for row in rows:
        values: dict[str, Any] = {key: words.setdefault(getattr(row, key), len(words)) for key in WORDS}
        values |= {"ran": row.ran, "samples": row.samples, "own": row.lines[0], "lines": row.lines[1], "new": int(row.new)}
        values |= {"ms": round(row.seconds * 1000), "against": None if row.against is None else round(row.against, 2)}
        for key, value in values.items():
            columns.setdefault(key, []).append(value)
    return columns
