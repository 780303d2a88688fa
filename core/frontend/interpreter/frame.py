"""Frames: a code object decoded once into handlers and their arguments, and the state of one activation."""

from __future__ import annotations

import dis
import weakref
from collections.abc import Iterator
from types import CellType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.frontend.class_lookup import NULL
from dovetail.frontend.interpreter.tracebacks import entry, strip

if TYPE_CHECKING:
    from dovetail.frontend.interpreter.opcodes import Opcodes
    from dovetail.frontend.interpreter.world import World


RETURN, YIELD, EXC_CHANGED = -1, -2, -3  # what a handler returns instead of the index of the next instruction
OPTIMIZED, VARARGS, VARKEYWORDS = 0x1, 0x4, 0x8  # flags of a code object
_EXTENDED_ARG, _CACHE = dis.EXTENDED_ARG, dis.opmap["CACHE"]


class Guarded(NamedTuple):
    """A row of an exception table: instructions `start` to `end` are handled at `target`, with `depth` values left on the stack."""

    start: int
    end: int
    target: int
    depth: int
    lasti: bool


class Decoded:
    """A code object as parallel lists, and its exception table in indices instead of offsets.

    It holds no reference to its code object, so that the table of decoded code does not keep code alive.
    """

    __slots__ = (
        "__weakref__",
        "arguments",
        "flags",
        "instructions",
        "keywords",
        "lines",
        "names",
        "offsets",
        "positional",
        "slot_names",
        "slot_of",
        "stubs",
        "table",
        "total",
    )

    def __init__(self, code: CodeType, opcodes: type[Opcodes]):
        rows = list(instructions(code.co_code))
        index, at = 0, {}
        for offset in range(0, len(code.co_code) + 2, 2):  # a jump may aim at a prefix: every offset maps to the next real instruction
            if index < len(rows) and offset > rows[index][0]:
                index += 1
            at[offset] = index
        cells = tuple([name for name in code.co_cellvars if name not in code.co_varnames])
        self.slot_names = code.co_varnames + cells + code.co_freevars
        self.slot_of = {name: i for i, name in enumerate(self.slot_names)}
        self.offsets = [offset for offset, _, _, _ in rows]
        self.names = [name for _, name, _, _ in rows]
        self.arguments = [opcodes.argument(code, at, after, name, arg) for _, name, arg, after in rows]
        self.instructions = [(getattr(opcodes, name), arg) for name, arg in zip(self.names, self.arguments, strict=True)]
        self.table = [
            Guarded(at[start], at[end], at[target], depth, lasti) for start, end, target, depth, lasti in exception_table(code.co_exceptiontable)
        ]
        self.lines: list[int] | None = None  # of the instructions, once one is needed
        self.flags, self.stubs = code.co_flags, {}
        self.positional, self.total = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
        self.keywords = {name: i for i, name in enumerate(code.co_varnames[: self.total]) if i >= code.co_posonlyargcount}


def instructions(code: bytes) -> Iterator[tuple[int, str, int, int]]:
    """Yield offset, name and argument of each instruction but caches and prefixes, and the offset behind it and its caches."""
    extended = 0
    for offset in range(0, len(code), 2):
        opcode = code[offset]
        if opcode == _CACHE:
            continue
        arg = code[offset + 1] | extended
        if opcode == _EXTENDED_ARG:
            extended = arg << 8
            continue
        extended, after = 0, offset + 2
        while after < len(code) and code[after] == _CACHE:
            after += 2
        yield offset, dis.opname[opcode], arg, after


def exception_table(table: bytes) -> Iterator[Guarded]:
    """Return the rows of `co_exceptiontable`, in offsets: four numbers each, of 6 bits a byte, most significant first."""
    rest = iter(table)
    for byte in rest:
        numbers = []
        for first in (byte, None, None, None):
            part = next(rest) if first is None else first
            value = part & 63
            while part & 64:
                part = next(rest)
                value = value << 6 | part & 63
            numbers.append(value)
        start, length, target, depth = numbers
        yield Guarded(start * 2, (start + length) * 2, target * 2, depth >> 1, bool(depth & 1))


_decoded: dict[int, tuple[weakref.ref, Decoded]] = {}


def decode(code: CodeType, opcodes: type[Opcodes]) -> Decoded:
    """Return `code`, decoded; by identity, since equal code may come from different files."""
    known = _decoded.get(id(code))
    if known is not None:
        return known[1]
    decoded = Decoded(code, opcodes)
    key = id(code)
    _decoded[key] = weakref.ref(code, lambda _: _decoded.pop(key, None)), decoded
    return decoded


class Frame:
    """One activation of a code object.

    `slots` hold locals, cells and free variables as CPython lays them out, each a value, a cell or NULL; `names` is the namespace of a
    class body or module, None in a function.  `handled` is the exception that is being handled, `thrown` one that waits to be raised
    where the frame is suspended.
    """

    __slots__ = (
        "__weakref__",
        "builtins",
        "code",
        "decoded",
        "function",
        "globals",
        "handled",
        "keyword_names",
        "names",
        "pc",
        "reraised",
        "result",
        "slots",
        "snapshot",
        "stack",
        "thrown",
        "world",
    )

    def __init__(
        self,
        code: CodeType,
        decoded: Decoded,
        world: World,
        slots: list[Any],
        globals: dict[str, Any],
        builtins: dict[str, Any],
        names: Any = None,
        function: FunctionType | None = None,
    ):
        self.code, self.decoded, self.world, self.function = code, decoded, world, function
        self.slots, self.globals, self.builtins, self.names = slots, globals, builtins, names
        self.stack: list[Any] = []
        self.pc = 0
        self.keyword_names: tuple[str, ...] = ()
        self.handled: BaseException | None = None
        self.result: Any = None
        self.reraised = False
        self.thrown: BaseException | None = None
        self.snapshot: dict[str, Any] | None = None

    def pop(self, n: int) -> list[Any]:
        """Pop the topmost `n` values off the stack."""
        if not n:
            return []
        values = self.stack[-n:]
        del self.stack[-n:]
        return values

    def variable(self, slot: int) -> Any:
        """Return the value in a slot, looking into a cell; NULL when there is none."""
        value = self.slots[slot]
        if type(value) is CellType and self.is_cell(slot):
            try:
                return value.cell_contents
            except ValueError:
                return NULL
        return value

    def is_cell(self, slot: int) -> bool:
        """Return whether a slot is that of a cell or free variable."""
        return slot >= len(self.code.co_varnames) or self.decoded.slot_names[slot] in self.code.co_cellvars

    def variables(self) -> dict[str, Any]:
        """Return the bound local variables by name, as a new dict."""
        values = {}
        for i, name in enumerate(self.decoded.slot_names):
            value = self.variable(i)
            if value is not NULL:
                values[name] = value
        return values

    def unwind(self, error: BaseException, pc: int) -> int | None:
        """Set the user's traceback on `error`; return the index of its handler, or None when it leaves this frame, as every refusal does."""
        rest = strip(error.__traceback__)
        if self.reraised:
            self.reraised, error.__traceback__ = False, rest
        else:
            error.__traceback__ = entry(self, pc, rest)
        target = self._handler(pc)
        if self.world.refuses(error):
            self.world.refusal = self.world.refusal or error
            target = None
        if target is not None:
            self.stack.append(error)
        del error  # the traceback entry knows the frame that created it, so that keeping the exception here would be a cycle
        return target

    def _handler(self, pc: int) -> int | None:
        """Return where instruction `pc` is handled, with the stack as the handler needs it; it is emptied where there is none."""
        for row in reversed(self.decoded.table):
            if row.start <= pc < row.end:
                del self.stack[row.depth :]
                if row.lasti:
                    self.stack.append(pc)
                return row.target
        self.stack.clear()
        return None
