"""Operations that torch has without documenting them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from dovetail.torch_internals.internal import Internal, resolve

ATEN = "torch.ops.aten"
FOREACH = "torch._foreach_"  # what the names of functions of lists of tensors begin with
FUSED = "torch._fused_"  # likewise for optimizers that are one kernel
GROUP_TENSORS = Internal(
    "torch._C._group_tensors_by_device_and_dtype",
    purpose="trace optimizers and clip_grad_norm_, which group gradients by device and dtype",
    fallback="such functions are refused",
)
SETS_DATA = Internal(
    "torch._has_compatible_shallow_copy_type",
    purpose="trace Module.to of a module that the program creates, where it changes a dtype or device",
    fallback="such a program is refused",
)
GET_STEP = Internal(
    "torch.optim.optimizer._get_value",
    purpose="compute with the step count of an optimizer in double precision, without its value",
    fallback="the corrections of Adam's bias are computed in float32",
)


@cache
def aten(name: str) -> Callable[..., Any]:
    """Return an overload of ATen, such as "tanh_backward.default"; where this torch lacks it, a function that raises NotImplementedError."""
    return resolve(f"{ATEN}.{name}") or _missing(f"{ATEN}.{name}")


def _missing(path: str) -> Callable[..., Any]:
    def missing(*_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"this torch has no {path}, which Dovetail calls; install a torch between the oldest and the newest tested one")

    return missing


_AS_STORED = "weights are read as they are stored"
# operations of PyTorch's namespace mkldnn, by what each is for
MKLDNN: dict[str, Internal] = {
    "linear": Internal("torch.ops.mkldnn._linear_pointwise.default", "multiply matrices", "PyTorch's own product is used"),
    "linear_with": Internal("torch.ops.mkldnn._linear_pointwise.binary", "add to a product", "the sum is an operation of its own"),
    "pack_linear": Internal("torch.ops.mkldnn._reorder_linear_weight.default", "lay out a weight for a product", _AS_STORED),
    "convolution": Internal("torch.ops.mkldnn._convolution_pointwise.default", "convolve", "PyTorch's own convolution is used"),
    "pack_convolution": Internal("torch._C._nn.mkldnn_reorder_conv2d_weight", "lay out a kernel for a convolution", _AS_STORED),
    "has_bfloat16": Internal("torch.ops.mkldnn._is_mkldnn_bf16_supported", "ask whether they compute in bfloat16", "bfloat16 is left to PyTorch"),
    "has_float16": Internal("torch.ops.mkldnn._is_mkldnn_fp16_supported", "ask whether they compute in float16", "float16 is left to PyTorch"),
}
