"""Kernels as text: one function in Triton for each, readable from top to bottom, and the same text for the same kernel."""

from __future__ import annotations

from typing import Any

from dovetail.dtypes import DType, bfloat16, bool_, float16, float32
from dovetail_triton_exec import ops
from dovetail_triton_exec.exprs import Buffer, Condition, Expr, Guard, forms
from dovetail_triton_exec.graph import product
from dovetail_triton_exec.index import Digit, Form, Var
from dovetail_triton_exec.plan import Kernel, Store, Sweep

HEADER = """import triton
import triton.language as tl
from dovetail_triton_exec import device
from dovetail_triton_exec.device import native
"""
FAR = 2**31 - 2**21  # positions from here on are counted in 64 bits
BITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}


class Writer:
    """Writes one kernel.  `looped` reads a row in blocks, once for each pass over it; else a row is one block."""

    def __init__(self, kernel: Kernel, name: str, looped: bool):
        self.kernel, self.name = kernel, name
        self.x, self.r, self.looped = kernel.x, kernel.r, looped and kernel.r is not None
        self.outer: list[str] = []  # before, between and after the loops
        self.inner: list[str] | None = None  # in the loop that is being written
        self.names: dict[Any, str] = {}
        self.within: dict[Any, str] = {}  # names that hold in the current loop only
        self.taken: set[str] = set()
        self.far = _far(kernel)
        self.full = self.r is not None and not self.looped and self.r.size & (self.r.size - 1) == 0 and not kernel.guard  # a block is a row

    # --- the whole

    def text(self) -> str:
        """Return the kernel's source."""
        kernel = self.kernel
        reduced = [e for _, e in kernel.results.values()] + [s.value for s in kernel.stores if s.node.op == "part"]
        alive = needed(kernel.roots)
        rows = [root for e in reduced if (root := _reduction(e)) in alive]
        last = max((e.level for e in (*rows, *kernel.roots)), default=0)
        self._head()
        opened = len(self.outer)
        for level in range(last + 1):
            stores = [s for s in kernel.stores if s.value.level == level]
            inside = [s for s in stores if self.r is not None and self._inner(s)]
            folds = list(dict.fromkeys(e for e in rows if e.level == level + 1))
            for store in stores:
                if store not in inside:
                    self._store(store)
            if inside or folds:
                self._pass(inside, folds)
            for number, sweep in enumerate(kernel.sweeps):
                if sweep.value.level == level:
                    self._swept(number, sweep)
        if kernel.sweeps:
            self._around(opened)
        names = ", ".join([*(b.name for b in buffers(kernel)), "XB: tl.constexpr", *(["RB: tl.constexpr"] if self.r else [])])
        debug = "(debug=True)" if checks(kernel) else ""
        rows = [row.replace("tl.full(ONE, ", f"tl.full({'[1, 1]' if self.r else '[1]'}, ") for row in self.outer]
        return "\n".join([f"@triton.jit{debug}", f"def {self.name}({names}):", *(f"    {row}" for row in rows)]) + "\n"

    def _head(self) -> None:
        wide = ".to(tl.int64)" if self.far else ""
        column = "[:, None]" if self.r else ""
        if not self.kernel.sweeps:
            self.outer += [f"x = tl.program_id(0){wide} * XB + tl.arange(0, XB){column}", f"x_in = x < {self.x.size}"]
        if self.r is not None and not self.looped:
            self.outer += [f"r = tl.arange(0, RB)[None, :]{wide}", f"r_in = r < {self.r.size}"]

    def _pass(self, stores: list[Store], folds: list[Expr]) -> None:
        """Write one walk along the rows: what is stored on the way, and what is reduced."""
        for fold in folds:
            if self.looped:
                self.outer += self._opening(fold)
        if self.looped:
            self.inner, self.within = [], {}
            wide = ".to(tl.int64)" if self.far else ""
            self.inner += [f"r = start + tl.arange(0, RB)[None, :]{wide}", f"r_in = r < {self.r.size}"]
        for store in stores:
            self._store(store)
        closings = [(fold, self._fold(fold)) for fold in folds]
        if self.looped:
            inner, self.inner, self.within = self.inner, None, {}
            self.outer.append(f"for start in range(0, {self.r.size}, RB):")
            self.outer += [f"    {row}" for row in inner]
        for fold, text in closings:
            self.names[fold] = name = self._fresh(f"v{fold.number}")
            self.outer.append(f"{name} = {text}")

    # --- reductions

    def _swept(self, number: int, sweep: Sweep) -> None:
        """Add what a sweep adds up to its columns."""
        zero, mask = ops.filled(0.0, sweep.value.dtype), self._mask(frozenset({self.x, self.r}), frozenset())
        self._put(f"columns{number} += tl.where({mask}, {self._value(sweep.value)}, {zero})", True)

    def _around(self, opened: int) -> None:
        """Put what was written since into the loop over the rows of a program, between the sums' first and last lines."""
        kernel, wide = self.kernel, ".to(tl.int64)" if self.far else ""
        rows, self.outer = self.outer[opened:], self.outer[:opened]
        for number, sweep in enumerate(kernel.sweeps):
            self.outer.append(f"columns{number} = tl.full([XB, RB], 0, {ops.TRITON[sweep.value.dtype]})")
        self.outer += [f"for start in range(0, {kernel.share}, XB):", "    row = start + tl.arange(0, XB)[:, None]"]
        self.outer.append(f"    x = tl.program_id(0){wide} * {kernel.share} + row")
        self.outer.append(f"    x_in = (row < {kernel.share}) & (x < {self.x.size})")
        self.outer += [f"    {row}" for row in rows]
        size = product(n for d, n in enumerate(kernel.shape.sizes) if d in kernel.shape.dims)
        for number, sweep in enumerate(kernel.sweeps):
            place = f"tl.program_id(0) * {size} + {self._form(sweep.form, True)}"
            total = _as_stored(f"tl.sum(columns{number}, 0, keep_dims=True)", sweep.value.dtype, sweep.buffer.dtype)
            self.outer.append(f"tl.store({sweep.buffer.name} + {place}, {total}, r_in)")

    def _opening(self, fold: Expr) -> list[str]:
        op, dtype = fold.op.removeprefix("reduce_"), fold.args[0].dtype
        start = f"tl.full([XB, RB], {_identity(op, dtype)}, {ops.TRITON[dtype]})"
        rows = [f"acc{fold.number} = {start}"]
        if op in ("argmax", "argmin"):
            rows.append(f"at{fold.number} = tl.full([XB, RB], 0, tl.int64) + tl.arange(0, RB)[None, :]")
        return rows

    def _fold(self, fold: Expr) -> str:
        """Write how a block goes into its reduction; return the text of the result, for after the loop."""
        op, body = fold.op.removeprefix("reduce_"), fold.args[0]
        dtype = body.dtype
        identity = _identity(op, dtype)
        mask = self._mask(frozenset({self.r}), self.kernel.guard) or "r_in"
        value = self._value(body)
        if not (self.full and {self.x, self.r} <= body.free):
            value = f"tl.where({mask} & x_in, {value}, {identity if dtype is float32 else ops.filled_text(identity, dtype)})"
        if not self.looped:
            return _finished(op, value, "r.to(tl.int64) + tl.full([XB, RB], 0, tl.int64)", dtype)
        acc, at = f"acc{fold.number}", f"at{fold.number}"
        new = self._fresh(f"n{fold.number}")
        self._put(f"{new} = {value}", True)
        for row in _accumulated(op, acc, at, new, dtype):
            self._put(row, True)
        return _finished(op, acc, at, dtype)

    # --- values

    def _inner(self, store: Store) -> bool:
        """Return whether a store is within the rows."""
        return self.r in store.value.free or self.r in store.form.vars()

    def _store(self, store: Store) -> None:
        inner = self.r is not None and self._inner(store)
        free = frozenset({self.x, self.r}) if inner else frozenset({self.x})
        place = self._form(store.form, inner)
        if self.x not in store.form.vars():
            place = "x" if place == "0" else f"x + {place}" if self.x.size == 1 else place
        if inner and self.r not in store.form.vars():
            place = f"{place} + r" if self.r.size == 1 else place
        value = _as_stored(self._value(store.value), store.value.dtype, store.buffer.dtype)
        self._put(f"tl.store({_address(store.buffer, place)}, {value}, {self._mask(free, store.guard)})", inner)

    def _mask(self, free: frozenset[Var | None], guard: Guard) -> str:
        """Write the condition under which an access over some loop variables is within bounds."""
        parts = [name for var, name in ((self.x, "x_in"), (self.r, "r_in")) if var is not None and var in free and not (self.full and var is self.r)]
        for condition in sorted(guard, key=repr):
            if condition.form.low < condition.low or condition.form.high >= condition.high:
                parts.append(self._condition(condition))
        return " & ".join(parts)

    def _condition(self, condition: Condition) -> str:
        form, rows = self._form(condition.form, self.r in condition.form.vars()), []
        if condition.form.low < condition.low:
            rows.append(f"({form} >= {condition.low})")
        if condition.form.high >= condition.high:
            rows.append(f"({form} < {condition.high})")
        return " & ".join(rows) or "True"

    def _value(self, value: Any) -> str:
        """Return the name of an expression, after it has been written."""
        name = self.names.get(value) or self.within.get(value)
        if name is not None:
            return name
        if value.op == "full":
            return ops.filled(value.args[0], value.dtype)
        inner = self.r is not None and self.r in value.free
        text = self._text(value, inner)
        name = self._fresh(f"v{value.number}")
        self._remember(value, name, inner)
        self._put(f"{name} = {text}", inner)
        return name

    def _remember(self, key: Any, name: str, inner: bool) -> None:
        (self.within if inner and self.looped else self.names)[key] = name

    def _text(self, e: Expr, inner: bool) -> str:
        if e.op == "load":
            return self._load(e, inner)
        if e.op == "inside":
            return " & ".join(self._condition(c) for c in sorted(e.data, key=repr))
        if e.op == "narrow":
            return _rounded(self._value(e.args[0]), e.data)
        if e.op == "convert":
            return ops.converted(self._value(e.args[0]), e.args[0].dtype, e.dtype)
        if e.op == "checked":
            index, size = e.args
            mask = self._mask(e.free, e.data) or "tl.full(ONE, 1, tl.int1)"
            return f"native.check({self._value(index)}, {size}, {mask})"
        if e.op == "iota":
            return self._iota(e, inner)
        if e.op in ("uniform_philox", "normal_philox"):
            return self._random(e, inner)
        return self._operation(e)

    def _load(self, e: Expr, inner: bool) -> str:
        buffer, form, guard = e.data
        mask = self._mask(e.free, guard)
        still = [var for var in (self.x, self.r) if var is not None and var in e.free and var not in _loops(form)]
        place = " + ".join([self._form(form, inner), *(f"{var} * 0" for var in still)])  # as many places as the mask has
        place = place if form.terms or e.free else f"tl.full(ONE, {place}, tl.int32)"
        text = f"tl.load({_address(buffer, place)}" + (f", {mask}, other=0)" if mask else ")")
        if buffer.dtype is bool_:
            return f"({text} != 0)"
        return f"{text}.to(tl.float32)" if buffer.dtype in (float16, bfloat16) else text

    def _iota(self, e: Expr, inner: bool) -> str:
        start, step = e.args
        position = f"({self._form(e.data, inner)})"
        if not e.data.terms:
            return ops.filled(start + step * e.data.const, e.dtype)
        if e.dtype.kind == "int":
            moved = position if (start, step) == (0, 1) else f"({position}.to(tl.int64) * {step} + {start})"
            return f"{moved}.to({ops.TRITON[e.dtype]})"
        exact = f"({position}.to(tl.float64) * tl.full(ONE, {float(step)!r}, tl.float64) + tl.full(ONE, {float(start)!r}, tl.float64))"
        return f"{exact}.to({ops.TRITON[e.dtype]})"

    def _random(self, e: Expr, inner: bool) -> str:
        form, dtype, *params = e.data
        seed, offset = map(self._value, e.args)
        normal = e.op == "normal_philox"
        first, second = params if normal else (params[1], params[0])  # by name: mean and std, or high and low
        bits = BITS[dtype] if not normal else 53 if dtype == "float64" else 24
        position = self._form(form, inner)
        position = f"tl.full(ONE, {position}, tl.int64)" if not form.terms else position
        text = f"device.{'normal' if normal else 'uniform'}({seed}, {offset}, {position}, {first!r}, {second!r}, {bits})"
        return f"{text}.to({ops.TRITON[e.dtype]})"

    def _operation(self, e: Expr) -> str:
        operands = e.args[1:] if e.op == "where" else e.args
        dtype = next((a.dtype for a in operands if isinstance(a, Expr)), e.dtype)
        plain = e.op in ops.TAKE_LITERALS
        words = [self._value(a) if isinstance(a, Expr) else ops.literal(a, dtype) if plain else ops.filled(a, dtype) for a in e.args]
        return ops.text_of(e.op, words, dtype, [None if isinstance(a, Expr) else a for a in e.args])

    # --- positions

    def _form(self, form: Form, inner: bool) -> str:
        """Return a form as text; digits that are no whole variables get names."""
        parts = []
        for digit, k in form.terms:
            text = self._digit(digit)
            parts.append(text if k == 1 else f"{text} * {k}")
        if form.const or not parts:
            parts.append(str(form.const))
        return " + ".join(parts).replace("+ -", "- ")

    def _digit(self, digit: Digit) -> str:
        base = digit.base
        if isinstance(base, Var) and digit.div == 1 and digit.size >= base.size:
            return self._variable(base)
        name = self.names.get(digit) or self.within.get(digit)
        if name is not None:
            return name
        inner = self.r is not None and self.r in _loops(base)
        text = self._variable(base) if isinstance(base, Var) else f"({self._form(base, inner)})"
        extent = base.size if isinstance(base, Var) else base.high + 1
        text += f" // {digit.div}" if digit.div > 1 else ""
        text += f" % {digit.size}" if digit.div * digit.size < extent else ""
        letter = base.name if isinstance(base, Var) and base.value is None else "i"
        name = self._fresh(f"{letter}{digit.div}_{digit.size}")
        self._remember(digit, name, inner)
        self._put(f"{name} = {text}", inner)
        return name

    def _variable(self, var: Var) -> str:
        return var.name if var.value is None else self._value(var.value)

    def _put(self, row: str, inner: bool) -> None:
        (self.inner if inner and self.inner is not None else self.outer).append(row)

    def _fresh(self, name: str) -> str:
        """Return `name`, or with a letter where another value has it."""
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name


def _address(buffer: Buffer, position: str) -> str:
    return buffer.name if position == "0" else f"{buffer.name} + {position}"


def _loops(base: Var | Form) -> frozenset[Var]:
    """Return the loop variables behind a digit."""
    variables: set[Var] = set()
    for var in base.vars() if isinstance(base, Form) else {base}:
        variables |= {var} if var.value is None else var.value.free
    return frozenset(variables)


def needed(roots: list[Expr]) -> set[Expr]:
    """Return the expressions that some are computed from, and those themselves."""
    reached: set[Expr] = set()
    stack = list(roots)
    while stack:
        e = stack.pop()
        if e not in reached:
            reached.add(e)
            stack += e.parts
    return reached


def _reduction(e: Expr) -> Expr:
    """Return the reduction that an expression is, or rounds."""
    return _reduction(e.args[0]) if e.op == "narrow" else e


def _far(kernel: Kernel) -> bool:
    """Return whether positions need 64 bits: of what is read and written, and of what is only counted, as in a slice of `arange`."""
    positions = [s.form for s in (*kernel.stores, *kernel.sweeps)]
    positions += [c.form for s in kernel.stores for c in s.guard]
    positions += [form for e in needed(kernel.roots) for form in forms(e.data)]
    return max(kernel.x.size, kernel.r.size if kernel.r else 0, *(form.reach for form in positions)) >= FAR


def buffers(kernel: Kernel) -> list[Buffer]:
    """Return what a kernel reads and writes, in the order of its parameters."""
    read = [e.data[0] for e in needed(kernel.roots + _positions(kernel)) if e.op == "load"]
    written = [s.buffer for s in (*kernel.stores, *kernel.sweeps)]
    return sorted(set(read) | set(written), key=lambda b: (("in", "tmp", "out").index(b.kind), b.number))


def checks(kernel: Kernel) -> bool:
    """Return whether a kernel stops the program where a loaded position is out of bounds."""
    return any(e.op == "checked" for e in needed(kernel.roots))


def _positions(kernel: Kernel) -> list[Expr]:
    return [v.value for s in kernel.stores for v in s.form.vars() if v.value is not None]


def _identity(op: str, dtype: DType) -> str:
    if op in ("sum", "prod"):
        return str(float(op == "prod")) if dtype.kind == "float" else str(int(op == "prod"))
    if op in ("any", "all"):
        return str(int(op == "all"))
    largest = op in ("amin", "argmin")
    if dtype.kind == "float":
        return f'float("{"inf" if largest else "-inf"}")'
    if dtype is bool_:
        return str(int(largest))
    bits = dtype.bytes * 8 - dtype.signed
    return str(2**bits - 1 if largest else -(2**bits) if dtype.signed else 0)


def _accumulated(op: str, acc: str, at: str, new: str, dtype: DType) -> list[str]:
    """Return how a block joins the lanes' own results."""
    if op in ("argmax", "argmin"):
        better = f"({new} {'>' if op == 'argmax' else '<'} {acc})"
        if dtype.kind == "float":
            better += f" | (({new} != {new}) & ({acc} == {acc}))"
        return [f"better = {better}", f"{acc} = tl.where(better, {new}, {acc})", f"{at} = tl.where(better, r, {at})"]
    joined = {"sum": "add", "prod": "mul", "amax": "maximum", "amin": "minimum", "any": "bitwise_or", "all": "bitwise_and"}[op]
    return [f"{acc} = {ops.text_of(joined, [acc, new], dtype, [None, None])}"]


def _finished(op: str, value: str, at: str, dtype: DType) -> str:
    """Return a block of lanes as one column."""
    if op == "sum":
        return f"tl.sum({value}, 1, keep_dims=True).to({ops.TRITON[dtype]})"
    if op in ("any", "all"):
        return f"(tl.{'max' if op == 'any' else 'min'}(({value}).to(tl.int32), 1, keep_dims=True) != 0)"
    if op in ("argmax", "argmin"):
        return f"native.reduce_{op}({value}, {at})"
    if dtype is bool_:
        return f"(native.reduce_{op}(({value}).to(tl.int8)) != 0)"
    return f"native.reduce_{op}({value})"


def _rounded(text: str, dtype: str) -> str:
    return f"native.to_bfloat16({text}).to(tl.float32)" if dtype == "bfloat16" else f"{text}.to(tl.float16).to(tl.float32)"


def _as_stored(text: str, dtype: DType, memory: DType) -> str:
    """Return a value as its memory holds it."""
    if memory is bfloat16:
        return f"native.to_bfloat16({text})"
    if memory is float16:
        return f"{text}.to(tl.float16)"
    return text if dtype is memory else f"{text}.to({ops.TRITON[memory]})"


def source(kernels: list[tuple[Kernel, str, bool]]) -> str:
    """Return a file with some kernels: each with its name, and whether it walks along its rows in blocks."""
    return "\n\n".join([HEADER, *(Writer(kernel, name, looped).text() for kernel, name, looped in kernels)])
