"""The check of branches: correct plugins with many branches are not accused, and what no call met is reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dovetail.extend import OperatorExecutor, get_grad, put_grad
from dovetail_conformance import Report, check
from dovetail_conformance.render.parts import one_way

FLOATS = ["float32"]
QUICK = ("exp in pieces", "memory that a checker looks at")  # the others take seconds each


def softmax_by_blocks(input, dim=None, _stacklevel=3, dtype=None):
    if dim is None or dtype is not None or not input.ndim or not input.is_contiguous():
        return F.softmax(input, dim, dtype=dtype)
    if input.shape[dim] > 512:
        largest = torch.stack([part.amax(dim) for part in input.split(128, dim)]).amax(0).unsqueeze(dim)
    elif input.shape[dim] > 0:
        largest = input.amax(dim, keepdim=True)
    else:
        return torch.empty_like(input)
    exponentials = torch.exp(input - largest)
    return exponentials / exponentials.sum(dim, keepdim=True)


def gelu_by_layout(input, approximate="none"):
    if not input.is_contiguous():
        return F.gelu(input, approximate=approximate)
    if approximate == "tanh":
        if input.numel() > 65536:
            return torch.cat([F.gelu(part, approximate="tanh") for part in input.view(-1).split(65536)]).view(input.shape)
        return F.gelu(input, approximate="tanh")
    return F.gelu(input)


def matmul_by_rank(input, other):
    if input.ndim == 1 and other.ndim == 1:
        return torch.dot(input, other)
    if input.ndim == 2 and other.ndim == 2:
        k = input.shape[1]
        if k > 1024 and k % 2 == 0:
            return torch.mm(input[:, : k // 2], other[: k // 2]) + torch.mm(input[:, k // 2 :], other[k // 2 :])
        return torch.mm(input, other)
    if input.ndim == 3 and other.ndim == 3 and input.shape[0] == other.shape[0]:
        return torch.bmm(input, other)
    return torch.matmul(input, other)


def sum_by_dims(input, dim=None, keepdim=False, *, dtype=None):
    if dim is None:
        return torch.sum(input, dtype=dtype) if not keepdim else torch.sum(input, tuple(range(input.ndim)), True, dtype=dtype)
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    if dtype is None and len(dims) == 2 and input.ndim > 2 and input.numel() < 4096:
        first, second = sorted((d % input.ndim for d in dims), reverse=True)
        if first != second:
            return input.sum(first, keepdim).sum(second, keepdim) if keepdim else input.sum(first).sum(second)
    return torch.sum(input, dim, keepdim, dtype=dtype)


def exp_in_pieces(x):
    if x.numel() > 1000 and x.is_contiguous():
        out = torch.empty_like(x)
        flat, into = x.view(-1), out.view(-1)
        for start in range(0, x.numel(), 777):
            torch.exp(flat[start : start + 777], out=into[start : start + 777])
        return out
    return torch.exp(x)


def cached_plans():
    plans = {}

    def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
        key = (tuple(input.shape), tuple(normalized_shape))
        if key not in plans:
            plans[key] = tuple(range(-len(normalized_shape), 0))
            if len(plans) > 16:
                plans.pop(next(iter(plans)))
                plans.setdefault(key, tuple(range(-len(normalized_shape), 0)))
        return F.layer_norm(input, normalized_shape, weight, bias, eps)

    return layer_norm


def with_rule(x):
    out = torch.sigmoid(x)
    g = get_grad(out)
    if x.ndim > 3:
        put_grad(x, g * (out - out * out))
    else:
        put_grad(x, g * out * (1 - out))
    return out


def clamp_ways(input, min=None, max=None):
    if isinstance(min, Tensor) or isinstance(max, Tensor):
        return torch.clamp(input, min, max)
    if min is not None and max is None:
        return torch.clamp_min(input, min)
    if max is not None and min is None:
        return torch.clamp_max(input, max)
    if min is not None and min > max:
        return torch.clamp(input, min, max)
    return torch.clamp(input, min, max)


def embedding_by_rows(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    if max_norm is not None:
        return F.embedding(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
    if input.numel() > 64 or weight.shape[0] > 1000:
        return weight.index_select(0, input.reshape(-1)).view(*input.shape, weight.shape[1])
    return F.embedding(input, weight)


def conv_paths(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    pointwise = tuple(weight.shape[2:]) == (1, 1) and groups == 1 and stride in (1, (1, 1)) and padding in (0, (0, 0)) and input.ndim == 4
    if pointwise and input.is_contiguous() and input.numel() and weight.is_contiguous():
        n, c, h, w = input.shape
        out = torch.matmul(weight.view(weight.shape[0], c), input.view(n, c, h * w)).view(n, -1, h, w)
        return out if bias is None else out + bias.view(-1, 1, 1)
    return F.conv2d(input, weight, bias, stride, padding, dilation, groups)


def entropy(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0):
    usual = weight is None and size_average is None and reduce is None and not target.is_floating_point() and label_smoothing == 0.0
    if usual and input.ndim == 2 and target.numel() and reduction != "mean":
        logs = torch.log_softmax(input, 1)
        kept = target != ignore_index
        losses = -logs.gather(1, torch.where(kept, target, 0)[:, None])[:, 0] * kept
        return losses.sum() if reduction == "sum" else losses
    return F.cross_entropy(input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing)


def negated(x):
    if x.dtype is torch.int8:
        return 0 - x
    if x.dtype in (torch.int32, torch.int64) and x.numel() > 100:
        return x * -1
    return torch.neg(x)


def row_major_alone() -> Callable:
    seen: dict[Any, tuple] = {}

    def cos(x):
        steps = seen.setdefault(x.shape, torch.empty(x.shape, device="meta").stride())
        return torch.cos(x.as_strided(x.shape, steps, x.storage_offset()))

    return cos


def is_row_major(x):
    return True if x.spec.strides is None else "the elements do not lie row by row"


def checked(x, *a, **k):
    if x.spec.shape and x.spec.shape[-1] % 8:
        return "the last size is not a multiple of 8"
    return True


RIGHT: dict[str, tuple[str, Callable, dict[str, Any]]] = {  # operation, implementation, and how it is registered
    "softmax by blocks": ("torch.nn.functional.softmax", softmax_by_blocks, {"dtypes": FLOATS}),
    "gelu by layout": ("torch.nn.functional.gelu", gelu_by_layout, {"dtypes": FLOATS}),
    "matmul by rank": ("torch.matmul", matmul_by_rank, {"dtypes": FLOATS}),
    "sums one after another": ("torch.sum", sum_by_dims, {"dtypes": FLOATS}),
    "exp in pieces": ("torch.exp", exp_in_pieces, {"dtypes": FLOATS}),
    "layer norm with plans": ("torch.nn.functional.layer_norm", cached_plans(), {"dtypes": FLOATS}),
    "sigmoid with a rule": ("torch.sigmoid", torch.sigmoid, {"dtypes": FLOATS, "grad": with_rule}),
    "clamp in several ways": ("torch.clamp", clamp_ways, {"dtypes": FLOATS}),
    "embedding by rows": ("torch.nn.functional.embedding", embedding_by_rows, {"dtypes": ["float32", "int64", "int32"]}),
    "convolution of one pixel": ("torch.nn.functional.conv2d", conv_paths, {"dtypes": FLOATS}),
    "cross entropy of classes": ("torch.nn.functional.cross_entropy", entropy, {"dtypes": ["float32", "int64"]}),
    "negation of integers": ("torch.neg", negated, {"dtypes": ["float32", "int8", "int32", "int64"]}),
    "memory that a checker looks at": ("torch.cos", row_major_alone(), {"dtypes": FLOATS, "checker": is_row_major}),
    "multiples of 8": ("torch.sin", lambda x: torch.sin(x), {"dtypes": FLOATS, "checker": checked}),
}


def examined(operation: str, fn, how: dict, **restricted) -> Report:
    ex = OperatorExecutor("branching", dtypes=how["dtypes"])
    ex.implements(operation, fn, **{key: value for key, value in how.items() if key != "dtypes"})
    return check(ex, operations=[operation], devices=["cpu"], **restricted)


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in RIGHT])
def test_a_correct_plugin_is_not_accused(name: str) -> None:
    report = examined(*RIGHT[name], checks=["branches"])

    assert [row.state for row in report if row.check == "branches"] == ["pass"], report.failures[0].message if report.failures else report.counts


def with_conditions(x):
    if x.ndim == 3 and x.requires_grad and not torch.is_grad_enabled():
        return torch.cos(x) * 1.0
    if x.dtype is torch.complex64:
        raise TypeError("complex numbers are another kernel's")
    return torch.cos(x)


def test_a_condition_that_no_call_met_is_reported_and_fails_nothing() -> None:
    report = examined("torch.cos", with_conditions, {"dtypes": ["float32"]}, checks=["branches"])

    assert not report.failures
    told = one_way(report)
    assert len(told) == 1 and told[0].startswith("cos, test_branches_right.py:") and told[0].endswith("`x.requires_grad` was never true")
    assert Report.of_json(report.to_json()).one_way == report.one_way


def test_two_runs_try_the_same_calls() -> None:
    operation, fn, how = RIGHT["exp in pieces"]
    first, second = (examined(operation, fn, how, checks=["branches"]) for _ in range(2))

    (one,), (other,) = ([row for row in report if row.check == "branches"] for report in (first, second))
    assert (one.state, one.samples, one.one_way) == (other.state, other.samples, other.one_way)


def test_it_stays_out_of_the_levels_below_core() -> None:
    report = examined(*RIGHT["exp in pieces"], level="quick")

    assert not [row for row in report if row.check == "branches"]
