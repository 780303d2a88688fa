"""Runs one function over whole arrays, for tests, scripts and the curious: no fusion, no threads, one vector at a time."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from functools import cache

import llvmlite.binding as llvm
import numpy as np

from dovetail_llvm_exec.ir import jit
from dovetail_llvm_exec.ir import module as ir
from dovetail_llvm_exec.ir.target import Target, host
from dovetail_llvm_exec.ir.values import Value, vector

Function = Callable[..., Value]


def loop(target: Target, function: Function, arity: int, element: str, lanes: int) -> str:
    """Return the IR of `apply(x0, ..., out, n)`: out[i] = function(x0[i], ...) for i below n, which the number of lanes divides."""
    type = vector(element, lanes)
    module = ir.Module(target)
    b = module.function("apply", "void", [*((f"x{i}", "ptr") for i in range(arity)), ("out", "ptr"), ("n", "i64")])
    *inputs, out, n = b.params
    with ir.for_range(b, 0, n, lanes) as i:
        b.store(function(b, *(b.load(type, b.address(x, element, i)) for x in inputs)), b.address(out, element, i))
    b.ret()
    return module.text()


class Evaluator:
    """One function, compiled for this machine.  `lanes` is the vector's width, 1 the scalar form; `target` may use less than the machine has."""

    def __init__(self, function: Function, arity: int, element: str, *, lanes: int | None = None, target: Target | None = None):
        target = target or host()
        self.lanes = lanes or target.lanes(element)
        self.kernel = _compiler(target).compile(loop(target, function, arity, element, self.lanes), "apply")
        self._call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (arity + 1), ctypes.c_int64)(self.kernel.address)

    def __call__(self, *arrays: np.ndarray) -> np.ndarray:
        """Return the function's values for arrays of one size, of the format it was compiled for."""
        size = arrays[0].size
        padded = [np.ascontiguousarray(np.pad(array.ravel(), (0, -size % self.lanes))) for array in arrays]
        out = np.empty_like(padded[0])
        self._call(*(array.ctypes.data for array in padded), out.ctypes.data, out.size)
        return out[:size].reshape(arrays[0].shape)


@cache
def _compiler(target: Target) -> jit.Compiler:
    return jit.Compiler(target)


def assembly(target: Target, function: Function, arity: int, element: str) -> str:
    """Return the assembly of the loop for any machine."""
    module = llvm.parse_assembly(loop(target, function, arity, element, target.lanes(element)))
    module.verify()
    return target.machine(jit=False).emit_assembly(module)


def calls(assembly: str) -> list[str]:
    """Return the functions that assembly for x86-64 or aarch64 calls by name, each once."""
    callees = re.findall(r"^\s+(?:callq?|bl|jmp|b)\s+([A-Za-z_][\w$.]*)", assembly, re.MULTILINE)
    return sorted({name for name in callees if not name.startswith("L")})
