"""Locks in compiled functions: none is held while a call is traced, and none is waited for."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import dovetail

LOCKS = {"Lock": threading.Lock, "RLock": threading.RLock, "Condition": threading.Condition, "Semaphore": threading.Semaphore}
POOL = ThreadPoolExecutor(1)


def grown(x):
    return x + 1 if x.sum() > 0 else x - 1


def refused(x):
    return x.to_mkldnn().to_dense()


def failing(x):
    raise ValueError("the program's own")


@pytest.mark.filterwarnings("ignore:.*run in eager mode", "ignore:.*run eagerly")
@pytest.mark.parametrize("inside", [grown, refused, failing])
@pytest.mark.parametrize("kind", LOCKS)
def test_a_lock_is_free_when_the_call_has_ended(kind, inside):
    lock = LOCKS[kind]()

    def guarded(x):
        with lock:
            return inside(x)

    compiled = dovetail.jit(guarded, unsupported="eager")
    for x in (torch.ones(2), -torch.ones(2), torch.ones(2)):
        try:
            assert torch.equal(compiled(x), inside(x))
        except ValueError:
            assert inside is failing
        with ThreadPoolExecutor(1) as other:
            assert other.submit(lock.acquire, False).result(10)
            other.submit(lock.release).exception(10)
    assert inside is not grown or kind == "Semaphore" or compiled.cache_info().programs == 1  # a semaphore counts under its lock


@pytest.mark.parametrize("kind", LOCKS)
def test_a_lock_of_the_program_runs_compiled(kind):
    def guarded(x):
        lock = LOCKS[kind]()
        with lock:
            y = x + 1
        assert lock.acquire()
        lock.release()
        return y

    compiled = dovetail.jit(guarded)
    for _ in range(2):
        assert torch.equal(compiled(torch.ones(2)), guarded(torch.ones(2)))


def test_a_lock_that_is_held_is_not_acquired_twice():
    def twice(x):
        lock, again = threading.Lock(), threading.RLock()
        with lock, again, again:
            answers = x + 1, lock.acquire(blocking=False), lock.locked(), again.acquire()
            type(again).release(again)
        return answers

    assert dovetail.jit(twice)(torch.ones(2))[1:] == (False, True, True)


@pytest.mark.filterwarnings("ignore:.*run in eager mode", "ignore:.*run eagerly")
def test_a_lock_that_another_thread_holds_is_waited_for_in_eager_mode():
    lock, started = threading.Lock(), threading.Event()
    lock.acquire()

    def guarded(x):
        started.set()
        with lock:
            return x + 1

    with ThreadPoolExecutor(1) as other:
        result = other.submit(dovetail.jit(guarded, unsupported="eager"), torch.ones(2))
        assert started.wait(60)
        lock.release()
        assert torch.equal(result.result(60), torch.full((2,), 2.0))
    assert not lock.locked()


@pytest.mark.filterwarnings("ignore:.*run in eager mode", "ignore:.*run eagerly")
@pytest.mark.parametrize("own", [False, True], ids=["a pool from outside", "a pool of its own"])
def test_a_pool_of_threads_runs_in_eager_mode(own):
    def scattered(x):
        if not own:
            return POOL.submit(torch.add, x, 1).result(60)
        with ThreadPoolExecutor(2) as pool:
            return sum(pool.map(lambda i: x + i, range(3)))

    compiled = dovetail.jit(scattered, unsupported="eager")
    for _ in range(2):
        assert torch.equal(compiled(torch.ones(2)), scattered(torch.ones(2)))


class Counter:
    def __init__(self):
        self.lock, self.count, self.total = threading.Lock(), 0, torch.zeros(2)


def counted(counter, x):
    with counter.lock:
        counter.count += 1
    return x + 1


def added(counter, x):
    with counter.lock:
        counter.total.add_(x)
    return x + 1


def read(counter, x):
    with counter.lock:
        return x + counter.total


@pytest.mark.filterwarnings("ignore:.*run in eager mode", "ignore:.*run eagerly")
@pytest.mark.parametrize("guarded", [counted, added, read])
def test_what_a_lock_from_outside_protects_is_written_while_it_is_held(guarded):
    ours, theirs = Counter(), Counter()
    compiled = dovetail.jit(guarded, unsupported="eager")
    for _ in range(3):
        assert torch.equal(compiled(ours, torch.ones(2)), guarded(theirs, torch.ones(2)))
        assert ours.count == theirs.count and torch.equal(ours.total, theirs.total)
    assert bool(compiled.cache_info().programs) is (guarded is read)
