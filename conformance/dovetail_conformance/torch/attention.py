"""Attention."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, sqrt
from typing import Any

import numpy as np
import torch

from dovetail import dtypes
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.langs.torch import symbol_for
from dovetail_conformance.opinfo import FLOATS, OPINFOS, ErrorSample, Maker, OpInfo, SampleInput, by_numpy, unwritten


def attention_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    """Yield queries, keys and values of several ranks and layouts; masks that are boolean, numbers, broadcast; heads that are shared."""
    make = Maker(dtype, device)

    def parts(*before: int, queries: int = 3, keys: int = 4, width: int = 2) -> tuple:
        return make(*before, queries, width), make(*before, keys, width), make(*before, keys, width)

    yield SampleInput(parts())
    yield SampleInput(parts(2))
    yield SampleInput(parts(1, 2))
    yield SampleInput(tuple(make(1, n, 2, 4).transpose(1, 2) for n in (3, 5, 5)))
    yield SampleInput((make(2, 3, 4)[..., ::2], make(1, 4, 2).expand(2, 4, 2), make(2, 4, 3)))
    yield SampleInput(parts(1, 2, queries=4), {"is_causal": True})
    yield SampleInput(parts(1, 2), {"scale": 0.5})
    yield SampleInput((*parts(2), tril(3, 4)))
    yield SampleInput((*parts(1, 2), make(1, 2, 3, 4)))
    yield SampleInput(parts(1, 2), {"attn_mask": make(3, 4), "dropout_p": 0.0})
    yield SampleInput((make(1, 4, 3, 2), make(1, 2, 4, 2), make(1, 2, 4, 2)), {"enable_gqa": True})
    yield SampleInput(parts(1, 1, queries=1, keys=1, width=1))
    yield SampleInput(parts(1, 2, queries=0))


def tril(rows: int, columns: int) -> torch.Tensor:
    """Return a causal mask that leaves the first query nothing."""
    return torch.ones(rows, columns, dtype=torch.bool).tril(-1)


def attention_errors(device: Device) -> Iterator[ErrorSample]:
    q, k = unwritten((2, 3, 4)), unwritten((2, 5, 4))
    yield ErrorSample((q, k, unwritten((2, 5, 4), dtypes.float64)), {}, RuntimeError, "to have the same dtype")
    yield ErrorSample((unwritten((4,)), k, k), {}, RuntimeError, "to all be at least 2 dimensional")
    yield ErrorSample((q, unwritten((2, 5, 3)), k), {}, RuntimeError, "expected query and key of one width")
    yield ErrorSample((q, k, k, unwritten((3, 5))), {"is_causal": True}, RuntimeError, "Explicit attn_mask should not be set when is_causal=True")
    yield ErrorSample((q, k, k, unwritten((3, 5), dtypes.int64)), {}, RuntimeError, "Expected attn_mask dtype to be bool or float")


def np_attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> np.ndarray:
    """softmax(q @ k^T * scale + mask) @ v; a query that may see nothing gives zeros."""
    if enable_gqa:
        k, v = (np.repeat(x, q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    scores = q @ np.swapaxes(k, -1, -2) * (1 / sqrt(q.shape[-1]) if scale is None else scale)
    if is_causal:
        attn_mask = np.tri(*scores.shape[-2:], dtype=bool)
    if attn_mask is not None:
        scores = np.where(attn_mask, scores, -inf) if attn_mask.dtype == bool else scores + attn_mask
    largest = scores.max(-1, keepdims=True, initial=-inf)
    weights = np.exp(scores - np.where(np.isfinite(largest), largest, 0))
    total = weights.sum(-1, keepdims=True)
    return weights / np.where(total == 0, 1, total) @ v


OPINFOS += [
    OpInfo(
        symbol_for("torch.nn.functional.scaled_dot_product_attention"),
        attention_samples,
        attention_errors,
        by_numpy(np_attention),
        FLOATS,
        grad=True,
        extremes=("large",),
    ),
]
