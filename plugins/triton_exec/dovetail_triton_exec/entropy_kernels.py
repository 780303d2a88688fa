"""Cross-entropy: the loss of each row in one pass over its logits, their mean, and the gradient of the logits.

For a row x of C logits with class y, weights w, W their sum and smoothing e,

    loss = (1 - e) w[y] (lse - x[y]) + e / C (W lse - sum w x),    lse = log sum exp x

in float32.  Rows whose class is ignored cost and weigh nothing.
"""

from __future__ import annotations

import triton
import triton.language as tl

from dovetail_triton_exec.device import native


@triton.jit
def _stored(value, BF16: tl.constexpr, F16: tl.constexpr):
    if BF16:
        return native.to_bfloat16(value)
    elif F16:
        return value.to(tl.float16)
    else:
        return value


@triton.jit(debug=True)
def losses(
    logits, target, weight, out, lse, stride, CLASSES: tl.constexpr, ignored: tl.constexpr, smoothing: tl.constexpr,
    WEIGHTED: tl.constexpr, BF16: tl.constexpr, F16: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute one row per program: the largest logit so far, and the sum of exponentials relative to it, as the row goes by."""
    row = tl.program_id(0).to(tl.int64)
    y = tl.load(target + row).to(tl.int64)
    counts = y != ignored
    y = native.check(tl.where(counts, y, 0), CLASSES, counts)
    largest = tl.full((), float("-inf"), tl.float32)
    total = tl.full((), 0.0, tl.float32)
    weighted = tl.full((), 0.0, tl.float32)
    weights = tl.full((), 0.0, tl.float32)
    for start in range(0, CLASSES, BLOCK):
        c = start + tl.arange(0, BLOCK)
        inside = c < CLASSES
        x = tl.load(logits + row * stride + c, inside, other=float("-inf")).to(tl.float32)
        new = tl.maximum(largest, tl.max(x, 0))
        shift = tl.where(new == float("-inf"), 0.0, new)
        total = total * native.exp(largest - shift) + tl.sum(native.exp(x - shift), 0)
        largest = new
        if smoothing > 0:
            if WEIGHTED:
                w = tl.load(weight + c, inside, other=0).to(tl.float32)
                weights += tl.sum(w, 0)
                weighted += tl.sum(tl.where(inside, w * x, 0.0), 0)
            else:
                weighted += tl.sum(tl.where(inside, x, 0.0), 0)
    log_sum = largest + native.log(total)
    picked = tl.load(logits + row * stride + y).to(tl.float32)
    loss = log_sum - picked
    if WEIGHTED:
        loss = loss * tl.load(weight + y).to(tl.float32)
    if smoothing > 0:
        if not WEIGHTED:
            weights = tl.full((), CLASSES, tl.float32)
        loss = loss * (1.0 - smoothing) + (weights * log_sum - weighted) * (smoothing / CLASSES)
    tl.store(out + row, _stored(tl.where(counts, loss, 0.0), BF16, F16))
    tl.store(lse + row, log_sum)


@triton.jit
def reduced(
    rows, target, weight, out, total, ROWS: tl.constexpr, ignored: tl.constexpr,
    MEAN: tl.constexpr, WEIGHTED: tl.constexpr, BF16: tl.constexpr, F16: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sum the rows' losses, and divide by what they weigh together where it is the mean; that weight is kept for the backward."""
    loss = tl.zeros([BLOCK], tl.float32)
    share = tl.zeros([BLOCK], tl.float32)
    for start in range(0, ROWS, BLOCK):
        i = start + tl.arange(0, BLOCK)
        inside = i < ROWS
        loss += tl.load(rows + i, inside, other=0)
        if MEAN:
            y = tl.load(target + i, inside, other=ignored).to(tl.int64)
            counts = inside & (y != ignored)
            if WEIGHTED:
                share += tl.load(weight + tl.where(counts, y, 0), counts, other=0).to(tl.float32)
            else:
                share += counts.to(tl.float32)
    weighs = tl.sum(share, 0) if MEAN else tl.full((), 1.0, tl.float32)
    tl.store(out, _stored(native.div(tl.sum(loss, 0), weighs), BF16, F16))
    tl.store(total, weighs)


@triton.jit
def gradient(
    g, logits, target, weight, lse, total, out, stride, CLASSES: tl.constexpr, ignored: tl.constexpr, smoothing: tl.constexpr,
    EACH: tl.constexpr, WEIGHTED: tl.constexpr, BF16: tl.constexpr, F16: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute one row per program: g ((1 - e) w[y] (p - [c == y]) + e / C (W p - w)), where p is softmax of the row."""
    row = tl.program_id(0).to(tl.int64)
    y = tl.load(target + row).to(tl.int64)
    counts = y != ignored
    scale = native.div(tl.load(g + (row if EACH else 0)).to(tl.float32), tl.load(total))
    own = tl.full((), 1.0, tl.float32)
    weights = tl.full((), CLASSES, tl.float32)
    if WEIGHTED:
        own = tl.load(weight + tl.where(counts, y, 0)).to(tl.float32)
        if smoothing > 0:
            weights = tl.full((), 0.0, tl.float32)
            for start in range(0, CLASSES, BLOCK):
                c = start + tl.arange(0, BLOCK)
                weights += tl.sum(tl.load(weight + c, c < CLASSES, other=0).to(tl.float32), 0)
    log_sum = tl.load(lse + row)
    for start in range(0, CLASSES, BLOCK):
        c = start + tl.arange(0, BLOCK)
        inside = c < CLASSES
        p = native.exp(tl.load(logits + row * stride + c, inside, other=float("-inf")).to(tl.float32) - log_sum)
        d = (p - (c == y).to(tl.float32)) * (own * (1.0 - smoothing))
        if smoothing > 0:
            w = tl.load(weight + c, inside, other=0).to(tl.float32) if WEIGHTED else 1.0
            d += (weights * p - w) * (smoothing / CLASSES)
        tl.store(out + row * CLASSES + c, _stored(tl.where(counts, d * scale, 0.0), BF16, F16), inside)
