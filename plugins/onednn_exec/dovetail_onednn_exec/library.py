"""oneDNN's operations as the installed PyTorch brings them: each is looked for, since none of them is documented."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dovetail.extend import torch_internals

MKLDNN = torch_internals.MKLDNN


def operation(name: str) -> Callable[..., Any] | None:
    """Return an operation of oneDNN, or None where this PyTorch lacks it."""
    return MKLDNN[name].value


linear, linear_with, pack_linear, convolution, pack_convolution = map(
    operation, ("linear", "linear_with", "pack_linear", "convolution", "pack_convolution")
)


def available() -> bool | str:
    """True, or what is missing; without packing or convolutions the rest goes on."""
    if not torch.backends.mkldnn.is_available():
        return f"PyTorch {torch.__version__} was built without oneDNN; install a build from pytorch.org"
    return linear is not None or f"PyTorch {torch.__version__} has no {MKLDNN['linear'].path}; install one from 2.10 on"


def lacks(name: str) -> str:
    """The sentence for an operation that is None."""
    return f"PyTorch {torch.__version__} has no {MKLDNN[name].path}"


def computes_bfloat16() -> bool:
    """Whether oneDNN has kernels for bfloat16 on this CPU."""
    ask = operation("has_bfloat16")
    return ask is not None and bool(ask())


def works() -> bool | str:
    """For the doctor: whether a product is right."""
    if (said := available()) is not True:
        return said
    x, weight = torch.ones(3, 5), torch.full((4, 5), 2.0)
    return torch.equal(linear(x, weight, None, "none", [], ""), torch.full((3, 4), 10.0)) or "oneDNN multiplies wrongly on this machine"
