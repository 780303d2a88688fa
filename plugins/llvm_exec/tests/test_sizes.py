"""Kernels for many sizes: one for each region, right at every size, with bits that depend on nothing but the call."""

from __future__ import annotations

import pickle
import re
import threading
import warnings
from types import BuiltinFunctionType

import pytest
import torch
import torch.nn.functional as F

import dovetail
from dovetail.compiler.api import last_entry
from dovetail.extend.advanced import to_callable
from dovetail_llvm_exec.call import kernel, launch
from dovetail_llvm_exec.ir import jit
from dovetail_llvm_exec.loops import stage
from dovetail_llvm_exec.region import groups

EXECUTORS = ["llvm", "torch"]
SHAPES = ((5, 7), (2, 3), (17, 15), (3, 16), (64, 33), (2, 1000))


def chain(x, y):
    return torch.tanh(x * 2 + y) * x, x.t() * 2 + x.shape[1]


def normalized(x, y):
    return F.softmax(x, -1), F.layer_norm(x, x.shape[-1:], y)


def reduced(x, y):
    return x.sum(1), x.amax(1), x.argmax(1), x.std(-1), x.sum(), x.mean()


def down(x, y):
    return x.sum(0), x.var(0), F.softmax(x, 0)


def joined(x, y):
    return torch.cat([x, x * 2], 0)[1:] + y, F.pad(x, (1, 2)) * 3, x.flip(0, 1), x[:, 1:] - x[:, :-1]


def shaped(x, y):
    return (x.reshape(-1) * 2).reshape(x.shape[1], x.shape[0]), (x[:, None, :] + y).sum(1), torch.zeros(y.shape[0], 3) + 1


FUNCTIONS = (chain, normalized, reduced, down, joined, shaped)


def inputs(shape: tuple[int, int], dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(sum(shape))
    return [torch.randn(n, generator=generator).to(dtype) for n in (shape, shape[1:])]


def used(compiled) -> set[str]:
    return {line.implementation.executor for line in dovetail.last_traces(compiled)[-1].lines if line.implementation is not None}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_one_kernel_runs_every_size(fn, dtype):
    compiled = dovetail.jit(fn, dynamic=True, executors=EXECUTORS)
    rtol, atol = (1e-4, 1e-4) if dtype is torch.float32 else (4e-2, 4e-2)
    for shape in SHAPES:
        args = inputs(shape, dtype)
        for got, want in zip(compiled(*args), fn(*args), strict=True):
            torch.testing.assert_close(got, want, rtol=rtol, atol=atol)
    assert compiled.cache_info().programs == 1
    assert "llvm" in used(compiled)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64], ids=str)
@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_large_and_odd_sizes(fn, dtype, threads):
    if dtype is torch.int64 and fn not in (joined, shaped):
        pytest.skip("computes with floats")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    compiled = dovetail.jit(fn, dynamic=True, executors=EXECUTORS)
    tolerance = {torch.bfloat16: 4e-2, torch.float64: 1e-9}.get(dtype, 2e-3)
    try:
        for shape in ((5, 7), (33, 31), (8, 8), (65539, 3), (3, 65539), (257, 129), (1024, 1024)):
            args = inputs(shape, dtype)
            exact = fn(*[x.double() for x in args] if dtype.is_floating_point else args)  # eager's sums of 16 bits are less exact than ours
            for got, want in zip(compiled(*args), exact, strict=True):
                torch.testing.assert_close(got, want.to(got.dtype), rtol=tolerance, atol=tolerance)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("fn", [normalized, down, reduced], ids=lambda fn: fn.__name__)
def test_bits_do_not_depend_on_the_call_that_compiled(fn):
    results = []
    for first in ((3, 5), (200, 300)):
        compiled = dovetail.jit(fn, dynamic=True, executors=EXECUTORS)
        compiled(*inputs(first))
        results.append(compiled(*inputs((130, 70))))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_gradients_at_several_sizes():
    def fn(x, y):
        return (F.softmax(x * y, -1) * torch.tanh(x)).sum(0)

    compiled = dovetail.jit(fn, dynamic=True, executors=EXECUTORS)
    for shape in SHAPES[:4]:
        ours, eagers = ([x.requires_grad_() for x in inputs(shape)] for _ in range(2))
        grads = [torch.autograd.grad(f(*args).square().sum(), args) for f, args in ((compiled, ours), (fn, eagers))]
        torch.testing.assert_close(*grads, rtol=1e-3, atol=1e-3)
    assert compiled.cache_info().programs == 1


def test_a_shared_kernel_asks_again_what_it_assumed():
    def by_number(x, n):
        return x.reshape(n, -1, 4).sum(1)

    def plain(x, n):
        return x.reshape(n, -1, 4).sum(1)

    first, second = (dovetail.jit(fn, dynamic=True, executors=EXECUTORS) for fn in (by_number, plain))
    for compiled in (first, second):  # the second gets the kernel of the first, with what that was compiled for
        for rows, n in ((6, 2), (6, 3), (8, 4), (15, 5), (4, 4)):
            x = torch.randn(rows, 4)
            torch.testing.assert_close(compiled(x, n), plain(x, n))


def test_large_results_are_taken_from_the_pool(monkeypatch):
    monkeypatch.setattr(launch, "LARGE", 1 << 12)
    compiled = dovetail.jit(down, dynamic=True, executors=EXECUTORS)
    for shape in ((5, 7), (301, 50)):
        torch.testing.assert_close(compiled(*inputs(shape)), down(*inputs(shape)), rtol=1e-4, atol=1e-4)


def test_the_slow_way_computes_the_same(monkeypatch):
    monkeypatch.setattr(launch, "compiled", lambda written: None)

    def fn(x, y):
        return F.softmax(x, -1) * 3 + y, torch.cat([x, x], 1).sum(0)

    compiled = dovetail.jit(fn, dynamic=True, executors=EXECUTORS)
    for shape in ((5, 7), (40, 33)):
        x, y = inputs(shape)
        torch.testing.assert_close(compiled(x, y), fn(x, y), rtol=1e-4, atol=1e-4)
        negative = torch.complex(x, x).conj().imag  # a tensor whose sign is pending
        assert negative.is_neg()
        torch.testing.assert_close(compiled(negative, y), fn(negative, y), rtol=1e-4, atol=1e-4)


def test_a_large_call_is_tried_and_streams(monkeypatch):
    monkeypatch.setattr(groups, "STREAMED", 1 << 16)
    monkeypatch.setattr(stage, "STREAMED", 1 << 16)

    def fn(x):
        return x * 2 + 1, F.softmax(x, -1)

    compiled = dovetail.jit(fn, dynamic=True, executors=EXECUTORS)
    for shape in ((2100, 1024), (1001, 130), (160, 128), (5, 7)):
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), fn(x), rtol=1e-4, atol=1e-4)
    assert compiled.cache_info().programs == 1


def test_a_kernel_that_was_compiled_for_small_results_streams_when_large_ones_come(monkeypatch):
    for module in (groups, stage):
        monkeypatch.setattr(module, "STREAMED", 1 << 16)
    monkeypatch.setattr(launch, "LARGE", 1 << 16)

    def fn(x, y):
        return F.softmax(x - 3, -1) * y

    compiled = dovetail.jit(fn, dynamic=True, executors=EXECUTORS)
    texts, compile = [], jit.Compiler.compile
    monkeypatch.setattr(jit.Compiler, "compile", lambda self, text, *args, **kwargs: texts.append(text) or compile(self, text, *args, **kwargs))
    for shape in ((5, 7), *[(300, 128)] * launch.MANY, (301, 131), (6, 9)):
        x, y = inputs(shape)
        torch.testing.assert_close(compiled(x, y), fn(x, y), rtol=1e-4, atol=1e-4)
    assert compiled.cache_info().programs == 1
    assert ["!nontemporal" in text for text in texts] == [False, True]


def test_threads_with_different_sizes():
    compiled, wrong = dovetail.jit(normalized, dynamic=True, executors=EXECUTORS), []
    compiled(*inputs((3, 5)))

    def run(n: int) -> None:
        for shape in ((n, 40), (40, n)):
            for got, want in zip(compiled(*inputs(shape)), normalized(*inputs(shape)), strict=True):
                if not torch.allclose(got, want, rtol=1e-4, atol=1e-4):
                    wrong.append(shape)

    workers = [threading.Thread(target=run, args=(n,)) for n in (7, 20, 64)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_a_program_with_a_kernel_for_many_sizes_is_pickled():
    compiled = dovetail.jit(normalized, dynamic=True, executors=EXECUTORS)
    compiled(*inputs((5, 7)))
    run = to_callable(pickle.loads(pickle.dumps(dovetail.last_traces(compiled)[-1])))
    for got, want in zip(run(*inputs((9, 4))), normalized(*inputs((9, 4))), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_the_entry_checks_sizes_without_python():
    compiled = dovetail.jit(lambda x, y: (x * y + x.shape[0])[: x.shape[0] // 2], dynamic=True, executors=EXECUTORS)
    for shape in ((5, 7), (6, 7), (2, 3), (40, 1000)):
        x, y = inputs(shape)
        torch.testing.assert_close(compiled(x, y), (x * y + x.shape[0])[: x.shape[0] // 2])
    assert isinstance(last_entry(compiled).call, BuiltinFunctionType)
    x, y = inputs((5, 7))
    torch.testing.assert_close(compiled(x.t().contiguous().t(), y), (x * y + 5)[:2])
    for wrong in (torch.randn(6), torch.randn(7, 7, 7)):
        with pytest.raises(RuntimeError, match="broadcast"):
            compiled(x[0:5] if wrong.dim() == 1 else torch.randn(3, 5), wrong)


def test_the_entry_reads_ints():
    compiled = dovetail.jit(lambda x, n: x[:n] * n, dynamic=True, executors=EXECUTORS)
    x = torch.randn(9, 3)
    for n in (4, 7, 2, 9):
        torch.testing.assert_close(compiled(x, n), x[:n] * n)
    assert isinstance(last_entry(compiled).call, BuiltinFunctionType)
    for odd in (1 << 70, -2, 0, True):
        torch.testing.assert_close(compiled(x, odd), x[:odd] * odd) if abs(odd) < 99 else None


def one_column(x):
    return F.pad(x.exp(), (1, x.shape[0] * 900)), x.softmax(-1), x * 2


@pytest.mark.parametrize("dynamic", [True, False])
def test_a_value_for_each_row_beside_long_rows_is_written_by_one_unit(dynamic):
    compiled = dovetail.jit(one_column, dynamic=dynamic, executors=EXECUTORS)
    for rows in (3, 4, 11):
        x = torch.randn(rows, 1)
        for got, want in zip(compiled(x), one_column(x), strict=True):
            torch.testing.assert_close(got, want)


@pytest.mark.filterwarnings("error:.*the llvm executor does not compile")
@pytest.mark.parametrize("dynamic", [True, False])
def test_a_slice_past_the_end_is_empty(dynamic):
    def fn(x):
        rest = x[1:]
        return rest, rest.amax(-1, keepdim=True) - rest

    compiled = dovetail.jit(fn, dynamic=dynamic, executors=EXECUTORS, recompute="all")
    for rows in (1, 4, 1):
        x, y = (torch.ones(rows, 3, requires_grad=True) for _ in range(2))
        for got, want in zip(compiled(x), fn(y), strict=True):
            torch.testing.assert_close(got, want)
            torch.testing.assert_close(torch.autograd.grad(got.sum(), x, retain_graph=True), torch.autograd.grad(want.sum(), y, retain_graph=True))


def test_rows_are_not_divided_by_their_number(monkeypatch):
    texts, write = [], kernel.program
    monkeypatch.setattr(kernel, "program", lambda *args, **kwargs: texts.append(write(*args, **kwargs)) or texts[-1])
    ours = dovetail.jit(lambda x: F.layer_norm(x, x.shape[-1:], eps=1.25e-5), executors=EXECUTORS, dynamic=True)
    ours(torch.randn(40, 32))
    (text,) = [each.text for each in texts]
    assert "urem" not in text  # a remainder of the size in each row costs as much as a few vectors
    assert set(re.findall(r"fdiv float (\S+),", text)) == {"0x3FF0000000000000"}  # reciprocals, which wait for no row


@pytest.mark.parametrize("columns", [1, 2, 3, 40])
@pytest.mark.parametrize("correction", [0, 1, 2, 3])
def test_variances_of_few_elements(columns, correction):
    ours = dovetail.jit(lambda x: torch.var_mean(x, -1, correction=correction), executors=EXECUTORS, dynamic=True)
    ours(torch.randn(5, 7))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about what is left of few elements
        x = torch.randn(4, columns)
        x[0] = 2.0
        torch.testing.assert_close(ours(x), torch.var_mean(x, -1, correction=correction), equal_nan=True)
