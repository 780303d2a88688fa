"""The declaration of an executor, which dispatch, the suite and the documentation read alike."""

from __future__ import annotations

import json

from dovetail import dtypes
from dovetail.prims import SYMBOLS
from dovetail_conformance.cell import Outcome, whole
from dovetail_conformance.subject import KINDS, Subject


def declaration(subject: Subject) -> Outcome:
    """Check that the declaration is data that JSON holds, is the same twice, and names what exists; importing it changes nothing."""
    ex, names = subject.executor, {d.name.removesuffix("_") for d in dtypes.ALL}
    if subject.changed:
        return Outcome("fail", f"importing it changed {', '.join(subject.changed[:5])}; change nothing of the process that other code reads")
    try:
        message, again = ex.declaration(), ex.declaration()
        json.dumps(message)
    except Exception as error:
        return Outcome("fail", f"declaration() raised {whole(error)}, or is nothing that JSON can hold")
    if message != again:
        return Outcome("fail", "declaration() returns two results when it is called twice")
    try:
        there, again = ex.available(), ex.available()
    except Exception as error:
        return Outcome("fail", f"available() raised {whole(error)}; return True, or a sentence that says what is lacking and what would help")
    if there is not True and (not isinstance(there, str) or " " not in there.strip()):
        return Outcome("fail", f"available() gave {there!r}; return True, or a sentence that says what is lacking and what would help")
    if there != again:
        return Outcome("fail", f"available() returns {there!r} and then {again!r}")
    for id, row in (message["operations"] or {}).items():
        if id not in SYMBOLS:
            return Outcome("fail", f"it names the operation {id}, which does not exist")
        if row["dtypes"] is not None and (unknown := set(row["dtypes"]) - names):
            return Outcome("fail", f"{id} is declared for {', '.join(sorted(unknown))}, which is no dtype")
        if row["devices"] is not None and not set(row["devices"]) & set(KINDS):
            return Outcome("fail", f"{id} is declared for {', '.join(row['devices']) or 'no device'}, of which the suite knows none")
    n = len(message["operations"] or ())
    return Outcome("pass", f"{n} operations by name" + (" and others by a function" if message.get("family") else ""), 1, 1)
