"""The pool of large results: a block is taken again when nothing refers to it, and never before."""

from __future__ import annotations

import os
import subprocess
import sys

import torch
from llvm_against_eager import compiled

from dovetail_llvm_exec import launch
from dovetail_llvm_exec.pool import Pool

N = 1 << 18
SIZE = 4 * N


def taken(pool: Pool) -> torch.Tensor:
    return pool.empty((N,), (1,), torch.float32, SIZE)


def test_a_block_is_used_again_when_its_tensor_is_gone():
    pool = Pool()
    x = taken(pool)
    where = x.data_ptr()
    del x
    assert taken(pool).data_ptr() == where
    assert pool.statistics()[2:] == (1, 1)


def test_views_and_aliases_hold_a_block():
    pool = Pool()
    for hold in (lambda x: x[5:10], lambda x: x.detach(), lambda x: x.view(2, -1).t(), lambda x: x.untyped_storage(), lambda x: x.numpy()):
        x = taken(pool)
        where, held = x.data_ptr(), hold(x)
        del x
        other = taken(pool)
        assert other.data_ptr() != where
        del other, held
        pool.clear()


def test_what_autograd_saves_holds_a_block():
    pool = Pool()
    x = taken(pool).fill_(3.0).requires_grad_()
    y = (x * x).sum()
    where = x.data_ptr()
    held = x.grad_fn, y
    del x
    assert taken(pool).data_ptr() != where
    held[1].backward()


def test_no_more_than_the_cap_stays_idle():
    pool = Pool(cap=4 * SIZE)
    blocks = [pool.empty((N + i,), (1,), torch.float32, SIZE + 4 * i) for i in range(8)]
    assert pool.statistics().idle == 0
    blocks.clear()
    pool.empty((N + 9,), (1,), torch.float32, SIZE + 36)
    assert pool.statistics().idle <= 4 * SIZE
    pool.clear()
    assert pool.statistics().bytes == 0


PROGRAM = """
import torch
from dovetail_llvm_exec import launch
from dovetail_llvm_exec.pool import POOL
from llvm_against_eager import compiled

n = launch.LARGE // 4 + 100
ours = compiled(lambda x: x * 2)
results = [ours(torch.full((n,), float(i))) for i in range(4)]
assert all((r == 2.0 * i).all() for i, r in enumerate(results))
assert len({r.data_ptr() for r in results}) == 4
slices = [r[3:7].clone() for r in results]
kept = results[0][:5]
results.clear()
before = POOL.statistics().reused
again = ours(torch.full((n,), 9.0))
assert POOL.statistics().reused == before + 1
assert (kept == 0.0).all() and (again == 18.0).all() and slices[3][0] == 6.0
"""


def test_results_of_programs_come_from_the_pool_and_keep_their_values():
    """In a process of its own: in a long run of tests something else may still hold what this one gives back."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


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


def test_resizing_a_result_does_no_harm():
    pool = Pool()
    x = taken(pool)
    x.resize_(N * 4).fill_(1.0)
    del x
    y = taken(pool)
    assert y.untyped_storage().nbytes() >= SIZE and y.numel() == N
