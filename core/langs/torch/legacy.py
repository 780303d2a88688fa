"""What PyTorch had before torch.tensor: `torch.Tensor(2, 3)`, `torch.LongTensor([1, 2])`, `x.new(2, 3)`, and `Variable(x)` of a tensor."""

from __future__ import annotations

import operator
from functools import partial
from typing import Any

import torch

from dovetail import prims
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.errors import require
from dovetail.langs.core import default_float
from dovetail.langs.torch.binding.bridge import FROM_TORCH, TO_TORCH, device_of, torch_device
from dovetail.langs.torch.binding.names import not_traced
from dovetail.langs.torch.binding.symbol import TABLE, Tensor, torchquery
from dovetail.langs.torch.creation import tensor
from dovetail.trace import TensorProxy


def construct(name: str, dtype: DType, device: Device, data: tuple) -> Tensor:
    """Return uninitialised memory where `data` are sizes or a torch.Size, else the numbers of the sequence that `data` holds."""
    options = {"dtype": TO_TORCH[dtype], "device": torch_device(device)}
    if len(data) == 1 and isinstance(data[0], TensorProxy):
        raise not_traced(name, "a new name for a tensor is not traced by way of its class; use x.detach(), or x.clone()")
    if len(data) == 1 and not isinstance(data[0], torch.Size) and not hasattr(data[0], "__index__"):
        expected = "new(): data must be a sequence (got {})"
        require(isinstance(data[0], (tuple, list, range)) or hasattr(data[0], "dtype"), expected, type(data[0]).__name__, error=TypeError)
        return tensor(data[0], **options)
    sizes = data[0] if len(data) == 1 and isinstance(data[0], torch.Size) else tuple([_size(each) for each in data])
    return TABLE[torch.empty](tuple(sizes) if data else (0,), **options)


def _size(value: Any) -> Any:
    require(hasattr(value, "__index__"), "new(): expected sizes, got {}", type(value).__name__, error=TypeError)
    return operator.index(value) if isinstance(value, bool) else value


@torchquery(methods=("new",))
def new(self: Tensor, *data: Any, device: Any = None) -> Tensor:
    """Return a tensor of the dtype and on the device of this one: of these sizes, or of this data."""
    return construct("torch.Tensor.new", self.spec.dtype, self.spec.device if device is None else device_of(device), data)


def _default(*data: Any, device: Any = None) -> Tensor:
    return construct("torch.Tensor", default_float(), device_of(device), data)


def _typed(dtype: DType, *data: Any, device: Any = None) -> Tensor:
    return construct(f"a tensor of {dtype}", dtype, device_of("cpu" if device is None else device), data)


def _variable(data: Any = None, requires_grad: bool = False, volatile: bool = False) -> Tensor:
    """Return a tensor of the same memory without a history: the recorder makes it a leaf where it is to require a gradient.

    `volatile` has had no effect since torch 0.4.
    """
    if data is None:
        return TABLE[torch.empty]((0,))
    require(isinstance(data, TensorProxy), "Variable data has to be a tensor, but got {}", type(data).__name__, error=TypeError)
    return prims.detach(data)


NAMES = ("Float", "Double", "Half", "BFloat16", "Byte", "Char", "Short", "Int", "Long", "Bool")
TABLE[torch.Tensor] = _default
TABLE[torch.autograd.Variable] = _variable
for each in (getattr(torch, f"{name}Tensor") for name in NAMES):
    TABLE[each] = partial(_typed, FROM_TORCH[each.dtype])
