"""What can be checked of undetermined values: shape and dtype, and bounds and moments of random numbers."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import torch
from torch import Tensor

FAR, MANY = 6.0, 30  # allowed error of a mean, in standard errors; numbers from which on moments are checked


@dataclass(frozen=True)
class Drawn:
    """A function that describes what is wrong with a result; None where nothing is.

    Numbers lie in [low, high], or in [low, high) where it is `half_open`, and are `whole` or not; their mean and standard deviation hold for the
    parts of complex numbers, and are checked for samples that are large enough.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype | None = None
    low: float = -inf
    high: float = inf
    mean: float | None = None
    std: float | None = None
    whole: bool = False
    half_open: bool = False

    def __call__(self, got: Any) -> str | None:
        if not isinstance(got, Tensor) or tuple(got.shape) != tuple(self.shape):
            return f"{tuple(got.shape) if isinstance(got, Tensor) else got!r} in place of a tensor of shape {tuple(self.shape)}"
        if self.dtype not in (None, got.dtype):
            return f"{got.dtype} in place of {self.dtype}"
        values = torch.view_as_real(got.resolve_conj()) if got.is_complex() else got
        return self.message(values.detach().cpu().to(torch.float64).numpy().reshape(-1))

    def message(self, x: np.ndarray) -> str | None:
        """Describe what is wrong with these numbers."""
        below = x < self.high if self.half_open else x <= self.high
        outside = x[~((x >= self.low) & below)] if (self.low, self.high) != (-inf, inf) else x[:0]
        if outside.size:
            return f"{outside[0]:.7g} lies outside [{self.low}, {self.high}{')' if self.half_open else ']'}"
        if self.whole and (x != np.round(x)).any():
            return f"{x[x != np.round(x)][0]:.7g} is not a whole number"
        if self.mean is not None and self.std is not None and x.size >= MANY:
            error = FAR * self.std / np.sqrt(x.size)
            if abs(x.mean() - self.mean) > error:
                return f"the mean of {x.size} numbers is {x.mean():.4g}, expected {self.mean:.4g} within {error:.2g}"
            if not self.std / 2 <= x.std() <= 2 * self.std:
                return f"the standard deviation of {x.size} numbers is {x.std():.4g}, where {self.std:.4g} is expected"
        return None
