"""torch.nn.functional.cross_entropy as a whole: two kernels forward, one backward, in float32 whatever the logits are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from dovetail import dtypes
from dovetail.extend import OperatorExecutor, TensorSpec, get_grad, make_prim, put_grad
from dovetail_triton_exec import __version__, availability
from dovetail_triton_exec.tiles import power_of_two

NAME = "cross_entropy_triton"
OPERATION = "torch.nn.functional.cross_entropy"
DECLARED = (torch.float16, torch.bfloat16, torch.float32, torch.int64)  # logits and weights, and targets
LONGEST = 4096  # classes that are held at once


def operations_executor(devices: Iterable[str] | None = None) -> OperatorExecutor:
    """Return the executor of whole operations."""
    of = {"dtypes": DECLARED, "devices": list(devices or availability.devices())}
    ex = OperatorExecutor(NAME, version=__version__, available=availability.available)
    ex.implements(OPERATION, cross_entropy, checker=takes, grad=rule, name="cross_entropy", **of)
    ex.implements(forward, run_forward, **of)
    ex.implements(backward, run_backward, **of)
    return ex


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
    """Return the checker: whether the kernels compute this loss, or why not."""
    x, y = input.spec, target.spec
    if x.dtype not in (dtypes.float16, dtypes.bfloat16, dtypes.float32):
        return f"expected logits of f16, bf16 or f32, got {x}"
    if x.rank != 2 or x.numel == 0:
        return f"expected logits of shape [N, C] with at least one row and one class, got {x}"
    if y.dtype is not dtypes.int64 or y.shape != x.shape[:1]:
        return f"expected int64 classes [N] for targets, got {y}"
    if y.device is not x.device or (weight is not None and weight.spec.device is not x.device):
        return f"expected targets and weights on {x.device}, where the logits are"
    if weight is not None and weight.spec.requires_grad:
        return "has no gradient for weights"
    if weight is not None and (weight.spec.shape != x.shape[1:] or weight.spec.dtype not in (x.dtype, dtypes.float32)):
        return f"expected one weight for each of the {x.shape[1]} classes, of {x.dtype.short} or f32, got {weight.spec}"
    if size_average is not None or reduce is not None:
        return "expected reduction= in place of size_average and reduce"
    if reduction not in ("none", "mean", "sum"):
        return f"expected the reduction 'none', 'mean' or 'sum', got {reduction!r}"
    if type(label_smoothing) not in (int, float) or not 0 <= label_smoothing <= 1:
        return f"expected a label_smoothing from 0 to 1 that is known when the program is compiled, got {label_smoothing}"
    return True


def _forward(
    input: TensorSpec, target: TensorSpec, weight: TensorSpec | None, *, ignore_index: int, reduction: str, smoothing: float
) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    """Return the loss of logits [N, C] for classes [N]; each row's log of the sum of exponentials, and what the rows weigh together."""
    rows = (input.shape[0],)
    return input.fresh(rows if reduction == "none" else ()), input.fresh(rows, dtypes.float32), input.fresh((), dtypes.float32)


def _backward(
    g: TensorSpec,
    input: TensorSpec,
    target: TensorSpec,
    weight: TensorSpec | None,
    sums: TensorSpec,
    total: TensorSpec,
    *,
    ignore_index: int,
    reduction: str,
    smoothing: float,
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
    """Return the grad rule: the forward keeps one number for each row, the backward reads the logits again."""
    how = {"ignore_index": ignore_index, "reduction": reduction, "smoothing": float(label_smoothing)}
    loss, sums, total = forward(input, target, weight, **how)
    put_grad(input, backward(get_grad(loss), input, target, weight, sums, total, **how))
    return loss


def cross_entropy(
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
    return run_forward(input, target, weight, ignore_index=ignore_index, reduction=reduction, smoothing=float(label_smoothing))[0]


def run_forward(
    input: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, *, ignore_index: int, reduction: str, smoothing: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the loss in the dtype of the logits, and what the backward needs."""
    from dovetail_triton_exec import entropy_kernels

    rows, classes = input.shape
    x, y, w = _laid_out(input), target.contiguous(), _weights(weight, input)
    lse, total = (torch.empty(shape, dtype=torch.float32, device=x.device) for shape in ((rows,), ()))
    each = reduction == "none"
    by_row = torch.empty(rows, dtype=x.dtype if each else torch.float32, device=x.device)
    common = {"ignored": ignore_index, "WEIGHTED": weight is not None}
    sizes = {"CLASSES": classes, "smoothing": smoothing, **common, **_block(classes)}
    with _on(x):
        entropy_kernels.losses[(rows,)](x, y, w, by_row, lse, x.stride(0), **sizes, **_kind(by_row), sanitize_overflow=False)
        if each:
            return by_row, lse, total.fill_(1.0)
        loss = torch.empty((), dtype=x.dtype, device=x.device)
        entropy_kernels.reduced[(1,)](by_row, y, w, loss, total, ROWS=rows, MEAN=reduction == "mean", **common, **_block(rows), **_kind(loss))
    return loss, lse, total


def run_backward(
    g: torch.Tensor,
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    sums: torch.Tensor,
    total: torch.Tensor,
    *,
    ignore_index: int,
    reduction: str,
    smoothing: float,
) -> torch.Tensor:
    """Return the cotangent of the logits."""
    from dovetail_triton_exec import entropy_kernels

    rows, classes = input.shape
    x, y, w = _laid_out(input), target.contiguous(), _weights(weight, input)
    out = torch.empty(rows, classes, dtype=x.dtype, device=x.device)
    sizes = {"CLASSES": classes, "ignored": ignore_index, "smoothing": smoothing, "EACH": reduction == "none", "WEIGHTED": weight is not None}
    with _on(x):
        entropy_kernels.gradient[(rows,)](g.contiguous(), x, y, w, sums, total, out, x.stride(0), **sizes, **_block(classes), **_kind(out))
    return out


def _laid_out(x: torch.Tensor) -> torch.Tensor:
    """Return the logits with the classes of a row side by side."""
    return x if x.stride(1) == 1 else x.contiguous()


def _weights(weight: torch.Tensor | None, input: torch.Tensor) -> torch.Tensor:
    """Return the weights, or some tensor where there are none, which is not read."""
    return input if weight is None else weight.contiguous()


def _kind(x: torch.Tensor) -> dict[str, bool]:
    return {"BF16": x.dtype is torch.bfloat16, "F16": x.dtype is torch.float16}


def _block(size: int) -> dict[str, int]:
    """Return how much of a row is held at once, and by how many warps."""
    block = min(power_of_two(size), LONGEST)
    return {"BLOCK": block, "num_warps": 4 if block < 2048 else 8}


def _on(x: torch.Tensor) -> Any:
    """Return where kernels are launched: on the device of x, or by one thread at a time in the interpreter."""
    return torch.cuda.device(x.device) if x.device.type == "cuda" else availability.INTERPRETER
