"""Models that drop layers, and mask spans of their inputs at places that NumPy draws in each call, as speech models in training do."""

import functools

import numpy as np
import pytest
import torch
from decisions.helpers import compiled, graph_of


def spans(lengths, size, share, length, least):
    """Return a mask of `length` elements from random places on in each row, as many as cover about a `share` of it."""
    chance = np.random.rand(1).item()

    def count(n):
        number = max(int(share * n / length + chance), least)
        if number * length > size:
            number = size // length
        return max(n - length + 1, 0) if n - length + 1 < number else number

    mask, most, rows = np.zeros((len(lengths), size), dtype=bool), count(size), []
    if most == 0:
        return mask
    for n in lengths:
        number = count(n)
        starts = np.random.choice(np.arange(n - length + 1), number, replace=False)
        first = starts[0] if len(starts) else size - 1
        rows.append(np.concatenate([starts, np.ones(most - number, dtype=np.int32) * first]))
    places = np.array(rows)[:, :, None] + np.arange(length)[None, None, :]
    places = places.reshape(len(lengths), most * length)
    if places.max() > size - 1:
        places[places > size - 1] = size - 1
    np.put_along_axis(mask, places, 1, -1)
    return mask


@functools.cache
def has_kernels():
    return False


def encoder(x, w, lengths, least):
    masked = torch.tensor(spans(lengths, x.shape[1], 0.3, 3, least))
    x = x.clone()
    x[masked] = w
    for _ in range(2):
        if np.random.uniform(0, 1) < 0.3 or has_kernels():
            continue
        x = torch.tanh(x * w)
    return x


def with_rows(x, w, mask, least):
    return encoder(x, w, mask.sum(-1).tolist(), least)


@pytest.mark.parametrize(("lengths", "least"), [([12, 12], 0), ([12, 12], 2), (torch.tensor([[1] * 12, [1] * 9 + [0] * 3]), 0)])
def test_masks_at_places_that_are_drawn(lengths, least):
    program = with_rows if isinstance(lengths, torch.Tensor) else encoder
    fn, seen = compiled(program), set()
    for seed in range(16):
        outcomes = []
        for run in (program, fn):
            np.random.seed(seed)
            x, w = torch.randn(2, 12, 4, generator=torch.manual_seed(seed)), torch.linspace(0.5, 1, 4, requires_grad=True)
            y = run(x, w, lengths, least)
            y.sum().backward()
            outcomes.append((y, w.grad, np.random.rand()))
        torch.testing.assert_close(outcomes[1], outcomes[0])
        seen.add(outcomes[0][2])
    assert graph_of(fn).eager_calls == 0 and len(seen) == 16 and fn.cache_info().misses < 8
