"""Values that are needed inside torch.inference_mode, which the function enters itself."""

from __future__ import annotations

import pytest
import torch

import dovetail

X = torch.tensor([1.0, 2.0, 3.0])


@torch.inference_mode()
def branch(x):
    y = x * 2
    return y + 1 if y.sum() > 3 else y - 1


def gradient_beside_it(x):
    with torch.inference_mode():
        y = x * 2
        if y.sum() > 3:
            y = y + 1
    return x * 3, y


def loop(x):
    z = x * 5
    with torch.inference_mode():
        n = 0
        while (x * x * n).sum() < 30:
            n += 1
    return z * n


def value_that_is_used_after_it(x):
    with torch.inference_mode():
        k = int(x.sum())
    return x * k if x.max() > 2 else x - k


def mask_on_one_path(x):
    if x[0] > 0:
        with torch.inference_mode():
            y = x * 2
            m = y[y > 2]
    else:
        with torch.no_grad():
            y = x * 3
            m = y[y < -2]
    return y, m.sum(), x * 4


def left_and_entered(x):
    with torch.inference_mode():
        if (x * 2).sum() > 3:
            with torch.inference_mode(False), torch.enable_grad():
                return x * 7
        raise ValueError(x)


def outcome(fn, value, requires_grad):
    x = value.clone().requires_grad_(requires_grad)
    try:
        results = fn(x)
    except ValueError as error:
        results = error.args[0] * 1
    results = results if isinstance(results, tuple) else (results,)
    if gradients := [result for result in results if result.requires_grad]:
        sum([result.sum() for result in gradients]).backward()
    modes = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
    return [result.detach() for result in results], [result.requires_grad for result in results], x.grad, modes


@pytest.mark.parametrize("fn", [branch, gradient_beside_it, loop, value_that_is_used_after_it, mask_on_one_path, left_and_entered])
def test_as_in_eager_mode(fn):
    compiled = dovetail.jit(fn)
    for value, requires_grad in ((X, False), (X, True), (-X, False), (X, True), (-X, True), (X * 3, False)):
        torch.testing.assert_close(outcome(compiled, value, requires_grad), outcome(fn, value, requires_grad))
