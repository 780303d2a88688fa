"""Measures speed: nanoseconds for each element on one thread, in the first-level cache, next to eager PyTorch: `python speed.py [NAME ...]`."""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable

import torch
from vmath_accuracy import BINARY

from dovetail_llvm_exec.ir import jit
from dovetail_llvm_exec.ir import module as ir
from dovetail_llvm_exec.ir.target import host
from dovetail_llvm_exec.ir.values import vector
from dovetail_llvm_exec.vmath import FUNCTIONS

COUNT, REPEATS, ROUNDS = 4096, 50, 15
DTYPES = {"float": torch.float32, "double": torch.float64}
RANGES = {"acosh": (1, 9), "atanh": (-0.9, 0.9), "asin": (-1, 1), "acos": (-1, 1), "log1p": (-0.5, 50), "pow": (0.1, 4), "sqrt": (0, 9)}
RANGES |= dict.fromkeys(("log", "log2", "log10"), (0.01, 50)) | {"rsqrt": (0.1, 9)}


def repeated(name: str, element: str) -> tuple[jit.Kernel, Callable[..., None]]:
    """Return a kernel that applies the function `REPEATS` times to arrays given by address."""
    target, arity = host(), 2 if name in BINARY else 1
    lanes = target.lanes(element)
    module = ir.Module(target)
    b = module.function("apply", "void", [(f"x{i}", "ptr") for i in range(arity + 1)])
    *inputs, out = b.params
    with ir.for_range(b, 0, REPEATS), ir.for_range(b, 0, COUNT, lanes) as i:
        xs = [b.load(vector(element, lanes), b.address(x, element, i)) for x in inputs]
        b.store(FUNCTIONS[name](b, *xs), b.address(out, element, i))
    b.ret()
    kernel = jit.Compiler().compile(module.text(), "apply")
    return kernel, ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (arity + 1))(kernel.address)


def measured(name: str, element: str) -> tuple[float, float]:
    """Nanoseconds for each element: ours, and eager PyTorch's."""
    low, high = RANGES.get(name, (-4, 4))
    xs = [torch.rand(COUNT, dtype=DTYPES[element]) * (high - low) + low for _ in range(2 if name in BINARY else 1)]
    out, eager = torch.empty_like(xs[0]), getattr(torch, name)
    _kernel, apply = repeated(name, element)
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        start = time.perf_counter()
        apply(*(x.data_ptr() for x in xs), out.data_ptr())
        middle = time.perf_counter()
        for _ in range(REPEATS):
            eager(*xs, out=out)
        times[0].append(middle - start)
        times[1].append(time.perf_counter() - middle)
    return tuple(min(each) / REPEATS / COUNT * 1e9 for each in times)


def main() -> None:
    torch.set_num_threads(1)
    for name in sys.argv[1:] or FUNCTIONS:
        times = [measured(name, element) for element in DTYPES]
        print(f"{name:12s}", *(f"{own:7.3f} ns, eager {eager:7.3f} ({eager / own:.1f}x)" for own, eager in times), flush=True)


if __name__ == "__main__":
    main()
