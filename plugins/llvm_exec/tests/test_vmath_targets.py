"""What the functions become on other machines: vector code throughout, and never a call of libm."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from vmath_accuracy import BINARY
from vmath_evaluate import assembly, calls

from dovetail_llvm_exec.ir import module as ir
from dovetail_llvm_exec.ir.target import host, named
from dovetail_llvm_exec.ir.values import Value
from dovetail_llvm_exec.vmath import FUNCTIONS, coefficients

MACHINES = [
    ("x86_64-linux-gnu", "x86-64", 16),
    ("x86_64-linux-gnu", "x86-64-v2", 16),
    ("x86_64-linux-gnu", "x86-64-v3", 32),
    ("x86_64-linux-gnu", "x86-64-v4", 64),
    ("aarch64-linux-gnu", "generic", 16),
    ("aarch64-linux-gnu", "neoverse-n1", 16),
    ("arm64-apple-macos", "apple-m1", 16),
]
FIT = Path(__file__).parent.parent / "fit"


@pytest.mark.parametrize(("triple", "cpu", "width"), MACHINES)
def test_width(triple, cpu, width):
    assert named(triple, cpu).vector_bytes == width
    assert named(triple, cpu).lanes("float") == width // 4
    assert named(triple, cpu).lanes("double") == width // 8


@pytest.mark.one_in(3)
@pytest.mark.parametrize("element", ["float", "double"])
@pytest.mark.parametrize(("triple", "cpu", "width"), MACHINES)
def test_no_function_calls_another(triple, cpu, width, element):
    target = named(triple, cpu)
    callees = {name: calls(assembly(target, function, 2 if name in BINARY else 1, element)) for name, function in FUNCTIONS.items()}
    assert callees == {name: [] for name in FUNCTIONS}


def test_a_call_would_be_found():
    def careless(b: ir.Builder, x: Value) -> Value:
        return b.fma(x, x, x)  # no instruction on the oldest x86-64

    assert calls(assembly(named("x86_64-linux-gnu", "x86-64"), careless, 1, "float")) == ["fmaf"]
    assert calls(assembly(named("x86_64-linux-gnu", "x86-64-v3"), careless, 1, "float")) == []
    assert calls(assembly(named("aarch64-linux-gnu", "generic"), lambda b, x: b.intrinsic("exp", x), 1, "double")) == ["exp"]


def test_the_host_is_described():
    assert host().vector_bytes in (16, 32, 64)
    assert host().triple.startswith(("x86_64", "aarch64", "arm64"))


def test_an_unknown_machine_uses_nothing_special():
    target = named("riscv64-linux-gnu", "generic-rv64")
    assert not (target.fma or target.masked or target.gather or target.ldexp or target.rounding or target.half or target.bfloat)


def test_fitting_gives_the_coefficients_again():
    names = ["COS", "SIN", "LOGS"]
    ran = subprocess.run([sys.executable, str(FIT / "fits.py"), *names], capture_output=True, text=True, check=True, timeout=1200)
    module: dict = {}
    exec(re.sub(r"^.*__future__.*$", "", ran.stdout, flags=re.MULTILINE), module)
    assert {name: module[name] for name in names} == {name: getattr(coefficients, name) for name in names}
