"""Values of LLVM IR: a name and a type, the types' arithmetic, and constants written by their bits."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64}
FLOATS = frozenset(BITS)
SUFFIX = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}  # as intrinsics are named


@cache  # types are few, and asked about all the time
def vector(element: str, lanes: int) -> str:
    """Return the type of `lanes` elements: a vector, or the element itself for one lane."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


@cache
def element_of(type: str) -> str:
    """Return the type of one lane."""
    return type[type.index("x ") + 2 : -1] if type[0] == "<" else type


@cache
def lanes_of(type: str) -> int:
    """Return the number of lanes; 1 for a scalar."""
    return int(type[1 : type.index(" ")]) if type[0] == "<" else 1


@cache
def like(type: str, element: str) -> str:
    """`type` with other elements."""
    return vector(element, lanes_of(type))


@cache
def bits_of(type: str) -> int:
    """Return the width of one lane; a pointer has 64 bits."""
    element = element_of(type)
    return BITS[element] if element in BITS else 64 if element == "ptr" else int(element[1:])


@cache
def is_float(type: str) -> bool:
    """Return whether the lanes are floats."""
    return element_of(type) in FLOATS


@cache
def integer_like(type: str) -> str:
    """Return the integers of the same width and number of lanes."""
    return like(type, f"i{bits_of(type)}")


@cache
def mangled(type: str) -> str:
    """`type` as it stands in an intrinsic's name: v16f32, i64, p0."""
    element = element_of(type)
    short = SUFFIX.get(element) or ("p0" if element == "ptr" else element)
    return short if type[0] != "<" else f"v{lanes_of(type)}{short}"


class Value(NamedTuple):
    """An SSA value or a constant: what to write where it is used, and its type."""

    name: str
    type: str

    def __str__(self) -> str:
        return f"{self.type} {self.name}"


def constant_mask(lanes: Iterable[bool]) -> Value:
    """Return a mask of known lanes."""
    lanes = list(lanes)
    return Value(f"<{', '.join('i1 true' if lane else 'i1 false' for lane in lanes)}>", vector("i1", len(lanes)))


def constant_lanes(mask: Value) -> list[int] | None:
    """Return the lanes of a `constant_mask`; None for another mask."""
    if not mask.name.startswith("<i1 "):
        return None
    return [i for i, lane in enumerate(mask.name[1:-1].split(", ")) if lane == "i1 true"]


def literal(value: Any, element: str) -> str:
    """Return a Python number as a constant of one lane; floats are written by their bits, so nothing is rounded twice."""
    if element == "i1":
        return "true" if value else "false"
    if element not in FLOATS:
        return str(int(value))
    value = float(value)
    if element == "double":
        return f"0x{struct.unpack('>Q', struct.pack('>d', value))[0]:016X}"
    if element == "float":
        return f"0x{struct.unpack('>Q', struct.pack('>d', to_float32(value)))[0]:016X}"
    return f"0x{'H' if element == 'half' else 'R'}{bits_of_half(value, element):04X}"


def bits_of_half(value: float, element: str) -> int:
    """Return the 16 bits of a number as half, which must hold it but for rounding, or as bfloat."""
    return struct.unpack(">H", struct.pack(">e", value))[0] if element == "half" else _bfloat_bits(value)


def to_float32(value: float) -> float:
    """`value` rounded to float32, to infinity beyond its range."""
    try:
        return struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def _bfloat_bits(value: float) -> int:
    bits = struct.unpack("I", struct.pack("f", to_float32(value)))[0]
    if value != value:
        return 0x7FC0
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
