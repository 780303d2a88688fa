"""Sums of a number and a product: rounded once where eager's kernels do so, for what overflows between the two."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from llvm_against_eager import compiled, program_of, runs_kernels

from dovetail_llvm_exec.ir.target import host

pytestmark = pytest.mark.skipif(not host().fma, reason="needs a machine with a fused multiply-add")
LARGE = {torch.float64: 1.7e308, torch.float32: 3e38, torch.bfloat16: 3e38, torch.float16: 6e4}
FLOATS = list(LARGE)
KINDS = {
    "add": lambda x, a, b: torch.add(x, a, alpha=2.0),
    "add-inplace": lambda x, a, b: x.clone().add_(a, alpha=-0.5),
    "add-of-a-row": lambda x, a, b: torch.add(x.view(-1, 64), a[:64], alpha=2.0),
    "sub": lambda x, a, b: torch.sub(x, a, alpha=2.0),
    "rsub": lambda x, a, b: torch.rsub(x, a, alpha=2.0),
    "addcmul": lambda x, a, b: torch.addcmul(x, a, b, value=0.5),
    "addcmul-by-1": torch.addcmul,
    "addcdiv": lambda x, a, b: torch.addcdiv(x, a, b, value=0.5),
    "lerp-near": lambda x, a, b: torch.lerp(x, a, 0.3),
    "lerp-far": lambda x, a, b: torch.lerp(x, a, 1.7),
    "lerp-by-tensor": torch.lerp,
    "foreach": lambda x, a, b: torch._foreach_addcmul([x], [a], [b], value=0.5),
    "sum-of-a-product": lambda x, a, b: torch.add(x, a * b),  # two operations of the program: each is rounded
    "product-plus": lambda x, a, b: torch.add(x * b, a, alpha=2.0),
}


def extremes(dtype: torch.dtype) -> list[torch.Tensor]:
    """All triples of values whose products overflow, vanish, or are no number, and random ones; a multiple of 64 of them."""
    large = LARGE[dtype]
    values = [large, -large, math.sqrt(large), 1e-3, -2.0, math.inf, -math.inf, 0.0]
    triples = torch.tensor(list(itertools.product(values, repeat=3)), dtype=torch.float64)
    torch.manual_seed(0)
    return [torch.cat([t, torch.randn(512, dtype=torch.float64)]).to(dtype) for t in triples.unbind(1)]


def assert_equal(got: torch.Tensor, want: torch.Tensor) -> None:
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", KINDS)
def test_extreme_values_are_those_of_eager(kind, dtype):
    args, fn = extremes(dtype), KINDS[kind]
    ours = compiled(fn)
    assert_equal(ours(*args), fn(*args))
    assert runs_kernels(ours)


@pytest.mark.parametrize("n", [1, 7, 64])
@pytest.mark.parametrize("kind", ["add", "sub", "addcmul", "addcdiv", "lerp-near", "lerp-by-tensor"])
def test_few_elements_are_those_of_eager(kind, n):
    fn, ours = KINDS[kind], compiled(KINDS[kind])
    for dtype in (torch.float32, torch.float64):
        for parts in zip(*(x[: 16 * n].split(n) for x in extremes(dtype))):
            assert_equal(ours(*parts), fn(*parts))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])  # eager rounds each step to 16 bits
def test_outer_products_are_those_of_eager(dtype):
    (x, a, b), ours = extremes(dtype), compiled(torch.addr)
    for kwargs in ({}, {"beta": 0.5, "alpha": 2.0}):
        args = x.view(16, 64), a[:128:8], b[:64]
        assert_equal(ours(*args, **kwargs), torch.addr(*args, **kwargs))


def test_a_product_of_another_operation_is_rounded():
    args = extremes(torch.float32)
    assert "fmuladd" in program_of(KINDS["addcmul"], *args).text
    assert "fmuladd" not in program_of(KINDS["sum-of-a-product"], *args).text
