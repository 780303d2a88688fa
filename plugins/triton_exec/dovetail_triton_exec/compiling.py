"""Kernels compiled without a GPU: triton brings its own assembler, which says how many registers a kernel takes and whether any spill."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from dovetail.dtypes import DType
from dovetail_triton_exec.exprs import Buffer
from dovetail_triton_exec.regions import Launch, Region

POINTERS = {
    **{"bool_": "*i1", "uint8": "*u8", "int8": "*i8", "int16": "*i16", "int32": "*i32", "int64": "*i64"},
    **{"float16": "*fp16", "bfloat16": "*bf16", "float32": "*fp32", "float64": "*fp64"},
}
REGISTERS = 65536  # of a multiprocessor; a program's threads have to share them


class Resources(NamedTuple):
    """What a compiled kernel takes: registers of each thread, bytes of stack, which are spills, bytes of shared memory, and its warps."""

    name: str
    registers: int
    stack: int
    shared: int
    warps: int

    @property
    def fits(self) -> bool:
        """Whether nothing spills and one program's threads find their registers."""
        return self.stack == 0 and self.registers * 32 * self.warps <= REGISTERS


def resources(region: Region, capability: int = 90) -> list[Resources]:
    """Return each kernel of a region compiled for a capability (90 is H100 and H200, 80 is A100), not in the interpreter."""
    return [_resources(kernel, launch, capability) for launch, kernel in zip(region.launches, region.kernels(), strict=True)]


def _resources(kernel: Any, launch: Launch, capability: int) -> Resources:
    sizes = {"XB": launch.tile.x} | ({} if launch.kernel.r is None else {"RB": launch.tile.r})
    binary = compiled(kernel, signature(launch.buffers), sizes, capability, launch.tile.warps)
    return Resources(launch.name, *usage(binary.asm["cubin"]), binary.metadata.shared, launch.tile.warps)


def signature(buffers: Iterable[Buffer]) -> dict[str, str]:
    """Return what triton calls the types of a kernel's parameters."""
    return {b.name: pointer(b.dtype) for b in buffers}


def pointer(dtype: DType) -> str:
    """Return what triton calls a pointer to elements of `dtype`."""
    return POINTERS[dtype.name]


def compiled(kernel: Any, types: dict[str, str], constants: dict[str, Any], capability: int, warps: int) -> Any:
    """Return a kernel compiled for a device that need not be here; pointers are multiples of 16, as PyTorch's allocator gives them."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    params = kernel.arg_names
    full = {name: types.get(name, "constexpr") for name in params}
    aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(params) if full[name].startswith("*")}
    source = ASTSource(fn=kernel, signature=full, constexprs=constants, attrs=aligned)
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": warps, "sanitize_overflow": False})


def usage(cubin: bytes) -> tuple[int, int]:
    """Parse registers and bytes of stack from the assembler's own report."""
    from triton import knobs

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin)
        message = subprocess.run([knobs.nvidia.cuobjdump.path, "--dump-resource-usage", str(path)], capture_output=True, text=True, check=True).stdout
    match = re.search(r"REG:(\d+) STACK:(\d+)", message)
    return int(match[1]), int(match[2])
