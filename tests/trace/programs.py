"""Small programs of prims, and how to read a trace back from its text."""

from __future__ import annotations

import re
from typing import Any

from dovetail import devices, dtypes, prims
from dovetail.dtypes import float32
from dovetail.prims import TensorSpec
from dovetail.trace import Trace, recording

SPEC = TensorSpec((2, 3), float32)


def record(fn: Any, *specs: TensorSpec) -> Trace:
    """The trace of `fn`, a function of proxies."""
    new = Trace()
    new.inputs = [new.tensor(spec) for spec in specs]
    with recording(new):
        new.outputs = fn(*new.inputs)
    return new


def read(text: str, *specs: TensorSpec, scope: dict[str, Any] | None = None) -> Trace:
    """The trace that the printed program `text` records."""
    scope = {"prims": prims, "dtypes": dtypes, "devices": devices, "dist": prims.collectives} | (scope or {})
    exec(text, scope)
    fn = next(value for name, value in scope.items() if name in ("computation", "epilogue"))
    return record(fn, *specs)


def renamed(text: str) -> str:
    """The program's code without comments and imports, its values numbered in order of appearance."""
    rows = [row.split("#")[0].rstrip() for row in text.splitlines()]
    code = "\n".join(row for row in rows if row and not row.startswith(("import", "from")))
    names: dict[str, str] = {}
    return re.sub(r"\bt\d+\b", lambda found: names.setdefault(found[0], f"t{len(names)}"), code)
