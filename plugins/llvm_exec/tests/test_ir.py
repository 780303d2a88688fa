"""The IR builder: each construct is compiled, run, and compared with NumPy."""

from __future__ import annotations

import ctypes
import math
import re

import numpy as np
import pytest

from dovetail_llvm_exec.ir import jit, values
from dovetail_llvm_exec.ir import module as ir
from dovetail_llvm_exec.ir.target import host, named
from dovetail_llvm_exec.ir.values import bits_of, element_of, integer_like, lanes_of, mangled, vector
from dovetail_llvm_exec.loops.stage import lanes_between

COMPILER = jit.Compiler()
W = 8
F, M = vector("float", W), vector("i1", W)


def run(body, *arrays: np.ndarray) -> None:
    """Compile `body(builder, *addresses)` and call it with the arrays' addresses."""
    module = ir.Module(host())
    b = module.function("f", "void", [(f"p{i}", "ptr") for i in range(len(arrays))])
    body(b, *b.params)
    b.ret()
    kernel = COMPILER.compile(module.text(), "f")
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(arrays))(kernel.address)(*(array.ctypes.data for array in arrays))


def mapped(write, x: np.ndarray, y: np.ndarray, result: np.dtype, element: str, out_element: str) -> np.ndarray:
    """`write(b, x, y)` of one vector of each."""
    out = np.zeros(W, dtype=result)

    def body(b, px, py, po):
        type = vector(element, W)
        value = write(b, b.load(type, px), b.load(type, py))
        b.store(b.cast("zext", value, vector("i8", W)) if value.type == M else value, po)
        assert element_of(value.type) == out_element

    run(body, x, y, out)
    return out


X = np.array([1.5, -2.0, 3.25, 0.0, -7.5, 8.0, 2.0, -1.0], dtype=np.float32)
Y = np.array([0.5, 4.0, -1.0, 2.0, 3.0, 8.0, -2.0, np.nan], dtype=np.float32)
A = np.array([7, -7, 12, 0, -(2**31), 5, 100, -1], dtype=np.int32)
B = np.array([2, 3, -5, 1, 2, 5, 31, 4], dtype=np.int32)


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (lambda b, x, y: b.add(x, y), X + Y),
        (lambda b, x, y: b.sub(x, 2.5), X - 2.5),
        (lambda b, x, y: b.mul(x, y), X * Y),
        (lambda b, x, y: b.div(x, y), X / Y),
        (lambda b, x, y: b.rem(x, b.constant(2.0, x.type)), np.fmod(X, 2)),
        (lambda b, x, y: b.neg(x), -X),
        (lambda b, x, y: b.abs(x), abs(X)),
        (lambda b, x, y: b.sqrt(b.abs(x)), np.sqrt(abs(X))),
        (lambda b, x, y: b.copysign(x, y), np.copysign(X, Y)),
        (lambda b, x, y: b.fma(x, y, 1.0), X * Y + 1),
        (lambda b, x, y: b.muladd(x, 2.0, y), X * 2 + Y),
        (lambda b, x, y: b.maximum(x, y), np.maximum(X, Y)),
        (lambda b, x, y: b.minimum(x, y), np.minimum(X, Y)),
        (lambda b, x, y: b.at_least(y, 1.0), np.where(np.isnan(Y), Y, np.maximum(Y, 1))),
        (lambda b, x, y: b.at_most(y, 1.0), np.where(np.isnan(Y), Y, np.minimum(Y, 1))),
        (lambda b, x, y: b.select(b.compare("lt", x, y), x, 9.0), np.where(X < Y, X, 9)),
        (lambda b, x, y: b.horner(x, (1.0, 2.0, 3.0)), 1 + 2 * X + 3 * X * X),
        (lambda b, x, y: b.shuffle(x, y, (7, 6, 5, 4, 8, 9, 0, 0)), np.concatenate([X[:3:-1], Y[:2], X[[0, 0]]])),
        (lambda b, x, y: b.splat(b.extract(x, 2), W), np.full(W, X[2])),
        (lambda b, x, y: b.convert(b.convert(x, "half"), "float"), X.astype(np.float16).astype(np.float32)),
        (lambda b, x, y: b.convert(b.convert(x, "i64"), "float"), np.trunc(X)),
        (lambda b, x, y: b.bitcast(b.bits(x), x.type), X),
    ],
)
def test_floats(write, expected):
    np.testing.assert_array_equal(mapped(write, X, Y, np.float32, "float", "float"), expected.astype(np.float32))


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (lambda b, x, y: b.add(x, y), A + B),
        (lambda b, x, y: b.mul(x, y), A * B),
        (lambda b, x, y: b.div(x, y), np.trunc(A / B).astype(np.int32)),
        (lambda b, x, y: b.rem(x, y), np.fmod(A, B)),
        (lambda b, x, y: b.udiv(x, y), (A.view(np.uint32) // B.view(np.uint32)).view(np.int32)),
        (lambda b, x, y: b.urem(x, y), (A.view(np.uint32) % B.view(np.uint32)).view(np.int32)),
        (lambda b, x, y: b.neg(x), -A),
        (lambda b, x, y: b.abs(y), abs(B)),
        (lambda b, x, y: b.and_(x, y), A & B),
        (lambda b, x, y: b.or_(x, y), A | B),
        (lambda b, x, y: b.xor(x, y), A ^ B),
        (lambda b, x, y: b.not_(x), ~A),
        (lambda b, x, y: b.shl(x, 3), A << 3),
        (lambda b, x, y: b.ashr(x, 3), A >> 3),
        (lambda b, x, y: b.lshr(x, 3), (A.view(np.uint32) >> 3).view(np.int32)),
        (lambda b, x, y: b.maximum(x, y), np.maximum(A, B)),
        (lambda b, x, y: b.minimum(x, 0), np.minimum(A, 0)),
        (lambda b, x, y: b.add(x, b.lane_numbers(x.type)), A + np.arange(W, dtype=np.int32)),
        (lambda b, x, y: b.convert(b.convert(x, "i8"), "i32"), A.astype(np.int8).astype(np.int32)),
        (lambda b, x, y: b.convert(b.convert(x, "i8"), "i32", signed=False), A.astype(np.uint8).astype(np.int32)),
        (lambda b, x, y: b.convert(b.compare("gt", x, y), "i32"), (A > B).astype(np.int32)),
    ],
)
def test_integers(write, expected):
    np.testing.assert_array_equal(mapped(write, A, B, np.int32, "i32", "i32"), expected)


@pytest.mark.parametrize("test", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_comparisons_with_nan_are_numpys(test):
    compare = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}[test]
    computed = mapped(lambda b, x, y: b.compare(test, x, y), X, Y, np.uint8, "float", "i1")
    np.testing.assert_array_equal(computed, compare(X, Y))
    computed = mapped(lambda b, x, y: b.compare(test, x, y, unsigned=True), A, B, np.uint8, "i32", "i1")
    np.testing.assert_array_equal(computed, compare(A.view(np.uint32), B.view(np.uint32)))


@pytest.mark.parametrize("element", ["float", "double", "half", "bfloat"])
@pytest.mark.parametrize("number", [0.0, -0.0, 1.0, -1.5, 0.1, 65504.0, 1e-7, math.inf, -math.inf, math.nan])
def test_constants_are_rounded_once(element, number):
    out = np.zeros(1, dtype={"float": np.uint32, "double": np.uint64}.get(element, np.uint16))
    run(lambda b, p: b.store(b.constant(number, element), p), out)
    if element == "bfloat":
        computed = (out.astype(np.uint32) << 16).view(np.float32)
        assert math.isnan(number) == math.isnan(computed[0])
        assert math.isnan(number) or math.isinf(number) or abs(float(computed[0]) - number) <= abs(number) * 2.0**-8 + 1e-42
        return
    dtype = {"float": np.float32, "double": np.float64, "half": np.float16}[element]
    expected = np.array([number], dtype=dtype)
    np.testing.assert_array_equal(out.view(dtype), expected)
    assert np.signbit(out.view(dtype)[0]) == np.signbit(expected[0]) or math.isnan(number)


def test_a_float_too_large_for_its_format_is_infinite():
    assert values.to_float32(1e39) == math.inf
    assert values.to_float32(-1e39) == -math.inf


def test_a_loop_carries_values():
    out = np.zeros(2, dtype=np.int64)

    def body(b, p):
        with b.loop(3, 20, 4, carried=(b.constant(0, "i64"), b.constant(1, "i64"))) as loop:
            total, product = loop.carried
            loop.update(b.add(total, loop.index), b.mul(product, loop.index))
        b.store(loop.results[0], p)
        b.store(loop.results[1], b.address(p, "i64", 1))

    run(body, out)
    assert out.tolist() == [sum(range(3, 20, 4)), math.prod(range(3, 20, 4))]


def test_an_empty_loop_gives_what_it_began_with():
    out = np.zeros(1, dtype=np.int64)

    def body(b, p):
        with b.loop(5, 5, 1, carried=(b.constant(42, "i64"),)) as loop:
            loop.update(b.constant(0, "i64"))
        b.store(loop.results[0], p)

    run(body, out)
    assert out[0] == 42


def test_loops_nest_and_rooms_are_taken_at_the_entry():
    out = np.zeros((3, 4), dtype=np.int64)

    def body(b, p):
        with ir.for_range(b, 0, 3) as row, ir.for_range(b, 0, 4) as column:
            room = b.alloca("i64")
            b.store(b.mul(row, column), room)
            b.store(b.load("i64", room), b.address(p, "i64", b.add(b.mul(row, 4), column)))

    run(body, out)
    np.testing.assert_array_equal(out, np.outer(range(3), range(4)))


@pytest.mark.parametrize(("number", "expected"), [(3, 30), (-3, -1)])
def test_branches_join(number, expected):
    x, out = np.array([number], dtype=np.int64), np.zeros(2, dtype=np.int64)

    def body(b, px, po):
        value = b.load("i64", px)
        positive = b.compare("gt", value, 0)
        (both,) = b.branch(positive, lambda: (b.mul(value, 10),), lambda: (b.constant(-1, "i64"),), rarely=True)
        (one,) = b.branch(positive, lambda: (b.mul(value, 10),), (b.constant(-1, "i64"),))
        b.store(both, po)
        b.store(one, b.address(po, "i64", 1))

    run(body, x, out)
    assert out.tolist() == [expected, expected]


def test_masked_memory_is_not_touched():
    source, target = np.arange(W, dtype=np.float32), np.full(W, -1, dtype=np.float32)
    mask = np.array([1, 0, 1, 1, 0, 0, 0, 1], dtype=bool)

    def body(b, px, pm, po):
        chosen = b.compare("ne", b.load(vector("i8", W), pm), 0)
        b.masked_store(b.add(b.masked_load(F, px, chosen, b.constant(9.0, F)), 1.0), po, chosen)

    run(body, source, mask, target)
    np.testing.assert_array_equal(target, np.where(mask, source + 1, -1))


NARROWED = [("i32", "i16"), ("i32", "i8"), ("i16", "i8"), ("i64", "i32"), ("i64", "i16"), ("i64", "i8")]


@pytest.mark.parametrize("lanes", [8, 16, 32])
@pytest.mark.parametrize(("wide", "narrow"), NARROWED)
def test_lanes_that_were_narrowed_are_stored_without_what_lies_beside_them(wide, narrow, lanes):
    source = np.arange(1, lanes + 1, dtype=f"i{bits_of(wide) // 8}") * 256 - 1  # the upper bytes are not 0
    for low in range(lanes):  # a kernel each: LLVM's time grows faster than a kernel's length
        target = np.full((lanes - low, lanes + 8), 99, dtype=f"i{bits_of(narrow) // 8}")
        expected = target.copy()
        for row in range(lanes - low):
            expected[row, low : low + row + 1] = (source + row)[low : low + row + 1].astype(target.dtype)

        def body(b, px, po, low=low, width=target.shape[1]):
            value = b.load(vector(wide, lanes), px)
            for row in range(lanes - low):
                mask = lanes_between(low, low + row + 1, lanes)
                own = b.cast("trunc", b.add(value, row), vector(narrow, lanes))  # of one store alone, which may narrow it
                b.masked_store(own, b.address(po, narrow, row * width), mask)

        run(body, source, target)
        np.testing.assert_array_equal(target, expected)


def test_a_narrowed_lane_is_stored_as_narrow_on_a_machine_with_masks():
    target = named("x86_64-linux-gnu", "x86-64-v4")
    module = ir.Module(target)
    b = module.function("f", "void", [("px", "ptr"), ("po", "ptr")])
    value = b.cast("trunc", b.load(vector("i32", 16), b.params[0]), vector("i16", 16))
    b.masked_store(value, b.params[1], lanes_between(3, 4, 16))
    b.ret()
    code = jit.Compiler(target).assembly(module.text())
    assert re.findall(r"(\S+)\s+\S+, (?:\$\d+, )?(?:%\w+, )?6\(%rsi\)", code) in (["vpextrw"], ["movw"])


def test_gather_and_scatter():
    source, target = np.arange(100, dtype=np.float32), np.zeros(100, dtype=np.float32)
    index = np.array([3, 99, 0, 7, 7, 50, 2, 1], dtype=np.int64)

    def body(b, px, pi, po):
        where = b.load(vector("i64", W), pi)
        b.scatter(b.gather(F, b.address(px, "float", where)), b.address(po, "float", where))

    run(body, source, index, target)
    expected = np.zeros(100, dtype=np.float32)
    expected[index] = source[index]
    np.testing.assert_array_equal(target, expected)


@pytest.mark.parametrize(
    ("op", "x", "expected"),
    [("add", X, X.sum()), ("mul", X, X.prod()), ("max", X, 8), ("min", X, -7.5), ("max", Y, np.nan)]
    + [("add", A, A.sum(dtype=np.int32)), ("smax", A, 100), ("smin", A, -(2**31)), ("umax", A, -1), ("xor", B, np.bitwise_xor.reduce(B))],
)
def test_reductions(op, x, expected):
    out, element = np.zeros(1, dtype=x.dtype), "float" if x.dtype == np.float32 else "i32"
    run(lambda b, px, po: b.store(b.reduce(op, b.load(vector(element, W), px)), po), x, out)
    np.testing.assert_array_equal(out, np.array([expected], dtype=x.dtype))


def test_a_table_is_written_once():
    module = ir.Module(host())
    b = module.function("f", "i64", [("x", "i64")])
    tables = [module.table("primes", "i64", (2, 3, 5, 7)) for _ in range(2)]
    b.ret(b.add(b.params[0], b.load("i64", b.address(tables[1], "i64", 3))))
    text = module.text()
    assert text.count("constant [4 x i64]") == 1
    kernel = COMPILER.compile(text, "f")
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(kernel.address)(40) == 47


def test_scalars_are_written_as_vectors_are():
    out = np.zeros(1, dtype=np.float32)
    run(lambda b, px, po: b.store(b.reduce("add", b.muladd(b.load(vector("float", 1), px), 2.0, 1.0)), po), X, out)
    assert out[0] == X[0] * 2 + 1


def test_types():
    assert vector("float", 1) == "float"
    assert (element_of("<16 x float>"), lanes_of("<16 x float>"), bits_of("<16 x float>")) == ("float", 16, 32)
    assert (element_of("i64"), lanes_of("i64"), bits_of("ptr")) == ("i64", 1, 64)
    assert integer_like("<4 x double>") == "<4 x i64>"
    assert (mangled("<8 x bfloat>"), mangled("ptr"), mangled("<2 x ptr>"), mangled("i8")) == ("v8bf16", "p0", "v2p0", "i8")
