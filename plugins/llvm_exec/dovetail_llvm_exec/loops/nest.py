"""Writes the expressions of one loop nest: each in the outermost loop that it can be computed in, vectors in the innermost."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from dovetail.dtypes import DType, bfloat16
from dovetail.prims.sizes import Size
from dovetail_llvm_exec.ir.module import Builder
from dovetail_llvm_exec.ir.values import Value, lanes_of, vector
from dovetail_llvm_exec.loops.axes import Axis
from dovetail_llvm_exec.loops.philox import DRAWS
from dovetail_llvm_exec.region.exprs import Buffer, Expr, forms_of, walk
from dovetail_llvm_exec.region.forms import Atom, Form, known_equal
from dovetail_llvm_exec.scalars import kinds
from dovetail_llvm_exec.scalars.ops import EXACT, Op, written

Access = tuple[Buffer, Form | None]  # a place in memory; without a form, one of the unit's own

FARTHEST = 4  # steps between elements up to which vectors of all that lies between are loaded
FAULTS = {"IndexError": 1, "ZeroDivisionError": 2, "RuntimeError": 4}  # what a kernel's status says


class Scope:
    """A loop that is being written: its axes with their indices, and the values that were computed in it.

    The other tables hold what the methods of a nest have returned while this loop was the innermost, or for it.
    """

    def __init__(self, indices: dict[Axis, Value], mask: Value | None = None):
        self.indices, self.mask = indices, mask
        self.values: dict[Any, Value] = {}
        self.levels: dict[Expr, int] = {}
        self.atom_levels: dict[frozenset[Atom], int] = {}
        self.here: dict[Form, tuple[list[tuple[Value, int]], Any]] = {}


class Nest:
    """One function's loops.  `lanes` elements of the axis `across` are computed at once; it is bound in the innermost scope."""

    def __init__(self, b: Builder, pointers: dict[Buffer, Value], axes: Iterable[Axis]):
        self.b, self.pointers = b, pointers
        self.axis_of: dict[Atom, Axis] = {atom: axis for axis in axes for atom in axis.atoms}
        self.across: Axis | None = None
        self.lanes = 1
        self.scopes: list[Scope] = [Scope({})]
        self.levels: dict[Axis, int] = {}
        self.slots: dict[str, Value] = {}
        self.cached: dict[Expr, tuple[Buffer, Form]] = {}  # what an earlier sweep over the row has left in memory
        self.streamed: frozenset[Buffer] = frozenset()  # what is written past the caches
        self.aligned = False  # whether vectors in `streamed` buffers are known not to straddle lines of the cache, by a test of sizes
        self.reads: set[Access] = set()  # what the function really does to memory, for the verifier
        self.writes: set[Access] = set()
        self.heap: list[tuple[Value, Value]] = []  # memory of the function's own, and the room on the stack that it has where that is enough
        self.narrow: dict[tuple[str, DType], Value] = {}  # values that were rounded to 16 bits, as they are in memory

    # --- scopes

    def enter(self, indices: dict[Axis, Value], mask: Value | None = None) -> None:
        """Enter a loop."""
        self.levels.update(dict.fromkeys(indices, len(self.scopes)))
        self.scopes.append(Scope(indices, mask))

    def leave(self) -> None:
        """Leave a loop."""
        for axis in self.scopes.pop().indices:
            del self.levels[axis]

    @property
    def depth(self) -> int:
        """The number of the innermost scope."""
        return len(self.scopes) - 1

    def level(self, expr: Expr) -> int:
        """Return the scope that an expression is computed in; beyond the innermost where its loop has not begun."""
        scope = self.scopes[-1]
        level = scope.levels.get(expr)
        if level is None:
            level = scope.atom_levels.get(expr.atoms)
            if level is None:
                level = scope.atom_levels[expr.atoms] = max([self.level_of(atom) for atom in expr.atoms], default=0)
            level = scope.levels[expr] = level or int(bool(expr.row_results))
        return level

    def level_of(self, atom: Atom) -> int:
        return self.levels.get(self.axis_of[atom], len(self.scopes))

    def is_vector(self, expr: Expr) -> bool:
        """Return whether an expression differs from lane to lane."""
        return self.across is not None and self.lanes > 1 and not expr.atoms.isdisjoint(self.across.atoms)

    # --- values

    def find(self, key: Any, level: int) -> Value | None:
        """Return what was computed under `key` in the scope `level`, or further in."""
        for scope in self.scopes[level:]:
            if key in scope.values:
                return scope.values[key]
        return None

    def keep(self, key: Any, value: Value) -> Value:
        """Remember a value as long as the innermost loop is written."""
        self.scopes[-1].values[key] = value
        return value

    def hoist(self, exprs: Iterable[Expr]) -> None:
        """Write now what the loops to come need and do not change."""
        depth = self.depth
        for expr in walk(list(exprs), self._unknown, self._parts):
            if self.level(expr) <= depth:
                self.value(expr)
                continue
            for form in () if expr in self.cached else forms_of(expr.op, expr.data):
                self._partial(expr, form)
            for part in self._parts(expr) if self.is_vector(expr) else ():
                if part.op != "const" and self.level(part) <= depth:
                    self.operand(part, self.lanes)
            if self._by_inverse(expr) and self.level(expr.args[1]) <= depth:
                self._inverses(expr.args[1], self.lanes)

    def _unknown(self, expr: Expr) -> bool:
        """Return whether `find` would find nothing; written out, since most of the time of writing goes by here."""
        level = self.scopes[-1].levels.get(expr)
        for scope in self.scopes[self.level(expr) if level is None else level :]:  # noqa: SIM110 - a generator would be another call
            if expr in scope.values:
                return False
        return True

    def _parts(self, expr: Expr) -> tuple[Expr, ...]:
        """Return the expressions that must be computed first."""
        return () if expr in self.cached else expr.parts

    def _partial(self, expr: Expr, form: Form) -> None:
        if any(self.level_of(atom) <= self.depth for atom, _ in form.terms) or not form.terms:
            if expr.op == "load":
                self.pointer(expr.data[0], form, self.depth)
            else:
                self.position(form, self.depth)

    def value(self, expr: Expr) -> Value:
        """Return the value of an expression: a vector where it differs from lane to lane."""
        value = self.find(expr, self.level(expr))
        if value is None:
            for part in walk([expr], self._unknown, self._parts):
                value = self.keep(part, self._written(part))
        return value

    def operand(self, expr: Expr, lanes: int) -> Value:
        """Return the value of an expression in `lanes` lanes."""
        if expr.op == "const":
            return kinds.number(self.b, _number(expr), expr.dtype, lanes)
        value = self.value(expr)
        if lanes == 1 or value.type[0] == "<":
            return value
        key = ("splat", expr, lanes)
        known = self.find(key, self.level(expr))
        if known is None:
            known, stored = self.keep(key, self.b.splat(value, lanes)), self.narrow.get((value.name, expr.dtype))
            if stored is not None:
                self._narrow(known, self.b.splat(stored, lanes), expr.dtype)
        return known

    def define(self, expr: Expr, value: Value) -> None:
        """Say what an expression is, in the innermost scope."""
        self.keep(expr, value)

    def _written(self, expr: Expr) -> Value:
        lanes = self.lanes if self.is_vector(expr) else 1
        if expr in self.cached:
            return self.get(*self.cached[expr], lanes)
        if expr.op == "const":
            return self.operand(expr, lanes)
        if expr.op == "load":
            loaded = self._loaded(expr, lanes)
            return self._narrow(kinds.from_memory(self.b, loaded, expr.dtype), loaded, expr.dtype)
        if expr.op == "index":
            return self._index(expr.data, lanes)
        if expr.op == "checked":
            return self._checked(expr, lanes)
        if expr.op in DRAWS:
            seed, offset = (self.operand(a, lanes) for a in expr.args)
            return DRAWS[expr.op](self.b, expr.data, self._index(expr.data.form, lanes), seed, offset)
        operands = [self.operand(a, lanes) for a in expr.args]
        numbers = tuple(_number(a) if a.op == "const" else None for a in expr.args)
        source = expr.args[expr.op == "where"].dtype
        if self._by_inverse(expr):
            return self._quotient(expr, operands[0])
        op = Op(self.b, expr.dtype, source, lambda mask, what: self.fault(mask, what), numbers)
        value = written(op, expr.op, operands)
        if expr.op not in EXACT or not self._holds(expr):
            return self.rounded(value, expr.dtype)
        if expr.op == "where" and expr.dtype in kinds.HALVES:
            sides = [self._stored(a, x, expr.dtype) for a, x in zip(expr.args[1:], operands[1:], strict=True)]
            return value if None in sides else self._narrow(value, self.b.select(operands[0], *sides), expr.dtype)
        if expr.dtype is bfloat16:  # as its operands, a number of 16 bits, and those of a float32 that come first
            return self._narrow(value, kinds.first_half(self.b, value), expr.dtype)
        return value

    def _holds(self, expr: Expr) -> bool:
        """Return whether what an operation returns, which is one of its operands or a whole number, is a number of its dtype."""
        if expr.dtype not in kinds.HALVES:
            return True
        for operand in expr.args[expr.op == "where" :]:
            number = _number(operand) if operand.op == "const" else None
            if operand.dtype is not expr.dtype or (number is not None and kinds.nearest(number, expr.dtype) != number == number):
                return False
        return True

    def _narrow(self, value: Value, stored: Value, dtype: DType) -> Value:
        """Return `value`, and remember what it is in memory."""
        if dtype in kinds.HALVES:
            self.narrow[value.name, dtype] = stored
        return value

    def _stored(self, expr: Expr, x: Value, dtype: DType) -> Value | None:
        """Return what memory holds of `x`, the value of an expression; None where it had to be rounded for that."""
        if expr.op == "const":
            return kinds.stored_half(self.b, _number(expr), dtype, lanes_of(x.type))
        return self.narrow.get((x.name, dtype))

    def rounded(self, x: Value, dtype: DType) -> Value:
        """Round `x` to the nearest number that `dtype` holds, in the format that it is computed with."""
        if dtype not in kinds.HALVES:
            return x
        narrow = kinds.narrowed(self.b, x, dtype)
        return self._narrow(kinds.widened(self.b, narrow, dtype), narrow, dtype)

    def to_memory(self, x: Value, dtype: DType) -> Value:
        """Return what is stored of a value."""
        return self.narrow.get((x.name, dtype)) or kinds.to_memory(self.b, x, dtype)

    def _by_inverse(self, expr: Expr) -> bool:
        """Return whether a division is one by a number that stays while an inner loop runs."""
        if expr.op != "div" or expr.args[1].op == "const":
            return False
        return self.level(expr.args[1]) < self.level(expr) and self.is_vector(expr) and not self.is_vector(expr.args[1])

    def _quotient(self, expr: Expr, x: Value) -> Value:
        """Return x / y by the reciprocal of y, and a step of Newton's that makes exact what is exact."""
        b = self.b
        divisor, scale, inverse = self._inverses(expr.args[1], lanes_of(x.type))
        scaled = b.mul(x, scale)
        first = b.mul(scaled, inverse)
        rest = b.fma(b.neg(first), divisor, scaled) if b.target.fma else b.sub(scaled, b.mul(first, divisor))
        better = b.muladd(rest, inverse, first)
        value = b.select(b.compare("one", better, 0.0), better, first)  # a correction adds +0 to a quotient that is -0
        return self.rounded(value, expr.dtype)

    def _inverses(self, y: Expr, lanes: int) -> tuple[Value, Value, Value]:
        """Return what `_inverse` gives of y, in `lanes` lanes."""
        key = ("inverse", y, lanes)
        inverses = self.find(key, self.level(y))
        if inverses is None:
            inverses = self.keep(key, tuple(self.b.splat(v, lanes) for v in self._inverse(self.value(y))))
        return inverses

    def _inverse(self, y: Value) -> tuple[Value, Value, Value]:
        """Return (y scaled, the scale, 1 / y scaled): scaled so that neither end of the range is left."""
        b = self.b
        size = b.abs(y)
        scale = b.select(b.compare("lt", size, 2.0**-64), b.constant(2.0**64, y.type), b.constant(1.0, y.type))
        scale = b.select(b.compare("gt", size, 2.0**64), b.constant(2.0**-64, y.type), scale)
        scaled = b.mul(y, scale)
        return scaled, scale, b.div(b.constant(1.0, y.type), scaled)

    # --- positions

    def position(self, form: Form, depth: int | None = None) -> Value:
        """Return a form without the lanes, as far as its loops are inside the scope `depth`."""
        depth = self.depth if depth is None else depth
        here, key = self._here(form, depth)
        if depth == 0:
            start = self.b.constant(form.const, "i64")
            return self._sum(start, here, depth) if here else start
        below = self.position(form, depth - 1)
        if not here:
            return below
        name = ("position", key)
        return self.find(name, depth) or self.keep(name, self._sum(below, here, depth))

    def pointer(self, buffer: Buffer, form: Form, depth: int | None = None) -> Value:
        """Return the address of a form's element, without the lanes."""
        depth = self.depth if depth is None else depth
        here, key = self._here(form, depth)
        name = ("pointer", buffer, key)
        pointer = self.find(name, depth)
        if pointer is not None:
            return pointer
        if depth == 0:
            at, start = self.pointers[buffer], self.b.constant(form.const, "i64")
            moved = self._sum(start, here, depth) if here else start if form.const else None
        else:
            at, moved = self.pointer(buffer, form, depth - 1), self._sum(None, here, depth) if here else None
        if moved is None:
            return at
        return self.keep(name, self.b.address(at, kinds.stored(buffer.dtype), moved))

    def _here(self, form: Form, depth: int) -> tuple[list[tuple[Value, int]], Any]:
        """Return what of a form changes in the scope `depth`; and the form as far as it is known there."""
        known = self.scopes[depth].here
        here = known.get(form)
        if here is None:
            here = self._terms_here(form, depth)
            if not form.moving:  # whether what moves is a vector changes while a loop is written
                known[form] = here
        return here

    def _terms_here(self, form: Form, depth: int) -> tuple[list[tuple[Value, int]], Any]:
        terms_here: list[tuple[Value, int]] = []
        for axis, index in self.scopes[depth].indices.items():
            step = axis.step(form)
            if step:
                terms_here.append((index, step))
        for expr, step in form.moving:
            if self.level(expr) == depth and not self.is_vector(expr):
                terms_here.append((self.value(expr), step))
        terms = tuple((a, s) for a, s in form.terms if self.level_of(a) <= depth)
        moving = tuple((e, s) for e, s in form.moving if self.level(e) <= depth)
        return terms_here, (form.const, terms, moving)

    def _sum(self, start: Value | None, terms: list[tuple[Value, int]], depth: int) -> Value:
        """Return start + the sum of value * step, of terms that change in the scope `depth`; equal products and sums are computed once."""
        name = ("sum", *[(value.name, step) for value, step in terms])
        total = self.find(name, depth)
        if total is None:
            products = [value if step == 1 else self._product(value, step, depth) for value, step in terms]
            total = self.keep(name, functools.reduce(self.b.add, products))
        return total if start is None or start.name == "0" else self.b.add(start, total)

    def _product(self, value: Value, step: int, depth: int) -> Value:
        name = ("product", value.name, step)
        return self.find(name, depth) or self.keep(name, self.b.mul(value, step))

    def _index(self, form: Form, lanes: int) -> Value:
        at = self.position(form)
        return at if lanes == 1 else self.b.add(self.b.splat(at, lanes), self._lane_steps(form, lanes))

    def _lane_steps(self, form: Form, lanes: int) -> Value:
        """Return how far each lane is from the first."""
        b, type = self.b, vector("i64", lanes)
        step = self.across.step(form) if self.across else 0
        if isinstance(step, Size):
            steps = b.mul(b.lane_numbers(type), step)
            return self._moved(steps, form)
        name = f"<{', '.join(f'i64 {i * step}' for i in range(lanes))}>" if step else b.zero(type).name
        return self._moved(Value(name, type), form)

    def _moved(self, steps: Value, form: Form) -> Value:
        """Return how far lanes are from the first, with what positions in memory add."""
        b = self.b
        for expr, factor in form.moving:
            if self.is_vector(expr):
                moved = self.value(expr)
                steps = b.add(steps, b.mul(moved, factor) if factor != 1 else moved)
        return steps

    # --- memory

    def _mask(self, expr: Expr | None, lanes: int) -> Value | None:
        """Return the lanes that count: those of the loop, and of the expression's own mask."""
        tail = self.scopes[-1].mask if lanes > 1 else None
        if expr is None:
            return tail
        own = self.operand(expr, lanes)
        return own if tail is None else self.b.and_(own, tail)

    def _loaded(self, expr: Expr, lanes: int) -> Value:
        b = self.b
        buffer, form = expr.data
        own = expr.args[0] if expr.args else None
        stored = kinds.stored(buffer.dtype, lanes)
        self.reads.add((buffer, form))
        mask = self._mask(own, lanes)
        at = self.pointer(buffer, form)
        if lanes == 1:
            if own is None:
                return b.load(stored, at)
            return b.load(stored, b.select(mask, at, self._spare()))
        moved = any(self.is_vector(e) for e, _ in form.moving)
        step = self.across.step(form)
        if known_equal(step, 1) and not moved:
            return b.load(stored, at) if mask is None else b.masked_load(stored, at, mask)
        if known_equal(step, -1) and not moved and mask is None:
            first = b.beside(at, kinds.stored(buffer.dtype), -(lanes - 1))
            return b.shuffle(b.load(stored, first), None, range(lanes - 1, -1, -1))
        if type(step) is int and 1 < step <= FARTHEST and not moved and mask is None:
            return self._spaced(buffer.dtype, at, step, lanes)
        return b.gather(stored, b.address(at, kinds.stored(buffer.dtype), self._lane_steps(form, lanes)), mask)

    def _spaced(self, dtype: DType, at: Value, step: int, lanes: int) -> Value:
        """Load elements that are `step` apart by vectors of all that lies between; nothing beyond the last is read."""
        b, type = self.b, kinds.stored(dtype, lanes)
        places = [step * i for i in range(lanes)]
        loaded, lane_of = b.load(type, at), places
        for end in range(lanes, step * lanes, lanes):  # what lies before `end` is loaded
            first = min(end, places[-1] + 1 - lanes)
            more = b.load(type, b.beside(at, kinds.stored(dtype), first))
            new = [lanes + place - first if place < first + lanes else -1 for place in places]
            loaded = b.shuffle(loaded, more, [lane if place < end else other for place, lane, other in zip(places, lane_of, new)])
            lane_of = range(lanes)
        return loaded

    def store(self, buffer: Buffer, form: Form, expr: Expr) -> None:
        """Write an expression where the form says; a scalar one where nothing differs from lane to lane."""
        lanes = self.lanes if self.across is not None and self.level_of(self.across.atoms[-1]) <= self.depth else 1
        self.put(buffer, form, self.to_memory(self.operand(expr, lanes), buffer.dtype))

    def put(self, buffer: Buffer, form: Form, value: Value) -> None:
        """Write a value, as it is in memory, where the form says."""
        b, lanes = self.b, lanes_of(value.type)
        self.writes.add((buffer, form))
        at = self.pointer(buffer, form)
        if lanes == 1:
            b.store(value, at)
            return
        mask = self.scopes[-1].mask
        if known_equal(self.across.step(form), 1):
            if mask is None and buffer in self.streamed and (self.aligned or self._lines(form, lanes)):
                b.store(value, at, align=lanes * buffer.dtype.bytes, metadata=f", !nontemporal {b.module.node('!{i32 1}')}")
            else:
                b.store(value, at) if mask is None else b.masked_store(value, at, mask)
            return
        b.scatter(value, b.address(at, kinds.stored(buffer.dtype), self._lane_steps(form, lanes)), mask)

    def _lines(self, form: Form, lanes: int) -> bool:
        """Return whether vectors of `lanes` elements never straddle, so that they are parts of lines of the cache."""
        fixed = [step for atom, step in form.terms if atom not in self.across.atoms]
        return not form.moving and all(type(n) is int and n % lanes == 0 for n in (form.const, *fixed))

    def get(self, buffer: Buffer, form: Form, lanes: int) -> Value:
        """Return what lies where the form says, as it is in memory."""
        b, type = self.b, kinds.stored(buffer.dtype, lanes)
        self.reads.add((buffer, form))
        at, mask = self.pointer(buffer, form), self.scopes[-1].mask
        if lanes == 1:
            return b.load(type, at)
        if known_equal(self.across.step(form), 1):
            return b.load(type, at) if mask is None else b.masked_load(type, at, mask)
        return b.gather(type, b.address(at, kinds.stored(buffer.dtype), self._lane_steps(form, lanes)), mask)

    # --- faults

    def _checked(self, expr: Expr, lanes: int) -> Value:
        """Return an index, or 0 with a fault where it is not below the size."""
        b = self.b
        index = self.operand(expr.args[0], lanes)
        mask = self._mask(expr.args[1] if len(expr.args) > 1 else None, lanes)
        size, fault = expr.data
        inside = b.compare("lt", index, size, unsigned=True)
        outside = b.not_(inside)
        self._report(outside if mask is None else b.and_(outside, mask), fault)
        return b.select(inside, index, b.zero(index.type))

    def fault(self, mask: Value, what: str) -> None:
        """Report that lanes of the mask went wrong."""
        tail = self.scopes[-1].mask if mask.type[0] == "<" else None
        self._report(mask if tail is None else self.b.and_(mask, tail), what)

    def _report(self, mask: Value, what: str) -> None:
        b, slot = self.b, self.slot("fault")
        wrong = b.cast("zext", b.any(mask), "i32")
        b.store(b.or_(b.load("i32", slot), b.mul(wrong, FAULTS[what])), slot)

    def slot(self, name: str) -> Value:
        """Reserve room for one number on the stack."""
        if name not in self.slots:
            self.slots[name] = self.b.alloca("i64")
        return self.slots[name]

    def _spare(self) -> Value:
        """Return an address that may be read when a mask does not hold."""
        return self.slot("spare")


def _number(expr: Expr) -> Any:
    text, value = expr.data
    return float(text) if value is None else value
