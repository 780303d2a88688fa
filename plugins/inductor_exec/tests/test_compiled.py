"""Kernels that Inductor makes, which takes a C++ compiler and some seconds for each."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
import torch._inductor.utils
from inductor_against_eager import compiled, leaves, regions, same_gradients, same_results

import dovetail
from dovetail_inductor_exec import machine
from dovetail_inductor_exec.executor import inductor_executor

fresh_cache = getattr(torch._inductor.utils, "fresh_cache", None) or torch._inductor.utils.fresh_inductor_cache
COMPILES = machine.compiles()
pytestmark = [
    pytest.mark.xdist_group("inductor"),
    pytest.mark.skipif(machine.available() is not True, reason=str(machine.available())),
    pytest.mark.skipif(COMPILES is not True, reason=str(COMPILES)),
]


@pytest.fixture(scope="module")
def ex():
    return inductor_executor()


def layer(x, w):
    """A norm, an activation, a half-precision part, views and copies of one value."""
    y = torch.nn.functional.rms_norm(x, (x.shape[-1],), w)
    z = torch.nn.functional.silu(y.to(torch.bfloat16)).float() * y
    return torch.softmax(z, -1), z.t(), z.clone(), z[1:, ::2], (z > 0).all(0)


def test_a_region_equals_eager_in_values_layouts_and_aliases(ex):
    x, w = torch.randn(6, 8), torch.randn(8)
    run = compiled(layer, ex)
    with torch.no_grad():
        same_results(run, layer, x, w, tolerance=1e-2)
        got = run(x, w)

    assert [kernel.implementation.fn.by for kernel in regions(run)] == ["inductor"]
    assert got[1].data_ptr() == got[3].data_ptr() - 32
    assert got[2].data_ptr() != got[1].data_ptr()


@pytest.mark.slow
def test_gradients_are_the_compiled_programs(ex):
    x, w = torch.randn(6, 8, requires_grad=True), torch.randn(8, requires_grad=True)
    run = compiled(lambda x, w: torch.nn.functional.rms_norm(x, (8,), w).exp(), ex)
    same_gradients(run, lambda x, w: torch.nn.functional.rms_norm(x, (8,), w).exp(), [x, w], x, w)

    assert {region.implementation.fn.by for region in regions(run)} == {"inductor"}
    backward = dovetail.last_backward_traces(run)[-2]
    assert {line.implementation.executor for line in backward.lines if line.implementation is not None} == {"inductor"}


@pytest.mark.slow
def test_equal_layers_are_compiled_once_and_sizes_of_one_may_have_any_stride(ex):
    def layers(x, w):
        for _ in range(3):
            x = torch.tanh(x @ w) * 0.5 + 1
        return x

    x, w = torch.randn(1, 8), torch.randn(8, 8)
    run = compiled(layers, ex)
    same_results(run, layers, x, w)

    assert len(regions(run)) == 3 and len({id(line.implementation.fn) for line in regions(run)}) == 1
    odd = torch.empty_strided((1, 8), (5, 1)).copy_(x)
    same_results(run, layers, odd, w)
    assert dovetail.cache_misses(run) == ["the first call"]


@pytest.mark.slow
def test_floors_of_quotients_that_rounding_would_change(ex):
    def fn(x, y):
        return (x // y + 1) * 2, (torch.remainder(x, y) + 1) * 2

    x, y = torch.tensor([1.0, 6.0, 0.3, 1e6, torch.inf]), torch.tensor([0.1, 0.1, -0.1, 0.3, 3.0])
    got, want = compiled(fn, ex)(x, y), fn(x, y)

    assert want[0][:2].tolist() == [20.0, 120.0]
    assert all(map(torch.equal, *([x.nan_to_num(7) for x in each] for each in (got, want))))


@pytest.mark.slow
def test_functions_are_right_where_numbers_are_tiny_and_large(ex):
    def fn(x, y):
        return torch.expm1(x) * 2, torch.atanh(x) * 2, torch.asinh(x) * 2, torch.log1p(x) * 2, torch.acosh(y) * 2, torch.asinh(y) * 2

    x, y = torch.tensor([1e-8, -1e-6, -0.0, 1e-3, 0.5]), torch.tensor([1.0, 2.0, 1e10, 3e38, torch.inf])
    for got, want in zip(compiled(fn, ex)(x, y), fn(x, y), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=0)
        assert torch.equal(got.signbit(), want.signbit())


@pytest.mark.slow
def test_inputs_that_require_grad_where_nothing_is_differentiated(ex):
    x = torch.randn(1, 8, requires_grad=True)
    run = compiled(lambda x: torch.tanh(x) * 0.5 + 1 > 1.2, ex)

    assert torch.equal(run(x), torch.tanh(x) * 0.5 + 1 > 1.2)


@pytest.mark.slow
def test_what_was_compiled_is_found_on_disk_again():

    def fn(x):
        return torch.softmax(x * 3, -1) + 1

    runs = [compiled(fn, inductor_executor()) for _ in range(2)]
    runs[0](torch.randn(3, 5))
    hits, misses = looked_up()
    same_results(runs[1], fn, torch.randn(3, 5))

    assert looked_up() == (hits + 1, misses)


def looked_up() -> tuple[int, int]:
    """How often Inductor has found on disk what it was to make, and how often not."""
    counters = torch._dynamo.utils.counters["inductor"]
    return counters["fxgraph_cache_hit"], counters["fxgraph_cache_miss"]


@pytest.mark.slow
def test_what_was_compiled_can_be_taken_elsewhere():
    """torch.compiler.save_cache_artifacts holds the kernels; where they are loaded, nothing is compiled again."""

    def fn(x):
        return torch.softmax(x * 5, -1) + 1

    with fresh_cache():
        compiled(fn, inductor_executor())(torch.randn(3, 5))
        artifacts, _ = torch.compiler.save_cache_artifacts()
    with fresh_cache():
        torch.compiler.load_cache_artifacts(artifacts)
        hits, misses = looked_up()
        same_results(compiled(fn, inductor_executor()), fn, torch.randn(3, 5))

    assert looked_up() == (hits + 1, misses)


def test_threads_compile_and_run_at_once(ex):
    fn, results = copy.copy(layer), {}
    x, w = torch.randn(6, 8), torch.randn(8)

    def one(i):
        results[i] = compiled(lambda x, w: fn(x, w)[0], ex)(x, w)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(results) == 3
    for got in leaves(results):
        torch.testing.assert_close(got, layer(x, w)[0], rtol=1e-2, atol=1e-2)
