"""Handlers of opcodes, one class for each family; those of single versions of CPython are in `py311` to `py314`.

A handler is a function `NAME(frame, arg)` that moves values between stack, slots and namespaces.  It returns None to go on with the
next instruction, the index of another, or RETURN, YIELD or EXC_CHANGED.  Operations on values go to `frame.world`.
"""

from __future__ import annotations

import dis
from types import CodeType
from typing import Any

from dovetail.frontend.interpreter.opcodes.build import Build
from dovetail.frontend.interpreter.opcodes.call import Call
from dovetail.frontend.interpreter.opcodes.control import Control
from dovetail.frontend.interpreter.opcodes.exceptions import Exceptions
from dovetail.frontend.interpreter.opcodes.match import Match
from dovetail.frontend.interpreter.opcodes.names import Names
from dovetail.frontend.interpreter.opcodes.operators import Operators
from dovetail.frontend.interpreter.opcodes.stack import Stack
from dovetail.frontend.interpreter.opcodes.suspend import Suspend

_JUMPS = frozenset(dis.opname[op] for op in dis.hasjrel) - {"END_ASYNC_FOR"}  # their argument is for CPython's monitoring only
_BACKWARD = frozenset(name for name in _JUMPS if "BACKWARD" in name)
_CONSTANTS = frozenset(dis.opname[op] for op in dis.hasconst)
_NAMES = frozenset(dis.opname[op] for op in dis.hasname)


class Opcodes(Build, Call, Control, Exceptions, Match, Names, Operators, Stack, Suspend):
    """The handlers that mean the same in every version that has their opcode."""

    FLAGS: dict[str, int] = {"LOAD_GLOBAL": 1}  # opcodes with flags in so many low bits of their argument, below the index of a name
    COMPARE_SHIFT = 0  # how far up the argument of COMPARE_OP holds the operator
    CALLEE = 3  # where on the stack DICT_MERGE finds the function that is called

    @classmethod
    def argument(cls, code: CodeType, at: dict[int, int], after: int, name: str, arg: int) -> Any:
        """Return the argument of a handler for the raw `arg`: a constant, a name, the index to jump to, a pair of flags and name, or `arg` itself.

        `at` maps offsets to indices, `after` is the offset behind the instruction and its caches.
        """
        if name in _JUMPS:
            return at[after - 2 * arg if name in _BACKWARD else after + 2 * arg]
        if name in _CONSTANTS:
            return code.co_consts[arg]
        if name in cls.FLAGS:
            bits = cls.FLAGS[name]
            return arg & (1 << bits) - 1, code.co_names[arg >> bits]
        if name in _NAMES:
            return code.co_names[arg]
        if name == "COMPARE_OP":
            return cls.comparison(arg)
        return arg
