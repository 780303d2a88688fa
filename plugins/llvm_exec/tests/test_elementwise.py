"""Elementwise programs over dtypes and layouts."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from llvm_against_eager import assert_like_eager, assert_same, compiled, program_of
from torch.nn import functional as F

from dovetail_llvm_exec.ir.target import host

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 1.5, 3.0, 7.0, 1e-3, -1e-3, 100.0, -100.0, math.inf, -math.inf, math.nan, 0.1]


def numbers(dtype: torch.dtype, n: int = 37) -> torch.Tensor:
    """Values that operations tell apart."""
    torch.manual_seed(0)
    if dtype is torch.bool:
        return torch.randint(0, 2, (n,), dtype=torch.bool)
    if dtype.is_floating_point:
        return torch.cat([torch.tensor(SPECIAL, dtype=dtype), torch.randn(max(n - len(SPECIAL), 0)).to(dtype) * 3])
    info = torch.iinfo(dtype)
    ends = torch.tensor([info.min, info.max, 0, 1, 2, info.min + 1], dtype=dtype)
    return torch.cat([ends, torch.randint(max(info.min, -100), min(info.max, 100), (n - len(ends),), dtype=dtype)])


def pairs(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    x = numbers(dtype)
    return x.repeat_interleave(len(x)), x.repeat(len(x))


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
@pytest.mark.parametrize("op", ["add", "sub", "mul", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge"])
def test_two_operands(op, dtype):
    assert_like_eager(getattr(torch, op), *pairs(dtype))


@pytest.mark.parametrize("op", ["logical_and", "bitwise_and", "bitwise_or", "bitwise_xor", "add", "mul", "eq", "lt", "maximum", "minimum"])
def test_two_booleans(op):
    assert_like_eager(getattr(torch, op), *pairs(torch.bool))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", ["div", "remainder", "fmod", "floor_divide", "copysign"])
def test_division_of_floats(op, dtype):
    x, y = pairs(dtype)
    whole = op == "floor_divide" and dtype in (torch.bfloat16, torch.float16)  # of two tensors it is left to PyTorch
    assert_like_eager(getattr(torch, op), x, 0.7 if whole else y)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", ["remainder", "fmod", "floor_divide"])
def test_division_of_integers(op, dtype):
    x, y = pairs(dtype)
    usable = (y != 0) & ~((y == -1) & (x == torch.iinfo(dtype).min))
    assert_like_eager(getattr(torch, op), x[usable], y[usable])


def test_the_smallest_integer_by_minus_one_wraps():
    x = torch.tensor([torch.iinfo(torch.int32).min] * 20, dtype=torch.int32)
    ours = compiled(lambda x, y: (x // y, x % y))
    quotient, rest = ours(x, torch.full_like(x, -1))
    assert quotient.tolist() == x.tolist() and rest.tolist() == [0] * 20


@pytest.mark.parametrize("op", [torch.floor_divide, torch.remainder, torch.fmod])
def test_an_integer_by_zero_is_pytorchs_error(op):
    ours = compiled(op)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        ours(torch.arange(40), torch.arange(40))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", ["bitwise_left_shift", "bitwise_right_shift"])
def test_shifts(op, dtype):
    x = numbers(dtype).repeat(12)
    by = torch.arange(12, dtype=dtype).repeat_interleave(len(numbers(dtype)))
    assert_like_eager(getattr(torch, op), x, by % (torch.iinfo(dtype).bits))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "op", ["neg", "abs", "sign", "signbit", "ceil", "floor", "trunc", "round", "reciprocal", "sqrt", "rsqrt", "isnan", "isinf", "isfinite", "relu"]
)
def test_one_float(op, dtype):
    assert_like_eager(getattr(torch, op), numbers(dtype))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", ["exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sigmoid", "tanh", "sin", "cos", "erf"])
def test_elementary_functions(op, dtype):
    assert_like_eager(getattr(torch, op), numbers(dtype, 64), scale=2.0)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", ["neg", "abs", "sign", "bitwise_not", "square", "signbit"])
def test_one_integer(op, dtype):
    assert_like_eager(getattr(torch, op), numbers(dtype))


@pytest.mark.parametrize("exponent", [-2, -1, -0.5, 0, 0.5, 1, 2, 3, 2.5])
@pytest.mark.parametrize("dtype", FLOATS)
def test_powers(dtype, exponent):
    assert_like_eager(lambda x: x**exponent, numbers(dtype), scale=4.0)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_powers_of_integers_wrap(dtype, exponent):
    assert_like_eager(lambda x: x**exponent, numbers(dtype))


@pytest.mark.parametrize("to", FLOATS + INTEGERS + [torch.bool])
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS + [torch.bool])
def test_casts(dtype, to):
    x = numbers(dtype)
    if dtype.is_floating_point and to in INTEGERS:
        x = x[x.isfinite() & (x.abs() < 100) & (x > -1 if to is torch.uint8 else x == x)]
    assert_like_eager(lambda x: x.to(to) * 1 if to is not torch.bool else ~x.to(to), x)


@pytest.mark.parametrize("to", INTEGERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_casts_of_what_does_not_fit_are_as_on_this_machine(dtype, to):
    x = torch.tensor([math.nan, math.inf, -math.inf, 1e10, -3e9, 1e20, 300.7, -1.5], dtype=dtype).repeat(9)
    assert_like_eager(lambda x: x.to(to) + 0, x)


@pytest.mark.parametrize("number", [0.1, 3, -2, 1e-7])
@pytest.mark.parametrize("dtype", FLOATS)
def test_numbers_as_operands(dtype, number):
    x = torch.cat([numbers(dtype), torch.tensor([number], dtype=dtype)])
    assert_like_eager(lambda x: (x * number, number - x, x / number, x == number, x > number, x + number), x)


def test_where_takes_no_part_of_the_other_branch():
    assert_like_eager(lambda x: torch.where(x > 0, x.log(), torch.zeros_like(x)), numbers(torch.float32))


LAYOUTS = {
    "plain": lambda: torch.randn(6, 35),
    "transposed": lambda: torch.randn(35, 6).t(),
    "sliced": lambda: torch.randn(12, 70)[::2, ::2],
    "offset": lambda: torch.randn(7, 40)[1:, 3:38],
    "row": lambda: torch.randn(35).expand(6, 35),
    "column": lambda: torch.randn(6, 1).expand(6, 35),
    "one": lambda: torch.randn(()).expand(6, 35),
    "flipped rows": lambda: torch.randn(35, 6).transpose(0, 1),
}


@pytest.mark.parametrize("second", LAYOUTS)
@pytest.mark.parametrize("first", LAYOUTS)
def test_layouts(first, second):
    assert_like_eager(lambda x, y: (x * 2 + y, x > y), LAYOUTS[first](), LAYOUTS[second]())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.uint8, torch.bool])
@pytest.mark.parametrize("step", [2, 3, 4, 5])
def test_elements_that_lie_apart(step, dtype):
    for count in (1, 16, 63, 64, 65, 256):
        x = torch.randint(0, 2, (3, (count - 1) * step + 1)).to(dtype)[:, ::step]  # its last element is the last of its memory
        assert_like_eager(lambda x: (x.logical_not(), x.sum(-1), x.flip(-1).clone()), x)


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0, 2), (1, 1, 1), (5, 1, 3), (2, 3, 4, 5), (17,), (4097,), (9000,), (3, 8200)])
def test_shapes(shape):
    ours = compiled(lambda x, y: (x + y) * 2)
    x, y = torch.randn(shape), torch.randn(shape)
    assert_same(ours(x, y), (x + y) * 2)


def test_broadcasting_of_many_kinds():
    x, y, z = torch.randn(4, 1, 6), torch.randn(5, 1), torch.randn(6)
    assert_like_eager(lambda x, y, z: (x + y) * z - x, x, y, z)


def test_channels_last():
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert_like_eager(lambda x: x * 2 + x.relu(), x)


def test_views_inside_a_region():
    x = torch.randn(4, 6, 8)
    assert_like_eager(lambda x: (x * 2).reshape(24, 8).t() + 1, x)
    assert_like_eager(lambda x: (x * 2).view(4, 2, 3, 8).transpose(1, 2) * x.view(4, 3, 2, 8), x)
    assert_like_eager(lambda x: (x + 1).reshape(12, 16) * 2, x)
    assert_like_eager(lambda x: (x + 1).transpose(0, 2).reshape(16, 12) * 2, x)
    assert_like_eager(lambda x: (x.exp())[1:, ::2].diagonal(0, 0, 1) + 1, x)
    assert_like_eager(lambda x: (x + 1).unfold(2, 4, 2) * 2, x)
    assert_like_eager(lambda x: (x + 1).flip(0, 2) * 2, x)


def test_views_as_results():
    x = torch.randn(4, 6)
    ours = assert_like_eager(lambda x: ((x * 2).t(), (x * 3)[1:, ::2], (x * 4).reshape(3, 8), x.t(), (x + 1).expand(2, 4, 6)), x)
    results = ours(x)
    assert results[3].data_ptr() == x.data_ptr()
    assert len({r.untyped_storage().data_ptr() for r in results}) == 5


def test_one_value_returned_twice_and_as_a_view():
    x = torch.randn(4, 6)

    def fn(x):
        y = x * 2
        return y, y.t(), y + 1

    a, b, _ = assert_like_eager(fn, x)(x)
    assert a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def test_long_chains_are_cut():
    def fn(x):
        for i in range(400):
            x = x * 0.99 + 0.01 * (i % 3)
        return x

    assert_like_eager(fn, torch.randn(33), scale=100)


UNARY = [torch.neg, torch.abs, torch.sin, torch.tanh, torch.relu, torch.floor, lambda x: x * 2, lambda x: x - 0.5, lambda x: x.clamp(-1, 1)]
BINARY = [torch.add, torch.sub, torch.mul, torch.maximum, torch.minimum, lambda x, y: torch.where(x > y, x, y * 2)]
SHAPING = [lambda x: x, lambda x: x.t(), lambda x: x[:, :1], lambda x: x[:1], lambda x: x.flip(0), lambda x: x[:, ::2].repeat(1, 2)[:, : x.shape[1]]]


@st.composite
def programs(draw):
    """A function of two tensors made of a list of choices, and the dtype and size of its arguments."""
    steps = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 8), st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=12))
    n = draw(st.sampled_from([1, 2, 5, 16, 17, 40]))

    def fn(x, y):
        values = [x, y]
        for kind, which, a, b in steps:
            p, q = values[a % len(values)], values[b % len(values)]
            if kind == 0:
                values.append(UNARY[which % len(UNARY)](p))
            elif kind == 1:
                values.append(BINARY[which % len(BINARY)](p, q))
            else:
                moved = SHAPING[which % len(SHAPING)](p)
                values.append(moved.expand(n, n) if moved.shape != (n, n) else moved)
        return tuple(values[2:])

    return fn, draw(st.sampled_from([torch.float32, torch.float64, torch.bfloat16])), n


@settings(max_examples=60, deadline=None)
@given(programs())
def test_random_programs(program):
    fn, dtype, n = program
    x, y = torch.randn(n, n).to(dtype), torch.randn(n, n).to(dtype)
    ours = compiled(lambda x, y: tuple(r + 0 for r in fn(x, y)))
    assert_same(ours(x, y), tuple(r + 0 for r in fn(x, y)), scale=4.0)


@pytest.mark.parametrize("count", [1, 2, 16, 37])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_copysign_of_few_and_many(dtype, count):
    x, y = torch.randn(count).to(dtype), torch.randn(count).to(dtype)
    assert_like_eager(torch.copysign, x, y)
    assert_like_eager(lambda x, y: torch.tanh(x) + torch.copysign(y, x[:1]), x, y)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_numbers_of_16_bits_are_rounded_where_pytorch_rounds_them(dtype):
    def fn(x):
        full = torch.full_like(x, 0.3)
        sums = x + 0.003, 1 / 3 - x, x.sub(100.3), torch.isclose(x, x * 1.01, rtol=3e-3, atol=0.1)
        return *sums, x * 0.3, x % 0.3, torch.fmod(x, 0.3), full.float() + x.float(), torch.nn.functional.threshold(x, 0.1, 2.0)

    x = torch.linspace(-3, 3, 301).to(dtype)
    assert_like_eager(fn, x)
    for got, expected in zip(compiled(fn)(x)[:5], fn(x)[:5], strict=True):
        assert torch.equal(got, expected)


@pytest.mark.parametrize("name", ["silu", "mish", "softplus", "sigmoid"])
def test_an_exp_below_the_normal_numbers_counts_where_it_is_multiplied(name):
    def fn(x):
        return getattr(torch.nn.functional, name)(x) * 1e30

    x = torch.tensor([-80.0, -87.4, -88.6, -91.5, -92.0, -1e4, -torch.inf])
    expected = fn(x) if name in ("silu", "sigmoid") else fn(x.double())  # eager has 0 where exp(-x) overflows
    torch.testing.assert_close(compiled(fn)(x).double(), expected.double(), atol=1e-13, rtol=1e-2, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("atol", "rtol"), [(1e-2, 0.0), (0.0, 1e-2)])
def test_a_comparison_is_made_of_rounded_numbers(dtype, atol, rtol):
    a = torch.randn(4000).to(dtype)
    b = (a.float() + 1e-2 * torch.randn(4000)).to(dtype)
    assert_like_eager(lambda a, b: torch.isclose(a, b, atol=atol, rtol=rtol), a, b)


def test_silu_is_a_normal_number_where_its_sigmoid_is_none():
    """The sigmoid of -88 is a denormal number, with fewer bits."""
    x = torch.linspace(-88.7, -87.3, 4099)
    exact = torch.nn.functional.silu(x.double())
    assert ((compiled(torch.nn.functional.silu)(x) - exact) / exact).abs().max() < 2e-7


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "count",
    [
        lambda dtype: torch.arange(1, 600, dtype=dtype),
        lambda dtype: torch.arange(0, 5, 0.1, dtype=dtype),
        lambda dtype: torch.arange(100, dtype=dtype),
        lambda dtype: torch.linspace(3, -7, 64, dtype=dtype),
    ],
    ids=["whole numbers", "tenths", "exact numbers", "equal distances"],
)
def test_numbers_of_16_bits_are_counted_as_eager_counts_them(dtype, count):
    """Eager rounds the first of each of its vectors, and counts on from it, so that a position may be off by several."""
    assert torch.equal(compiled(lambda x: count(dtype) * x)(torch.ones((), dtype=dtype)), count(dtype))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("divisor", [(100,), (1,), (), 0.7], ids=str)
@pytest.mark.parametrize(
    "divide",
    [
        lambda a, b: torch.div(a, b, rounding_mode="trunc"),
        lambda a, b: torch.div(a, b, rounding_mode="floor"),
        lambda a, b: a // b,
        lambda a, b: a.clone().floor_divide_(b),
    ],
    ids=["trunc", "floor", "//", "in place"],
)
def test_whole_quotients_of_16_bits_are_those_of_eager(dtype, divisor, divide):
    """Eager rounds the quotient before it drops the fraction, unless it divides by one number."""
    a = (torch.randn(500, 100) * 3).to(dtype)
    b = divisor if isinstance(divisor, float) else (torch.randn(divisor).abs() + 0.1).to(dtype)
    assert torch.equal(compiled(divide)(a, b), divide(a, b))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("one", [torch.tensor(0.7713), torch.tensor(0.7713, dtype=torch.float64), torch.tensor(2049)], ids=lambda t: str(t.dtype))
@pytest.mark.parametrize(
    "fn",
    [
        lambda a, b: a * b,
        lambda a, b: b * a,
        lambda a, b: a / b,
        lambda a, b: a.detach() // b + a,
        lambda a, b: torch.div(a, b, rounding_mode="trunc"),
        lambda a, b: a.clone().mul_(b),
        lambda a, b: torch.add(a, b, alpha=2),
        lambda a, b: torch.sub(b, a, alpha=2),
    ],
    ids=["product", "product, turned", "quotient", "floor", "trunc", "in place", "sum", "difference"],
)
def test_a_tensor_of_16_bits_and_one_number_of_another_dtype(dtype, one, fn):
    """Eager rounds the number to 16 bits, but for a factor and a divisor."""
    a = (torch.randn(3000) * 3).to(dtype)
    assert torch.equal(compiled(fn)(a, one), fn(a, one))
    if one.is_floating_point():
        got, want = [torch.autograd.grad(f(x, one).sum(), x)[0] for f in (compiled(fn), fn) for x in [a.clone().requires_grad_()]]
        assert torch.equal(got, want)


CHOSEN = {
    "number of a clamp": lambda x, y: (x + 0.3).clamp(-2.2, 1.7) * 3,
    "number of hardtanh": lambda x, y: F.hardtanh(x + 0.1, -0.3, 0.3) * 3 + y,
    "number of a threshold": lambda x, y: F.threshold(x + 0.1, 0.3, 0.7).neg() * y,
    "number of where": lambda x, y: torch.where(x > 0, x, 0.3).abs() * 3,
    "largest": lambda x, y: torch.maximum(x * 1.7, y * 0.3).neg(),
    "whole": lambda x, y: (x.floor(), y.ceil(), -(x * 3).trunc(), (x * 1.1).round().abs(), x.sign()),
    "sign": lambda x, y: (-x, x.abs(), (x / y).neg()),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CHOSEN)
def test_what_16_bits_hold_of_a_choice(name, dtype):
    x = torch.cat([torch.randn(900) * 4, torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-40, 0.3])]).to(dtype)
    got, want = (fn(x, x.flip(0)) for fn in (compiled(CHOSEN[name]), CHOSEN[name]))
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("fn", [torch.neg, torch.abs, torch.floor, lambda x: torch.maximum(x, -x)])
def test_bfloat16_that_no_operation_rounds_is_stored_as_it_is(fn):
    x, plain = torch.randn(4000).bfloat16(), replace(host(), bfloat=False, quick_bfloat=False)
    assert "32767" not in program_of(fn, x, target=plain).module.text()  # what rounding adds
    assert "32767" in program_of(lambda x: x * 3, x, target=plain).module.text()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_what_is_widened_and_narrowed_again_is_not_rounded(dtype):
    def spread(g):
        return g.float()[:, None].expand(-1, 300).to(dtype)  # the gradient of a sum

    x, plain = torch.randn(40).to(dtype), replace(host(), half=False, bfloat=False, quick_bfloat=False)
    assert "fcmp" not in program_of(spread, x, target=plain).module.text()
    assert_like_eager(spread, x)
    assert_like_eager(lambda x: x.double().to(dtype) + x.double().float().double().to(dtype), x)
