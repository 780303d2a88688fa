"""sqrt, rsqrt and reciprocal: the machine's own division and square root, which round correctly."""

from __future__ import annotations

from dovetail_llvm_exec.ir.module import Builder
from dovetail_llvm_exec.ir.values import Value


def sqrt(b: Builder, x: Value) -> Value:
    """Return the square root; NaN below 0"""
    return b.sqrt(x)


def reciprocal(b: Builder, x: Value) -> Value:
    """1 / x"""
    return b.div(b.constant(1.0, x.type), x)


def rsqrt(b: Builder, x: Value) -> Value:
    """1 / sqrt(x), rounded twice"""
    return b.div(b.constant(1.0, x.type), b.sqrt(x))
