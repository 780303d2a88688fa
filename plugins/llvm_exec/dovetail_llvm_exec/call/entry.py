"""Whole calls as builtin functions: a prologue whose guards are checked in C, and kernels that run without Python in between."""

from __future__ import annotations

import ctypes
import operator
import struct
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import FunctionType
from typing import Any

import torch

from dovetail import prims
from dovetail.extend import BoundSymbol, Trace
from dovetail.extend.advanced import Proxy, Symbol, torch_internals
from dovetail.prims.sizes import Size, hint_of, is_symbolic
from dovetail.prims.spec import channels_last_steps, normal_strides
from dovetail_llvm_exec.call import versions
from dovetail_llvm_exec.call.builtin import compiled
from dovetail_llvm_exec.call.entry_ir import ANY, INSTRUCTIONS, EntryCode
from dovetail_llvm_exec.call.entry_sizes import SizePlan
from dovetail_llvm_exec.call.launch import SCALAR_TYPES
from dovetail_llvm_exec.call.settled import Check, SettledPlan

LARGE = 1 << 20  # bytes of values between kernels from which on the program releases them itself, one by one
MOST_CHECKS = 4096
CLASSES = (torch.Tensor, torch.nn.Parameter)
DTYPES = {**SCALAR_TYPES, torch.complex64: 9, torch.complex128: 10}
OPCODES = {instruction: i for i, instruction in enumerate(INSTRUCTIONS)}


class Declined(Exception):
    """The prologue has a line that only Python can check."""


def entry(prologue: Trace, computation: Trace | None, slow: Callable[[tuple, dict], Any], executor: str) -> Callable[[tuple, dict], Any] | None:
    """Return a builtin function that does what `slow`, the prologue, does; None where the prologue has lines that only Python can check.

    `computation` is all that the prologue runs, None where it runs more; where each of its lines is a region of `executor` they run
    one after the other, else the builtin calls what the prologue calls.
    """
    builtin = compiled(EntryCode)
    if builtin is None:
        return None
    try:
        plan = Plan(prologue)
    except Declined:
        return None
    if computation is not None:
        plan.inline(computation, executor)
    return builtin.function(plan.words(slow, builtin.offset), (slow, *plan.objects.values()))


class Plan(SizePlan, SettledPlan):
    """The instructions of one entry: checks, the slots of the inputs, and steps."""

    def __init__(self, prologue: Trace):
        SizePlan.__init__(self)
        SettledPlan.__init__(self)
        self.constants = dict(prologue.constants)
        self.positional, self.named = prologue.inputs
        self.objects: dict[int, Any] = {}  # the objects that the words point to, which have to live as long
        self.slots: dict[Any, int] = {}
        self.calls: dict[Any, Any] = {}  # the value that a function without arguments returns -> the function
        self.codes: dict[Any, FunctionType] = {}  # the code of a function -> the function
        self.rows: list[tuple[list[int], Check]] = []  # (row, the check that points to it)
        self.argument_count: int | None = None
        self.no_keywords = False
        self.owned = 0  # values that the call owns until it ends
        self.steps: list[tuple[Any, list[int], list[int]]] = []
        self.results: list[int] = []
        self.single = False
        for line in prologue.lines:
            self._line(line)
        if self.argument_count is None or not self.no_keywords or len(self.settled) + len(self.others) > MOST_CHECKS:
            raise Declined

    # --- objects and slots

    def pointer(self, value: Any) -> int:
        """Return the address of an object, which the entry keeps alive."""
        address = id(value)
        self.objects[address] = value
        return address

    def object(self, value: Any) -> Any:
        """Return the object that a constant of the prologue stands for."""
        return self.constants[value] if _is_proxy(value) and value in self.constants else value

    def slot(self, proxy: Any) -> int:
        """Return the slot of a value; a constant is loaded into one."""
        if proxy in self.constants:
            return self._loaded(self.constants[proxy])
        if proxy in self.codes:
            function = self.codes.pop(proxy)
            self.check(EntryCode.attribute, self.new(proxy), self._loaded(function), self.pointer("__code__"))
            self.owned += 1
        if proxy not in self.slots:
            raise Declined
        return self.recalled(proxy, EntryCode.keep, EntryCode.recall)

    def new(self, proxy: Any) -> int:
        """Return a slot for a value that the prologue reads."""
        return self.slots.setdefault(proxy, len(self.slots))

    def check(self, instruction: Callable[..., None], a: int = 0, x: int = 0, y: int = 0) -> None:
        """Append an instruction."""
        self.checks.append([OPCODES[instruction], a, x, y])

    def read(self, instruction: Callable[..., None], line: BoundSymbol, at: Any, key: Any) -> None:
        """Append an instruction that reads the output of a line from the value `at`."""
        parent = self.slot(at)
        self.check(instruction, self.new(line.out), parent, self.pointer(key))

    # --- lines of the prologue

    def _line(self, line: BoundSymbol) -> None:
        rule = RULES.get(line.symbol)
        if rule is None:
            raise Declined
        watched = self.watched_by(line)
        with self.part(watched):
            rule(self, line, *line.args, **{name: value for name, value in line.kwargs.items() if name != "miss"})
        if watched is not None and line.out is not None:
            self.settled_values.add(line.out)

    def item(self, line: BoundSymbol, at: Any, *, key: Any) -> None:
        """Read an argument, the item of a dict under a string, or an item of something else."""
        if at is self.positional:
            if type(key) is not int or self.argument_count is None or not 0 <= key < self.argument_count:
                raise Declined
            self.check(EntryCode.argument, self.new(line.out), key)
        elif type(key) is str and at is not self.named:
            self.read(EntryCode.dict_item, line, at, key)
        elif at is not self.named and type(key) in (int, str, bool):
            self.read(EntryCode.subscript, line, at, key)
            self.owned += 1
        else:
            raise Declined

    def attribute(self, line: BoundSymbol, at: Any, *, name: str) -> None:
        """Read an attribute, by whatever means its object has; the code of a function is checked where the function holds it."""
        owner = self.constants.get(at)
        if name == "__code__" and type(owner) is FunctionType and versions.code_offset() is not None:
            self.codes[line.out] = owner
            return
        self.read(EntryCode.attribute, line, at, name)
        self.owned += 1

    def convert(self, line: BoundSymbol, at: Any, *, convert: Any) -> None:
        """Convert a number to the tensor for it, or an array."""
        self.read(EntryCode.convert, line, at, self.object(convert))
        self.owned += 1

    def call(self, line: BoundSymbol, function: Any) -> None:
        """Remember the function: it is called where its result is checked."""
        self.calls[line.out] = self.object(function)

    def count(self, line: BoundSymbol, at: Any, *, length: int) -> None:
        """Check how many arguments the call has, or the length of a container."""
        if at is self.positional:
            if self.argument_count is not None and self.argument_count != length:
                raise Declined
            self.argument_count = length
        elif at is self.named:
            self.no_keywords = length == 0
        else:
            self.check(EntryCode.size, self.slot(at), length)

    def keys(self, line: BoundSymbol, at: Any, *, keys: tuple) -> None:
        """Check the keys of a dict, which are strings; the call itself has no keyword arguments."""
        keys = self.known(keys)
        if not keys:
            self.count(line, at, length=0)
        elif at is self.named or not all(key.__class__ is str for key in keys):
            raise Declined
        else:
            slot = self.slot(at)
            self.with_row(EntryCode.keys, slot, [len(keys), *map(self.pointer, keys)])

    def value(self, line: BoundSymbol, at: Any, *, value: Any, type: Any = None) -> None:
        """Check for the very object, which is equal; whether another one is, the slow path decides."""
        value = self.object(value)
        if at in self.calls:
            self._setting(self.calls[at], value)
        elif at in self.codes and not _is_proxy(value):
            self.check(EntryCode.holds_word, self.pointer(self.codes[at]) + versions.code_offset(), self.pointer(value))
        elif _is_proxy(value):
            raise Declined
        elif isinstance(value, Size):
            self.same_int(at, value)
        else:
            self.check(EntryCode.is_object, self.slot(at), self.pointer(value))

    def _setting(self, function: Any, value: Any) -> None:
        """Check what a function without arguments returns."""
        if function is torch.is_grad_enabled and type(value) is bool:
            self.check(EntryCode.grad_mode, int(value))
        elif function is torch_internals.any_autocast and value is False and (keys := torch_internals.autocast_keys()) is not None:
            self.check(EntryCode.no_autocast, ctypes.c_int64(keys).value)
        elif type(function) is type(len) and isinstance(value, (bool, torch.dtype, type(None))):
            self.check(EntryCode.call_returns, self.pointer(function), self.pointer(value))
        else:
            raise Declined

    def other(self, line: BoundSymbol, at: Any, *, value: Any) -> None:
        """Check for any other object."""
        self.check(EntryCode.is_other_object, self.slot(at), self.pointer(self.known(value)))

    def known(self, value: Any) -> Any:
        """Return an object that is known before the call."""
        value = self.object(value)
        if _is_proxy(value):
            raise Declined
        return value

    def kind(self, line: BoundSymbol, at: Any, *, type: Any) -> None:
        """Check for an object of exactly a type."""
        self.check(EntryCode.has_type, self.slot(at), self.pointer(self.known(type)))

    def truth(self, line: BoundSymbol, at: Any, *, value: bool) -> None:
        """Check whether a value, mostly a container, is true."""
        self.check(EntryCode.truth, self.slot(at), int(value))

    def answer(self, line: BoundSymbol, at: Any, *, other: Any, holds: Any, question: str) -> None:
        """Check what is asked of a number; of two, Python does."""
        if other is not None:
            raise Declined
        answer = self.new(("answer", question))
        self.check(EntryCode.convert, answer, self.slot(at), self.pointer(self.object(holds)))
        self.owned += 1
        self.check(EntryCode.is_object, answer, self.pointer(True))

    def contains(self, line: BoundSymbol, at: Any, *, key: Any, present: bool) -> None:
        """Check that a dict has a key, or has it not."""
        if type(key) is not str or at is self.named:
            raise Declined
        self.check(EntryCode.contains, self.slot(at), self.pointer(key), int(present))

    def empty(self, line: BoundSymbol, *, containers: Any) -> None:
        """Check that many containers are empty."""
        containers = self.known(containers)
        self.with_row(EntryCode.empty, 0, [len(containers), *map(self.pointer, containers)])

    def state(self, line: BoundSymbol, *, state: Any) -> None:
        """Read the state of modules, again where one of their dictionaries has another version."""
        state, values = self.object(state), line.out or ()
        function, objects, tables = _watched(state)
        total, last = ctypes.c_int64(0), [None]
        self.pointer(total)
        row = [self.pointer(function), ctypes.addressof(total), self.pointer(last), len(objects), len(tables), len(values)]
        for x in objects:
            row += [self.pointer(x), versions.place(x), self.pointer(type(x)), self.pointer(object.__getattribute__(x, "__dict__"))]
        row += map(self.pointer, tables)
        row += map(self.new, values)
        self.with_row(EntryCode.module_state, self.new(("state", id(state))), row)
        self.owned += 1

    def absent(self, line: BoundSymbol, *, containers: Any, keys: Any, contains: Any) -> None:
        """Check that many dicts each lack a key."""
        if self.known(contains) is not operator.contains:
            raise Declined
        for container, key in zip(self.known(containers), self.known(keys), strict=True):
            if type(container) is not dict or type(key) is not str:
                raise Declined
            self.check(EntryCode.contains, self._loaded(container), self.pointer(key), 0)

    def _loaded(self, value: Any) -> int:
        """Return a slot into which an object was loaded."""
        slot = self.new(("object", id(value)))
        if not self.is_filled(slot):
            self.check(EntryCode.load, slot, self.pointer(value))
        return slot

    def tensor(
        self, line: BoundSymbol, x: Any, *, type: Any, dtype: Any, shape: tuple, device: Any, requires_grad: bool, strides: tuple | None
    ) -> None:
        """Check a tensor on the CPU, of a class of torch's own."""
        kind, dtype, device = self.known(type), self.known(dtype), self.known(device)
        steps = _row_major(shape) if strides is None else strides
        if kind not in CLASSES or dtype not in DTYPES or device is not None or not all(n.__class__ in (int, Size) for n in (*shape, *steps)):
            raise Declined
        layout = [*shape, *(steps if _tells_format(shape, steps) else _of_large(shape, steps))]
        row, slot = [self.pointer(kind), DTYPES[dtype], int(requires_grad), len(shape)], self.slot(x)
        if is_symbolic(layout):
            self.with_row(EntryCode.sized_tensor, slot, [*row, *[word for n in layout for word in self.pair(n)]])
        else:
            self.with_row(EntryCode.tensor, slot, [*row, *layout])

    def tensors(self, line: BoundSymbol, *tensors: Any, fit: Any, missed: Any) -> None:
        """Check many tensors one by one."""
        if not line.body:
            raise Declined
        for inner in line.body:
            self._line(inner)

    def modes(self, line: BoundSymbol, *, active: Any) -> None:
        """Check that there is no mode of torch's, no transform, no level of forward-mode differentiation."""
        keys = torch_internals.mode_keys()
        if self.object(active) is not torch_internals.active_mode or keys is None:
            raise Declined
        self.check(EntryCode.no_modes, *keys)
        level, module = self.new(("level", id(line))), torch_internals.FORWARD_AD
        with self.part([module] if versions.are_known() else None):
            self.check(EntryCode.dict_item, level, self._loaded(module), self.pointer(torch_internals.LEVEL))
            self.check(EntryCode.is_object, level, self.pointer(torch_internals.NO_LEVEL))

    def distinct(self, line: BoundSymbol, *tensors: Any) -> None:
        """Check that no two are the same object."""
        if len(tensors) > 8:
            raise Declined
        slots = [self.slot(x) for x in tensors]
        for i, a in enumerate(slots):
            for b in slots[:i]:
                self.check(EntryCode.distinct, a, b)

    def disjoint(self, line: BoundSymbol, written: tuple, others: tuple, *buffers: Any, overlap: Any) -> None:
        """Check that tensors which the program writes share no memory with others: a function of Python's does, of all of them."""
        if buffers:
            raise Declined
        slots, tensors, apart = [self.slot(x) for x in (*written, *others)], self.new(("tensors", id(line))), self.new(("apart", id(line)))
        self.with_row(EntryCode.pack, tensors, [len(slots), *slots])
        self.check(EntryCode.convert, apart, tensors, self.pointer(partial(_are_apart, self.object(overlap), len(written))))
        self.owned += 2
        self.check(EntryCode.is_object, apart, self.pointer(True))

    def program(self, line: BoundSymbol, program: Any, *inputs: Any, objects: tuple = ()) -> None:
        """Take the program that the prologue ends in."""
        if objects:
            raise Declined
        self.callee, self.inputs = self.object(program), [self.slot(p) for p in inputs]

    # --- what runs

    def inline(self, computation: Trace, executor: str) -> None:
        """Run the regions of `computation` one after the other, if that is all there is."""
        single, outputs = _is_proxy(computation.outputs), computation.outputs
        outputs = [outputs] if single else outputs
        lines = [line for line in computation.lines if line.symbol is not prims.delete]
        ours = all(line.implementation is not None and line.implementation.executor == executor and not line.kwargs for line in lines)
        flat = type(outputs) in (list, tuple) and (single or type(outputs) is tuple) and all(map(_is_proxy, outputs))
        if not (ours and flat and lines) or len(computation.inputs) != len(self.inputs):
            return
        shown = set(outputs)
        if sum(hint_of(p.spec.numel) * p.spec.dtype.bytes for line in lines for p in line.writes if p not in shown) > LARGE:
            return
        slots = dict(zip(computation.inputs, self.inputs, strict=True))
        for proxy, value in computation.constants.items():
            slots[proxy] = self._loaded(value)
        for line in lines:
            for p in line.writes:
                self.slots[p] = slots[p] = len(self.slots)
            self.steps.append((line.implementation.fn, [slots[p] for p in line.args], [slots[p] for p in line.writes]))
        self.results, self.single = [slots[p] for p in outputs], single

    def words(self, slow: Any, offset: int) -> bytes:
        """Return the payload of the builtin."""
        checks, seen = self.settled + self.others, ctypes.c_int64(0)
        self.pointer(seen)
        start = len(EntryCode.fields) + 4 * len(checks)
        body = list(self.inputs)
        step_row = start + len(body)
        for fn, inputs, outputs in self.steps:
            body += [self.pointer(fn), len(inputs), len(outputs), *inputs, *outputs]
        result_row = start + len(body)
        body += self.results
        watched = start + len(body)
        body += map(self.pointer, (*self.tables.values(), *self.classes.values()))
        for row, check in self.rows:
            check[2] = start + len(body)
            body += row
        fields = {"slow": id(slow), "slots": len(self.slots), "checks": len(checks), "arguments": self.argument_count, "inputs": len(self.inputs)}
        fields |= {"steps": len(self.steps), "step_row": step_row, "program": self.pointer(self.callee), "results": len(self.results)}
        fields |= {"result_row": result_row, "single": int(self.single), "offset": offset, "dict_type": id(dict), "tuple_type": id(tuple)}
        fields |= {"owned": self.owned, "version": versions.VERSION, "registers": len(self.registers)}
        fields |= {"settled": len(self.settled), "seen": ctypes.addressof(seen), "watched": watched}
        fields |= {"watched_tables": len(self.tables), "watched_classes": len(self.classes), "tag": versions.tag_offset() or 0}
        packed = [fields[name] for name in EntryCode.fields] + [word for check in checks for word in check] + body
        return struct.pack(f"{len(packed)}q", *packed)


def _are_apart(overlap: Callable[[tuple, tuple], bool], count: int, tensors: tuple) -> bool:
    """Return whether the first `count` tensors share no memory with each other and with the rest."""
    return not overlap(tensors[:count], tensors[count:])


def _watched(state: Callable[[], Any]) -> tuple[Callable[[], Any], Sequence[Any], Sequence[dict]]:
    """Return the function that reads a state, and the objects and dictionaries that it depends on: none where their versions cannot be read."""
    program, objects, tables = (getattr(state, name, None) for name in ("program", "objects", "tables"))
    known = callable(program) and type(objects) is tuple and type(tables) is tuple and versions.are_known()
    if not known or None in map(versions.place, objects) or not all([type(table) is dict for table in tables]):
        return state, (), ()
    return program, objects, tables


def _is_proxy(value: Any) -> bool:
    """Return whether a value stands for one that the program reads or computes."""
    return isinstance(value, Proxy)


def _tells_format(shape: tuple, steps: Sequence[int]) -> bool:
    """Return whether the strides of sizes of 1 decide on the memory format, as the others put channels innermost."""
    sizes, strides = tuple(map(hint_of, shape)), tuple(map(hint_of, steps))
    return normal_strides(sizes, strides) is not None and channels_last_steps(sizes, strides) is not None


def _of_large(shape: tuple, steps: Sequence[int]) -> list[int]:
    """Return the strides of sizes above 1, and ANY for those of 1."""
    return [ANY if n.__class__ is int and n == 1 else step for n, step in zip(shape, steps, strict=True)]


def _row_major(shape: Iterable[int]) -> list[int]:
    """Return the strides of a row-major tensor."""
    steps, step = [], 1
    for n in reversed(list(shape)):
        steps.append(step)
        step *= n if type(n) is Size else max(n, 1)  # where a size is 0 the slow path checks strides
    return steps[::-1]


RULES: dict[Symbol, Callable[..., None]] = {
    prims.unpack_item: Plan.item,
    prims.unpack_attr: Plan.attribute,
    prims.unpack_call: Plan.call,
    prims.unpack_array: Plan.convert,
    prims.unpack_state: Plan.state,
    prims.check_count: Plan.count,
    prims.check_keys: Plan.keys,
    prims.check_value: Plan.value,
    prims.check_identity: Plan.value,
    prims.check_other: Plan.other,
    prims.check_type: Plan.kind,
    prims.check_truth: Plan.truth,
    prims.check_answer: Plan.answer,
    prims.check_contains: Plan.contains,
    prims.check_empty: Plan.empty,
    prims.check_absent: Plan.absent,
    prims.check_tensor: Plan.tensor,
    prims.check_tensors: Plan.tensors,
    prims.check_rank: Plan.rank,
    prims.check_sizes: Plan.condition,
    prims.size: Plan.size,
    prims.check_distinct: Plan.distinct,
    prims.check_disjoint: Plan.disjoint,
    prims.check_modes: Plan.modes,
    prims.call_program: Plan.program,
}
