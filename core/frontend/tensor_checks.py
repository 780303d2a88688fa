"""Many tensors checked at once: by torch's own guards where this torch has them and they behave, else in Python."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

_guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)


def _native(tensors: Sequence[torch.Tensor]) -> Any:
    """torch's guard on these tensors, as they are now, in this thread's modes."""
    sizes, strides = [list(x.shape) for x in tensors], [list(x.stride()) for x in tensors]
    return _guards.TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check


@cache
def behaves() -> bool:
    """Whether torch's guard tells tensors apart as we need it; it is private, and may be another one some day."""
    x, p = torch.ones(2, 3), torch.nn.Parameter(torch.ones(3))
    try:
        check = _native((x, p))
        others = (x.double(), x[:1], torch.ones(3, 2).t(), x.clone().requires_grad_(), torch.nn.Parameter(x), 1.0, x.to("meta"))
        return check(x.clone(), p) is True and not any([check(other, p) for other in others]) and not check(x, p.detach())
    except Exception:  # whatever a private class does with arguments that it does not know
        return False


class TensorChecks:
    """`fit(*tensors)` is fast, and may say False of tensors that fit; `missed(*tensors)` decides: a miss, or None.

    `rows` are what each tensor has to be, as prims.check_tensor takes it, and the miss that says that it is not.
    """

    def __init__(self, rows: Sequence[dict[str, Any]]):
        self.rows, self.check = tuple(rows), None

    def fit(self, *tensors: torch.Tensor) -> bool:
        check = self.check
        return check is not None and check(*tensors)

    def missed(self, *tensors: torch.Tensor) -> Any:
        for x, row in zip(tensors, self.rows, strict=True):
            if not fits(x, **row):
                return row["miss"]
        if self.check is None and behaves() and not torch.is_inference_mode_enabled():
            self.check = _native(tensors)
        return None


def fits(x: Any, *, type: type, dtype: Any, shape: tuple, device: Any, requires_grad: bool, strides: tuple | None, miss: Any = None) -> bool:
    """Whether x is what prims.check_tensor wants."""
    same = x.__class__ is type and x.dtype is dtype and x.shape == shape and (x.is_cpu if device is None else x.device == device)
    return same and x.requires_grad == requires_grad and (x.is_contiguous() if strides is None else x.stride() == strides)
