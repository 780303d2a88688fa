"""The pool of large results: a block is taken again when nothing refers to it, and never before."""

from __future__ import annotations

import torch
from llvm_against_eager import compiled

from dovetail.extend.advanced import POOL
from dovetail_llvm_exec.call import launch

N = 1 << 18
SIZE = 4 * N


def test_results_of_programs_come_from_the_pool_and_keep_their_values():
    n = launch.LARGE // 4 + 100
    ours = compiled(lambda x: x * 2)
    results = [ours(torch.full((n,), float(i))) for i in range(4)]
    for i, result in enumerate(results):
        assert (result == 2.0 * i).all()
    assert len({r.data_ptr() for r in results}) == 4
    slices, kept = [r[3:7].clone() for r in results], results[0][:5]
    del result
    results.clear()
    before = POOL.statistics().reused
    again = ours(torch.full((n,), 9.0))
    assert POOL.statistics().reused == before + 1
    assert (kept == 0.0).all() and (again == 18.0).all() and slices[3][0] == 6.0


def test_a_gradient_from_the_pool_is_the_parameters_own():
    n = launch.LARGE // 4 + 64
    w = torch.randn(n, requires_grad=True)
    ours = compiled(lambda w: (w * w).sum())
    ours(w).backward()
    first = w.grad.clone()
    ours(w).backward()
    assert torch.allclose(w.grad, 2 * first)
    held, w.grad = w.grad, None
    ours(w).backward()
    assert torch.allclose(held, 2 * first) and torch.allclose(w.grad, first)


def test_large_workspaces_come_from_the_pool(monkeypatch):
    monkeypatch.setattr(launch, "LARGE", 1 << 10)
    x, w = torch.randn(300, 70, requires_grad=True), torch.randn(70, requires_grad=True)
    loss = compiled(lambda x, w: (torch.nn.functional.layer_norm(torch.tanh(x), (70,), w) ** 2).sum())
    for _ in range(2):
        before = POOL.statistics().reused + POOL.statistics().created
        loss(x, w).backward()
        assert POOL.statistics().reused + POOL.statistics().created > before
    got = x.grad / 2, w.grad / 2
    x.grad = w.grad = None
    (torch.nn.functional.layer_norm(torch.tanh(x), (70,), w) ** 2).sum().backward()
    torch.testing.assert_close(got, (x.grad, w.grad), rtol=1e-5, atol=1e-5)
