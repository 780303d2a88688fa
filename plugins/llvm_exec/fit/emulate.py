"""Runs the functions on an emulated aarch64 and measures their accuracy there: `python emulate.py [CPU]`, neoverse-n1 where none is named.

Wants qemu-aarch64 and aarch64-linux-gnu-gcc on the PATH (Debian: qemu-user, gcc-aarch64-linux-gnu, libc6-dev-arm64-cross).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
from vmath_accuracy import BINARY, DTYPES, points, worst
from vmath_evaluate import loop

from dovetail_llvm_exec.ir.target import Target, named
from dovetail_llvm_exec.vmath import FUNCTIONS

COUNTS = {"float": 200_000, "double": 40_000}
MAIN = """#include <stdio.h>
#include <stdlib.h>
void apply(%(pointers)s, long);
int main(int argc, char **argv) {
    long n = atol(argv[1]);
    char *x[%(arrays)d];
    for (int i = 0; i < %(arrays)d; i++) x[i] = malloc(n * %(size)d);
    for (int i = 0; i + 1 < %(arrays)d; i++) fread(x[i], %(size)d, n, stdin);
    apply(%(arguments)s, n);
    fwrite(x[%(arrays)d - 1], %(size)d, n, stdout);
    return 0;
}
"""


class Emulated:
    """One function as a program for aarch64."""

    def __init__(self, target: Target, name: str, element: str, folder: Path):
        arrays = 3 if name in BINARY else 2
        self.lanes, self.program = target.lanes(element), folder / f"{name}_{element}"
        object_file = self.program.with_suffix(".o")
        object_file.write_bytes(
            target.machine(jit=False).emit_object(llvm.parse_assembly(loop(target, FUNCTIONS[name], arrays - 1, element, self.lanes)))
        )
        arguments = ", ".join(f"x[{i}]" for i in range(arrays))
        size = np.dtype(DTYPES[element]).itemsize
        source = self.program.with_suffix(".c")
        source.write_text(MAIN % {"pointers": ", ".join(["void *"] * arrays), "arrays": arrays, "size": size, "arguments": arguments})
        subprocess.run(["aarch64-linux-gnu-gcc", "-w", "-static", source, object_file, "-o", self.program], check=True)

    def __call__(self, *arrays: np.ndarray) -> np.ndarray:
        """Return the function's values."""
        size = arrays[0].size
        padded = [np.pad(array.ravel(), (0, -size % self.lanes)) for array in arrays]
        command = ["qemu-aarch64", "-cpu", "max", self.program, str(padded[0].size)]
        done = subprocess.run(command, input=b"".join(array.tobytes() for array in padded), capture_output=True, check=True)
        return np.frombuffer(done.stdout, dtype=arrays[0].dtype)[:size].copy()


def main() -> None:
    target = named("aarch64-linux-gnu", sys.argv[1] if len(sys.argv) > 1 else "neoverse-n1")
    with tempfile.TemporaryDirectory() as folder:
        for element in DTYPES:
            for name in FUNCTIONS:
                count = COUNTS[element] // (20 if element == "double" and name in ("erf", "erfc") else 1)
                error, where = worst(Emulated(target, name, element, Path(folder)), name, points(name, element, count))
                print(f"{name:12s} {element:7s} {error:9.3f} ulp at {where}", flush=True)


if __name__ == "__main__":
    main()
