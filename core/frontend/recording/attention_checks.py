"""What torch.backends.cuda tells of attention: whether one of CUDA's kernels would compute it, which depends on the layout of its tensors alone."""

from __future__ import annotations

from typing import Any

import torch

from dovetail.frontend.class_lookup import NULL
from dovetail.frontend.interpreter.frame import Frame
from dovetail.frontend.recording.generators import guard_same
from dovetail.torch_internals import sdp_settings
from dovetail.trace import TensorProxy

PARAMS = getattr(torch.backends.cuda, "SDPAParams", None)  # a class in C, which takes no proxies
CHECKS = tuple(
    [
        getattr(torch.backends.cuda, name)
        for name in ("can_use_flash_attention", "can_use_efficient_attention", "can_use_cudnn_attention")
        if hasattr(torch.backends.cuda, name)
    ]
)


class AttentionParams:
    """Stands for `torch.backends.cuda.SDPAParams` of traced tensors: its arguments, in order."""

    def __init__(self, *args: Any):
        self.args = args


def can_use(tracker: Any, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    """Return whether a kernel of CUDA's would compute attention; tensors of the CPU are none of its business."""
    params, *debug = args or (kwargs.get("params"),)
    if type(params) is not AttentionParams:
        return NULL
    guard_same(tracker, function)
    if not any([isinstance(x, TensorProxy) and x.device.type != "cpu" for x in params.args]):
        return False
    for setting in sdp_settings():
        tracker.guard("equal", tracker.sources.setting(setting), setting())
    return function(PARAMS(*map(_example, params.args)), *debug, **{name: x for name, x in kwargs.items() if name == "debug"})


def _example(x: Any) -> Any:
    """Return a tensor laid out as a traced one; anything else as it is."""
    if not isinstance(x, TensorProxy):
        return x
    shape, strides = tuple(map(int, x.shape)), tuple(map(int, x.stride()))
    return torch.empty_strided(shape, strides, dtype=x.dtype, device=x.device, requires_grad=x.requires_grad)
