"""Conversion between PyTorch's dtypes, devices and tensors and Dovetail's."""

from __future__ import annotations

from typing import Any

import torch

from dovetail import devices, dtypes
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.errors import Unsupported, require, require_traced
from dovetail.langs.core import default_float
from dovetail.prims import TensorSpec, recorder
from dovetail.prims.spec import normal_strides
from dovetail.trace import printing

_NAMES = {d: d.name.removesuffix("_") for d in dtypes.ALL}
TO_TORCH: dict[DType, torch.dtype] = {d: getattr(torch, name) for d, name in _NAMES.items() if hasattr(torch, name)}
FROM_TORCH: dict[torch.dtype, DType] = {t: d for d, t in TO_TORCH.items()}
_DEVICES: dict[torch.device, Device] = {}

_KNOWN_TYPES = {torch.Tensor, torch.nn.Parameter, torch.nn.Buffer}

printing.ROOTS["torch"] = printing.Root("import torch", torch)
printing.ROOTS["operator"] = printing.Root("import operator", __import__("operator"))
printing.LITERALS |= {
    torch.dtype: lambda value: ("torch", repr(value)),
    torch.layout: lambda value: ("torch", repr(value)),
    torch.memory_format: lambda value: ("torch", repr(value)),
    torch.device: lambda value: ("torch", f'torch.device("{value}")'),
}
printing.SEQUENCES[torch.Size] = lambda items: ("torch", f"torch.Size({items})")  # which old constructors tell from a tuple of data


PYTHON_DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}  # of classes that stand for dtypes


def dtype_of(dtype: torch.dtype | type | None, default: DType | None = None) -> DType:
    """Convert a torch dtype; None is `default`, or the default float."""
    if dtype is None:
        return default or default_float()
    dtype = PYTHON_DTYPES.get(dtype, dtype) if isinstance(dtype, type) else dtype
    require(isinstance(dtype, torch.dtype), "expected a torch.dtype, got {!r}", dtype, error=TypeError)
    result = FROM_TORCH.get(dtype)
    require_traced(result is not None, "{} is not traced; convert the tensor to another dtype", dtype)
    return result


def device_of(device: Any) -> Device:
    """Convert a torch device, its name or its index; None is torch's default device.

    "cuda" means the current one, as in PyTorch.
    """
    if device is None:
        recorder.get().environment.read.add("default_device")
        device = torch.get_default_device()
    if not isinstance(device, torch.device):
        device = torch.device(device)
    result = _DEVICES.get(device)
    if result is None or (device.index is None and device.type != "cpu"):
        indexed = torch.empty(0, device=device).device if device.index is None and device.type not in ("cpu", "meta") else device
        result = _DEVICES[device] = devices.device(str(indexed) if device.type != "cpu" else "cpu")
    return result


def torch_device(device: Device) -> torch.device:
    return torch.device(str(device))


def placed(dtype: DType, device: Device) -> dict[str, Any]:
    """Return the keywords dtype and device for torch's own functions."""
    return {"dtype": TO_TORCH[dtype], "device": torch_device(device)}


def _is_parameter_class(cls: type) -> bool:
    parameter = torch.nn.Parameter
    plain = issubclass(cls, parameter) and cls.__torch_function__ is parameter.__torch_function__
    return plain and cls.__torch_dispatch__ is parameter.__torch_dispatch__


def traceable(x: torch.Tensor) -> torch.Tensor:
    """Return x.  Raises Unsupported for tensor subclasses, but for those of parameters on which torch computes as on any parameter."""
    if type(x) not in _KNOWN_TYPES and not _is_parameter_class(type(x)):
        raise Unsupported(f"a {type(x).__name__} is not traced, only torch.Tensor itself; pass the plain tensors it consists of")
    return x


def spec_of(x: torch.Tensor) -> TensorSpec:
    """Return the spec of a real tensor.  Raises Unsupported unless it is strided."""
    if x.layout is not torch.strided or x.is_quantized or x.is_nested:
        layout = "quantized" if x.is_quantized else "nested" if x.is_nested else str(x.layout)
        raise Unsupported(
            f"a {layout} tensor is not traced, only strided ones, and matrices of coordinates that require no gradient; call .to_dense() or "
            ".dequantize() outside the compiled function, or pad it"
        )
    shape = tuple(x.shape)
    return TensorSpec(shape, dtype_of(x.dtype), device_of(x.device), normal_strides(shape, x.stride()), x.requires_grad)


Order = tuple[int, ...] | None  # the dimensions of a dense tensor, slowest first; None where it is row-major


def in_order(x: torch.Tensor, order: Order) -> torch.Tensor:
    """Return `x` dense, its dimensions in this order in memory."""
    if order is None:
        return x.contiguous()
    return x.permute(order).contiguous().permute([order.index(d) for d in range(len(order))])
