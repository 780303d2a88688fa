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
        declared, again = ex.declaration(), ex.declaration()
        json.dumps(declared)
    except Exception as error:
        return Outcome("fail", f"declaration() raised {whole(error)}, or returned what JSON cannot hold")
    if declared != again:
        return Outcome("fail", "declaration() returns two results when it is called twice")
    try:
        available, again = ex.available(), ex.available()
    except Exception as error:
        return Outcome("fail", f"available() raised {whole(error)}; return True, or a sentence that says what is lacking and what would help")
    if available is not True and (not isinstance(available, str) or " " not in available.strip()):
        return Outcome("fail", f"available() returned {available!r}; return True, or a sentence that says what is lacking and what would help")
    if available != again:
        return Outcome("fail", f"available() returns {available!r} and then {again!r}")
    for id, row in (declared["operations"] or {}).items():
        if id not in SYMBOLS:
            return Outcome("fail", f"it names the operation {id}, which does not exist")
        if row["dtypes"] is not None and (unknown := set(row["dtypes"]) - names):
            return Outcome("fail", f"{id} is declared for {', '.join(sorted(unknown))}, which is not a dtype")
        if row["devices"] is not None and not set(row["devices"]) & set(KINDS):
            return Outcome("fail", f"{id} is declared for {', '.join(row['devices']) or 'no device'}; the suite tests cpu and cuda")
    n = len(declared["operations"] or ())
    return Outcome("pass", f"{n} operations by name" + (" and others by a function" if declared.get("family") else ""), 1, 1)
