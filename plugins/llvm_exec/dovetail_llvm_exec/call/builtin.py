"""What the two builtin functions that are compiled have in common: how they are written, and how they become functions of Python.

A builtin's `self` is a bytes object of 64-bit words.  Everything that differs between processes is in it, so the object code can be kept.
A call that is not as expected is handed over to a Python function, `slow`, which is right everywhere.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, ClassVar

import torch

from dovetail_llvm_exec.ir import jit
from dovetail_llvm_exec.ir.module import Module
from dovetail_llvm_exec.ir.target import Target
from dovetail_llvm_exec.ir.values import Value

METH_FASTCALL = 0x80
PAYLOAD = bytes.__basicsize__ - 1  # where a bytes object holds its bytes, which a zero follows
NULL = Value("null", "ptr")


class Builtin:
    """Writes a builtin, as IR.  A subclass gives its `name`, names its first `fields`, and the `symbols` of torch's that it calls."""

    name: ClassVar[str]
    fields: ClassVar[tuple[str, ...]]
    symbols: ClassVar[tuple[str, ...]]

    def __init__(self, target: Target, payload: int = PAYLOAD):
        self.module = Module(target)
        self.b = b = self.module.function(self.name, "ptr", [("self", "ptr"), ("args", "ptr"), ("count", "i64")])
        this, self.args, self.count = b.params
        self.words = b.address(this, "i8", payload)
        self.slow = b.label("slow")

    def body(self) -> None:
        """Write everything up to the block `slow`, and that."""
        raise NotImplementedError

    def text(self) -> str:
        """Return the module."""
        self.body()
        return self.module.text()

    def field(self, name: str, type: str = "i64") -> Value:
        """Return a word of `self` by its name."""
        return self.word(self.fields.index(name), type)

    def word(self, number: Value | int, type: str = "i64") -> Value:
        """Return a word of `self`."""
        return self.b.load(type, self.b.address(self.words, "i64", number), align=8)

    def pointers(self, count: Value) -> Value:
        """Allocate so many pointers; at least one."""
        return self.b.emit("ptr", f"alloca ptr, {self.b.add(count, 1)}, align 16")

    def kind(self, object: Value) -> Value:
        """Return the type of an object, as a number."""
        return self.b.load("i64", self.b.address(object, "i64", 1), align=8)

    def holds(self, function: str, *operands: Value) -> Value:
        """Return what a function of C++ that gives a bool says: of its byte only one bit counts."""
        return self.b.compare("ne", self.b.and_(self.b.call(function, "i8", *operands), 1), 0)

    def vectorcall(self, function: Value, args: Value, count: Value) -> Value:
        """Return the result of a Python function."""
        return self.b.call("PyObject_Vectorcall", "ptr", function, args, count, NULL)

    def require(self, condition: Value) -> None:
        """Go on where the condition holds; else the call is for the slow way."""
        on = self.b.label("on")
        self.b.jump_if(condition, on, self.slow)
        self.b.place(on)

    def hand_over(self) -> None:
        """Return what the slow way gives."""
        self.b.ret(self.vectorcall(self.field("slow", "ptr"), self.args, self.count))


class MethodDef(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = [("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p)]


class Compiled:
    """A builtin, compiled; `offset` is where tensors hold their handle."""

    def __init__(self, name: str, kernel: jit.Kernel, offset: int):
        self.kernel, self.offset = kernel, offset
        self.method = MethodDef(name.encode(), kernel.address, METH_FASTCALL, None)

    def function(self, payload: bytes, kept: Sequence[Any]) -> Callable | None:
        """Return the builtin with `payload` as its `self`, and what the words in it point to; None where these do not lie as expected."""
        if ctypes.string_at(id(payload) + PAYLOAD, len(payload)) != bytes(payload):
            return None
        new = ctypes.pythonapi.PyCFunction_NewEx
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.py_object]
        return new(ctypes.addressof(self.method), payload, (self, *kept))


@cache
def compiled(written: type[Builtin]) -> Compiled | None:
    """Return a builtin for this process; None where it lacks what the code needs."""
    offset, symbols = handle_offset(), addresses(written.symbols)
    if offset is None or symbols is None or not hasattr(ctypes.pythonapi, "PyObject_Vectorcall"):
        return None
    compiler = jit.compiler()
    for name, address in symbols.items():
        compiler.provide(name, address)
    return Compiled(written.name, compiler.compile(written(compiler.target).text(), written.name), offset)


def addresses(names: Sequence[str]) -> dict[str, int] | None:
    """Return the addresses of torch's functions; None where one is missing."""
    symbol_addresses: dict[str, int] = {}
    for name in names:
        for library in _libraries():
            try:
                symbol_addresses[name] = ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
                break
            except AttributeError:
                continue
        else:
            return None
    return symbol_addresses


@cache
def _libraries() -> tuple[ctypes.CDLL, ...]:
    folder = torch.__path__[0] + "/lib/"
    libraries = []
    for name in ("libc10.so", "libtorch_cpu.so", "libtorch_python.so"):
        try:
            libraries.append(ctypes.CDLL(folder + name))
        except OSError:
            continue
    return tuple(libraries)


def handle_offset() -> int | None:
    """Return where a tensor object holds its at::Tensor: the one word equal to `_cdata`, in tensors of several kinds; None when that is unclear."""
    kinds = (torch.zeros(3), torch.ones(2, 2, dtype=torch.int64)[1:], torch.nn.Parameter(torch.zeros(5)), torch.tensor(1.0), torch.zeros(4, 4).t())
    offsets = set()
    for x in kinds:
        words = ctypes.string_at(id(x), torch.Tensor.__basicsize__)
        hits = [at for at in range(0, len(words) - 7, 8) if struct.unpack_from("Q", words, at)[0] == x._cdata]
        if len(hits) != 1:
            return None
        offsets.update(hits)
    return offsets.pop() if len(offsets) == 1 else None
