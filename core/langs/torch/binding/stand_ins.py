"""Functions that return tensors like the results of an operation, where torch's fake tensors cannot compute these."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from dovetail.langs.torch.binding.symbol import resolve


def _ctc_loss(log_probs: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Return a tensor like the loss, whose shape does not depend on the lengths."""
    reduction = args[4] if len(args) > 4 else kwargs.get("reduction", 1)
    return log_probs.new_empty(log_probs.shape[1:-1] if reduction == 0 else ())


def _combinations(input: torch.Tensor, r: int = 2, with_replacement: bool = False) -> torch.Tensor:
    n = input.numel() + (r - 1 if with_replacement else 0)
    count = math.prod([n - i for i in range(r)]) // math.factorial(r)
    return input.new_empty((count, r) if r else (0,))


def _isin(elements: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Return a tensor like the answers, which are row-major in whatever layout the elements are; torch's rule gives their layout."""
    return elements.new_empty(elements.shape, dtype=torch.bool) if isinstance(elements, torch.Tensor) else torch.isin(elements, *args, **kwargs)


def _pdist(input: torch.Tensor, p: float = 2.0) -> torch.Tensor:
    n = input.shape[0] if input.ndim == 2 else 0
    return torch.pdist(input, p) if type(n) is int else input.new_empty(n * (n - 1) // 2)


def _of_length(function: Callable, length: Callable[[Any], Any]) -> Callable:
    """Return a factory of tensors of `length(n)` elements, for an n that is not a number too."""

    def like(n: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        if type(n) is int or n < 0:
            return function(n, *args, **kwargs)
        return function(2, *args, **kwargs).new_empty(length(n))

    return like


def _triangle(function: Callable, count: Callable[[Any, Any, Any], Any]) -> Callable:
    """Return a factory of the `count` positions in a triangle of a matrix with sizes that need not be numbers."""
    return lambda row, col, offset=0, **kwargs: function(2, 2, **kwargs).new_empty((2, count(row, col, offset)))


def _below(row: Any, col: Any, offset: Any) -> Any:
    """Return how many elements of a matrix lie on a diagonal or below it."""

    def ramp(n: Any) -> Any:
        """1 + 2 + ... + n"""
        return n * (n + 1) // 2 if n > 0 else 0

    return ramp(row + offset) - ramp(offset) - ramp(row + offset - col) + ramp(offset - col)


def _istft(input: torch.Tensor, n_fft: int, hop_length: int | None = None, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Return a tensor like the signal, whose length does not depend on values."""
    names = ("win_length", "window", "center", "normalized", "onesided", "length", "return_complex")
    options = dict(zip(names, args, strict=False)) | kwargs
    length = options.get("length")
    if length is None:
        length = n_fft + (hop_length or n_fft // 4) * (input.shape[-1] - 1) - (n_fft // 2 * 2 if options.get("center", True) else 0)
    return input.new_empty((*input.shape[:-2], length), dtype=None if options.get("return_complex") else input.real.dtype)


def _recurrent(function: Callable) -> Callable:
    """Return a recurrent layer of sequences whose length is not a number, or packed: sizes of the results depend on one step, or on the states."""

    def along(input: torch.Tensor, *rest: Any) -> Any:
        time = int(rest[-1])  # batch_first
        length = input.shape[time]
        if type(length) is int:
            return function(input, *rest)
        step, *states = function(input.narrow(time, 0, 1), *rest)
        output = step.new_empty((length, step.shape[1 - time], step.shape[2]))
        return output.transpose(0, 1) if time else output, *states

    def packed(input: torch.Tensor, sizes: torch.Tensor, states: Any, *rest: Any) -> Any:
        several = isinstance(states, (tuple, list))
        width = (states[0] if several else states).shape[-1] * (2 if rest[-1] else 1)  # bidirectional
        return input.new_empty((input.shape[0], width)), *[x.new_empty(x.shape) for x in (states if several else (states,))]

    def like(input: torch.Tensor, second: Any, *rest: Any) -> Any:
        is_packed = isinstance(second, torch.Tensor) and not second.is_floating_point()
        output, *states = (packed if is_packed else along)(input, second, *rest)
        layers, dropout, train = rest[-4:-1] if is_packed else rest[-5:-2]
        if train and dropout and layers > 1:
            output = torch.dropout(output, dropout, train)  # draw as the layer does: torch's rule in Python does not
        return output, *states

    return like


# Name in torch -> a function that returns tensors like the results of the callable, where fake tensors do not work; or what makes it of the callable.
_LIKE = {"ctc_loss": _ctc_loss, "combinations": _combinations, "isin": _isin, "istft": _istft, "pdist": _pdist}
_MAKERS: dict[str, Callable[[Callable], Callable]] = {
    "tril_indices": lambda function: _triangle(function, _below),
    "triu_indices": lambda function: _triangle(function, lambda row, col, offset: row * col - _below(row, col, offset - 1)),
    **{f"{name}_window": lambda function: _of_length(function, lambda n: n) for name in ("bartlett", "blackman", "hamming", "hann", "kaiser")},
    "fft.fftfreq": lambda function: _of_length(function, lambda n: n),
    "fft.rfftfreq": lambda function: _of_length(function, lambda n: n // 2 + 1),
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), _recurrent),
}

STAND_INS: dict[Any, Callable] = {
    **{function: like for name, like in _LIKE.items() if (function := resolve(f"torch.{name}")) is not None},
    **{function: make(function) for name, make in _MAKERS.items() if (function := resolve(f"torch.{name}")) is not None},
}
