"""Many tensors checked at once: by torch's own guards where this torch has them and they behave, else in Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dovetail.torch_internals import tensor_guard


class TensorChecks:
    """Checks of many tensors: `fit` is fast, and may return False for tensors that fit; `missed` decides.

    `rows` are the keyword arguments of prims.check_tensor for each tensor.  `passed` are the positions of those that may be nested tensors:
    torch's guard ends the process for one.
    """

    def __init__(self, rows: Sequence[dict[str, Any]], passed: Sequence[int] = ()):
        self.rows, self.passed, self.check = tuple(rows), tuple(passed), None

    def fit(self, *tensors: torch.Tensor) -> bool:
        """Return whether the tensors fit; False may be wrong."""
        check = self.check
        return check is not None and not any([getattr(tensors[i], "is_nested", False) for i in self.passed]) and check(*tensors)

    def missed(self, *tensors: torch.Tensor) -> Any:
        """Return the miss of the first tensor that does not fit, None where all fit."""
        for x, row in zip(tensors, self.rows, strict=True):
            if not fits(x, **row):
                return row["miss"]
        if self.check is None and not torch.is_inference_mode_enabled():
            self.check = tensor_guard(tensors)
        return None


def fits(x: Any, *, type: type, dtype: Any, shape: tuple, device: Any, requires_grad: bool, strides: tuple | None, miss: Any = None) -> bool:
    """Return whether x passes prims.check_tensor."""
    try:
        same = x.__class__ is type and x.dtype is dtype and x.shape == shape and (x.is_cpu if device is None else x.device == device)
        return same and x.requires_grad == requires_grad and (x.is_contiguous() if strides is None else x.stride() == strides)
    except RuntimeError:  # one of another layout, as a sparse tensor raises for its strides, and a nested one for its shape
        return False


def tensor_facts(x: torch.Tensor, strides: Any) -> dict[str, Any]:
    """Return what a program depends on of a tensor, as check_tensor takes it; `strides` None means row-major."""
    return {
        "type": type(x),
        "dtype": x.dtype,
        "shape": tuple(x.shape),
        "device": None if x.is_cpu else x.device,
        "requires_grad": x.requires_grad,
        "strides": None if strides is None else tuple(x.stride()),
    }
