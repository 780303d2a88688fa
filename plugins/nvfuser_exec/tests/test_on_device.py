"""Definitions that run, where there is a CUDA device and an nvFuser for it: values, gradients, layouts, memory."""

from __future__ import annotations

import pytest
import torch
from samples import samples

import dovetail
from dovetail_nvfuser_exec import availability
from dovetail_nvfuser_exec.definitions import Definitions
from dovetail_nvfuser_exec.executor import nvfuser_executors

pytestmark = pytest.mark.skipif(availability.available() is not True, reason=str(availability.available()))


@pytest.fixture
def executors():
    attention, regions = nvfuser_executors()
    return attention, regions


def compiled(fn, executors, **options):
    executors[1].options = executors[1].options | options
    return dovetail.jit(fn, executors=[*executors, "torch"], passes=[dovetail.extend.advanced.checked])


def same(got, want, tolerance=1e-4):
    for a, b in zip(torch.utils._pytree.tree_leaves(got), torch.utils._pytree.tree_leaves(want), strict=True):
        low = a.dtype in (torch.bfloat16, torch.float16)
        torch.testing.assert_close(a, b, rtol=2e-2 if low else tolerance, atol=2e-2 if low else tolerance, equal_nan=True)
        assert a.stride() == b.stride()


def test_samples_of_the_conformance_suite():
    nv = availability.module()
    for name, dtype, trace, inputs in samples(device="cuda"):
        got, want = Definitions().region(nv, trace)(*inputs), dovetail.to_fx(trace)(*inputs)
        for a, b in zip(got, want, strict=True):
            assert a.dtype is b.dtype and torch.allclose(a.double(), b.double(), rtol=2e-2, atol=2e-2, equal_nan=True), f"{name} of {dtype}: {a}, {b}"


def several(x, w):
    y = torch.nn.functional.layer_norm(x, (x.shape[-1],), w)
    z = torch.nn.functional.gelu(y.bfloat16())
    return torch.softmax(y, -1) * 2, y.t(), y.clone(), y[1:, 2:], (x > 0).any(0), z, x.t() + 1


@pytest.mark.parametrize("transposed", [False, True])
def test_a_region_equals_eager(executors, transposed):
    x, w = torch.randn(64, 64, device="cuda"), torch.randn(64, device="cuda")
    x = x.t() if transposed else x
    run = compiled(several, executors)

    same(run(x, w), several(x, w))
    same(run(x + 1, w), several(x + 1, w))
    assert "nvfuser_exec" in str(dovetail.last_traces(run)[-2])


def test_gradients(executors):
    def fn(x, w):
        return torch.nn.functional.rms_norm(x, (64,), w).exp().sum()

    x, w = (torch.randn(*shape, device="cuda", requires_grad=True) for shape in ((32, 64), (64,)))
    same(torch.autograd.grad(compiled(fn, executors)(x, w), [x, w]), torch.autograd.grad(fn(x, w), [x, w]), 1e-3)


@pytest.mark.parametrize("causal", [False, True])
def test_attention(executors, causal):
    def attend(q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    q, k, v = (torch.randn(2, 4, 128, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    run = compiled(attend, executors, sdpa=True)
    got, want = run(q, k, v), attend(q, k, v)
    torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)
    g = torch.randn_like(want)
    for a, b in zip(torch.autograd.grad(got, [q, k, v], g), torch.autograd.grad(want, [q, k, v], g), strict=True):
        torch.testing.assert_close(a, b, rtol=5e-2, atol=5e-2)
    assert "nvfuser_attention_exec" in str(dovetail.last_traces(run)[-2])


def test_products_positions_and_numbers(executors):
    def fn(x, w, table, index):
        picked = torch.nn.functional.embedding(index, table)
        return torch.tanh(x @ w) * x.sum().item() + torch.nn.functional.linear(picked, w), torch.gather(x, 1, index[:, None] % 8).exp() + 1

    x, w, table = (torch.randn(8, 8, device="cuda") for _ in range(3))
    index = torch.randint(0, 8, (8,), device="cuda")
    with torch.no_grad():
        same(compiled(fn, executors, matmul=True, linear=True, embedding=True, indexing=True)(x, w, table, index), fn(x, w, table, index), 1e-3)


def test_copies_are_memory_of_their_own(executors):
    def fn(x):
        return x.clone(), x.clone(), torch.exp(x) + 1

    x = torch.randn(8, 8, device="cuda")
    got = compiled(fn, executors)(x)
    same(got, fn(x))
    assert len({t.data_ptr() for t in (*got, x)}) == 4


def test_writes_through_aliased_outputs():
    def fn(p, g):
        dovetail.prims.copy_(p, dovetail.prims.mul(g, 2.0))
        return (dovetail.prims.exp(g),)

    p, g = torch.zeros(64, device="cuda"), torch.randn(64, device="cuda")
    (out,) = Definitions().region(availability.module(), dovetail.make_trace(fn)(p, g))(p, g)
    same((p, out), (g * 2, torch.exp(g)))
