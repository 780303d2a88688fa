"""A stand-in for the kernel: it computes the real result with torch, and raises where the kernel would, or would read what is not its own."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

DEVICE = "cpu"  # the stand-in's idea of a CUDA device
FLOATS = (torch.float16, torch.bfloat16, torch.float32)


def check(ok: bool, message: str) -> None:
    if not ok:
        raise RuntimeError(message)


def check_inputs(logits: torch.Tensor, labels: torch.Tensor, smoothing: float) -> None:
    """What forward and backward both ask for."""
    rows, classes = logits.shape if logits.dim() == 2 else (None, 0)
    check(logits.device.type == DEVICE, "input must be a CUDA tensor")
    check(labels.device.type == DEVICE, "labels must be a CUDA tensor")
    check(labels.is_contiguous(), "labels must be contiguous")
    check(logits.dtype in FLOATS, f'"host_softmax_xentropy" not implemented for {logits.dtype}')
    check(labels.dtype is torch.int64, "Label type should be CUDA Long")
    check(logits.dim() == 2, "Currently only 2 dim input supported")
    check(labels.dim() == 1, "Labels should be 1 dimensional")
    check(rows == labels.shape[0], "Input and label should have same number of examples")
    check(logits.numel() > 0, "Number of classes in input should not be 0")
    check(type(smoothing) is float, "forward(): incompatible function arguments")
    check(bool(((labels >= 0) & (labels < classes)).all()), "stand-in: a label that is no class makes the kernel read out of bounds")
    check(classes >= 32 or classes * logits.element_size() % 16 == 0, "stand-in: short rows that are not aligned make the kernel read the next row")


def forward(logits: torch.Tensor, labels: torch.Tensor, smoothing: float, half_to_float: bool) -> list[torch.Tensor]:
    check_inputs(logits, labels, smoothing)
    check(not half_to_float or logits.dtype is torch.float16, "conversion is supported for Half type only")
    x = logits.float()
    sums = x.logsumexp(1)
    losses = sums - (1 - smoothing) * x.gather(1, labels[:, None])[:, 0] - smoothing * x.mean(1)
    return [losses, sums.to(torch.float32 if half_to_float else logits.dtype)]


def backward(g: torch.Tensor, logits: torch.Tensor, sums: torch.Tensor, labels: torch.Tensor, smoothing: float) -> torch.Tensor:
    check_inputs(logits, labels, smoothing)
    check(g.device.type == DEVICE and sums.device.type == DEVICE, "grad_loss must be a CUDA tensor")
    check(sums.is_contiguous(), "max_log_sum_exp must be contiguous")
    widened = g.dtype is not logits.dtype
    check(not widened or (g.dtype is torch.float32 and logits.dtype is torch.float16), "expected input and grad types to match")
    check(sums.dtype is (torch.float32 if widened else logits.dtype), f"expected scalar type {g.dtype} but found {sums.dtype}")
    check(g.shape == labels.shape, "Label and loss should have same number of examples")
    check(logits.is_contiguous(), "stand-in: the kernel writes rows into a result that has the strides of its input")
    probabilities = (logits.float() - sums.float()[:, None]).exp()
    hot = torch.nn.functional.one_hot(labels, logits.shape[1])
    return (g.float()[:, None] * (probabilities - (1 - smoothing) * hot - smoothing / logits.shape[1])).to(logits.dtype)


@pytest.fixture
def stand_in(monkeypatch) -> SimpleNamespace:
    """`import xentropy_cuda` gives the stand-in; `.calls` are the names of what was called on it."""
    calls: list[str] = []

    def counted(fn):
        return lambda *args: calls.append(fn.__name__) or fn(*args)

    module = ModuleType("xentropy_cuda")
    module.forward, module.backward = counted(forward), counted(backward)
    monkeypatch.setitem(sys.modules, "xentropy_cuda", module)
    return SimpleNamespace(module=module, calls=calls)
