"""What the tests of decisions share."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import torch

import dovetail


def compiled(fn: Callable, **options: Any) -> Any:
    """Return `fn` compiled piece by piece, on PyTorch's kernels unless `options` say otherwise."""
    return dovetail.jit(fn, **{"decisions": "graph", "executors": ["torch"]} | options)


def graph_of(fn: Any) -> Any:
    """Return the graph of the program that ran last."""
    return fn._cache.entries[0].graph


def agrees(fn: Callable, eager: Callable, *args: Any) -> Any:
    """Check that both return the same and leave the same in their arguments; return the result."""
    theirs, ours = copy.deepcopy(args), copy.deepcopy(args)
    torch.manual_seed(0)
    expected, state = eager(*theirs), torch.get_rng_state()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*report it as a bug")
        result = fn(*ours)
    torch.testing.assert_close(result, expected, equal_nan=True)
    for mine, other in zip(ours, theirs, strict=True):
        if isinstance(mine, torch.Tensor):
            torch.testing.assert_close(mine, other, equal_nan=True)
        else:
            assert repr(getattr(mine, "__dict__", mine)) == repr(getattr(other, "__dict__", other))
    assert torch.equal(torch.get_rng_state(), state)
    return result
