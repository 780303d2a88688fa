"""Functions without their numbers: loop nests that differ in sizes, steps and constants alone are compiled once.

    %v7 = mul i64 %v3, 6656          %v7 = mul i64 %v3, %n0
    %v8 = icmp slt i64 %v5, 6656     %v8 = icmp slt i64 %v5, %n0

A lifted function reads its numbers from a table, whose address is its last parameter.  Numbers below LEAST stay, and so do those that LLVM
writes better code for: steps of the innermost loops, distances between the vectors of one, masks, coefficients of polynomials.  The number
of a unit is divided by a shift or a multiplication.  A size that is known when the kernel is called is a word of the call, and the number is its
place.
"""

from __future__ import annotations

import re
import struct
import sys
from typing import NamedTuple

from dovetail_llvm_exec.ir.module import Builder

LEAST = 3
UNIT = " ; unit"  # ends the instructions that divide the number of a unit
FEW_UNITS = 1 << 31  # up to which such a quotient needs no correction

LIFTED = re.compile(
    r"^  %\w+ = (?:"
    r"mul i64 %\w+, (?P<factor>\d+)"
    r"|sub i64 %\w+, (?P<less>\d+)"
    r"|sub i64 (?P<whole>\d+), %\w+"
    r"|icmp \w+ i64 %\w+, (?P<bound>\d+)"
    r"|getelementptr (?:i64, ptr %args|i8, ptr %\w+), i64 (?P<place>\d+)"
    r"|getelementptr \w+, ptr %\w+, i64 (?P<step>-?\d+)"
    r"|call i64 @llvm\.s(?:min|max)\.i64\(i64 %\w+, i64 (?P<limit>\d+)\)"
    r"|f(?:mul|div) float %\w+, (?P<float>0x[0-9A-F]{16})"
    r")$"
)
DIVIDED = re.compile(rf"^  (?P<out>%\w+) = u(?P<op>div|rem) i64 (?P<x>%\w+), (?P<by>\d+){UNIT}$")


class LiftedFunction(NamedTuple):
    """The module of one function called `nest`, and the words of its table."""

    text: str
    numbers: tuple[int, ...]


class Numbers:
    """The table of one function, and the instructions at its head that read it."""

    def __init__(self) -> None:
        self.words: dict[tuple[str, str, str], int] = {}
        self.head: list[str] = []
        self.quotient = ""  # the last one of a unit's number, which the remainder that follows is computed from

    def name(self, text: str, type: str = "i64", role: str = "") -> str:
        """Return the value that stands for a number; equal numbers of one role share one."""
        key = (type, role, text)
        if key not in self.words:
            at = self.words[key] = len(self.words)
            self.head.append(f"  %p{at} = getelementptr i64, ptr %numbers, i64 {at}")
            if type == "i128":
                self.head += [f"  %m{at} = load i64, ptr %p{at}, align 8", f"  %n{at} = zext i64 %m{at} to i128"]
            else:
                self.head.append(f"  %n{at} = load {type}, ptr %p{at}, align 8")
        return f"%n{self.words[key]}"

    def table(self) -> tuple[int, ...]:
        """Return the words of the table."""
        return tuple([_word(type, text) for type, _, text in self.words])


def lifted(builder: Builder, units: int | None) -> LiftedFunction:
    """Return a function of (args, lo, hi), which has so many units, None where that is not known yet, as one of (args, lo, hi, numbers)."""
    numbers, few = Numbers(), units is not None and units < FEW_UNITS
    lines = [line for text in builder.lines() for line in _line(text, numbers, few)]
    head = f"define void @nest(ptr %args, i64 %lo, i64 %hi, ptr %numbers) {builder.attributes} {{"
    return LiftedFunction(builder.module.alone("\n".join([head, "entry:", *numbers.head, *lines, "}"])), numbers.table())


def _line(text: str, numbers: Numbers, few: bool) -> list[str]:
    """Return the lines that stand for one."""
    match = LIFTED.match(text)
    if match is None:
        divided = DIVIDED.match(text) if text.endswith(UNIT) else None
        return [text] if divided is None or int(divided["by"]) < LEAST else _divided(numbers, few, **divided.groupdict())
    kind, digits = match.lastgroup, match[match.lastgroup]
    if kind not in ("float", "place") and abs(int(digits)) < LEAST:
        return [text]
    start, end = match.span(kind)
    name = numbers.name(digits, "float") if kind == "float" else numbers.name(digits, role="place" if kind == "place" else "")
    return [text[:start] + name + text[end:]]


def _divided(numbers: Numbers, few: bool, out: str, op: str, x: str, by: str) -> list[str]:
    """Return a quotient by a shift, or by the upper half of a product, x * (2**64 // by + 1) >> 64.

    That is exact where x * by is below 2**64, as it is with `few` units, and else at most 1 too large.  A remainder is what the quotient before it
    leaves.
    """
    n = int(by)
    if n & (n - 1) == 0:
        operation, number = ("lshr", n.bit_length() - 1) if op == "div" else ("and", n - 1)
        return [f"  {out} = {operation} i64 {x}, {numbers.name(str(number), role=operation)}"]
    if op == "rem":
        return [f"  {out}.m = mul i64 {numbers.quotient}, {numbers.name(by)}", f"  {out} = sub i64 {x}, {out}.m"]
    numbers.quotient, quotient = out, out if few else f"{out}.q"
    lines = [f"  {out}.x = zext i64 {x} to i128", f"  {out}.p = mul i128 {out}.x, {numbers.name(by, 'i128')}"]
    lines += [f"  {out}.h = lshr i128 {out}.p, 64", f"  {quotient} = trunc i128 {out}.h to i64"]
    if few:
        return lines
    lines += [f"  {out}.b = mul i64 {quotient}, {numbers.name(by)}", f"  {out}.c = icmp ugt i64 {out}.b, {x}"]
    return [*lines, f"  {out}.o = zext i1 {out}.c to i64", f"  {out} = sub i64 {quotient}, {out}.o"]


def _word(type: str, text: str) -> int:
    """Return the word that holds a number of a type."""
    if type == "float":
        (value,) = struct.unpack(">d", bytes.fromhex(text.removeprefix("0x")))
        return int.from_bytes(struct.pack("=f", value) + bytes(4), sys.byteorder, signed=True)
    word = (1 << 64) // int(text) + 1 if type == "i128" else int(text)
    return word - (1 << 64) if word >= 1 << 63 else word
