"""The pool of large results: a block is taken again when nothing refers to it, and never before."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import warnings

import pytest
import torch

from dovetail.executors.contract.memory_pool import Block, Pool, rounded

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
    pool.empty((2 * N,), (1,), torch.float32, 2 * SIZE)
    assert pool.statistics().idle <= 4 * SIZE
    pool.clear()
    assert pool.statistics().bytes == 0


def test_references_are_counted_alike_however_python_runs_functions():
    """Where something hooks into the evaluation of frames, each call of a function holds its arguments more than once."""
    block, pool, found = Block(64), Pool(), []

    def inside(x):
        torch._dynamo.graph_break()
        found.append(block.references())
        return x + 1

    with warnings.catch_warnings(action="ignore"):
        torch.compile(inside, backend="eager")(torch.ones(3))
    torch._dynamo.reset()
    assert found == [block.references()] == [pool._unused] == [(1, 2)]


def test_shapes_that_are_nearly_the_same_share_a_block():
    assert [rounded(n) for n in (1 << 22, (1 << 22) + 1, 5 << 20, 100 << 20)] == [4 << 20, (4 << 20) + (1 << 19), 5 << 20, 104 << 20]
    assert all(n <= rounded(n) <= n * 9 // 8 for n in range(1 << 22, 1 << 24, 99_991))
    pool = Pool()
    x = pool.empty((N + 100,), (1,), torch.float32, SIZE + 400)
    where = x.data_ptr()
    del x
    y = pool.empty((N + 5000, 1), (1, 1), torch.float32, SIZE + 20_000)
    assert y.data_ptr() == where and y.shape == (N + 5000, 1)


def test_memory_that_other_processes_may_read_is_not_used_again():
    pool = Pool()
    x = taken(pool)
    x.share_memory_()
    shared = x.data_ptr()
    del x
    y = taken(pool)
    assert y.data_ptr() != shared and not y.is_shared() and pool.statistics()[2:] == (0, 2)


def test_a_child_of_a_fork_has_a_lock_of_its_own():
    pool = Pool()
    with pool._lock:
        child = os.fork()
        if child == 0:
            pool._after_fork()
            os._exit(0 if taken(pool).numel() == N else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_resizing_a_result_does_no_harm():
    pool = Pool()
    x = taken(pool)
    x.resize_(N * 4).fill_(1.0)
    del x
    y = taken(pool)
    assert y.untyped_storage().nbytes() >= SIZE and y.numel() == N


MAPPED = """
import ctypes, torch

class Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Mallinfo2

before = libc.mallinfo2().hblks
held = torch.UntypedStorage(20 << 20)
print(libc.mallinfo2().hblks - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="the threshold is that of glibc's allocator")
@pytest.mark.parametrize(("imported", "mapped"), [("torch", 1), ("dovetail", 0)])
def test_the_allocator_keeps_what_is_smaller(imported, mapped):
    """What glibc maps by itself it gives back when it is freed, and the next request meets new pages."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    done = subprocess.run([sys.executable, "-c", f"import {imported}\n{MAPPED}"], capture_output=True, text=True, env=environment)
    assert done.stdout == f"{mapped}\n", done.stderr
