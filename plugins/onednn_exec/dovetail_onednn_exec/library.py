"""oneDNN's operations in the installed PyTorch; none is documented, so each may be missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dovetail.extend.advanced import torch_internals

MKLDNN = torch_internals.MKLDNN


def operation(name: str) -> Callable[..., Any] | None:
    """Return an operation of oneDNN, or None where this PyTorch lacks it."""
    return MKLDNN[name].value


linear, linear_with, pack_linear, convolution, pack_convolution = map(
    operation, ("linear", "linear_with", "pack_linear", "convolution", "pack_convolution")
)


def available() -> bool | str:
    """Return True, or what is missing; packing and convolutions may be missing alone."""
    if not torch.backends.mkldnn.is_available():
        return f"PyTorch {torch.__version__} was built without oneDNN; install a build from pytorch.org"
    return linear is not None or f"PyTorch {torch.__version__} has no {MKLDNN['linear'].path}; install one from 2.10 on"


def lacks(name: str) -> str:
    """Return the refusal for an operation that this PyTorch lacks."""
    return f"PyTorch {torch.__version__} has no {MKLDNN[name].path}"


def computes_bfloat16() -> bool:
    """Return whether oneDNN has bfloat16 kernels for this CPU."""
    has_bfloat16 = operation("has_bfloat16")
    return has_bfloat16 is not None and bool(has_bfloat16())


def dtypes() -> tuple[torch.dtype, ...]:
    """Return the dtypes that oneDNN has kernels for on this CPU."""
    return (torch.float32, torch.bfloat16) if computes_bfloat16() else (torch.float32,)


def works() -> bool | str:
    """Check a product, for `dovetail doctor`."""
    if (verdict := available()) is not True:
        return verdict
    x, weight = torch.ones(3, 5), torch.full((4, 5), 2.0)
    return torch.equal(linear(x, weight, None, "none", [], ""), torch.full((3, 4), 10.0)) or "oneDNN multiplies wrongly on this machine"
