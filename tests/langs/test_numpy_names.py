"""Arguments under NumPy's names, which PyTorch takes where it has no parameter of that name: `torch.sum(a=x, axis=0, keepdims=True)`."""

from __future__ import annotations

import warnings

import pytest
import torch

import dovetail

X, Y = torch.arange(6.0).reshape(2, 3), torch.ones(2, 3)
CALLS = {
    "add": lambda x, y: torch.add(x1=x, x2=y),
    "sub": lambda x, y: torch.sub(x, x2=y, alpha=2),
    "add_": lambda x, y: x.clone().add_(x2=y),
    "maximum": lambda x, y: torch.maximum(x1=x, other=y),
    "exp": lambda x, y: torch.exp(x=x) + torch.sin(a=x) + torch.cos(x1=x),
    "sum": lambda x, y: torch.sum(a=x, axis=1, keepdims=True),
    "amax": lambda x, y: torch.amax(x=x, axis=(0, 1)),
    "std": lambda x, y: x.std(axis=0, keepdims=True),
    "max": lambda x, y: torch.max(a=x, axis=0),
    "sort": lambda x, y: torch.sort(a=x, axis=0, descending=True),
    "cumsum": lambda x, y: torch.cumsum(a=x, axis=0),
    "squeeze": lambda x, y: torch.squeeze(a=x[None], axis=0),
    "clip": lambda x, y: torch.clip(a=x, min=1),
    "where": lambda x, y: torch.where(condition=x > 1, x1=x, x2=y),
    "stack": lambda x, y: torch.stack((x, y), axis=1),
    "gather": lambda x, y: torch.gather(a=x, axis=0, index=torch.tensor([[1]])),
    "take_along_dim": lambda x, y: torch.take_along_dim(a=x, indices=torch.zeros(2, 3, dtype=torch.int64), axis=0),
    "repeat_interleave": lambda x, y: torch.repeat_interleave(a=x, repeats=2, axis=0),
    "cdist": lambda x, y: torch.cdist(x1=x, x2=y),  # PyTorch's own names
    "tensordot": lambda x, y: torch.tensordot(a=x, b=y.T, dims=1),
}


@pytest.mark.parametrize("name", CALLS)
def test_numpys_names_are_pytorchs(name):
    fn = CALLS[name]
    compiled = dovetail.jit(fn)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*report it as a bug")
        for x in (X, X - 2):
            torch.testing.assert_close(compiled(x, Y), fn(x, Y))


@pytest.mark.parametrize(
    "fn",
    [lambda x: torch.sum(x, dim=0, axis=1), lambda x: torch.exp(x, a=x), lambda x: torch.add(x1=x), lambda x: torch.exp(x2=x)],
    ids=["both", "twice", "too few", "unknown"],
)
def test_a_name_too_many_or_too_few_is_an_error(fn):
    for called in (fn, dovetail.jit(fn)):
        with pytest.raises(TypeError):
            called(X)
