"""Writes that autograd does not see, as operations of PyTorch with the gradients that the writes have: what a saved program calls."""

from __future__ import annotations

from typing import Any

import torch


class _Write(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return value.clone()


class _UnseenWrite(_Write):
    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> tuple:
        return g, None


class _Overwritten(_Write):
    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> tuple:
        return torch.zeros_like(g), g


def unseen_write(x: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Return the numbers of `value` with the history of x."""
    return _UnseenWrite.apply(x, value)


def overwritten(x: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Return x after all of it was overwritten by `value`: the gradient of x is zero, and not absent."""
    return _Overwritten.apply(x, value)
