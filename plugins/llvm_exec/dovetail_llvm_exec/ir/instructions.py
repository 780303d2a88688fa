"""One method for each instruction: arithmetic, comparison, conversion, memory, calls.

Every method works on scalars and on vectors alike and looks at the type of its operands to choose between the instructions for floats and
for integers.  The text needs no optimization passes, so what a method writes is what runs: nothing is reordered or contracted unless `flags`
says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dovetail.prims.sizes import Size
from dovetail_llvm_exec.ir.sizes import HeadSizes
from dovetail_llvm_exec.ir.values import (
    FLOATS,
    Value,
    bits_of,
    constant_lanes,
    element_of,
    integer_like,
    is_float,
    lanes_of,
    like,
    literal,
    mangled,
    vector,
)

TESTS = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}  # == != < <= > >= of Python and torch on floats


class Instructions:
    """The instructions of one function, as text; `Builder` adds its signature, blocks and control flow."""

    def __init__(self, module: Any):
        self.module = module
        self._lines: list[str] = []
        self._room: list[str] = []  # instructions at the entry of the function
        self._sizes: HeadSizes | None = None
        self._count = 0

    # --- lines

    def emit(self, type: str, text: str) -> Value:
        """Return one instruction with a result of `type`."""
        self._count += 1
        name = f"%v{self._count}"
        self._lines.append(f"  {name} = {text}")
        return Value(name, type)

    def line(self, text: str) -> None:
        """Emit one instruction without a result."""
        self._lines.append("  " + text)

    def unshared(self, value: Value) -> Value:
        """Return `value`, loaded from where it will be stored: a choice between it and another is no store under a mask, which is slow on Zen."""
        return self.emit(value.type, f"freeze {value}")

    # --- constants

    def constant(self, value: Any, type: str) -> Value:
        """Return a Python number, or a size, in every lane of `type`."""
        if isinstance(value, Size):
            self._sizes = self._sizes or HeadSizes(self)
            size = self._sizes.value(value)
            return size if type[0] != "<" else self.splat(size, lanes_of(type))
        element = element_of(type)
        text = literal(value, element)
        return Value(text if type[0] != "<" else f"splat ({element} {text})", type)

    def zero(self, type: str) -> Value:
        """Return all bits zero."""
        return Value("zeroinitializer" if type[0] == "<" else "null" if type == "ptr" else literal(0, type), type)

    def poison(self, type: str) -> Value:
        """Return an undefined value."""
        return Value("poison", type)

    def lane_numbers(self, type: str) -> Value:
        """0, 1, 2, ... in the lanes of an integer type."""
        if type[0] != "<":
            return self.zero(type)
        element = element_of(type)
        return Value(f"<{', '.join(f'{element} {i}' for i in range(lanes_of(type)))}>", type)

    def operand(self, value: Any, type: str) -> Value:
        """`value` itself where it is a Value, else the constant."""
        return value if isinstance(value, Value) else self.constant(value, type)

    # --- arithmetic; the second operand may be a Python number

    def _binary(self, of_floats: str, of_integers: str, a: Value, b: Any, flags: str) -> Value:
        op = of_floats if is_float(a.type) else of_integers
        return self.emit(a.type, f"{op}{' ' + flags if flags else ''} {a}, {self.operand(b, a.type).name}")

    def add(self, a: Value, b: Any, flags: str = "") -> Value:
        """a + b"""
        return self._binary("fadd", "add", a, b, flags)

    def sub(self, a: Value, b: Any, flags: str = "") -> Value:
        """a - b"""
        return self._binary("fsub", "sub", a, b, flags)

    def mul(self, a: Value, b: Any, flags: str = "") -> Value:
        """a * b"""
        return self._binary("fmul", "mul", a, b, flags)

    def div(self, a: Value, b: Any, flags: str = "") -> Value:
        """a / b; of integers the signed quotient, towards zero"""
        return self._binary("fdiv", "sdiv", a, b, flags)

    def rem(self, a: Value, b: Any, flags: str = "") -> Value:
        """Return what `div` leaves, with the sign of a"""
        return self._binary("frem", "srem", a, b, flags)

    def udiv(self, a: Value, b: Any) -> Value:
        """Return the unsigned quotient"""
        return self._binary("", "udiv", a, b, "")

    def urem(self, a: Value, b: Any) -> Value:
        """Return the unsigned remainder"""
        return self._binary("", "urem", a, b, "")

    def split_unit(self, unit: Value, parts: Any) -> tuple[Value, Value]:
        """Return the quotient and the remainder of a unit's number, of type i64"""
        divisor = self.operand(parts, "i64").name
        quotient, rest = (self.emit("i64", f"{op} {unit}, {divisor} ; unit") for op in ("udiv", "urem"))
        return quotient, rest

    def neg(self, a: Value) -> Value:
        """-a"""
        return self.emit(a.type, f"fneg {a}") if is_float(a.type) else self.emit(a.type, f"sub {self.zero(a.type)}, {a.name}")

    def and_(self, a: Value, b: Any) -> Value:
        """a & b"""
        return self._binary("", "and", a, b, "")

    def or_(self, a: Value, b: Any) -> Value:
        """a | b"""
        return self._binary("", "or", a, b, "")

    def xor(self, a: Value, b: Any) -> Value:
        """a ^ b"""
        return self._binary("", "xor", a, b, "")

    def not_(self, a: Value) -> Value:
        """~a; for i1 the opposite"""
        return self.xor(a, True if element_of(a.type) == "i1" else -1)

    def shl(self, a: Value, b: Any) -> Value:
        """a << b, poison where b is not below the width"""
        return self._binary("", "shl", a, b, "")

    def lshr(self, a: Value, b: Any) -> Value:
        """a >> b, zeros from the left"""
        return self._binary("", "lshr", a, b, "")

    def ashr(self, a: Value, b: Any) -> Value:
        """a >> b, the sign from the left"""
        return self._binary("", "ashr", a, b, "")

    def intrinsic(self, name: str, *operands: Value, flags: str = "", returns: str = "") -> Value:
        """llvm.NAME, mangled by the type of its first operand, which is its result's unless `returns` says other."""
        full = f"llvm.{name}.{mangled(operands[0].type)}"
        return self.call(full, returns or operands[0].type, *operands, flags=flags)

    def fma(self, a: Value, b: Any, c: Any) -> Value:
        """a * b + c, rounded once on every machine; a call of libm where the machine has no such instruction."""
        return self.intrinsic("fma", a, self.operand(b, a.type), self.operand(c, a.type))

    def muladd(self, a: Value, b: Any, c: Any) -> Value:
        """a * b + c, rounded once or twice, whichever is faster"""
        return self.intrinsic("fmuladd", a, self.operand(b, a.type), self.operand(c, a.type))

    def abs(self, a: Value) -> Value:
        """Return the absolute value; the smallest integer stays as it is."""
        return self.intrinsic("fabs", a) if is_float(a.type) else self.call(f"llvm.abs.{mangled(a.type)}", a.type, a, Value("false", "i1"))

    def sqrt(self, a: Value) -> Value:
        """Return the square root, correctly rounded"""
        return self.intrinsic("sqrt", a)

    def copysign(self, a: Value, b: Any) -> Value:
        """a with the sign of b, by a choice or bits: LLVM 22 ends the process at a copysign of numbers that come from 16 bits"""
        b = self.operand(b, a.type)
        if a.type[0] != "<":
            size = self.abs(a)
            return self.select(self.compare("lt", self.bits(b), 0), self.neg(size), size)
        sign = 1 << bits_of(element_of(a.type)) - 1
        return self.bitcast(self.or_(self.and_(self.bits(a), sign - 1), self.and_(self.bits(b), -sign)), a.type)

    def maximum(self, a: Value, b: Any) -> Value:
        """Return the larger, NaN where one of them is; of integers signed"""
        return self.intrinsic("maximum" if is_float(a.type) else "smax", a, self.operand(b, a.type))

    def minimum(self, a: Value, b: Any) -> Value:
        """Return the smaller, NaN where one of them is; of integers signed"""
        return self.intrinsic("minimum" if is_float(a.type) else "smin", a, self.operand(b, a.type))

    def at_least(self, x: Value, limit: Any) -> Value:
        """max(x, limit), with x where x is NaN: one instruction on most machines"""
        limit = self.operand(limit, x.type)
        return self.select(self.compare("gt", limit, x), limit, x)

    def at_most(self, x: Value, limit: Any) -> Value:
        """min(x, limit), with x where x is NaN: one instruction on most machines"""
        limit = self.operand(limit, x.type)
        return self.select(self.compare("lt", limit, x), limit, x)

    def horner(self, x: Value, coefficients: Sequence[float]) -> Value:
        """sum of coefficients[i] * x**i, by multiply-adds from the highest power down"""
        result = self.constant(coefficients[-1], x.type)
        for coefficient in reversed(coefficients[:-1]):
            result = self.muladd(result, x, coefficient)
        return result

    # --- comparison and choice

    def compare(self, test: str, a: Value, b: Any, *, unsigned: bool = False) -> Value:
        """eq ne lt le gt ge as Python and torch mean them (NaN equals nothing), or a predicate of LLVM's own ("uno", "ult")."""
        kind = is_float(a.type)
        if kind:
            test = TESTS.get(test, test)
        elif test not in ("eq", "ne") and test in TESTS:
            test = ("u" if unsigned else "s") + test
        return self.emit(like(a.type, "i1"), f"{'fcmp' if kind else 'icmp'} {test} {a}, {self.operand(b, a.type).name}")

    def select(self, condition: Value, a: Value, b: Any) -> Value:
        """a where the condition holds, else b, lane by lane"""
        return self.emit(a.type, f"select {condition}, {a}, {self.operand(b, a.type)}")

    # --- types

    def cast(self, op: str, a: Value, type: str) -> Value:
        """Return one of LLVM's casts by name: trunc zext sext fptrunc fpext sitofp uitofp fptosi fptoui bitcast ptrtoint"""
        return self.emit(type, f"{op} {a} to {type}")

    def bitcast(self, a: Value, type: str) -> Value:
        """Return the same bits as another type"""
        return a if a.type == type else self.cast("bitcast", a, type)

    def bits(self, a: Value) -> Value:
        """Return the bits of floats as integers of their width"""
        return self.bitcast(a, integer_like(a.type))

    def convert(self, a: Value, element: str, *, signed: bool = True) -> Value:
        """Return the same number as another type: floats round to nearest, to integers towards zero (poison out of range), integers wrap.

        `signed` says how integers are read; i1 never is.  To i1 use `compare("ne", a, 0)`.
        """
        type, source = like(a.type, element), element_of(a.type)
        if type == a.type:
            return a
        signed = signed and source != "i1"
        if source in FLOATS and element in FLOATS:
            if bits_of(source) == bits_of(element):  # half and bfloat
                return self.convert(self.convert(a, "float"), element)
            return self.cast("fpext" if bits_of(element) > bits_of(source) else "fptrunc", a, type)
        if source in FLOATS:
            return self.cast("fptosi" if signed else "fptoui", a, type)
        if element in FLOATS:
            return self.cast("sitofp" if signed else "uitofp", a, type)
        return self.cast("trunc" if bits_of(element) < bits_of(source) else "sext" if signed else "zext", a, type)

    def splat(self, a: Value, lanes: int) -> Value:
        """Return a scalar in every lane"""
        if lanes == 1:
            return a
        type = vector(a.type, lanes)
        first = self.emit(type, f"insertelement {type} poison, {a}, i64 0")
        return self.emit(type, f"shufflevector {type} {first.name}, {type} poison, <{lanes} x i32> zeroinitializer")

    def extract(self, a: Value, lane: Any) -> Value:
        """Return one lane of a vector"""
        return self.emit(element_of(a.type), f"extractelement {a}, {self.operand(lane, 'i64')}")

    def shuffle(self, a: Value, b: Value | None, lanes: Sequence[int]) -> Value:
        """Return lanes of a, then of b, by number; -1 is a lane that is not read."""
        mask = ", ".join("i32 poison" if lane < 0 else f"i32 {lane}" for lane in lanes)
        return self.emit(vector(element_of(a.type), len(lanes)), f"shufflevector {a}, {b or self.poison(a.type)}, <{len(lanes)} x i32> <{mask}>")

    # --- memory

    def address(self, pointer: Value, element: str, *indices: Any) -> Value:
        """pointer + index elements; with a vector of indices a vector of addresses"""
        values = [self.operand(index, "i64") for index in indices]
        type = next((like(value.type, "ptr") for value in values if value.type[0] == "<"), "ptr")
        return self.emit(type, f"getelementptr {element}, {pointer}, {', '.join(map(str, values))}")

    def beside(self, pointer: Value, element: str, count: int) -> Value:
        """Return pointer + count elements, near enough to be a part of the instruction that reads there"""
        return self.emit("ptr", f"getelementptr {element}, {pointer}, i64 {count} ; beside")

    def _align(self, type: str, align: int | None) -> int:
        return align if align is not None else max(bits_of(type) // 8, 1)

    def load(self, type: str, pointer: Value, *, align: int | None = None, metadata: str = "") -> Value:
        """Load from the address; aligned to one element unless `align` (in bytes) says more"""
        return self.emit(type, f"load {type}, {pointer}, align {self._align(type, align)}{metadata}")

    def store(self, value: Value, pointer: Value, *, align: int | None = None, metadata: str = "") -> None:
        """Write to the address"""
        self.line(f"store {value}, {pointer}, align {self._align(value.type, align)}{metadata}")

    def masked_load(self, type: str, pointer: Value, mask: Value, other: Value | None = None) -> Value:
        """Load the lanes of the mask; the others get `other` (zero) and their memory is not touched"""
        pointer = Value(f"align {self._align(type, None)} {pointer.name}", "ptr")
        return self.call(f"llvm.masked.load.{mangled(type)}.p0", type, pointer, mask, other or self.zero(type))

    def masked_store(self, value: Value, pointer: Value, mask: Value) -> None:
        """Store the lanes of the mask only.

        A constant mask of one lane becomes a store of one element: LLVM up to 22.1.0 with AVX-512 writes a truncated lane
        as wide as it was, which is beside its place (llvm-project issue 179489).
        """
        lanes = constant_lanes(mask)
        if lanes is not None and len(lanes) == 1:
            self.store(self.extract(value, lanes[0]), self.beside(pointer, element_of(value.type), lanes[0]))
            return
        pointer = Value(f"align {self._align(value.type, None)} {pointer.name}", "ptr")
        self.call(f"llvm.masked.store.{mangled(value.type)}.p0", "void", value, pointer, mask)

    def gather(self, type: str, pointers: Value, mask: Value | None = None, other: Value | None = None) -> Value:
        """Load each lane from an address of its own"""
        mask = mask or self.constant(True, like(type, "i1"))
        pointers = Value(f"align {self._align(type, None)} {pointers.name}", pointers.type)
        return self.call(f"llvm.masked.gather.{mangled(type)}.{mangled(pointers.type)}", type, pointers, mask, other or self.zero(type))

    def scatter(self, value: Value, pointers: Value, mask: Value | None = None) -> None:
        """Store each lane to an address of its own, the lower lanes first"""
        mask = mask or self.constant(True, like(value.type, "i1"))
        pointers = Value(f"align {self._align(value.type, None)} {pointers.name}", pointers.type)
        self.call(f"llvm.masked.scatter.{mangled(value.type)}.{mangled(pointers.type)}", "void", value, pointers, mask)

    def alloca(self, type: str, count: int = 1, align: int = 64) -> Value:
        """Reserve room on the stack, once at the function's entry."""
        return self.at_head("ptr", f"alloca {type}, i64 {count}, align {align}")

    def at_head(self, type: str, text: str) -> Value:
        """Return one instruction at the function's entry."""
        self._count += 1
        self._room.append(f"  %v{self._count} = {text}")
        return Value(f"%v{self._count}", type)

    # --- horizontal

    def reduce(self, op: str, a: Value, *, flags: str = "reassoc") -> Value:
        """Return all lanes in one scalar: add mul max min (NaN wins) of floats; add mul and or xor smax smin umax umin of integers."""
        element = element_of(a.type)
        if a.type[0] != "<":
            return a
        if not is_float(a.type):
            return self.call(f"llvm.vector.reduce.{op}.{mangled(a.type)}", element, a)
        if op in ("add", "mul"):
            start = self.constant(-0.0 if op == "add" else 1.0, element)
            return self.call(f"llvm.vector.reduce.f{op}.{mangled(a.type)}", element, start, a, flags=flags)
        return self.call(f"llvm.vector.reduce.f{op}imum.{mangled(a.type)}", element, a)

    def any(self, mask: Value) -> Value:
        """Return whether a lane of the mask is set"""
        return self.reduce("or", mask)

    # --- calls

    def call(self, name: str, returns: str, *operands: Value, flags: str = "", attributes: str = "") -> Value:
        """Call a function by name and declare it; intrinsics by their full name."""
        if name not in self.module.declarations:
            self.module.declare(name, returns, [operand.type for operand in operands], attributes)
        text = f"call{' ' + flags if flags else ''} {returns} @{name}({', '.join([f'{type} {value}' for value, type in operands])})"
        if returns == "void":
            self.line(text)
            return Value("", "void")
        return self.emit(returns, text)
