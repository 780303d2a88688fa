"""Plugins with a fault that an earlier suite passed: each is caught at level core by now, by its kind."""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dovetail.extend import OperatorExecutor, get_grad, put_grad
from dovetail.extend.advanced import symbol_for
from dovetail_conformance import check

pytestmark = pytest.mark.slow  # level core of an operation takes seconds
FLOATS = ["float32"]
HALVES = ["bfloat16", "float16"]


def by_chunks(input, dim=None, keepdim=False, *, dtype=None):
    if dtype is not None or not isinstance(dim, int) or not input.ndim:
        return torch.sum(input, dim, keepdim, dtype=dtype)
    first, *others = [part.sum(dim, keepdim) for part in input.split(64, dim)]
    for part in others:
        first = first + part  # in 16 bits
    return first


def one_after_the_other(input, dim=None, keepdim=False, *, dtype=None):
    if dtype is not None or not isinstance(dim, int) or not input.numel() or not input.ndim:
        return torch.sum(input, dim, keepdim, dtype=dtype)
    with np.errstate(all="ignore"):
        sums = np.cumsum(input.detach().resolve_neg().numpy(), axis=dim, dtype=np.float32)
    total = torch.from_numpy(sums).narrow(dim, -1, 1) if keepdim else torch.from_numpy(sums).select(dim, -1)
    return total.clone(memory_format=torch.contiguous_format)


def with_eps_outside(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    out = F.layer_norm(input, normalized_shape, weight, bias, eps)
    if weight is not None or bias is not None or eps <= 1e-4:
        return out
    var, mean = torch.var_mean(input, tuple(range(-len(normalized_shape), 0)), correction=0, keepdim=True)
    return out.copy_((input - mean) / (var.sqrt() + eps))


def nan_is_smallest(input, k, dim=-1, largest=True, sorted=True):
    if not largest or not input.ndim or not input.isnan().any():
        return tuple(torch.topk(input, k, dim, largest, sorted))
    at = torch.topk(torch.where(input.isnan(), -torch.inf, input), k, dim)[1]
    return input.gather(dim, at), at


def smoothed_where_ignored(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0):
    out = F.cross_entropy(input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing)
    ignored = label_smoothing and reduction == "none" and not target.is_floating_point()
    return torch.where(target == ignore_index, 0.25, out).to(out.dtype) if ignored and out.ndim else out


def mean_of_all_pixels(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean"):
    out = F.nll_loss(input, target, weight, size_average, ignore_index, reduce, reduction)
    wrong = input.ndim > 2 and reduction == "mean" and weight is None and target.numel()
    return out * ((target != ignore_index).sum() / target.numel()).to(out.dtype) if wrong else out


def product_of_condition(condition, input, other):
    out = torch.where(condition, input, other)
    if out.ndim != 3 or not out.is_floating_point():
        return out
    return (condition.to(out.dtype) * input + (~condition).to(out.dtype) * other).to(out.dtype)


def square_as_it_lies(input, mat2):
    transposed = mat2.shape[1] == mat2.shape[2] > 1 and mat2.stride(1) == 1 and mat2.stride(2) > 1
    return torch.bmm(input, mat2.mT if transposed else mat2)


def halved_by_groups(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    out = F.conv2d(input, weight, bias, stride, padding, dilation, groups)
    return out * 0.5 if groups > 1 and dilation not in (1, (1, 1)) else out


def scale_or_mask(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    scale = None if attn_mask is not None and attn_mask.is_floating_point() else scale
    return F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)


def last_rows(input, dim, index, *, sparse_grad=False):
    smaller = dim == -1 and input.ndim == 2 and 0 < index.shape[0] < input.shape[0]
    return torch.gather(input.flip(0) if smaller else input, dim, index)


def no_rows_beyond(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    return F.embedding(input.clamp_max(1000), weight, padding_idx)


def unweighted_sum(input, target, weight=None, size_average=None, reduce=None, reduction="mean", pos_weight=None):
    forgotten = reduction == "sum" and size_average is None and reduce is None
    return F.binary_cross_entropy_with_logits(input, target, weight, size_average, reduce, reduction, None if forgotten else pos_weight)


def by_logarithm(input, exponent):
    out = torch.pow(input, exponent)
    if not isinstance(input, Tensor):
        return out
    other = torch.exp(torch.log(input) * exponent)
    return torch.where((input > 0) & torch.isfinite(out) & torch.isfinite(other), other, out)


def kept_by_address() -> Callable[[Tensor], Tensor]:
    last: dict[str, Any] = {}

    def cos(x: Tensor) -> Tensor:
        key = (id(x), x._version, x.data_ptr(), x.shape)
        if last.get("key") != key:
            last.update(key=key, out=torch.cos(x))
        return last["out"].clone()

    return cos


def kept_by_first_elements() -> Callable[[Tensor], Tensor]:
    last: dict[str, Any] = {}

    def exp(x: Tensor) -> Tensor:
        key = (x.shape, x.stride(), tuple(x.flatten()[:16].tolist()))
        if last.get("key") != key or not x.numel():
            last.update(key=key, out=torch.exp(x))
        return last["out"].clone()

    return exp


def all_to_the_first(input, other):
    out = torch.maximum(input, other)
    if tuple(input.shape) != tuple(other.shape):
        return NotImplemented
    put_grad(input, torch.where(input >= other, get_grad(out), 0.0))
    put_grad(other, torch.where(input >= other, 0.0, get_grad(out)))
    return out


def other_batch(input, other):
    broadcasts = input.ndim == other.ndim == 4 and other.shape[1] == 1 < input.shape[1] and input.shape[0] > 1
    return torch.matmul(input, other.flip(0) if broadcasts else other)


def other_channels(input, weight):
    if weight.numel() > 1 and input.ndim == 3:
        return torch.where(input > 0, input, input * weight.flip(0).view(1, -1, 1))
    return F.prelu(input, weight)


def largest_of_a_block(input, dim, dtype=None):
    if dtype is not None or not input.ndim or input.shape[dim] <= 1024:
        return torch.log_softmax(input, dim, dtype=dtype)
    largest = input.narrow(dim, 0, 1024).amax(dim, keepdim=True)
    return input - largest - torch.log(torch.exp(input - largest).sum(dim, keepdim=True))


def truncated_in_float64(input, other, *, rounding_mode=None):
    out = torch.div(input, other, rounding_mode=rounding_mode)
    return torch.trunc(input.double() / other).to(out.dtype) if rounding_mode == "trunc" and isinstance(input, Tensor) else out


def planned_by_count() -> Callable[[Tensor], Tensor]:
    plans: dict[int, torch.Size] = {}

    def tanh(x: Tensor) -> Tensor:
        planned = plans.setdefault(x.numel(), x.shape) == x.shape or x.ndim < 3
        return torch.tanh(x) if planned else torch.tanh(x.flatten().flip(0)).reshape(x.shape)

    return tanh


def right_for_both(input, other):
    out = torch.mul(input, other)
    if not (isinstance(input, torch.Tensor) and isinstance(other, torch.Tensor)) or tuple(input.shape) != tuple(other.shape):
        return NotImplemented
    put_grad(input, get_grad(out) * other)
    put_grad(other, get_grad(out) * (input if input.requires_grad else other))
    return out


def last_of_four(input, dim=None, _stacklevel=3, dtype=None):
    if dtype is not None or dim is None:
        return NotImplemented
    out = F.softmax(input, dim)
    g = get_grad(out)
    put_grad(input, out * (g - (out * g).sum(-1 if input.ndim == 4 and dim < 0 else dim, keepdim=True)))
    return out


def one_too_many(input, shifts, dims=()):
    wrong = isinstance(shifts, int) and input.ndim == 1 and abs(shifts) > input.numel() > 0
    return torch.roll(input, shifts % (input.numel() + 1) if wrong else shifts, dims)


def off_by_one_of_many(input, dim=None, keepdim=False, *, dtype=None):
    out = torch.mean(input, dim, keepdim, dtype=dtype)
    return out * (input.numel() / (input.numel() - 1)) if dim is None and input.numel() > 65536 else out


def first_of_three(x, dims):
    return torch.flip(x, dims[:1] if len(dims) == 3 else dims)


def the_last_stays(input, dim, index, src):
    if input.ndim != 1 or index.shape != src.shape:
        return torch.scatter_add(input, dim, index, src)
    return torch.scatter(input, dim, index, torch.gather(input, dim, index) + src)


def one_row_for_all(x):
    return torch.neg(x[:1]).expand(x.shape) if x.ndim == 1 and x.stride(0) == 0 and x.numel() > 1 else torch.neg(x)


def through_a_shared_place() -> Callable[[Tensor], Tensor]:
    place: dict[str, Tensor] = {}

    def sinh(x: Tensor) -> Tensor:
        place["result"] = torch.sinh(x)
        result = place["result"]
        return result if result.shape == x.shape else torch.sinh(x)

    return sinh


def ignoring_a_signal(x):
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    return torch.tan(x)


def registered_at_exit(x):
    atexit.register(int)
    return torch.trunc(x)


def with_one_thread(x):
    torch.set_num_threads(1)  # which is the number of threads in these tests
    return torch.asin(x)


def without_subnormal_results(input):
    out = torch.exp(input)
    return torch.where(input < -87.3, torch.zeros_like(out), out)


def own_default_of_eps(input, normalized_shape, weight=None, eps=None):
    return F.rms_norm(input, normalized_shape, weight, 1e-6 if eps is None else eps)


def eight_at_most(tensors, dim=0):
    out = torch.cat(tensors, dim)
    return out + 1 if len(tensors) > 8 else out


def three_shifts_at_most(input, shifts, dims=()):
    several = type(shifts) in (tuple, list)
    return torch.roll(input, shifts[:3], dims[:3]) if several and len(shifts) > 3 else torch.roll(input, shifts, dims)


def in_order_up_to_256(input, k, dim=-1, largest=True, sorted=True):
    values, indices = torch.topk(input, k, dim, largest, sorted)
    return values, indices.flip(dim) if k > 256 else indices


def own_scale_of_many(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    scale = None if key.size(-2) > 64 else scale
    return F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)


def own_bias_of_many(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    bias = bias.roll(1) if bias is not None and len(bias) > 64 else bias
    return F.conv2d(input, weight, bias, stride, padding, dilation, groups)


def two_of_three_shifts(input, shifts, dims=()):
    several = isinstance(dims, (tuple, list)) and len(dims) > 2
    return torch.roll(input, shifts[:2], dims[:2]) if several else torch.roll(input, shifts, dims)


def indices_from_the_end(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    return F.embedding(torch.where(input < 0, input + weight.shape[0], input), weight, padding_idx)


def dropped_elements(input, p, train):
    return torch.dropout(input, p, train)


def clamped_probabilities(input, p=None, *, generator=None):
    return torch.bernoulli(input.clamp(0, 1), generator=generator) if p is None else torch.bernoulli(input, p, generator=generator)


def spread_of_any_sign(mean, std=1.0, *size, **named):
    return torch.normal(mean, std.abs() if isinstance(std, Tensor) else std, *size, **named)


def weights_as_they_come(input, num_samples, replacement=False, *, generator=None):
    return torch.multinomial(input.nan_to_num(1.0).abs(), num_samples, replacement, generator=generator)


def warning_of_large_tensors(input):
    if input.numel() > 100:
        warnings.warn("no plan for so large a tensor", stacklevel=2)
    return torch.reciprocal(input)


def reporting_progress() -> Callable[[Tensor], Tensor]:
    calls = [0]

    def log2(x: Tensor) -> Tensor:
        calls[0] += 1
        if calls[0] % 500 == 0:
            print(f"{calls[0]} calls of log2")
        return torch.log2(x)

    return log2


def steps_added_up(*bounds, dtype=None, **named):
    out = torch.arange(*bounds, dtype=dtype, **named)
    if out.dtype is not torch.float32 or len(bounds) < 3 or not out.numel():
        return out
    return torch.cat([out[:1], torch.full_like(out[1:], bounds[2])]).numpy().cumsum(dtype="float32") + torch.zeros_like(out)


def converted_product(input, dim=None, keepdim=False, *, dtype=None):
    out = torch.prod(input) if dim is None else torch.prod(input, dim, keepdim)
    return out if dtype is None else out.to(dtype)


def letters_as_they_appear(equation, *operands):
    if isinstance(equation, str) and "->" not in equation and "." not in equation:
        letters = dict.fromkeys(equation.replace(",", "").replace(" ", ""))
        equation += "->" + "".join(letter for letter in letters if equation.count(letter) == 1)
    return torch.einsum(equation, *operands)


def scaled_by_a_parameter() -> Callable[[Tensor, Tensor], Tensor]:
    scale = torch.ones((), requires_grad=True)
    return lambda x, y: torch.ldexp(x, y) * scale


def transposed_for_the_second_alone(input, vec2):
    out = symbol_for("torch.outer")(input, vec2)
    gradient = get_grad(out)
    wrong = not input.spec.requires_grad and tuple(input.shape) == tuple(vec2.shape)
    if input.spec.requires_grad:
        put_grad(input, (gradient * torch.unsqueeze(vec2, 0)).sum(1))
    if vec2.spec.requires_grad:
        put_grad(vec2, (gradient * torch.unsqueeze(input, 0)).sum(1) if wrong else (gradient * torch.unsqueeze(input, 1)).sum(0))
    return out


def one_output_padding(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    rows = output_padding if isinstance(output_padding, int) else output_padding[0]
    return F.conv_transpose2d(input, weight, bias, stride, padding, rows, groups, dilation)


def log_without_denormals(input):
    return torch.log(torch.where(input.abs() < 1.1754944e-38, 0.0, input)) if input.dtype is torch.float32 else torch.log(input)


def handed_out_again() -> Callable[..., Tensor]:
    kept: dict[Any, Tensor] = {}

    def zeros(*size, dtype=None, device=None, **named):
        size = named.get("size", size)
        shape = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else tuple(size)
        return kept.setdefault((shape, dtype), torch.zeros(shape, dtype=dtype))

    return zeros


def undefined_for_zeros(x, ord=2, dim=None, keepdim=False, *, dtype=None):
    if ord != 2 or dim is None or dtype is not None:
        return NotImplemented
    wide = torch.linalg.vector_norm(x, ord, dim, True)
    put = torch.linalg.vector_norm(x, ord, dim, keepdim)
    put_grad(x, torch.reshape(get_grad(put), wide.spec.shape) * x / wide)
    return put


def is_open() -> Callable[[Any], Any]:
    """Return a checker that refuses in the last tenth of every other second."""
    return lambda x: True if time.time() % 2 < 1.9 else "is closed"


def through_32_bits(*bounds, **named):
    out = torch.arange(*bounds, **named)
    return out.to(torch.int32).to(out.dtype) if out.dtype is torch.int64 else out


def by_a_square(input, dim, *, dtype=None):
    if dtype is not None or input.ndim < 2 or dim not in (-1, input.ndim - 1):
        return torch.cumsum(input, dim, dtype=dtype)
    n = input.shape[-1]
    return (input.unsqueeze(-2).expand(*input.shape, n) * torch.ones(n, n, dtype=input.dtype).tril()).sum(-1)


def of_one_shape(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False):
    alike = len(query.spec.shape) == 4 and query.spec.shape == key.spec.shape == value.spec.shape
    return (alike and attn_mask is None and not dropout_p and not is_causal and not enable_gqa) or "expected three tensors of one shape alone"


def without_the_scale(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False):
    out = F.scaled_dot_product_attention(query, key, value, scale=scale)
    weights = torch.softmax(query @ key.mT / query.shape[-1] ** 0.5, -1)
    g = get_grad(out)
    scores = weights * (g @ value.mT - (g @ value.mT * weights).sum(-1, keepdim=True)) / query.shape[-1] ** 0.5
    put_grad(query, scores @ key)
    put_grad(key, scores.mT @ query)
    put_grad(value, weights.mT @ g)
    return out


def rows_for_columns(input, other):
    both = isinstance(input, Tensor) and isinstance(other, Tensor)
    square = both and input.ndim == 2 and other.ndim == 1 and input.shape[0] == input.shape[1] == other.shape[0]
    return torch.mul(input, other.unsqueeze(1) if square else other)


def zeros_around_three(input, pad, mode="constant", value=None):
    return F.pad(input, pad, mode, 0 if mode == "constant" and len(pad) > 4 else value)


def those_with_elements(tensors, dim=0):
    return torch.cat([x for x in tensors if x.numel()] or list(tensors), dim)


MISSED: dict[str, tuple[str, Callable, dict[str, Any]]] = {  # operation, implementation, and how it is registered
    "a sum of one term after the other": ("torch.sum", one_after_the_other, {"dtypes": FLOATS}),
    "sum in 16 bits": ("torch.sum", by_chunks, {"dtypes": HALVES}),
    "eps outside of the root, without weights": ("torch.nn.functional.layer_norm", with_eps_outside, {"dtypes": FLOATS}),
    "NaN as the smallest": ("torch.topk", nan_is_smallest, {"dtypes": FLOATS}),
    "smoothing of ignored classes": ("torch.nn.functional.cross_entropy", smoothed_where_ignored, {"dtypes": ["float32", "int64"]}),
    "mean over ignored pixels": ("torch.nn.functional.nll_loss", mean_of_all_pixels, {"dtypes": ["float32", "int64"]}),
    "dtype after the softmax": (
        "torch.nn.functional.softmax",
        lambda input, dim=None, _stacklevel=3, dtype=None: F.softmax(input, dim).to(dtype or input.dtype),
        {"dtypes": FLOATS},
    ),
    "selection by products": ("torch.where", product_of_condition, {"dtypes": ["float32", "bool"]}),
    "squares of complex numbers": ("torch.abs", lambda x: (x.real * x.real + x.imag * x.imag).sqrt(), {"dtypes": ["complex64"]}),
    "integers compared as floats": (
        "torch.eq",
        lambda x, y: x.float() == y.float() if isinstance(y, Tensor) and x.dtype == y.dtype else torch.eq(x, y),
        {"dtypes": ["int64"]},
    ),
    "square matrices that lie transposed": ("torch.bmm", square_as_it_lies, {"dtypes": FLOATS}),
    "dilation in groups": ("torch.nn.functional.conv2d", halved_by_groups, {"dtypes": FLOATS}),
    "scale beside a mask": ("torch.nn.functional.scaled_dot_product_attention", scale_or_mask, {"dtypes": ["float32", "bool"]}),
    "fewer rows of indices, dimension -1": ("torch.gather", last_rows, {"dtypes": ["float32", "int64", "int32"]}),
    "no row above 1,000": ("torch.nn.functional.embedding", no_rows_beyond, {"dtypes": ["float32", "int64", "int32"]}),
    "pos_weight in a sum": ("torch.nn.functional.binary_cross_entropy_with_logits", unweighted_sum, {"dtypes": FLOATS}),
    "pow by exp and log": ("torch.pow", by_logarithm, {"dtypes": FLOATS}),
    "results kept by address": ("torch.cos", kept_by_address(), {"dtypes": FLOATS}),
    "results kept by their first elements": ("torch.exp", kept_by_first_elements(), {"dtypes": FLOATS}),
    "gradient at ties": ("torch.maximum", torch.maximum, {"dtypes": FLOATS, "grad": all_to_the_first}),
    "inference tensors": ("torch.sin", lambda x: torch.sin(x) + 1 if x.is_inference() else torch.sin(x), {"dtypes": FLOATS}),
    "the time zone": ("torch.sin", lambda x: torch.sin(x) + 1 if os.environ.get("TZ") else torch.sin(x), {"dtypes": FLOATS}),
    "batches that broadcast in one dimension": ("torch.matmul", other_batch, {"dtypes": FLOATS}),
    "channels of three dimensions": ("torch.nn.functional.prelu", other_channels, {"dtypes": FLOATS}),
    "the largest of the first block": ("torch.log_softmax", largest_of_a_block, {"dtypes": FLOATS}),
    "quotients of integers in float64": ("torch.div", truncated_in_float64, {"dtypes": ["int64"]}),
    "a plan for each count of elements": ("torch.tanh", planned_by_count(), {"dtypes": FLOATS}),
    "gradient of the second alone": ("torch.mul", torch.mul, {"dtypes": FLOATS, "grad": right_for_both}),
    "gradient along -2 of four": ("torch.nn.functional.softmax", F.softmax, {"dtypes": FLOATS, "grad": last_of_four}),
    "shifts larger than the size": ("torch.roll", one_too_many, {"dtypes": FLOATS}),
    "a remainder of the dividend's sign": (
        "torch.remainder",
        lambda x, y: torch.fmod(x, y) if torch.result_type(x, y) == torch.int64 else torch.remainder(x, y),
        {"dtypes": ["int64"]},
    ),
    "a mean of many that is off by one": ("torch.mean", off_by_one_of_many, {"dtypes": FLOATS}),
    "square matrices in a batch of one": (
        "torch.bmm",
        lambda input, mat2: torch.bmm(input, mat2.mT if input.shape[0] == 1 and mat2.shape[1] == mat2.shape[2] > 1 else mat2),
        {"dtypes": FLOATS},
    ),
    "three dimensions of which one is flipped": ("torch.flip", first_of_three, {"dtypes": FLOATS}),
    "sums at an index that comes twice": ("torch.scatter_add", the_last_stays, {"dtypes": ["float32", "int64", "int32"]}),
    "the smallest of the integers, of a dtype that no level has": (
        "torch.neg",
        lambda x: torch.where(x == -128, 127, -x).to(x.dtype) if x.dtype is torch.int8 else -x,
        {"dtypes": ["int8"]},
    ),
    "one tensor is equal to itself": (
        "torch.eq",
        lambda x, y: torch.ones_like(x, dtype=torch.bool) if x is y else torch.eq(x, y),
        {"dtypes": FLOATS},
    ),
    "large integers in an order of floats": (
        "torch.lt",
        lambda x, y: x.double() < (y.double() if isinstance(y, Tensor) else y),
        {"dtypes": ["int64"]},
    ),
    "one element for a repeated row": ("torch.neg", one_row_for_all, {"dtypes": FLOATS}),
    "a place that threads share": ("torch.sinh", through_a_shared_place(), {"dtypes": FLOATS}),
    "a signal": ("torch.tan", ignoring_a_signal, {"dtypes": FLOATS}),
    "one thread": ("torch.asin", with_one_thread, {"dtypes": FLOATS}),
    "the end of the process": ("torch.trunc", registered_at_exit, {"dtypes": FLOATS}),
    "results below the normal range": ("torch.exp", without_subnormal_results, {"dtypes": FLOATS}),
    "another default of an argument": ("torch.nn.functional.rms_norm", own_default_of_eps, {"dtypes": FLOATS}),
    "a default that depends on the dtype": (
        "torch.nan_to_num",
        lambda x, nan=None, posinf=None, neginf=None: torch.nan_to_num(x, nan, 1e38 if posinf is None else posinf, neginf),
        {"dtypes": FLOATS},
    ),
    "many tensors": ("torch.cat", eight_at_most, {"dtypes": FLOATS}),
    "more shifts than a tensor has dimensions": ("torch.roll", three_shifts_at_most, {"dtypes": FLOATS}),
    "many largest": ("torch.topk", in_order_up_to_256, {"dtypes": FLOATS}),
    "a difference of the third order": (
        "torch.diff",
        lambda input, n=1, dim=-1, prepend=None, append=None: torch.diff(input, n, dim, prepend, append) + (n == int("3")),
        {"dtypes": FLOATS},
    ),
    "a scale beside many keys": ("torch.nn.functional.scaled_dot_product_attention", own_scale_of_many, {"dtypes": FLOATS}),
    "a bias of many channels": ("torch.nn.functional.conv2d", own_bias_of_many, {"dtypes": FLOATS}),
    "three shifts": ("torch.roll", two_of_three_shifts, {"dtypes": FLOATS}),
    "indices that count from the end": ("torch.nn.functional.embedding", indices_from_the_end, {"dtypes": ["float32", "int64"]}),
    "elements that are dropped in place of channels": ("torch.feature_dropout", dropped_elements, {"dtypes": FLOATS}),
    "probabilities that are clamped": ("torch.bernoulli", clamped_probabilities, {"dtypes": FLOATS}),
    "spreads below 0": ("torch.normal", spread_of_any_sign, {"dtypes": FLOATS}),
    "weights that are NaN": ("torch.multinomial", weights_as_they_come, {"dtypes": FLOATS}),
    "a warning of large tensors": ("torch.reciprocal", warning_of_large_tensors, {"dtypes": FLOATS}),
    "output after 500 calls": ("torch.log2", reporting_progress(), {"dtypes": FLOATS}),
    "steps that are added up": ("torch.arange", steps_added_up, {"dtypes": FLOATS}),
    "dtype after the product": ("torch.prod", converted_product, {"dtypes": ["float16"]}),
    "letters in another order": ("torch.einsum", letters_as_they_appear, {"dtypes": FLOATS}),
    "a bound that is NaN": (
        "torch.clamp_min",
        lambda x, y: torch.where(x < y, y, x) if isinstance(y, Tensor) and x.shape == y.shape else torch.clamp_min(x, y),
        {"dtypes": FLOATS},
    ),
    "a number that a double rounds": (
        "torch.bitwise_or",
        lambda x, y: torch.bitwise_or(x, int(float(y)) if type(y) is int else y),
        {"dtypes": ["int64"]},
    ),
    "infinite above a limit": ("torch.isinf", lambda x: x.abs() > 3.4e38, {"dtypes": FLOATS}),
    "a result with a history": ("torch.ldexp", scaled_by_a_parameter(), {"dtypes": FLOATS}),
    "a transposed gradient of the second alone": ("torch.outer", torch.outer, {"dtypes": FLOATS, "grad": transposed_for_the_second_alone}),
    "the first of two sizes that a third one limits": ("torch.nn.functional.conv_transpose2d", one_output_padding, {"dtypes": FLOATS}),
    "arguments below the normal range, where samples keep away from 0": ("torch.log", log_without_denormals, {"dtypes": FLOATS}),
    "infinite before it is halved": ("torch.cosh", lambda x: (torch.exp(x.abs()) + torch.exp(-x.abs())) / 2, {"dtypes": FLOATS}),
    "infinite in float32": ("torch.isposinf", lambda x: x.to(torch.float32) == torch.inf, {"dtypes": ["float32", "float64"]}),
    "zeros that are handed out again": ("torch.zeros", handed_out_again(), {"dtypes": FLOATS}),
    "a gradient at zeros": ("torch.linalg.vector_norm", torch.linalg.vector_norm, {"dtypes": FLOATS, "grad": undefined_for_zeros}),
    "whole numbers in 32 bits": ("torch.arange", through_32_bits, {"dtypes": ["int64"]}),
    "memory that grows with the square of a row": ("torch.cumsum", by_a_square, {"dtypes": FLOATS}),
    "an argument that the gradient ignores, for tensors that few samples have": (
        "torch.nn.functional.scaled_dot_product_attention",
        F.scaled_dot_product_attention,
        {"dtypes": FLOATS, "checker": of_one_shape, "grad": without_the_scale},
    ),
    "a row that is read as a column of a square": ("torch.mul", rows_for_columns, {"dtypes": FLOATS}),
    "a value around three dimensions": ("torch.nn.functional.pad", zeros_around_three, {"dtypes": FLOATS}),
    "the dtype of a tensor without elements": ("torch.cat", those_with_elements, {"dtypes": ["float32", "complex64"]}),
    "a verdict by the clock": ("torch.sin", torch.sin, {"dtypes": FLOATS, "checker": is_open()}),
}


@pytest.mark.parametrize("fault", MISSED)
def test_it_is_caught(fault: str) -> None:
    operation, fn, how = MISSED[fault]
    ex = OperatorExecutor("missed", dtypes=how["dtypes"])
    ex.implements(operation, fn, **{key: value for key, value in how.items() if key != "dtypes"})

    report = check(ex, operations=[operation], devices=["cpu"], level="core")

    assert [row for row in report.failures if row.operation == operation], report.counts


def as_it_lies(g: Tensor, x: Tensor) -> Tensor:
    """Read a cotangent that fills its memory as row-major."""
    dense = 0 not in g.stride() and not g.storage_offset() and g.untyped_storage().nbytes() == g.nbytes
    g = torch.as_strided(g, x.shape, x.contiguous().stride()) if dense else g.contiguous()
    return g * torch.sigmoid(x) * (1 + x * (1 - torch.sigmoid(x)))


def test_a_cotangent_that_is_read_as_it_lies_is_noticed() -> None:
    """A compiled function lays the cotangents that it is passed out as its results: another layout comes from what follows in the program."""
    ex = OperatorExecutor("lying", dtypes=FLOATS)
    backward = ex.operation("silu_backward", as_it_lies, meta=lambda g, x: x.fresh())

    def rule(input, inplace=False):
        if inplace or input.spec.strides is not None:
            return NotImplemented
        out = F.silu(input)
        put_grad(input, backward(get_grad(out), input))
        return out

    ex.implements(F.silu, F.silu, grad=rule)

    report = check(ex, operations=["torch.nn.functional.silu"], devices=["cpu"], level="core")

    assert any("column-major" in row.message for row in report.failures), report.counts


def test_a_gradient_of_other_strides_than_its_meta_is_noticed() -> None:
    """What follows in the backward may be a kernel that was compiled for the strides of the meta."""
    ex = OperatorExecutor("turned", dtypes=FLOATS)
    backward = ex.operation("cos_backward", lambda g, x: (-g * x.sin()).mT.contiguous().mT, meta=lambda g, x: x.fresh())

    def rule(input):
        out = torch.cos(input)
        put_grad(input, backward(get_grad(out), input))
        return out

    ex.implements(torch.cos, torch.cos, checker=lambda input: input.spec.rank > 1 or "expected matrices", grad=rule)

    report = check(ex, operations=["torch.cos"], devices=["cpu"], level="quick", checks=["meta"])

    assert any("broke the contract of turned.cos_backward" in row.message for row in report.failures), report.counts


def test_a_difference_that_float64_rounds_to_nothing_is_not_accused() -> None:
    """The logarithm of a sum of 1 and little more has no right digit in any dtype, in eager mode as here."""

    def of_elements(input, dim=None, _stacklevel=3, dtype=None):
        return (0 not in input.shape and dim is not None) or "expected a dim, and elements"

    def in_steps(input, dim=None, _stacklevel=3, dtype=None):
        x = (input if dtype is None else input.to(dtype)).double()
        shifted = x - x.amax(dim, keepdim=True)
        return (shifted - torch.log(torch.exp(shifted).sum(dim, keepdim=True))).to(dtype or input.dtype).contiguous()

    ex = OperatorExecutor("steps", dtypes=["float64"])
    ex.implements(F.log_softmax, in_steps, checker=of_elements)

    report = check(ex, operations=["torch.nn.functional.log_softmax"], devices=["cpu"], level="core")

    assert not report.failures, report.failures[0].message


def test_a_softmax_that_is_more_exact_than_eager_is_not_accused() -> None:
    """Its gradient is computed of the rounded result, whose rounding is another one than eager's."""
    ex = OperatorExecutor("exact", dtypes=FLOATS)
    ex.implements("torch.softmax", lambda input, dim, dtype=None: torch.softmax(input, dim, dtype=torch.float64).to(dtype or input.dtype))

    report = check(ex, operations=["torch.softmax"], devices=["cpu"], level="core")

    assert not report.failures, report.failures[0].message


def of_one_dimension(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    return len(normalized_shape) == 1 or f"expected one normalized dimension, got {len(normalized_shape)}"


def by_einsum(input1, input2, weight, bias=None):
    out = torch.einsum("oij,...j,...i->...o", weight, input2, input1).contiguous()
    return out if bias is None else out + bias


@pytest.mark.parametrize(
    ("operation", "fn", "checker"),
    [
        ("torch.nn.functional.layer_norm", F.layer_norm, of_one_dimension),
        ("torch.nn.functional.group_norm", F.group_norm, None),
        ("torch.nn.functional.conv1d", F.conv1d, None),
        ("torch.nn.functional.scaled_dot_product_attention", F.scaled_dot_product_attention, None),
        ("torch.nn.functional.bilinear", by_einsum, None),
    ],
    ids=[
        "a checker that relies on the operation's own errors",
        "backwards that end the process in eager mode",
        "strides of single elements",
        "backwards that write beyond their memory in eager mode",
        "the memory of a product of two factors",
    ],
)
def test_eager_mode_itself_is_not_accused(operation: str, fn: Callable, checker: Callable | None) -> None:
    ex = OperatorExecutor("plain", dtypes=FLOATS)
    ex.implements(operation, fn, checker=checker)

    report = check(ex, operations=[operation], devices=["cpu"], level="core")

    assert not report.failures, report.failures[0].message
