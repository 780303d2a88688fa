"""torch.cond, while_loop, scan, map, associative_scan and flex_attention while tracing: the Python that they stand for, which is interpreted."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from packaging.version import Version
from torch import _higher_order_ops
from torch.utils import _pytree

_SOURCE = """
def cond(pred, true_fn, false_fn, operands=()):
    return true_fn(*operands) if pred else false_fn(*operands)

def while_loop(cond_fn, body_fn, carried_inputs):
    while cond_fn(*carried_inputs):
        carried_inputs = body_fn(*carried_inputs)
    return (*carried_inputs,)

def scan(combine_fn, init, xs, *, dim=0, reverse=False):
    leaves, form = flatten(xs)
    if not leaves:
        return init, []
    dim = scanned(leaves, dim)
    carry, steps = init, []
    for i in reversed(range(leaves[0].shape[dim])) if reverse else range(leaves[0].shape[dim]):
        carry, out = combine_fn(carry, unflatten([x.select(dim, i) for x in leaves], form))
        steps.append(out)
    if steps:
        out = stacked(steps[::-1] if reverse else steps)
    else:
        out = combine_fn(carry, unflatten([x.new_zeros(x.movedim(dim, 0).shape[1:]) for x in leaves], form))[1]
        out = tree_map(lambda x: x.new_empty((0, *x.shape)), out)
    return carry, tree_map(lambda x: x.movedim(0, dim) if 0 < dim < x.ndim else x, out) if along_dim else out

def map(f, xs, *args):
    leaves, form = flatten(xs)
    count = leaves[0].shape[0]
    if not count:
        raise RuntimeError("Leading dimensions of mapped xs cannot be 0.")
    if any([x.shape[0] != count for x in leaves]):
        raise RuntimeError("Leading dimensions of mapped xs must be consistent.")
    return stacked([f(unflatten([x[i] for x in leaves], form), *args) for i in range(count)])

def associative_scan(combine_fn, xs, dim, reverse=False, combine_mode="pointwise"):
    leaves, form = flatten(xs)
    if combine_mode == "pointwise" and leaves[0].device.type == "cpu":
        raise ValueError("For combine_mode='pointwise', all input tensors need to be on CUDA or XPU")
    dim = scanned(leaves, dim)
    if not leaves[0].shape[dim]:
        return tree_map(clone, xs)
    batched = combine_fn if combine_mode == "pointwise" else vmap(combine_fn)

    def combine(a, b):
        return flatten(batched(unflatten(a, form), unflatten(b, form)))[0]

    rows = [x.movedim(dim, 0) for x in leaves]
    rows = prefixes(combine, [x.flip(0) for x in rows] if reverse else rows)
    return unflatten([(x.flip(0) if reverse else x).movedim(0, dim) for x in rows], form)

def flex_attention(query, key, value, score_mod, block_mask, scale, options, score_buffers=(), mask_buffers=()):
    groups, shape = query.size(1) // key.size(1), (query.size(0), query.size(1))
    if query.size(0) != key.size(0) and key.size(0) != 1:
        raise RuntimeError(f"Bq and Bkv must broadcast. Got Bq={query.size(0)} and Bkv={key.size(0)}")
    key, value = [x.repeat_interleave(groups, dim=1).expand((*shape, *x.shape[2:])) for x in (key, value)]
    dtype = float64 if query.dtype == float64 else float32
    scores = (query.to(dtype) @ key.to(dtype).transpose(-2, -1)) * scale
    places = [arange(n, device=scores.device) for n in scores.shape]
    mask_mod = block_mask[-1]
    for i in (3, 2, 1, 0):
        dims = tuple([0 if i == j else None for j in range(4)])
        score_mod = vmap(score_mod, in_dims=(0, *dims, *[None] * len(score_buffers)))
        mask_mod = vmap(mask_mod, in_dims=(*dims, *[None] * len(mask_buffers)))
    kept = mask_mod(*places, *mask_buffers)
    scores = where(kept, score_mod(scores, *places, *score_buffers), -inf)
    masked = (scores == -inf).all(-1)
    lse = where(masked, -inf, where(masked[..., None], 0.0, scores).logsumexp(-1))
    weights = where(masked[..., None], 0.0, where(masked[..., None], 0.0, scores).softmax(-1))
    out = weights.to(query.dtype) @ value.to(query.dtype)
    order = [*sorted(range(3), key=lambda i: -query.stride(i)), 3]
    out = out.permute(order).contiguous().permute([order.index(i) for i in range(4)])
    return out, lse / log_2, scores.amax(-1) / log_2

def prefixes(combine, rows):
    count = rows[0].shape[0]
    if count < 2:
        return rows
    odd = prefixes(combine, combine([x[0 : count - 1 : 2] for x in rows], [x[1::2] for x in rows]))
    even = [x[:1] for x in rows]
    if count > 2:
        later = combine([x[: (count - 1) // 2] for x in odd], [x[2::2] for x in rows])
        even = [cat([first, x]) for first, x in zip(even, later)]
    pairs = [stack([a[: count // 2], b], 1).flatten(0, 1) for a, b in zip(even, odd)]
    return [cat([x, a[-1:]]) for x, a in zip(pairs, even)] if count % 2 else pairs

def scanned(leaves, dim):
    dim = dim + leaves[0].ndim if dim < 0 else dim
    if any([x.ndim <= dim or (x.shape[dim] == 0 and not scans_nothing) for x in leaves]):
        raise RuntimeError("All xs leaves must at least have 'dim' number of dimensions and scan dimension > 0")
    return dim

def stacked(trees):
    rows = [flatten(tree)[0] for tree in trees]
    return unflatten([None if column[0] is None else stack(column) for column in zip(*rows)], flatten(trees[0])[1])
"""
_FILE = str(Path(torch.__file__).parent / "control_flow")  # among those of torch, so that messages name the line of the call
_GLOBALS = {
    "cat": torch.cat,
    "clone": torch.clone,
    "stack": torch.stack,
    "vmap": torch.vmap,
    "flatten": _pytree.tree_flatten,
    "unflatten": _pytree.tree_unflatten,
}
_GLOBALS |= {
    **{name: getattr(torch, name) for name in ("arange", "float32", "float64", "where")},
    "inf": math.inf,
    "log_2": math.log(2),
}
_VERSION = Version(torch.__version__).release  # a trial of a scan takes 6 s
_GLOBALS |= {
    "along_dim": _VERSION >= (2, 13),
    "scans_nothing": _VERSION >= (2, 14),
}  # outputs lie along dim, before along 0; a length of 0 is no error
_NAMES = ("cond", "while_loop", "scan", "map", "associative_scan")


def _programs() -> tuple[dict[Any, Callable], Callable]:
    """Return the program that each function stands for, and that of flex_attention."""
    functions: dict[str, Any] = {"__name__": "torch.control_flow", "tree_map": _pytree.tree_map, **_GLOBALS}
    exec(compile(_SOURCE, _FILE, "exec"), functions)
    spaces = [(space, name) for space in (torch, _higher_order_ops) for name in _NAMES]
    programs = {function: functions[name] for space, name in spaces if callable(function := getattr(space, name, None))}
    return programs, functions["flex_attention"]


CONTROL_FLOW, _FLEX_ATTENTION = _programs()


def program_of(kind: type) -> Callable | None:
    """Return the Python that calls of a higher-order operator of this class stand for, None for other classes."""
    is_flex = kind.__name__ == "FlexAttentionHOP" and kind.__module__.startswith("torch.")  # by name: its module takes a while to import
    return _FLEX_ATTENTION if is_flex else None
