"""Functions that need values of arrays: NumPy's arrays are inputs beside decisions, as tensors are, so that other content is no other program."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import dovetail


def clipped_mean(a):
    kept = a[np.abs(a) < 1.5]
    return kept.mean() if len(kept) else 0.0


def per_class(a, labels):
    return {k: (a[labels == k].sum(), int((labels == k).sum())) for k in range(3)}


def fill(a):
    a[a < 0] = 0
    if a.sum() > 3:
        a *= 2
    return a


def written_then_asked(a, x):
    a += 1
    y = x * float(a[0])
    if y.sum() > 0:
        a[1] = -7
    return y, a.max()


def scaled(x, a):
    return x * float(a.mean()) if x.sum() > 0 else x


def act(obs, w):
    logits = torch.from_numpy(obs) @ w
    return int(logits.argmax()), float(logits.max()) > 0


def running(a):
    total, steps = 0.0, 0
    for v in a[:4]:
        if v > 0:
            total += float(v)
            steps += 1
    return total, steps


def positions(a):
    (i,) = np.nonzero(a > 0.5)
    return a[i] * 2, i, np.flatnonzero(a < 0), np.argwhere(a > 1)


def sorted_unique(a):
    return np.unique(np.round(a * 2).astype(np.int64))


def search(a):
    best = int(np.argmax(a))
    return best, a[best], a[: best + 1].sum()


def nested(batch):
    x, y = batch["x"], batch["pair"][0]
    return x[y > 0].sum() if y.sum() > 0 else x * 2


def same_or_not(a, b):
    return a is b, (a + b) if (a == b).all() else a - b


def view(a):
    return a[1:4] if a[0] > 0 else a[::2]


def to_torch(a):
    t = torch.from_numpy(a)
    if t.mean() > 0:
        t.mul_(2)
    return t


Make = Callable[[np.random.RandomState, int], tuple]
PROGRAMS: dict[str, tuple[Callable, Make]] = {
    "a mask": (clipped_mean, lambda r, n: (r.randn(n),)),
    "masks of another array": (per_class, lambda r, n: (r.randn(n), r.randint(0, 3, n))),
    "writes by a mask": (fill, lambda r, n: (r.randn(n),)),
    "writes, and a tensor": (written_then_asked, lambda r, n: (r.randn(n), torch.from_numpy(r.randn(3)))),
    "a number beside a decision on a tensor": (scaled, lambda r, n: (torch.from_numpy(r.randn(3)), r.randn(n))),
    "an observation": (act, lambda r, n: (r.randn(n).astype(np.float32), torch.from_numpy(np.random.RandomState(0).randn(n, 2).astype(np.float32)))),
    "a loop": (running, lambda r, n: (r.randn(n),)),
    "positions": (positions, lambda r, n: (r.randn(n),)),
    "unique": (sorted_unique, lambda r, n: (r.randn(n),)),
    "a search": (search, lambda r, n: (r.randn(n),)),
    "containers": (nested, lambda r, n: ({"x": r.randn(n), "pair": [r.randn(n), 3]},)),
    "one array twice": (same_or_not, lambda r, n: (a := r.randn(n), a)),
    "equal arrays": (same_or_not, lambda r, n: (a := r.randn(n), a.copy())),
    "a view": (view, lambda r, n: (r.randn(n),)),
    "a tensor of it": (to_torch, lambda r, n: (r.randn(n),)),
    "reversed": (clipped_mean, lambda r, n: (r.randn(n)[::-1],)),
    "a column": (clipped_mean, lambda r, n: (r.randn(n, 2)[:, 1],)),
    "integers": (search, lambda r, n: (r.randint(-5, 5, n),)),
    "halves": (clipped_mean, lambda r, n: (r.randn(n).astype(np.float32),)),
}


def flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [x for key, item in value.items() for x in (key, *flat(item))]
    return [x for item in value for x in flat(item)] if isinstance(value, (list, tuple)) else [value]


def assert_same(got: Any, want: Any) -> None:
    for x, y in zip(flat(got), flat(want), strict=True):
        assert type(x) is type(y), (x, y)
        if isinstance(y, (np.ndarray, np.generic)):
            assert x.dtype == y.dtype and x.shape == y.shape
            np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-7)
        elif isinstance(y, (torch.Tensor, float)):
            torch.testing.assert_close(x, y)
        else:
            assert x == y


@pytest.mark.filterwarnings("ignore:.*runs? eagerly", "ignore:.*calls like this one run in eager mode")
@pytest.mark.parametrize("n", [6, 20_000])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_follow_the_content(name: str, n: int) -> None:
    fn, make = PROGRAMS[name]
    fast = dovetail.jit(fn)
    for seed in range(7):
        args = make(np.random.RandomState(seed), n)
        ours, theirs = copy.deepcopy(args), copy.deepcopy(args)
        assert_same(fast(*ours), fn(*theirs))
        assert_same(ours, theirs)


@pytest.mark.parametrize("name", ["a mask", "masks of another array", "writes, and a tensor", "a number beside a decision on a tensor", "a view"])
def test_other_content_is_no_other_program(name: str) -> None:
    fn, make = PROGRAMS[name]
    fast = dovetail.jit(fn)
    for seed in range(5):
        fast(*make(np.random.RandomState(seed), 50))
    before = len(dovetail.cache_misses(fast))
    for seed in range(5, 25):
        fast(*make(np.random.RandomState(seed), 50))
    assert len(dovetail.cache_misses(fast)) <= before + 2


def test_content_that_stays_is_a_constant() -> None:
    fast = dovetail.jit(lambda x, order: x * [1, 10, 100][order[0]])
    for seed in range(3):
        assert_same(fast(np.full(3, seed), np.array([2])), np.full(3, seed) * 100)
    assert len(dovetail.cache_misses(fast)) == 1


def test_results_share_memory_with_arguments() -> None:
    fast = dovetail.jit(view)
    for sign in (1, -1, 1, -1):
        a = np.arange(1.0, 9.0) * sign
        out = fast(a)
        assert np.shares_memory(out, a) and out.base is not None
        out[0] = 40
        assert (a[1] if sign > 0 else a[0]) == 40


def test_arrays_that_share_memory() -> None:
    def shift(a, b):
        a += b
        return b.sum() if a[0] > 0 else b.max()

    fast = dovetail.jit(shift)
    for seed in range(5):
        one, other = (np.random.RandomState(seed).randn(8) for _ in range(2))
        try:
            got = fast(one[1:], one[:-1])
        except dovetail.DovetailError:
            continue  # memory that overlaps is refused
        assert_same([got, one], [shift(other[1:], other[:-1]), other])


@pytest.mark.parametrize("n", [6, 20_000])
def test_arrays_that_may_not_be_written(n: int) -> None:
    def read(a):
        return a.sum() if a[0] > 0 else a.max()

    read_fast, fill_fast = dovetail.jit(read), dovetail.jit(fill)
    for seed in range(5):
        a = np.random.RandomState(seed).randn(n)
        assert_same(fill_fast(a.copy()), fill(a.copy()))
        a.flags.writeable = False
        before = a.copy()
        assert_same(read_fast(a), read(a))
        with pytest.raises(ValueError, match="read-only"):
            fill_fast(a)
        assert_same(a, before)
