"""Loop nests without their numbers: equal ones are compiled once, and compute what they computed with them."""

from __future__ import annotations

import ctypes
import functools

import pytest
import torch
import torch.nn.functional as F

import dovetail
from dovetail_llvm_exec.ir import jit
from dovetail_llvm_exec.ir.lift import FEW_UNITS, lifted
from dovetail_llvm_exec.ir.module import Module
from dovetail_llvm_exec.ir.target import host


@pytest.fixture
def written(monkeypatch):
    """The modules that are compiled, by a compiler that knows none yet."""
    texts, emit = [], jit.Compiler._object
    monkeypatch.setattr(jit, "compiler", functools.cache(lambda: jit.Compiler(folder=None)))
    monkeypatch.setattr(jit.Compiler, "_object", lambda self, text, draft: texts.append(text) or emit(self, text, draft))
    return texts


PROGRAMS = {
    "pointwise": (lambda x, w: torch.relu(x * w[:, None, None]) + 1, lambda n, m: (torch.randn(4, n, m, m), torch.randn(n))),
    "rows": (lambda x, w: F.layer_norm(x, x.shape[-1:], w), lambda n, m: (torch.randn(m, 16 * n), torch.randn(16 * n))),
    "columns": (lambda x, w: (x * w).sum(0), lambda n, m: (torch.randn(40 * m, 16 * n), torch.randn(16 * n))),
    "a transposition": (lambda x, w: x.permute(0, 2, 1) * w, lambda n, m: (torch.randn(3, 16 * n, 16 * m), torch.randn(16 * n))),
}


@pytest.mark.parametrize("symbol", [False, True], ids=["known sizes", "a symbol"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_other_sizes_are_compiled_once(name, symbol, written):
    fn, inputs = PROGRAMS[name]
    counts = []
    for n, m in ((12, 6), (20, 10)):
        args = inputs(n, m)
        if symbol:
            dovetail.mark_dynamic(args[0], 0)
        torch.testing.assert_close(dovetail.jit(fn, dynamic=False)(*args), fn(*args))
        counts.append(len([text for text in written if "@nest(" in text]))
    assert counts[0] > 0
    assert counts[1] == counts[0]


def split(by: int, units: int | None, numbers: list[int]) -> list[tuple[int, int]]:
    """The quotients and remainders of numbers of units, as a lifted function computes them."""
    module = Module(host())
    b = module.function("f", "void", [("args", "ptr"), ("lo", "i64"), ("hi", "i64")])
    for place, value in enumerate(b.split_unit(b.params[1], by)):
        b.store(value, b.address(b.params[0], "i64", place))
    b.ret()
    function = lifted(b, units)
    assert "udiv" not in function.text
    kernel = jit.Compiler(folder=None).compile(function.text, "nest")
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p, ctypes.c_int64] * 2)(kernel.address)
    table, out, results = (ctypes.c_int64 * 8)(*function.numbers), (ctypes.c_int64 * 2)(), []
    for number in numbers:
        call(ctypes.addressof(out), number, 0, ctypes.cast(table, ctypes.c_void_p).value)
        results.append((out[0], out[1]))
    return results


@pytest.mark.parametrize("by", [3, 4, 7, 48, 1000, 4096, 99_991, (1 << 31) - 1, 1 << 30])
def test_the_number_of_a_unit_is_divided_exactly(by):
    units = FEW_UNITS - 1
    near = {k * by + d for k in (0, 1, 2, 17, units // by - 1, units // by) for d in (-1, 0, 1)} | {0, 1, units - 1, units // 2}
    numbers = sorted(n for n in near if 0 <= n < units)
    assert split(by, units, numbers) == [divmod(n, by) for n in numbers]


@pytest.mark.parametrize("by", [3, 7, 48, 4096, 99_991, (1 << 31) - 1, (1 << 40) - 87, (1 << 62) - 57])
@pytest.mark.parametrize("units", [FEW_UNITS, None])
def test_so_is_one_of_more_units(by, units):
    top = (1 << 63) - 1
    near = {k * by + d for k in (0, 1, 2, 17, top // by - 1, top // by) for d in (-1, 0, 1)} | {0, 1, top, top - 1, top // 2}
    numbers = sorted(n for n in near if 0 <= n <= top)
    assert split(by, units, numbers) == [divmod(n, by) for n in numbers]


def test_a_kernel_keeps_its_own_numbers(written):
    kernels = [dovetail.jit(lambda x, n=n: x[n:, None] * 2.0 + x[None, :-n], dynamic=False) for n in (3, 5, 9)]
    x = torch.randn(50)
    for _ in range(2):
        for n, kernel in zip((3, 5, 9), kernels, strict=True):
            torch.testing.assert_close(kernel(x), x[n:, None] * 2.0 + x[None, :-n])
