"""What a machine does well: the one file that names processors and their features.

Everything else asks a `Target` ("is a fused multiply-add one instruction?") and writes IR that is right either way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from dovetail_llvm_exec.ir.values import Value, bits_of

LEVELS: dict[str, tuple[str, ...]] = {  # what is known of processors that are asked for by name
    "neoverse-v1": ("sve", "bf16"),
    "x86-64": ("sse2",),
    "x86-64-v2": ("sse2", "sse4.1", "sse4.2"),
    "x86-64-v3": ("sse2", "sse4.1", "sse4.2", "avx", "avx2", "fma", "f16c"),
    "x86-64-v4": ("sse2", "sse4.1", "sse4.2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512dq", "avx512vl", "avx512bw", "avx512cd"),
}

SCALING = {  # instructions that scale by a power of two, and the type of their masks
    **{"<16 x float>": ("llvm.x86.avx512.mask.scalef.ps.512", "i16"), "<8 x double>": ("llvm.x86.avx512.mask.scalef.pd.512", "i8")},
    **{"<8 x float>": ("llvm.x86.avx512.mask.scalef.ps.256", "i8"), "<4 x double>": ("llvm.x86.avx512.mask.scalef.pd.256", "i8")},
    **{"<4 x float>": ("llvm.x86.avx512.mask.scalef.ps.128", "i8"), "<2 x double>": ("llvm.x86.avx512.mask.scalef.pd.128", "i8")},
}
ZEN = "znver"  # processors whose gather instructions are slower than a load for each lane
ESTIMATES = 'nounwind "reciprocal-estimates"="vec-divf:1"'  # divisions that are flagged so begin with an estimate


@dataclass(frozen=True)
class Target:
    """A machine to compile for, and what is cheap on it.

    `vector_bytes` is the widest vector worth using.  The others say what is one instruction, or nearly.  `fma`: a fused multiply-add.  `masked`:
    a masked load or store.  `gather`: a load from many addresses.  `ldexp`: scaling by a power of two.  `rounding`: rounding to an integer.
    `long_lanes`: a shift of int64 with its sign, and converting it to float64.  `half`, `bfloat`: rounding float32 to them, denormal numbers
    included (what x86 has for bfloat16 takes those for 0).
    """

    triple: str
    cpu: str
    features: str
    vector_bytes: int
    fma: bool
    masked: bool
    gather: bool
    ldexp: bool
    rounding: bool
    long_lanes: bool
    half: bool
    bfloat: bool
    quick_bfloat: bool = False  # rounding to bfloat16 is one instruction, which takes denormal numbers for 0
    estimated: str = ""  # the vector type that 1 / y can be estimated of to 14 digits or more
    attributes: str = "nounwind"  # of every function

    @property
    def clock(self) -> bool:
        """Whether a program may read the processor's clock; on ARM the kernel of the system forbids it."""
        return self.triple.startswith("x86_64")

    def lanes(self, element: str) -> int:
        """Return how many elements of an LLVM type ("float") fill a vector."""
        return max(self.vector_bytes * 8 // bits_of(element), 1)

    def scaled(self, b: Any, y: Any, n: Any) -> Any:
        """y * 2**n, rounded once, of whole numbers n as floats; None where that is not one instruction."""
        name, kind = SCALING.get(y.type, ("", ""))
        if not self.ldexp or not name:
            return None
        wide = (Value("4", "i32"),) if name.endswith("512") else ()  # round as usual
        return b.call(name, y.type, y, n, b.zero(y.type), Value("-1", kind), *wide)

    def denormal(self, b: Any, x: Any) -> Any:
        """Return the lanes that hold denormal numbers."""
        if self.ldexp and x.type == "<16 x float>":
            return b.call("llvm.x86.avx512.fpclass.ps.512", "<16 x i1>", x, Value("32", "i32"))
        return b.compare("lt", b.sub(b.bits(b.abs(x)), 1), 0x7FFFFF, unsigned=True)

    def machine(self, *, optimization: int = 2, jit: bool = True) -> llvm.TargetMachine:
        """Return LLVM's code generator for this machine."""
        target = llvm.Target.from_triple(self.triple)
        if jit:
            return target.create_target_machine(cpu=self.cpu, features=self.features, opt=optimization, jit=True)
        return target.create_target_machine(cpu=self.cpu, features=self.features, opt=optimization, codemodel="default")


def describe(triple: str, cpu: str, features: str, has: Mapping[str, bool]) -> Target:
    """Return a target from its features by name."""

    def on(*names: str) -> bool:
        return all([has.get(name, False) for name in names])

    if triple.startswith(("aarch64", "arm64")):
        known = {"fma": True, "masked": on("sve"), "gather": False, "ldexp": False, "rounding": True, "long_lanes": True}
        return Target(triple, cpu, features, 16, half=True, bfloat=on("bf16"), **known)
    if triple.startswith("x86_64"):
        width = 64 if on("avx512f") else 32 if on("avx2") else 16
        wide = on("avx512f", "avx512dq", "avx512vl", "avx512bw")
        known = {"fma": on("fma") or wide, "masked": on("avx2"), "gather": on("avx2"), "ldexp": wide, "rounding": on("sse4.1"), "long_lanes": wide}
        quick = {"estimated": "<16 x float>", "attributes": ESTIMATES} if wide else {}
        return Target(triple, cpu, features, width, half=on("f16c"), bfloat=False, quick_bfloat=on("avx512bf16", "avx512vl"), **known, **quick)
    return Target(triple, cpu, features, 16, *(False,) * 8)  # slow perhaps, and right


@cache
def host() -> Target:
    """Return the machine this runs on."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    has, cpu = llvm.get_host_cpu_features(), llvm.get_host_cpu_name()
    features = has.flatten() + (",+prefer-no-gather" if cpu.startswith(ZEN) else "")
    return describe(llvm.get_process_triple(), cpu, features, has)


@cache
def named(triple: str, cpu: str, features: str = "") -> Target:
    """Return a machine other than this one, to inspect its code: named("aarch64-linux-gnu", "neoverse-n1")."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    has = dict.fromkeys(LEVELS.get(cpu, ()), True)
    has |= {word[1:]: word[0] == "+" for word in features.split(",") if word}
    return describe(triple, cpu, features, has)
