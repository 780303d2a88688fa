"""The executor: what it takes, the two operations around the kernel, and the rule that makes one the backward of the other.

The kernel computes, for each row x of the logits, with label y, C classes and smoothing s,

    loss = log sum exp(x) - (1 - s) x[y] - s mean(x)

in float32, and keeps log sum exp(x), in float32 where the logits are float16 and asked for so, else in their dtype.  It knows neither
ignored labels nor reductions; both are here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import torch

from dovetail import dtypes
from dovetail.extend import OperatorExecutor, TensorSpec, add_operator_executor, get_grad, make_prim, put_grad
from dovetail.extend.advanced import ExecutorError, torch_internals
from dovetail_apex_xentropy import __version__, kernel

NAME = "apex_xentropy"
OPERATION = "torch.nn.functional.cross_entropy"
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
DECLARED = (*DTYPES, torch.int64)  # logits, and targets
ALIGNMENT = 16  # bytes that the kernel loads at once
SAFE_CLASSES = 32  # from here on it does not read past the end of a row
MOST_ELEMENTS = 2**32  # the backward counts them in 32 bits


def apex_executor(find: Callable[[], tuple[ModuleType | None, str]] = kernel.find, devices: Iterable[str] = ("cuda",)) -> OperatorExecutor:
    """Return the executor; `find` gives the kernel and why there is none."""
    ex = OperatorExecutor(NAME, version=__version__, available=kernel.available)
    return equip(ex, Kernel(find), devices)


def equip(ex: OperatorExecutor, calls: Kernel, devices: Iterable[str] = ("cuda",)) -> OperatorExecutor:
    """Give `ex` the operation and what it becomes where it is differentiated."""
    ex.before = ("cross_entropy_triton",)
    of = {"dtypes": DECLARED, "devices": devices}
    ex.implements(OPERATION, calls.cross_entropy, checker=takes, grad=rule, name=NAME, **of)
    ex.implements(forward, calls.forward, **of)
    ex.implements(backward, calls.backward, **of)
    return ex


def register(*, add_to_default_executors: bool = True) -> OperatorExecutor:
    """See `dovetail_apex_xentropy.register_apex_xentropyex`."""
    if (missing := kernel.available()) is not True:
        raise ExecutorError(f"{NAME} cannot be registered: {missing}")
    calls = Kernel(kernel.find)
    table = {OPERATION: (NAME, takes, calls.cross_entropy)}
    ex = add_operator_executor(NAME, table, add_to_default_executors=add_to_default_executors, replace=True)
    ex.version = __version__
    return equip(ex, calls)


def takes(
    input: Any,
    target: Any,
    weight: Any = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> bool | str:
    """Return the checker: whether the kernel can compute this loss, or why not.  Devices and dtypes are declared, and were looked at before."""
    x, y = input.spec, target.spec
    if x.dtype.kind != "float" or x.dtype.bytes > 4:
        return f"expected logits of f16, bf16 or f32, got {x}"
    if x.rank != 2:
        return f"expected logits of shape [N, C], got {x}; reshape them to two dimensions"
    if y.dtype is not dtypes.int64 or y.rank != 1:
        return f"expected int64 classes [N] for targets, got {y}"
    if y.device is not x.device:
        return f"expected targets on {x.device}, where the logits are, got {y}"
    if weight is not None:
        return "the kernel has no class weights"
    if size_average is not None or reduce is not None:
        return "expected reduction= in place of size_average and reduce"
    if reduction not in ("none", "mean", "sum"):
        return f"expected the reduction 'none', 'mean' or 'sum', got {reduction!r}"
    if type(label_smoothing) not in (int, float):
        return f"expected a label_smoothing that is known when the program is compiled, got {label_smoothing}"
    return _fits(x)


def _fits(x: TensorSpec) -> bool | str:
    """Return whether the kernel reads the logits within their bounds."""
    if x.numel == 0:
        return f"expected at least one row and one class, got {x}"
    if x.numel >= MOST_ELEMENTS:
        return f"counts elements in 32 bits, and {x} has 2^32 or more"
    classes = x.shape[1]
    aligned = classes * x.dtype.bytes % ALIGNMENT == 0
    return aligned or classes >= SAFE_CLASSES or f"expected {SAFE_CLASSES} classes or more, or rows of a multiple of {ALIGNMENT} bytes, got {x}"


def _forward(input: TensorSpec, target: TensorSpec, *, ignore_index: int, reduction: str, smoothing: float) -> tuple[TensorSpec, TensorSpec]:
    """Return the loss of logits [N, C] for classes [N], and the logarithm of each row's sum of exponentials, for the backward."""
    rows = (input.shape[0],)
    kept = dtypes.float32 if input.dtype is dtypes.float16 else input.dtype
    return input.fresh(rows if reduction == "none" else ()), input.fresh(rows, kept)


def _backward(
    g: TensorSpec, input: TensorSpec, target: TensorSpec, sums: TensorSpec, *, ignore_index: int, reduction: str, smoothing: float
) -> TensorSpec:
    """Return the cotangent of the logits [N, C], from that of the loss and what the forward kept."""
    return input.fresh()


forward = make_prim(f"{NAME}.forward", "forward", meta=_forward)
backward = make_prim(f"{NAME}.backward", "backward", meta=_backward)


def rule(
    input: Any,
    target: Any,
    weight: Any = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    """Return the grad rule, which is asked where the checker said yes: the forward keeps one number for each row, the backward reads it."""
    how = {"ignore_index": ignore_index, "reduction": reduction, "smoothing": float(label_smoothing)}
    loss, sums = forward(input, target, **how)
    put_grad(input, backward(get_grad(loss), input, target, sums, **how))
    return loss


class Kernel:
    """The kernel as the operations use it, on real tensors.  It is looked for when it is first called."""

    def __init__(self, find: Callable[[], tuple[ModuleType | None, str]]):
        self._find, self._module = find, None

    @property
    def module(self) -> ModuleType:
        """The module with `forward` and `backward`, or an error that says why it is not there."""
        if self._module is None:
            self._module, missing = self._find()
            if self._module is None:
                raise ExecutorError(f"{NAME} cannot run: {missing}")
        return self._module

    def cross_entropy(
        self,
        input: torch.Tensor,
        target: torch.Tensor,
        weight: torch.Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> torch.Tensor:
        """Compute torch.nn.functional.cross_entropy."""
        return self.forward(input, target, ignore_index=ignore_index, reduction=reduction, smoothing=float(label_smoothing))[0]

    def forward(
        self, input: torch.Tensor, target: torch.Tensor, *, ignore_index: int, reduction: str, smoothing: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss in the dtype of the logits, and what the backward needs."""
        ignored, labels = _labels(input, target, ignore_index)
        losses, sums = self.module.forward(input.contiguous(), labels, smoothing, input.dtype is torch.float16)
        losses = losses.masked_fill(ignored, 0.0)
        if reduction == "mean":
            losses = losses.sum() / (~ignored).sum()
        elif reduction == "sum":
            losses = losses.sum()
        return losses.to(input.dtype), sums

    def backward(
        self,
        g: torch.Tensor,
        input: torch.Tensor,
        target: torch.Tensor,
        sums: torch.Tensor,
        *,
        ignore_index: int,
        reduction: str,
        smoothing: float,
    ) -> torch.Tensor:
        """Return the cotangent of the logits; the kernel takes those of rows in the dtype in which it kept their sums."""
        ignored, labels = _labels(input, target, ignore_index)
        rows = g.float() / (~ignored).sum() if reduction == "mean" else g.float()
        rows = rows.expand(labels.shape).masked_fill(ignored, 0.0).to(sums.dtype)
        return self.module.backward(rows, input.contiguous(), sums.contiguous(), labels, smoothing)


def _labels(input: torch.Tensor, target: torch.Tensor, ignore_index: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return which targets are ignored, and the others; the ignored are class 0, since the kernel reads input[label] unchecked."""
    ignored = target == ignore_index
    labels = target.masked_fill(ignored, 0).contiguous()
    torch_internals.aten("_assert_async.msg")(((labels >= 0) & (labels < input.shape[1])).all(), "cross_entropy: a target is out of bounds")
    return ignored, labels
