"""Tracebacks that show the user's lines: an entry for each interpreted frame, and none for the interpreter's own."""

from __future__ import annotations

import dis
import os
from collections.abc import Iterator, Mapping, MutableMapping
from types import CellType, CodeType, FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from dovetail.errors import EagerCall

if TYPE_CHECKING:
    from dovetail.frontend.interpreter.frame import Frame

_HERE = os.path.dirname((lambda: None).__code__.co_filename)
_RESUME, _NOP, _LOAD_NAME = (bytes((dis.opmap[name], 0)) for name in ("RESUME", "NOP", "LOAD_NAME"))
_MISSING = " "  # no variable can have this name
_BLANK = compile("0", "", "exec").replace(co_names=(_MISSING,), co_exceptiontable=b"")


class Locals(Mapping):
    """The variables of a frame by name, as they are at the time of looking."""

    __slots__ = ("frame",)

    def __init__(self, frame: Frame):
        self.frame = frame

    def __getitem__(self, name: str) -> Any:
        if name == _MISSING:  # before a namespace that the user wrote is read
            raise KeyError(name)
        return self._names()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def __delitem__(self, name: str) -> None:
        """Ignore that CPython deletes variables that its own frame lacks, before it passes on this mapping."""
        raise KeyError(name)

    def copy(self) -> dict[str, Any]:
        return dict(self._names())

    def _names(self) -> Any:
        return self.frame.variables() if self.frame.names is None else self.frame.names


class WritableLocals(Locals, MutableMapping):
    """The variables of a function's frame since Python 3.13: writing one changes the variable, other names are kept beside."""

    __slots__ = ()

    def __setitem__(self, name: str, value: Any) -> None:
        slot = self.frame.decoded.slot_of.get(name)
        if slot is None:
            self._others()[name] = value
        elif isinstance(self.frame.slots[slot], CellType) and self.frame.is_cell(slot):
            self.frame.slots[slot].cell_contents = value
        else:
            self.frame.slots[slot] = value

    def __delitem__(self, name: str) -> None:
        if name in self.frame.decoded.slot_of:
            raise ValueError("cannot remove local variables from FrameLocalsProxy")
        del self._others()[name]

    def __or__(self, other: Any) -> dict[str, Any]:
        return self._names() | dict(other)

    def __ror__(self, other: Any) -> dict[str, Any]:
        return dict(other) | self._names()

    def __repr__(self) -> str:
        return repr(self._names())

    def _names(self) -> dict[str, Any]:
        return self.frame.variables() | self._others()

    def _others(self) -> dict[str, Any]:
        if self.frame.snapshot is None:
            self.frame.snapshot = {}
        return self.frame.snapshot


def entry(frame: Frame, pc: int, rest: TracebackType | None) -> TracebackType:
    """Return a traceback entry for an interpreted frame that fails at instruction `pc`, in front of `rest`.

    A traceback needs a real frame, so one is created: code with the user's names, file and line table fails at the user's offset.
    """
    offset = frame.decoded.offsets[pc]
    stub = frame.decoded.stubs.get(offset)
    if stub is None:
        stub = frame.decoded.stubs[offset] = _failing(frame.code, frame.decoded.slot_names, offset)
    try:
        exec(stub, frame.globals, Locals(frame))
    except NameError as error:  # it may not outlive this block: it holds this frame, and the context of an error of the program
        return TracebackType(rest, error.__traceback__.tb_next.tb_frame, offset, -1)  # the line follows from the offset
    raise AssertionError("the code of a traceback entry did not fail")


def line_of(frame: Frame, pc: int) -> int:
    """Return the line of instruction `pc`."""
    decoded = frame.decoded
    if decoded.lines is None:
        lines = {offset: line for start, end, line in frame.code.co_lines() if line is not None for offset in range(start, end, 2)}
        decoded.lines = [lines.get(offset, frame.code.co_firstlineno) for offset in decoded.offsets]
    return decoded.lines[pc]


def _failing(code: CodeType, names: tuple[str, ...], offset: int) -> CodeType:
    """Return code that looks like `code`, has the variables `names`, and fails at `offset`."""
    # It is as long as the user's code: CPython's tracing writes an array of the code's length from the line table, and a shorter code
    # would let it write past the end.
    before = max(offset // 2 - 1, 0)  # behind RESUME, without which a frame is not complete enough for a traceback
    body = _RESUME + _NOP * before + _LOAD_NAME + _NOP * (len(code.co_code) // 2 - before - 2)
    return _BLANK.replace(
        co_code=body,
        co_filename=code.co_filename,
        co_name=code.co_name,
        co_qualname=code.co_qualname,
        co_firstlineno=code.co_firstlineno,
        co_linetable=code.co_linetable,
        co_varnames=names,  # CPython's "did you mean" looks here
        co_nlocals=len(names),
    )


def is_stub(code: CodeType) -> bool:
    """Return whether `code` was generated for a traceback entry."""
    return code.co_names == (_MISSING,)


def is_own(frame: FrameType) -> bool:
    """Return whether a real frame runs the interpreter's own code."""
    return is_own_code(frame.f_code)


def is_own_code(code: CodeType) -> bool:
    """Return whether code is the interpreter's own, also where it runs with the user's globals."""
    return code.co_filename.startswith(_HERE)


def strip(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the interpreter's own entries."""
    kept, clean = [], True
    while traceback is not None:
        if is_own(traceback.tb_frame):
            clean = False
        else:
            kept.append((traceback, clean))
            clean = True
        traceback = traceback.tb_next
    rest, same = None, clean
    for one, joined in reversed(kept):
        rest = one if same else TracebackType(rest, one.tb_frame, one.tb_lasti, one.tb_lineno)
        same = same and joined
    return rest


def error_text(error: BaseException | None) -> str:
    """Return type and message of an error of the program, "" where there is none; the error itself keeps all frames alive that it passed."""
    if error is None or isinstance(error, EagerCall):
        return ""
    try:
        return f"{type(error).__name__} ({error})"
    except Exception:  # whatever the `__str__` of a user's class raises
        return type(error).__name__
