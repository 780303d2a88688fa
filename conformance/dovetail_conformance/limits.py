"""Time and memory that a call and a checker may take; an executor's file of expectations may raise the limits.

[limits]
call = 0.5       # seconds that a call may take beyond eager's time
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path


@dataclass(frozen=True)
class Limits:
    """Seconds of a call on top of `slower` times eager's, seconds of a checker, and times the memory that eager takes."""

    call: float = 0.02
    slower: float = 30.0
    checker: float = 0.02
    memory: float = 16.0


def limits_in(path: Path | None) -> Limits:
    """Read the limits in a file of expectations; raise ValueError for unknown names and values that are no numbers."""
    if path is None or not path.is_file():
        return Limits()
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("limits", {})
    known = {f.name for f in fields(Limits)}
    for name, value in entries.items():
        if name not in known or type(value) not in (int, float) or value < 0:
            raise ValueError(f"{path}: [limits] has {name} = {value!r}; it may have {', '.join(sorted(known))}, each a number")
    return Limits(**{name: float(value) for name, value in entries.items()})
