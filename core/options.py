"""Every option that is read from the environment: one row each, one function that reads it.  `docs/options.md` is made from this file."""

from __future__ import annotations

import os
from dataclasses import dataclass

from dovetail.errors import DovetailError

PREFIX = "DOVETAIL_"


@dataclass(frozen=True)
class Option:
    """One environment variable: what it may be, what it is when it is not set, and what its values mean."""

    name: str
    default: int
    doc: str
    values: tuple[str, ...]  # what 0, 1, 2, ... mean

    def read(self) -> int:
        """The value in the environment, or the default; an error that names the allowed ones where it is neither."""
        words = os.environ.get(self.name, "").strip()
        if not words:
            return self.default
        if words.isdecimal() and int(words) < len(self.values):
            return int(words)
        raise DovetailError(f"{self.name}={words!r} means nothing; it is a number from 0 to {len(self.values) - 1}, and not set it is {self.default}")


DEBUG = Option(
    "DOVETAIL_DEBUG",
    0,
    "How much a compilation says and checks. Each value does what the smaller ones do, too.",
    (
        "nothing is said",
        "one line for each compilation on standard error: the function, why it was compiled, and how long each pass took",
        "the program is checked between passes: every value is made before it is read, and every meta is run again",
        "the program that runs is printed on standard error",
        "the program that each pass made is printed on standard error",
    ),
)
OPTIONS: tuple[Option, ...] = (DEBUG,)


def debug() -> int:
    """`DOVETAIL_DEBUG`, from 0 to 4."""
    return DEBUG.read()


def table() -> str:
    """The options as a page of documentation, in Markdown."""
    rows: list[str] = []
    for option in OPTIONS:
        rows += [f"## `{option.name}`", "", f"{option.doc} Default: `{option.default}`.", "", "| value | meaning |", "|---|---|"]
        rows += [f"| `{value}` | {meaning} |" for value, meaning in enumerate(option.values)]
        rows.append("")
    return "\n".join(rows)
