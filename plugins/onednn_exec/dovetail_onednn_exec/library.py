"""oneDNN's operations as the installed PyTorch brings them: each is looked for, since none of them is documented."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

PATHS = {
    "linear": "torch.ops.mkldnn._linear_pointwise.default",
    "linear_with": "torch.ops.mkldnn._linear_pointwise.binary",
    "pack_linear": "torch.ops.mkldnn._reorder_linear_weight.default",
    "convolution": "torch.ops.mkldnn._convolution_pointwise.default",
    "pack_convolution": "torch._C._nn.mkldnn_reorder_conv2d_weight",
}


def look(name: str) -> Callable[..., Any] | None:
    """One of PATHS, or None where this PyTorch lacks it."""
    value: Any = torch
    for part in PATHS[name].split(".")[1:]:
        value = getattr(value, part, None)
    return value


linear, linear_with, pack_linear, convolution, pack_convolution = map(look, PATHS)


def available() -> bool | str:
    """True, or what is missing; without packing or convolutions the rest goes on."""
    if not torch.backends.mkldnn.is_available():
        return f"PyTorch {torch.__version__} was built without oneDNN; install a build from pytorch.org"
    return linear is not None or f"PyTorch {torch.__version__} has no {PATHS['linear']}; install one from 2.10 on"


def lacks(name: str) -> str:
    """The sentence for an operation that is None."""
    return f"PyTorch {torch.__version__} has no {PATHS[name]}"


def computes_bfloat16() -> bool:
    """Whether oneDNN has kernels for bfloat16 on this CPU."""
    ask = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return ask is not None and bool(ask())


def works() -> bool | str:
    """For the doctor: whether a product is right."""
    if (said := available()) is not True:
        return said
    x, weight = torch.ones(3, 5), torch.full((4, 5), 2.0)
    return torch.equal(linear(x, weight, None, "none", [], ""), torch.full((3, 4), 10.0)) or "oneDNN multiplies wrongly on this machine"
