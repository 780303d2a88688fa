"""Compiled programs compared with what they are in eager."""

from __future__ import annotations

import numpy
import torch

import dovetail

X = torch.arange(16.0).reshape(4, 4) / 7


def same(got, want):
    """Two nests are equal, tensors as torch compares them."""
    assert type(got) is type(want)
    if isinstance(want, torch.Tensor):
        torch.testing.assert_close(got, want)
    elif isinstance(want, numpy.ndarray):
        numpy.testing.assert_array_equal(got, want, strict=True)
    elif isinstance(want, (list, tuple)):
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            same(one, other)
    else:
        assert got == want


def agrees(fn, *args, programs=1, **kwargs):
    """`fn` compiled gives what `fn` gives, also for other values, by one program."""
    compiled = dovetail.jit(fn)
    for shift in (0, 1):
        given = [x + shift if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in args]
        same(compiled(*given, **kwargs), fn(*given, **kwargs))
    assert compiled.cache_info().programs == programs, dovetail.cache_misses(compiled)
    return compiled
