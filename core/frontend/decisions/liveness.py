"""Which local variables of a code object may still be read at an instruction, by data flow over its bytecode."""

from __future__ import annotations

import dis
import weakref
from types import CodeType

from dovetail.frontend.interpreter.frame import exception_table

_ENDS = frozenset({"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"})
_JUMPS = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)
_READS_ALL = frozenset({"locals", "vars", "dir", "eval", "exec", "_getframe", "currentframe", "stack", "f_locals", "breakpoint"})
_live: dict[int, tuple[weakref.ref, dict[int, frozenset[int]]]] = {}


def live_locals(code: CodeType) -> dict[int, frozenset[int]]:
    """Return for the offset of each instruction the numbers of the local variables that may be read after it.

    Code that mentions `locals`, or another function that reads variables by name, keeps all of them.
    """
    known = _live.get(id(code))
    if known is not None:
        return known[1]
    live, key = _compute(code), id(code)
    _live[key] = weakref.ref(code, lambda _: _live.pop(key, None)), live
    return live


def _compute(code: CodeType) -> dict[int, frozenset[int]]:
    rows = list(dis.get_instructions(code))
    if _READS_ALL.intersection(code.co_names):
        return dict.fromkeys([row.offset for row in rows], frozenset(range(len(code.co_varnames))))
    index = {row.offset: i for i, row in enumerate(rows)}
    next_rows = [_successors(row, i, rows, index) for i, row in enumerate(rows)]
    for guarded in exception_table(code.co_exceptiontable):
        for i, row in enumerate(rows):
            if guarded.start <= row.offset < guarded.end:
                next_rows[i].append(index[guarded.target])
    effects = [_reads_and_writes(row, code) for row in rows]
    before = [frozenset[int]()] * len(rows)
    after = list(before)
    changed = True
    while changed:
        changed = False
        for i in range(len(rows) - 1, -1, -1):
            after[i] = frozenset().union(*[before[j] for j in next_rows[i]])
            reads, writes = effects[i]
            now = (after[i] - writes) | reads
            changed, before[i] = changed or now != before[i], now
    return {row.offset: after[i] for i, row in enumerate(rows)}


def _successors(row: dis.Instruction, i: int, rows: list[dis.Instruction], index: dict[int, int]) -> list[int]:
    following = [] if row.opname in _ENDS or i + 1 == len(rows) else [i + 1]
    if row.opcode in _JUMPS:
        following.append(index[row.argval])
    return following


def _reads_and_writes(row: dis.Instruction, code: CodeType) -> tuple[frozenset[int], frozenset[int]]:
    """Return the local variables that an instruction reads, and those that it writes without reading them first."""
    name, arg = row.opname, row.arg
    if "FAST" not in name and name not in ("LOAD_CLOSURE", "MAKE_CELL"):
        return frozenset(), frozenset()
    if name in ("STORE_FAST", "STORE_FAST_MAYBE_NULL"):
        return frozenset(), frozenset({arg})
    if name == "STORE_FAST_STORE_FAST":
        return frozenset(), frozenset({arg >> 4, arg & 15})
    if name == "STORE_FAST_LOAD_FAST":
        stored, loaded = arg >> 4, arg & 15
        return frozenset({loaded}) - {stored}, frozenset({stored})
    if name in ("LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW"):
        return frozenset({arg >> 4, arg & 15}), frozenset()
    return frozenset({arg}) if arg < len(code.co_varnames) else frozenset(), frozenset()  # LOAD_FAST and its like, DELETE_FAST
