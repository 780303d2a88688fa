"""Parsers of the values of options, from text, from files and from calls.  A ValueError's message says what is expected."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from typing import Any

CAUSES = ("not-claimed", "unavailable", "version", "load-error", "checker-error")  # why a requested executor does not run
TRIALS = ("first", "always", "off")


def level(meanings: tuple[str, ...]) -> Callable[[Any], int]:
    """Return a parser of the numbers 0, 1, 2, ..., each of which has a meaning."""

    def parse(raw: Any) -> int:
        raw = raw.strip() if isinstance(raw, str) else raw
        number = int(raw) if isinstance(raw, str) and raw.isdecimal() else raw
        if type(number) is not int or not 0 <= number < len(meanings):
            raise ValueError(f"a number from 0 to {len(meanings) - 1}")
        return number

    return parse


def switch(raw: Any) -> bool:
    """Parse a boolean."""
    value = _SWITCH.get(raw.strip().lower()) if isinstance(raw, str) else raw
    if type(value) is not bool:
        raise ValueError("1, true, yes, on, or 0, false, no, off")
    return value


_SWITCH = {**dict.fromkeys(("1", "true", "yes", "on"), True), **dict.fromkeys(("0", "false", "no", "off"), False)}


def count(raw: Any) -> int:
    """Parse a non-negative integer."""
    value = int(raw) if isinstance(raw, str) and raw.strip().isdecimal() else raw
    if type(value) is not int or value < 0:
        raise ValueError("a whole number, 0 or more")
    return value


def one_of(*words: str) -> Callable[[Any], str]:
    """Return a parser of one of `words`."""

    def parse(raw: Any) -> str:
        if raw not in words:
            raise ValueError(" or ".join(words))
        return raw

    return parse


def text(raw: Any) -> str:
    """Parse a path."""
    if not isinstance(raw, (str, os.PathLike)):
        raise ValueError("a path")
    return str(raw)


def names(raw: Any) -> tuple[str, ...]:
    """Parse names, from a list or separated by commas."""
    raw = [word for word in re.split(r"[,\s]+", raw) if word] if isinstance(raw, str) else raw
    if not isinstance(raw, (list, tuple)) or not all([isinstance(name, str) and name.strip() for name in raw]):
        raise ValueError("names, in a list or separated by commas")
    return tuple(dict.fromkeys(name.strip() for name in raw))


def paths(raw: Any) -> tuple[str, ...]:
    """Parse paths, from a list or separated by the system's path separator."""
    raw = [word for word in raw.split(os.pathsep) if word] if isinstance(raw, str) else raw
    if not isinstance(raw, (list, tuple)) or not all([isinstance(path, (str, os.PathLike)) for path in raw]):
        raise ValueError(f"paths, in a list or separated by {os.pathsep!r}")
    return tuple(map(str, raw))


def edits(raw: Any) -> tuple[Any, ...]:
    """Parse names and edits of an order, from a list or separated by commas.  A call may pass executors, too."""
    raw = [word for word in raw.split(",") if word.strip()] if isinstance(raw, str) else raw
    if hasattr(raw, "verdict") or isinstance(raw, dict) or not isinstance(raw, Iterable):
        raise ValueError('names and edits such as "+name", "-name", "a > b", in a list or separated by commas')
    return tuple([item.strip() if isinstance(item, str) else item for item in raw])


def operations(raw: Any) -> tuple[tuple[str, tuple], ...]:
    """Parse operation or pattern -> edits; as text `pattern = edits; pattern = edits`."""
    rows = _table(raw, "operations and their executors: pattern=name,name; pattern=+name")
    return tuple([(pattern, edits(value)) for pattern, value in rows.items()])


def details(raw: Any) -> tuple[tuple[str, Any], ...]:
    """Parse `executor.option` -> value; as text `executor.option = value; ...`, where a value is a TOML value or a string."""
    rows = {}
    for name, value in _table(raw, "options of executors: name.option=value; name.option=value").items():
        rows |= {f"{name}.{key}": item for key, item in value.items()} if isinstance(value, dict) else {name: value}
    if not all(["." in name for name in rows]):
        raise ValueError("options of executors: name.option=value; name.option=value")
    return tuple([(name, tuple(value) if isinstance(value, list) else value) for name, value in rows.items()])


def _table(raw: Any, expected: str) -> dict[str, Any]:
    """Parse `name = value; name = value`, or check a dict."""
    if isinstance(raw, str):
        parts = [part.partition("=") for part in raw.split(";") if part.strip()]
        if not all([equals and name.strip() for name, equals, _ in parts]):
            raise ValueError(expected)
        return {name.strip(): value.strip() for name, _, value in parts}
    if not isinstance(raw, dict) or not all([isinstance(name, str) for name in raw]):
        raise ValueError(expected)
    return raw


def pairs(raw: Any) -> tuple[tuple[str, str], ...]:
    """Parse name -> name; as text `name = name; name = name`."""
    rows = _table(raw, "plugins and distributions: name=distribution; name=distribution")
    if not all([isinstance(value, str) and value for value in rows.values()]):
        raise ValueError("plugins and distributions: name=distribution; name=distribution")
    return tuple(rows.items())


def fraction(raw: Any) -> float:
    """Parse a non-negative number."""
    try:
        value = float(raw)
    except (TypeError, ValueError):
        value = -1.0
    if isinstance(raw, bool) or not 0 <= value < float("inf"):
        raise ValueError("a number, 0 or more")
    return value


def trials(raw: Any) -> tuple[tuple[str, str], ...]:
    """Parse executor -> trial mode, with `*` for all others; as text `first; mine=off`."""
    if isinstance(raw, str):
        words = [part.partition("=") for part in raw.split(";") if part.strip()]
        raw = {name.strip() if equals else "*": value.strip() if equals else name.strip() for name, equals, value in words}
    if not isinstance(raw, dict) or not raw or not all([isinstance(name, str) and mode in TRIALS for name, mode in raw.items()]):
        raise ValueError(f"{' or '.join(TRIALS)}, or a mode for each executor: name=off; name=always")
    return tuple(raw.items())


def causes(raw: Any) -> tuple[str, ...]:
    """Parse the causes: all, none, or some by name."""
    on = _SWITCH.get(raw.strip().lower()) if isinstance(raw, str) else raw
    if isinstance(on, bool):
        return CAUSES if on else ()
    try:
        selected = names(raw)
    except ValueError:
        selected = ("",)
    if not set(selected) <= set(CAUSES):
        raise ValueError(f"true, false, or some of {', '.join(CAUSES)}")
    return selected
