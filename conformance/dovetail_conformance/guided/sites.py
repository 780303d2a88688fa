"""Branches: the conditional jumps of a code object, what each one tests as source text, and where its two sides lead."""

from __future__ import annotations

import dis
import linecache
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import CodeType

LOOP = "FOR_ITER"
RAISING = ("RAISE_VARARGS", "RERAISE")
GOING = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE", "JUMP")
TEXT = ("BUILD_STRING", "FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC")  # what computes a sentence
PASSING = ("TO_BOOL", "COPY", "NOT_TAKEN", "CACHE")  # between a condition and the jump that tests it
LONGEST = 70  # characters of a condition that are shown


@dataclass(eq=False)
class Site:
    """One conditional jump: the condition it tests, `near` and `far`, the offsets behind it and at its target.

    `index` is its number among all sites; a jump that is not taken is the edge 2 * index, one that is taken 2 * index + 1.
    """

    index: int
    code: CodeType
    offset: int
    opname: str
    near: int
    far: int
    line: int
    text: str
    refuses: tuple[bool, bool] = (False, False)  # whether the near and the far side only raise or decline
    seen: list[bool] = field(default_factory=lambda: [False, False])  # whether the jump was not taken, and taken

    def edge(self, destination: int) -> int:
        """Return the edge that leads to a destination."""
        return 2 * self.index + (abs(destination - self.far) < abs(destination - self.near))

    @property
    def one_way(self) -> bool:
        """Whether it went one way only, and the other way computes something."""
        return self.seen[0] != self.seen[1] and not self.refuses[self.seen[0]]

    def value(self, taken: bool) -> bool:
        """Return what the condition is where the jump is taken, or not."""
        if "NONE" in self.opname:
            is_none = taken == ("NOT_NONE" not in self.opname)
            return is_none == ("is not" not in self.text)
        return taken == ("IF_TRUE" in self.opname)

    @property
    def place(self) -> str:
        """The file and the line."""
        return f"{os.path.basename(self.code.co_filename)}:{self.line}"

    def met(self, taken: bool) -> str:
        """Describe one of the two ways."""
        if self.opname == LOOP:
            return f"{'no' if taken else 'an'} element in `{self.text}` ({self.place})"
        return f"`{self.text}` {'true' if self.value(taken) else 'false'} ({self.place})"

    def __str__(self) -> str:
        if self.opname == LOOP:
            return f"{self.place}: the loop over `{self.text}` never {'ended' if self.seen[0] else 'had an element'}"
        return f"{self.place}: `{self.text}` was never {'true' if self.value(self.seen[0]) else 'false'}"


def sites_of(code: CodeType, first: int) -> Mapping[int, Site]:
    """Return the sites of a code object by the offsets at which a jump may begin, numbered from `first` on."""
    instructions = [each for each in dis.get_instructions(code) if each.opname != "CACHE"]
    after = {each.offset: other for each, other in pairwise(instructions)}
    sites: dict[int, Site] = {}
    prefix: list[int] = []
    tested = None  # the instruction whose result the next jump looks at
    for each in instructions:
        if each.opname == "EXTENDED_ARG":
            prefix.append(each.offset)
            continue
        if _is_conditional(each.opname):
            near, far = after[each.offset].offset, int(each.argval)
            line = (each.positions.lineno if each.positions else None) or code.co_firstlineno
            site = Site(
                first + len({id(s) for s in sites.values()}), code, each.offset, each.opname, near, far, line, _text(code, tested, each.opname)
            )
            site.refuses = (_refuses(instructions, near), _refuses(instructions, far))
            sites.update(dict.fromkeys((each.offset, *prefix), site))
        prefix.clear()
        tested = tested if each.opname in PASSING else each
    return sites


def _is_conditional(opname: str) -> bool:
    return opname == LOOP or ("JUMP" in opname and "_IF_" in opname)


def _text(code: CodeType, tested: dis.Instruction | None, opname: str) -> str:
    """Return the source of a condition, in one line."""
    place = tuple(tested.positions) if tested is not None and tested.positions else ()
    text = " ".join(source_at(code.co_filename, place).split()) or f"a condition of {code.co_name}"
    if opname == LOOP and (loop := re.match(r"(?:async )?for .+? in (.+?):( |$)", text)):
        text = loop[1]
    text = f"{text} is None" if "NONE" in opname and not text.endswith(" None") else text
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def source_at(file: str, place: Sequence[int | None]) -> str:
    """Return the source text at positions as `dis` has them; empty where there is none."""
    if len(place) != 4 or any(n is None for n in place):
        return ""
    first, last, start, end = place
    lines = [linecache.getline(file, n).encode() for n in range(first, last + 1)]
    if not all(lines):
        return ""
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    return b"".join(lines).decode(errors="replace")


def _refuses(instructions: Sequence[dis.Instruction], start: int) -> bool:
    """Return whether everything from an offset on ends in an exception, in NotImplemented, or in a sentence, which is a refusal."""
    index = {each.offset: i for i, each in enumerate(instructions)}
    waiting, visited = [start], set()
    while waiting:
        offset = waiting.pop()
        if offset in visited:
            continue
        visited.add(offset)
        i = index.get(offset)
        if i is None:
            return False
        each = instructions[i]
        if each.opname in RAISING:
            continue
        if each.opname.startswith("RETURN_"):
            if each.opname == "RETURN_GENERATOR" or not _declines(instructions, i):
                return False
            continue
        waiting += _followers(instructions, i)
    return True


def _followers(instructions: Sequence[dis.Instruction], i: int) -> Iterator[int]:
    each = instructions[i]
    if each.opname in GOING:
        yield int(each.argval)
        return
    if _is_conditional(each.opname):
        yield int(each.argval)
    if i + 1 < len(instructions):
        yield instructions[i + 1].offset


def _declines(instructions: Sequence[dis.Instruction], i: int) -> bool:
    """Return whether a return gives NotImplemented or a sentence."""
    each, before = instructions[i], instructions[i - 1]
    if each.opname == "RETURN_CONST":
        return _is_sentence(each.argval)
    if before.opname == "LOAD_CONST":
        return _is_sentence(before.argval)
    return (before.opname == "LOAD_GLOBAL" and before.argval == "NotImplemented") or before.opname in TEXT


def _is_sentence(value: object) -> bool:
    return isinstance(value, str) and " " in value.strip()
