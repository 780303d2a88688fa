"""A graph of decisions as a picture: boxes from top to bottom, and an arrow for each outcome."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dovetail.executors.reports.explain import DecisionRow, OutcomeRow

WIDTH, HEIGHT, GAP, LANE = 300, 40, 56, 26  # of a box, what lies between two, and between two arrows beside them
_ENDS = ("return", "eager mode")


def picture(decisions: Sequence[DecisionRow]) -> str:
    """Return a graph as SVG, empty for a function without decisions.

    An arrow to the next box is straight; others run beside the boxes: forwards on the right, loops on the left.
    """
    if not decisions:
        return ""
    targets = [outcome.target for row in decisions for outcome in row.outcomes]
    ends = [name for name in (*_ENDS, "another graph") if name in targets]
    places = {name: i for i, name in enumerate([*[row.name for row in decisions], *ends])}
    arrows = [(places[row.name], places[outcome.target], outcome) for row in decisions for outcome in row.outcomes]
    beside = [i for i, (start, end, _) in enumerate(arrows) if end != start + 1]
    left = LANE * (2 + sum(arrows[i][1] <= arrows[i][0] for i in beside)) + 120
    right = LANE * (2 + sum(arrows[i][1] > arrows[i][0] for i in beside)) + 160
    size = left + WIDTH + right, len(places) * (HEIGHT + GAP)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]} {size[1]}" width="{size[0]}" role="img" aria-label="Decisions">', _HEAD]
    for row in decisions:
        parts += _box(row.name, f"{row.name}: {row.what}" if row.where else row.what, (row.where or "").rpartition("/")[2], places, left)
    for name in ends:
        parts += _box(name, name, "", places, left)
    lanes = [0, 0]
    for start, end, outcome in arrows:
        parts += _arrow(start, end, outcome, left, lanes)
    return "\n".join([*parts, "</svg>"])


_HEAD = (
    "<style>rect { fill: none; stroke: currentColor } text { fill: currentColor; font: 12px system-ui, sans-serif } "
    "path { fill: none; stroke: currentColor; opacity: .6; marker-end: url(#tip) }</style>"
    '<marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto-start-reverse">'
    '<path d="M0 0 L8 4 L0 8 z" style="fill: currentColor; marker-end: none"/></marker>'
)


def _box(name: str, title: str, place: str, places: dict[str, int], left: int) -> Iterator[str]:
    y = places[name] * (HEIGHT + GAP) + 4
    yield f'<rect x="{left}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>'
    yield f'<text x="{left + 10}" y="{y + (17 if place else 25)}">{escape(title)}</text>'
    if place:
        yield f'<text x="{left + 10}" y="{y + 33}" opacity=".6">{escape(place)}</text>'


def _arrow(start: int, end: int, outcome: OutcomeRow, left: int, lanes: list[int]) -> Iterator[str]:
    """Yield an arrow and its words; `lanes` counts those beside the boxes on the left and on the right."""
    words = escape(f"{outcome.outcome + ', ' if outcome.outcome is not None else ''}{outcome.count} times, {outcome.lines} lines")
    bottom, top = start * (HEIGHT + GAP) + HEIGHT + 4, end * (HEIGHT + GAP) + 4
    if end == start + 1:
        yield f'<path d="M{left + 40} {bottom} L{left + 40} {top}"/>'
        yield f'<text x="{left + 48}" y="{(bottom + top) // 2 + 4}">{words}</text>'
        return
    back = end <= start
    lanes[not back] += 1
    edge = left if back else left + WIDTH
    x = edge + (-1 if back else 1) * LANE * lanes[not back]
    y = bottom - HEIGHT // 2
    yield f'<path d="M{edge} {y} C{x} {y} {x} {y} {x} {(y + top) // 2} S{x} {top + 12} {edge} {top + 12}"/>'
    yield f'<text x="{x + (-4 if back else 4)}" y="{(y + top) // 2}" text-anchor="{"end" if back else "start"}">{words}</text>'
