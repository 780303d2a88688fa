"""A report as the JSON of a badge, as https://shields.io/badges/endpoint-badge reads it."""

from __future__ import annotations

import json

from dovetail_conformance.render import parts
from dovetail_conformance.report import Report

COLOURS = ((100, "brightgreen"), (98, "green"), (90, "yellowgreen"), (75, "yellow"), (50, "orange"), (0, "red"))  # from so many percent on


def badge(report: Report) -> str:
    """Render a badge as JSON.  Waived and expected failures are in the denominator, so that skipping never leads to 100 %."""
    passed, counted = report.score
    data = {"schemaVersion": 1, "label": f"dovetail {report.level}", "message": parts.score(report), "color": _colour(report, passed, counted)}
    return json.dumps(data | ({"isError": True} if report.failures else {}), indent=1) + "\n"


def _colour(report: Report, passed: int, counted: int) -> str:
    if not counted:
        return "lightgrey"
    reached = next(colour for least, colour in COLOURS if 100 * passed >= least * counted)
    return "orange" if report.failures and reached != "red" else reached
