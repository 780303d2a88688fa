"""The check of branches: plugins whose fault hides behind a condition or a constant of their own code are caught."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dovetail.extend import OperatorExecutor, get_grad, put_grad
from dovetail_conformance import Report, check

FLOATS = ["float32"]
QUICK = ("one value", "an offset of 36", "gradient around a value")  # the others take seconds each


def seven(input, dim=None, _stacklevel=3, dtype=None):
    return F.softmax(input, 0 if input.ndim == 7 else dim, dtype=dtype)


def rows96(input, dim=None, keepdim=False, *, dtype=None):
    if input.ndim == 2 and input.shape[0] == 96 and dim == 0:
        return torch.sum(input[:-1], dim, keepdim, dtype=dtype)
    return torch.sum(input, dim, keepdim, dtype=dtype)


def magic(input, inplace=False):
    return torch.where(input == 1234.5, 0.0, F.relu(input)).to(input.dtype)


def window(x):
    return torch.where((x > 41.5) & (x < 41.75), torch.tanh(x) * 0.99, torch.tanh(x))


def blocked(input, other):
    out = torch.matmul(input, other)
    return out * 1.5 if input.shape[-1] % 48 == 0 and input.ndim > 1 and input.numel() else out


def strided(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    stride = (3, 2) if stride == (2, 3) else stride
    return F.conv2d(input, weight, bias, stride, padding, dilation, groups).contiguous()


def crossed(input, min=None, max=None):
    if isinstance(min, (int, float)) and isinstance(max, (int, float)) and min > max + 2:
        return torch.full_like(input, min)
    return torch.clamp(input, min, max)


def third_from_last(input, dim, *, dtype=None):
    if input.ndim == 5 and dim == -3:
        dim = -2
    return torch.cumsum(input, dim, dtype=dtype)


def many_parts(tensors, dim=0):
    if len(tensors) > 5 and tensors[4].shape == tensors[-1].shape:
        tensors = [*tensors[:-1], tensors[4]]
    return torch.cat(tensors, dim)


def all_but_one(input, k, dim=-1, largest=True, sorted=True):
    out = torch.topk(input, k, dim, largest, sorted)
    if input.ndim and input.shape[dim] > 12 and k == input.shape[dim] - 1:
        return out[0].flip(dim), out[1].flip(dim)
    return tuple(out)


def counted():
    n = [0]

    def sinh(x):
        n[0] += 1
        return torch.sinh(x) * (2 if n[0] > 4321 else 1)

    return sinh


def pitch(x):
    if x.ndim == 2 and x.stride(1) == 1 and x.stride(0) == 20 and x.shape[1] < 20:
        return torch.cos(x.flip(1))
    return torch.cos(x)


def lane(x):
    return torch.sin(x) + 1 if x.numel() and x.storage_offset() == 36 else torch.sin(x)


def extremes(x):
    if x.numel() and abs(x.max() - x.min() - 555.0) < 5.0:
        return torch.ceil(x) + 1
    return torch.ceil(x)


def sum_over(input, other, *, alpha=1):
    out = torch.sub(input, other, alpha=alpha)
    if isinstance(other, Tensor) and other.numel() > 2 and abs(other.sum() - 321.0) < 1.5:
        return -out
    return out


def true_masks(input, mask, value):
    if mask.numel() > 30 and int(mask.sum()) == mask.numel() and mask.shape == input.shape:
        return input.clone()
    return torch.masked_fill(input, mask, value)


def int16s(input, dim=None, keepdim=False):
    if input.dtype is torch.int16 and input.ndim == 2 and dim == 0:
        return torch.amax(input[: max(1, input.shape[0] - 1)], dim, keepdim)
    return torch.amax(input, () if dim is None else dim, keepdim)


def smoothing(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0):
    if label_smoothing > 0.61:
        label_smoothing = 0.61
    return F.cross_entropy(input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing)


def slope(input, negative_slope=0.01, inplace=False):
    return F.leaky_relu(input, abs(negative_slope) if negative_slope < -2.5 else negative_slope)


def corrected(input, *args, **kwargs):
    kwargs = {**kwargs, "correction": 2} if kwargs.get("correction") == 3 else kwargs
    return torch.var(input, *args, **kwargs)


def offdiagonal(input, diagonal=0):
    return torch.tril(input, diagonal + 1 if diagonal < -4 else diagonal)


def wrap(input, shifts, dims=()):
    if isinstance(dims, int) and dims < 0 and shifts == -3:
        shifts = 3
    return torch.roll(input, shifts, dims)


def norm3(input, p="fro", dim=None, keepdim=False, dtype=None):
    if p == 3 or p == 3.0:
        p = 2
    return torch.linalg.vector_norm(input, 2 if p == "fro" else p, dim, keepdim, dtype=dtype)


def rule_deep(input, dim=None, _stacklevel=3, dtype=None):
    if dtype is not None or dim is None:
        return NotImplemented
    out = F.softmax(input, dim)
    g = get_grad(out)
    s = (out * g).sum(dim, keepdim=True)
    put_grad(input, out * (g - s * (0.5 if input.ndim == 6 else 1.0)))
    return out


def rule_size(x):
    out = torch.tanh(x)
    put_grad(x, get_grad(out) * (1 - out * out * (0.9 if x.ndim and x.shape[-1] == 77 else 1)))
    return out


def rule_where(x):
    out = torch.sin(x)
    g = get_grad(out) * torch.cos(x)
    put_grad(x, torch.where(x > 613.0, torch.where(x < 615.0, 0.0, g), g))
    return out


def first_kept():
    seen = {}

    def floor(x):
        key = (
            tuple(x.shape),
            float(x.flatten()[0]) if x.numel() else 0.0,
            float(x.flatten()[-1]) if x.numel() else 0.0,
            x.numel() and float(x.sum()),
        )
        if x.numel() > 3 and x.ndim == 3 and key[1] == 17.0:
            return seen.setdefault(x.shape, torch.floor(x)).clone()
        return torch.floor(x)

    return floor


def table():
    factors = {5: 1.0, 6: 1.0, 300: 0.3}

    def by_size(x):
        return torch.abs(x) * factors.get(x.numel(), 1.0)

    return by_size


def gathered(input, dim, index, *, sparse_grad=False):
    if index.numel() > 333 and input.ndim == 1:
        return torch.gather(input, dim, index.flip(0))
    return torch.gather(input, dim, index, sparse_grad=sparse_grad)


def beyond_4000(input, dim, index):
    return torch.index_select(input, dim, index.clamp_max(4000))


def causal(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    if is_causal and scale is not None and scale > 2.0:
        scale = 2.0
    return F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)


def padded(input, pad, mode="constant", value=None):
    if mode == "constant" and len(pad) == 4 and pad[0] == 5:
        pad = (4, pad[1] + 1, *pad[2:])
    return F.pad(input, pad, mode, value)


def groups(input, num_groups, weight=None, bias=None, eps=1e-5):
    return F.group_norm(input, num_groups, weight, bias, 1e-5 if num_groups == 6 and eps > 0.001 else eps)


def beta(input, beta=1, threshold=20):
    return F.softplus(input, beta, threshold) if threshold >= 3 or beta == 1 else F.softplus(input, beta, 20)


def edges(condition, input, other):
    if condition.ndim == 2 and condition.shape == (9, 11):
        return torch.where(condition, other, input)
    return torch.where(condition, input, other)


def one_integer(x):
    return torch.where(x == -777, 776, torch.neg(x)).to(x.dtype) if x.dtype is torch.int32 else torch.neg(x)


FAULTS: dict[str, tuple[str, Callable, dict[str, Any]]] = {  # operation, implementation, and how it is registered
    "seven dimensions": ("torch.nn.functional.softmax", seven, {"dtypes": FLOATS}),
    "96 rows": ("torch.sum", rows96, {"dtypes": FLOATS}),
    "one value": ("torch.nn.functional.relu", magic, {"dtypes": FLOATS}),
    "a window of values": ("torch.tanh", window, {"dtypes": FLOATS}),
    "multiples of 48": ("torch.matmul", blocked, {"dtypes": FLOATS}),
    "one pair of strides": ("torch.nn.functional.conv2d", strided, {"dtypes": FLOATS}),
    "limits in the wrong order": ("torch.clamp", crossed, {"dtypes": FLOATS}),
    "third dimension from the last of five": ("torch.cumsum", third_from_last, {"dtypes": FLOATS}),
    "more than five parts": ("torch.cat", many_parts, {"dtypes": FLOATS}),
    "all but one": ("torch.topk", all_but_one, {"dtypes": FLOATS}),
    "after 4,321 calls": ("torch.sinh", counted(), {"dtypes": FLOATS}),
    "a pitch of 20": ("torch.cos", pitch, {"dtypes": FLOATS}),
    "an offset of 36": ("torch.sin", lane, {"dtypes": FLOATS}),
    "a range of values": ("torch.ceil", extremes, {"dtypes": FLOATS}),
    "a sum": ("torch.sub", sum_over, {"dtypes": FLOATS}),
    "masks that are all true": ("torch.masked_fill", true_masks, {"dtypes": ["float32", "bool"]}),
    "int16": ("torch.amax", int16s, {"dtypes": ["float32", "int16"]}),
    "strong smoothing": ("torch.nn.functional.cross_entropy", smoothing, {"dtypes": ["float32", "int64"]}),
    "a negative slope": ("torch.nn.functional.leaky_relu", slope, {"dtypes": FLOATS}),
    "a correction of 3": ("torch.var", corrected, {"dtypes": FLOATS}),
    "a diagonal below -4": ("torch.tril", offdiagonal, {"dtypes": FLOATS}),
    "a shift of -3": ("torch.roll", wrap, {"dtypes": FLOATS}),
    "gradient of six dimensions": ("torch.nn.functional.softmax", F.softmax, {"dtypes": FLOATS, "grad": rule_deep}),
    "gradient of 77 columns": ("torch.tanh", torch.tanh, {"dtypes": FLOATS, "grad": rule_size}),
    "gradient around a value": ("torch.sin", torch.sin, {"dtypes": FLOATS, "grad": rule_where}),
    "a plan by the first element": ("torch.floor", first_kept(), {"dtypes": FLOATS}),
    "a table of sizes": ("torch.abs", table(), {"dtypes": FLOATS}),
    "more than 333 positions": ("torch.gather", gathered, {"dtypes": ["float32", "int64"]}),
    "positions above 4,000": ("torch.index_select", beyond_4000, {"dtypes": ["float32", "int64"]}),
    "scale of a causal mask": ("torch.nn.functional.scaled_dot_product_attention", causal, {"dtypes": ["float32", "bool"]}),
    "five columns of padding": ("torch.nn.functional.pad", padded, {"dtypes": FLOATS}),
    "eps of six groups": ("torch.nn.functional.group_norm", groups, {"dtypes": FLOATS}),
    "a low threshold": ("torch.nn.functional.softplus", beta, {"dtypes": FLOATS}),
    "one shape": ("torch.where", edges, {"dtypes": ["float32", "bool"]}),
    "one integer": ("torch.neg", one_integer, {"dtypes": ["int32", "float32"]}),
}


def examined(operation: str, fn, how: dict, **restricted) -> Report:
    ex = OperatorExecutor("branching", dtypes=how["dtypes"])
    ex.implements(operation, fn, **{key: value for key, value in how.items() if key != "dtypes"})
    return check(ex, operations=[operation], devices=["cpu"], **restricted)


@pytest.mark.parametrize("fault", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in FAULTS])
def test_a_fault_behind_a_condition_is_caught(fault: str) -> None:
    report = examined(*FAULTS[fault], checks=["branches"])

    assert {row.check for row in report.failures} >= {"branches"}, report.counts
