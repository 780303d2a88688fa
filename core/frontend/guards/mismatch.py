"""Programs that do not fit the very call that they were compiled for: the call runs in eager mode, and a warning reports the guard."""

from __future__ import annotations

import platform
import warnings
from dataclasses import replace

import torch

from dovetail.errors import GuardWarning
from dovetail.frontend.guards.guard import Miss
from dovetail.trace import BoundSymbol, Trace, proxies, to_callable

_LONGEST = 200  # characters of a value in a report


def warn_of_guard(name: str, guards: Trace, miss: Miss, args: tuple, kwargs: dict, where: str | None) -> None:
    """Warn that the prologue `guards` refuses the call that it was compiled for; the warning is the text of a bug report.

    `name` is the function's, `miss` what the prologue returned, `where` the user's line.
    """
    line = next((line for line in _lines(guards) if line.kwargs.get("miss") is miss), None)
    rows = [
        f"{name} runs this call in eager mode: the program that was compiled for it does not fit it, which is a bug in a guard of Dovetail.",
        f"guard: {miss.reason}",
    ]
    if line is not None:
        rows += [f"line: {_written(guards, line)}", f"value: {_value(guards, line, args, kwargs)}"]
    rows.append(f"called at: {where or 'an unknown line'}")
    rows.append(f"versions: torch {torch.__version__}, Python {platform.python_version()}, {platform.platform()}")
    rows.append("Please report it with these lines and the function; until then, call the function without dovetail.jit.")
    warnings.warn(GuardWarning("\n  ".join(rows)), stacklevel=4)


def _lines(guards: Trace) -> list[BoundSymbol]:
    """Return the lines of a prologue and of those that are checked together."""
    return [inner for line in guards.lines for inner in (*line.body, line)]


def _written(guards: Trace, line: BoundSymbol) -> str:
    """Return `line` as the prologue prints it."""
    rows = replace(guards, lines=[line], outputs=()).python(depth=0).splitlines()
    inside = [row.strip() for row in rows[next(i for i, row in enumerate(rows) if row.startswith("def ")) + 1 :]]
    return " ".join([row for row in inside if row and row != "return ()"])


def _value(guards: Trace, line: BoundSymbol, args: tuple, kwargs: dict) -> str:
    """Return the value that `line` checks, read again as the prologue does, as text of at most _LONGEST characters."""
    subject = next(iter(proxies(line.args)), None)
    if subject is None or line not in guards.lines:
        return "not known"
    before = [earlier for earlier in guards.lines[: guards.lines.index(line)] if not earlier.symbol.name.startswith("check_")]
    try:
        value = to_callable(replace(guards, lines=before, outputs=subject))(args, kwargs)
        text = f"{type(value).__name__} {value!r}"
    except Exception as error:  # code of the user's runs in both
        return f"not known: {type(error).__name__}: {error}"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
