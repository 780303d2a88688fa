"""The arguments of a call of `suite`; without heavy imports, for the pytest plugin and the session."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

PROPERTY = "dovetail conformance"  # the user property by which tests report their rows


@dataclass
class Requested:
    """The executors, level and options of one call of `suite`; None where the command line decides."""

    executors: tuple[Any, ...]
    level: str | None
    options: dict[str, Any] = field(default_factory=dict)
