"""Reductions, norms and losses of extreme values, compared with eager PyTorch.

python tests/langs/extreme_values.py layer_norm prod      shows what differs; without names, of everything

Elements are drawn from infinities, NaN, zeros, the largest and the smallest numbers and 1, over small shapes: sums and products overflow on the way,
and infinities meet.  The judge (`wrong`): a result is right where it is what eager gives, NaN, infinity or number, in one of two layouts, which eager
computes by two loops; or what eager gives in float64, as it is or rounded; or a number that is nearer to that than eager's own; or
no number where eager's is off that far.  Numbers may differ by some roundings, and by what roundings of the arguments and the cotangents do
to the result in float64: where large numbers cancel, any order is right.  Zeros may have either sign.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

import dovetail

SHAPES = ((2, 1, 2), (1, 2, 2), (5,), (3, 7))
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
EXTREMES = {  # ones are drawn often, so that others meet them
    torch.float32: (math.inf, -math.inf, math.nan, 0.0, -0.0, 1e38, -1e38, 1e-40, 1.0, -1.0, 1.0, -1.0),
    torch.float64: (math.inf, -math.inf, math.nan, 0.0, -0.0, 1e60, -1e60, 1e-60, 1.0, -1.0, 1.0, -1.0),
    torch.bfloat16: (math.inf, -math.inf, math.nan, 0.0, -0.0, 1e38, -1e38, 1e-40, 1.0, -1.0, 1.0, -1.0),
    torch.float16: (math.inf, -math.inf, math.nan, 0.0, -0.0, 6e4, -6e4, 1e-7, 1.0, -1.0, 1.0, -1.0),
}
ULPS = 16  # by which results may differ from eager's

OF_DIM = (
    *("torch.sum(x, {d})", "torch.nansum(x, {d})", "torch.mean(x, {d})", "torch.nanmean(x, {d})", "torch.prod(x, {d})", "torch.amax(x, {d})"),
    *("torch.amin(x, {d})", "torch.max(x, {d})[0]", "torch.min(x, {d})[0]", "torch.aminmax(x, dim={d})", "torch.logsumexp(x, {d})"),
    *("torch.var(x, {d})", "torch.std(x, {d})", "torch.var_mean(x, {d})", "torch.std_mean(x, {d})", "torch.var(x, {d}, correction=0)"),
    *(f"torch.linalg.vector_norm(x, {p}, {{d}})" for p in (2, 1, 0, 3, 0.5, -1, "math.inf", "-math.inf")),
    *("torch.norm(x, 2, {d})", "F.normalize(x, dim={d})", "F.normalize(x, 1, dim={d})", "torch.softmax(x, {d})", "torch.log_softmax(x, {d})"),
    *("F.softmin(x, {d})", "torch.cumsum(x, {d})", "torch.cumprod(x, {d})", "torch.logcumsumexp(x, {d})", "F.cosine_similarity(x, y, dim={d})"),
)
OF_ALL = (
    *("torch.sum(x)", "torch.prod(x)", "torch.mean(x)", "torch.amax(x)", "torch.max(x)", "torch.var(x)", "torch.std(x)", "torch.var_mean(x)"),
    *("torch.linalg.norm(x)", "torch.linalg.vector_norm(x, 1)", "torch.dist(x, y)", "torch.add(x, y, alpha=0.3)", "torch.sub(x, y, alpha=3)"),
    *("F.layer_norm(x, x.shape[-1:])", "F.layer_norm(x, x.shape[-1:], y.flatten()[: x.shape[-1]], x.detach().flatten()[: x.shape[-1]])"),
    *("F.layer_norm(x, x.shape)", "F.rms_norm(x, x.shape[-1:])", "F.rms_norm(x, x.shape[-1:], y.flatten()[: x.shape[-1]])"),
    *("F.group_norm(x.reshape(1, -1, 1), 1)", "F.group_norm(x.reshape(1, -1, 1), 1, y.flatten(), x.detach().flatten())"),
    *("F.batch_norm(x.reshape(-1, 1), None, None, None, None, True)", "F.instance_norm(x.reshape(1, 1, -1))"),
    "F.batch_norm(x.reshape(-1, 1), torch.ones_like(y[..., :1].flatten()[:1]), y.detach().abs().flatten()[:1], y.flatten()[1:2], y.flatten()[2:3])",
    *(f"F.{name}(x, y)" for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "poisson_nll_loss", "soft_margin_loss")),
    *("F.binary_cross_entropy_with_logits(x, y)", "F.gaussian_nll_loss(x, y, torch.ones_like(x))", "F.margin_ranking_loss(x, y, torch.ones_like(x))"),
    *("F.cross_entropy(x.reshape(1, -1), torch.ones_like(x, dtype=torch.int64).flatten()[:1])", "F.nll_loss(x.reshape(1, -1), torch.tensor([1]))"),
    *("F.cross_entropy(x.reshape(1, -1), y.reshape(1, -1))", "F.triplet_margin_loss(x, y, x * 0.5)", "F.pairwise_distance(x, y)"),
)
ALL = (*OF_DIM, *OF_ALL)
ALSO = {  # another of eager's formulas for the same, whose infinities are in other places
    "torch.var_mean(x, {d})": "(torch.var(x, {d}), torch.mean(x, {d}))",
    "torch.std_mean(x, {d})": "(torch.std(x, {d}), torch.mean(x, {d}))",
    "torch.var_mean(x)": "(torch.var(x), torch.mean(x))",
    "torch.prod(x, {d})": "torch.prod(x) if x.dim() == 1 else torch.prod(x, {d})",
}
SQUARE = 1e19  # beyond that squares overflow in float32
LEFT_OUT: tuple[tuple[str, Callable[[Tensor, Tensor], Any]], ...] = (  # draws that eager's results say nothing of
    # squares that overflow: eager has NaN or 0 by the place of the large element, and float64 in batch_norm and instance_norm
    *((f"F.{name}_norm", lambda x, y: large(x, SQUARE)) for name in ("layer", "group", "batch", "instance")),
    # infinite weights and biases: eager multiplies them into a scale and a shift, and in gradients into sums over the row, of which NaN comes
    *((f"F.{name}_norm(x.reshape", lambda x, y: y.isinf().any() or x.isinf().any()) for name in ("group", "batch")),
    ("F.layer_norm(x, x.shape[-1:], y", lambda x, y: y.isinf().any()),
    # float64, in which nothing judges what cancels, or products that overflow
    ("_norm(", lambda x, y: x.dtype is torch.float64),
    ("torch.prod(", lambda x, y: x.dtype is torch.float64 and large(x, 1e50)),
    ("F.cross_entropy(x.reshape(1, -1), y", lambda x, y: x.dtype is torch.float64 and large(y, 1e50)),
    # norms of float16 that lie in their last bits, or overflow: eager's powers overflow, and its gradients are NaN
    ("vector_norm(x, 3", lambda x, y: x.dtype is torch.float16 and bool((x.abs().float().nan_to_num(1.0) - 1).abs().lt(1).any())),
    ("vector_norm(x, -1", lambda x, y: x.dtype is torch.float16 and bool((x.abs().float().nan_to_num(1.0) - 1).abs().lt(1).any())),
)


def large(x: Tensor, bound: float) -> bool:
    """Return whether a finite element is that large."""
    return bool((x.isfinite() & (x.double().abs() > bound)).any())


class Program(NamedTuple):
    """An operation over extreme values of a shape and a dtype."""

    text: str
    dtype: torch.dtype
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.text} {str(self.dtype).removeprefix('torch.')}{list(self.shape)}"


def drawn(program: Program, seed: int) -> tuple[Tensor, Tensor]:
    """Return x and y of extreme values, the same ones for a seed in each operation."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.tensor(EXTREMES[program.dtype], dtype=torch.float64)
    few = values[torch.randperm(len(values), generator=generator)[: 1 + seed % 4]] if seed % 3 else values  # few kinds at once: they meet more often
    x, y = (few[torch.randint(len(few), program.shape, generator=generator)].to(program.dtype) for _ in range(2))
    return x, y


def function_of(text: str) -> Callable[..., Any]:
    return eval(f"lambda x, y: {text}", {"torch": torch, "F": F, "math": math})


def spaced(x: Tensor) -> Tensor:
    """Return x with gaps between its elements, which eager's vectorised loops refuse."""
    return torch.stack([x, x], -1)[..., 0]


def run(fn: Callable[..., Any], arguments: Sequence[Tensor], layout: Callable[[Tensor], Tensor] = torch.clone, factors: Any = None) -> list[Tensor]:
    """Return the results, and the gradients of both arguments where there are any; `factors(x)` is multiplied into arguments and cotangents."""
    factors = factors or torch.ones_like
    leaves = [(x.detach() * factors(x).to(x.dtype)).requires_grad_() for x in arguments]
    results = fn(*map(layout, leaves))
    results = [results] if isinstance(results, Tensor) else list(results)
    inexact = [out for out in results if out.requires_grad]
    if inexact:
        flows = [torch.arange(1.0, out.numel() + 1).remainder(4).add(1).div(2).reshape(out.shape).to(out.dtype) for out in inexact]
        flows = [g * factors(g).to(g.dtype) for g in flows]
        grads = torch.autograd.grad(inexact, leaves, flows, allow_unused=True)
        results += [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, grads)]
    return [out.detach() for out in results]


def precise(fn: Callable[..., Any], arguments: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Return the results in float64, and how far roundings of the arguments and the cotangents move them, in float64 and in their own dtype."""
    wide, info, generator = [x.double() for x in arguments], torch.finfo(arguments[0].dtype), torch.Generator().manual_seed(0)

    def moved(x: Tensor) -> Tensor:
        """Return factors that move elements by up to a unit in their last place; in that of subnormal numbers there is more of them."""
        unit = (info.smallest_normal * info.eps / x.detach().double().abs()).nan_to_num(0.0, 0.0).clamp(info.eps)
        return 1 + unit * (torch.rand(x.shape, generator=generator) * 2 - 1).double()

    exact = run(fn, wide)
    others = [run(fn, each, factors=moved) for each in (wide, wide, wide, arguments, arguments)]
    rooms = [torch.stack([(other[i].double() - out.double()).abs().nan_to_num(0.0, 0.0) for other in others]).amax(0) for i, out in enumerate(exact)]
    return exact, rooms


def near(a: Tensor, b: Tensor, room: Tensor) -> Tensor:
    """Return where two results are the same but for roundings."""
    return (a == b) | (a.isnan() & b.isnan()) | (a.isfinite() & b.isfinite() & ((a - b).abs() <= room))


def wrong(ours: Tensor, theirs: Sequence[Tensor], exact: Tensor, room: Tensor) -> Tensor:
    """Return where a result is neither one that eager gives, nor the one in float64, nor nearer to it than eager's."""
    if not ours.is_floating_point():
        return torch.stack([ours != each for each in theirs]).all(0)
    info = torch.finfo(ours.dtype)
    a, e = ours.double(), exact.double()
    room = ULPS * (room + info.eps * e.abs().nan_to_num(posinf=info.max) + info.smallest_normal * info.eps)
    right = near(a, e, room) | near(a, exact.to(ours.dtype).double(), room)
    for each in theirs:
        b = each.double()
        right |= near(a, b, room) | (a.isfinite() & b.isfinite() & ((a - e).abs() <= (b - e).abs()))
        right |= e.isfinite() & ~a.isfinite() & ~near(b, e, room)  # both overflow, and ours shows it
    return ~right


def check(program: Program, seeds: Sequence[int], executors: Any = None) -> Iterator[str]:
    """Yield a sentence for each kind of result that is wrong; what eager does not compute ends the check."""
    for dim in (None,) if "{d}" not in program.text else (0, -1) if len(program.shape) > 1 else (0,):
        function = function_of(program.text.replace("{d}", repr(dim)))
        fast, kinds = dovetail.jit(function, executors=executors), set()
        for seed in seeds:
            arguments = drawn(program, seed)
            if any(part in program.text and test(*arguments) for part, test in LEFT_OUT):
                continue
            try:
                theirs = [run(function, arguments, layout) for layout in (torch.clone, spaced)]
                exact, rooms = precise(function, arguments)
            except (RuntimeError, ValueError):
                return
            if program.text in ALSO:
                theirs.append(run(function_of(ALSO[program.text].replace("{d}", repr(dim))), arguments))
            ours = run(fast, arguments)
            for i, out in enumerate(ours):
                variants = [each[i] for each in theirs]
                places = wrong(out, variants, exact[i], rooms[i])
                if places.any():
                    at = int(places.flatten().nonzero()[0])
                    numbers = [float(each.flatten()[at]) for each in (out, *variants, exact[i])]
                    kind = i, *("" if math.isfinite(n) else repr(n) for n in numbers)
                    if kind not in kinds:
                        kinds.add(kind)
                        data = ", ".join(str(x.tolist()) for x in arguments[: 1 + ("y" in program.text)])
                        yield f"{program} dim {dim} seed {seed}: result {i} at {at}: {sentence(numbers)}, of {data}"


def sentence(numbers: Sequence[float]) -> str:
    """Say what ours is, what eager gives, and float64."""
    ours, *eager, wide = (f"{n:.7g}" for n in numbers)
    return f"{ours} in place of {' or '.join(dict.fromkeys(eager))}, exactly {wide}"


if __name__ == "__main__":
    names = [name for name in sys.argv[1:] if not name.isdigit()]
    draws = next((int(name) for name in sys.argv[1:] if name.isdigit()), 60)
    for text in ALL:
        if not names or any(part in text for part in names):
            for dtype, shape in product(DTYPES, SHAPES):
                for message in check(Program(text, dtype, shape), range(draws)):
                    print(message, flush=True)
            print(f"# {text}", flush=True)
