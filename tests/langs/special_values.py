"""Every pointwise operation, scan and reduction on special values, compared with eager PyTorch.

python tests/langs/special_values.py F.elu cumprod      shows what differs; without names, of everything

Eager disagrees with itself in places: its kernels have a vectorised loop, for eight or more elements that lie next to each other, and a scalar
one for the rest, and the two treat NaN differently in some operations.  So eager is run on several layouts, and what any of them gives is right.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import dovetail

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
SHAPES = ((1,), (7,), (64,), (1000,), (100, 63))
LARGE = (1 << 20) + 17

UNARY = (
    *("torch.abs(x)", "torch.ceil(x)", "torch.floor(x)", "torch.trunc(x)", "torch.reciprocal(x)", "torch.sqrt(x)", "torch.rsqrt(x)"),
    *("torch.exp(x)", "torch.exp2(x)", "torch.expm1(x)", "torch.log(x)", "torch.log2(x)", "torch.log10(x)", "torch.log1p(x)"),
    *("torch.sin(x)", "torch.cos(x)", "torch.tan(x)", "torch.asin(x)", "torch.acos(x)", "torch.atan(x)"),
    *("torch.sinh(x)", "torch.cosh(x)", "torch.tanh(x)", "torch.asinh(x)", "torch.acosh(x)", "torch.atanh(x)"),
    *("torch.erf(x)", "torch.erfc(x)", "torch.erfinv(x)", "torch.lgamma(x)", "torch.digamma(x)", "torch.i0(x)", "torch.special.i0e(x)"),
    *("torch.special.i1(x)", "torch.special.i1e(x)", "torch.special.ndtr(x)", "torch.special.ndtri(x)", "torch.special.log_ndtr(x)"),
    *("torch.special.erfcx(x)", "torch.special.entr(x)", "torch.sigmoid(x)", "torch.logit(x)", "torch.logit(x, 0.1)", "torch.sinc(x)"),
    *("torch.square(x)", "x ** 2", "x ** 3", "x ** 0.5", "x ** -0.5", "x ** -1", "x ** -2", "x ** 1.5", "x ** 0", "x ** 1", "2 ** x", "0 ** x"),
    *("torch.neg(x)", "torch.sign(x)", "torch.sgn(x)", "torch.round(x)", "torch.round(x, decimals=2)", "torch.frac(x)", "torch.frexp(x)"),
    *("torch.deg2rad(x)", "torch.rad2deg(x)", "torch.angle(x)", "torch.positive(x)", "torch.float_power(x, 1.5)"),
    *("x + 1", "1 - x", "x * 2", "x * 0", "x / 3", "3 / x", "x / 0", "torch.add(x, 2, alpha=0.5)", "torch.rsub(x, 1)", "x // 0.75", "x % 0.75"),
    *("torch.fmod(x, 0.6)", "torch.div(x, 0.75, rounding_mode='trunc')", "torch.div(x, 0.75, rounding_mode='floor')", "x // 0", "x % 0"),
    *("torch.nan_to_num(x)", "torch.nan_to_num(x, 1.0, 2.0, -2.0)", "torch.isnan(x)", "torch.isinf(x)", "torch.isfinite(x)"),
    *("torch.isposinf(x)", "torch.isneginf(x)", "torch.signbit(x)", "torch.isreal(x)", "torch.logical_not(x)", "x > 0", "x == 0", "x != x"),
    *("x.to(torch.float32)", "x.to(torch.float64)", "x.to(torch.bfloat16)", "x.to(torch.float16)", "x.bool()"),
    *("torch.masked_fill(x, x > 0, 1.0)", "torch.threshold(x, 0.5, 7.0)", "torch.clamp(x, -0.5, 0.75)", "torch.clamp(x, min=0)"),
    *("torch.clamp(x, max=0.5)", "torch.clamp_min(x, 0.0)", "torch.clamp_max(x, 0.0)", "torch.copysign(x, -1.0)"),
    *("F.relu(x)", "F.relu6(x)", "F.elu(x)", "F.elu(x, 0.5)", "F.selu(x)", "F.celu(x)", "F.celu(x, 0.5)", "F.leaky_relu(x)", "F.rrelu(x)"),
    *("F.gelu(x)", "F.gelu(x, approximate='tanh')", "F.silu(x)", "F.mish(x)", "F.softplus(x)", "F.softplus(x, 2, 5)", "F.logsigmoid(x)"),
    *("F.hardtanh(x)", "F.hardsigmoid(x)", "F.hardswish(x)", "F.hardshrink(x)", "F.softshrink(x)", "F.softsign(x)", "F.tanhshrink(x)"),
    *("F.threshold(x, 0.5, 7.0)", "F.prelu(x, torch.full((), 0.25, dtype=x.dtype))", "torch.polygamma(1, x)", "torch.mvlgamma(x, 2)"),
    *("torch.special.bessel_j0(x.detach())", "torch.special.bessel_j1(x.detach())", "torch.where(x > 0, x, -x)", "torch.where(x > 0, x, 0.0)"),
)
BINARY = (
    *(
        "x + y",
        "x - y",
        "torch.mul(x, y)",
        "torch.true_divide(x, y)",
        "torch.floor_divide(x, y)",
        "torch.remainder(x, y)",
        "torch.fmod(x, y)",
        "torch.add(x, y, alpha=0.5)",
        "torch.sub(x, y, alpha=2)",
    ),
    *("torch.div(x, y, rounding_mode='trunc')", "torch.pow(x, y)", "torch.float_power(x, y)", "torch.atan2(x, y)", "torch.hypot(x, y)"),
    *("torch.lerp(x, y, 0.25)", "torch.lerp(x, y, 0.75)", "torch.lerp(x, y, x)", "torch.addcmul(x, y, x)", "torch.addcmul(x, y, y, value=0.5)"),
    *("torch.addcdiv(x, y, x)", "torch.addcdiv(x, x, y, value=0.5)", "torch.ldexp(x, y)", "torch.maximum(x, y)", "torch.minimum(x, y)"),
    *("torch.fmax(x, y)", "torch.fmin(x, y)", "torch.copysign(x, y)", "torch.nextafter(x, y)", "torch.heaviside(x, y)", "torch.clamp(x, y, x)"),
    *("torch.clamp(x, min=y)", "torch.clamp(x, max=y)", "torch.xlogy(x, y)", "torch.special.xlog1py(x, y)", "torch.special.zeta(x, y)"),
    *(
        "torch.logaddexp(x, y)",
        "torch.logaddexp2(x, y)",
        "torch.isclose(x, y)",
        "torch.isclose(x, y, equal_nan=True)",
        *(f"torch.{name}(x, y)" for name in ("eq", "ne", "lt", "le", "gt", "ge", "logical_or")),
    ),
    *("torch.logical_and(x, y)", "torch.logical_xor(x, y)", "torch.where(x > y, x, y)", "torch.where(y == y, x, y)"),
    *(f"F.{name}(x, y, reduction='none')" for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div")),
    *("F.kl_div(x, y, reduction='none', log_target=True)", "F.binary_cross_entropy_with_logits(x, y, reduction='none')"),
    *("F.gaussian_nll_loss(x, y, torch.ones_like(x), reduction='none')", "F.gaussian_nll_loss(x, x, y.abs(), full=True, reduction='none')"),
    *("F.poisson_nll_loss(x, y, reduction='none')", "F.poisson_nll_loss(x, y, log_input=False, full=True, reduction='none')"),
    *("F.hinge_embedding_loss(x, torch.where(y > 0, 1.0, -1.0).to(x.dtype), reduction='none')",),
    *("F.margin_ranking_loss(x, y, torch.ones_like(x), reduction='none')", "F.glu(torch.stack([x, y], -1)).squeeze(-1)"),
    *("F.binary_cross_entropy(x.nan_to_num().clamp(0, 1), y.nan_to_num().clamp(0, 1), reduction='none')",),
    *("F.soft_margin_loss(x, y.detach(), reduction='none')",),
)
SCANS = (
    *("torch.cumsum(x, {d})", "torch.cumprod(x, {d})", "torch.cummax(x, {d})", "torch.cummin(x, {d})", "torch.logcumsumexp(x, {d})"),
    *("torch.softmax(x, {d})", "torch.log_softmax(x, {d})", "F.softmin(x, {d})", "F.normalize(x, dim={d})", "torch.diff(x, dim={d})"),
    *("torch.sort(x, dim={d}, stable=True)", "torch.topk(x, 1, {d})[0]", "F.normalize(x, 1, dim={d})"),
)
REDUCTIONS = (
    *("torch.sum(x, {d})", "torch.nansum(x, {d})", "torch.mean(x, {d})", "torch.nanmean(x, {d})", "torch.amax(x, {d})", "torch.amin(x, {d})"),
    *("torch.any(x, {d})", "torch.all(x, {d})", "torch.count_nonzero(x, {d})", "torch.logsumexp(x, {d})", "torch.var(x, {d})"),
    *("torch.std(x, {d})", "torch.var_mean(x, {d})", "torch.std_mean(x, {d})", "torch.var(x, {d}, correction=0)"),
    *(f"torch.linalg.vector_norm(x, {p}, {{d}})" for p in (2, 1, 0, 3, 0.5, -1, -2, "math.inf", "-math.inf", 1.5)),
    *(f"torch.norm(x, {p}, {{d}})" for p in (2, 1, 0, 0.5)),
)
REDUCTIONS_ALONG = (  # over one dimension
    *("torch.prod(x, {d})", "torch.max(x, {d})", "torch.min(x, {d})", "torch.argmax(x, {d})", "torch.argmin(x, {d})", "torch.aminmax(x, dim={d})"),
    *("torch.median(x, {d})[0]", "torch.nanmedian(x, {d})[0]"),
)
REDUCTIONS_OF_ALL = (
    *("torch.prod(x)", "torch.max(x)", "torch.min(x)", "torch.argmax(x)", "torch.argmin(x)", "torch.aminmax(x)", "torch.std(x)"),
    *("torch.linalg.norm(x)", "torch.dist(x, x * 0.5)", "torch.median(x)", "torch.linalg.vector_norm(x, 0.5)"),
)
ALSO = {  # what a formula gives that is as good as eager's, which overflows or rounds elsewhere
    **dict.fromkeys(("torch.add(x, y, alpha=0.5)",), "x + y * 0.5"),  # eager's compiler fuses products and sums: they round once
    "torch.sub(x, y, alpha=2)": "x - y * 2",
    "torch.addcmul(x, y, x)": "x + y * x",
    "torch.addcmul(x, y, y, value=0.5)": "x + y * 0.5 * y",
    "torch.lerp(x, y, 0.25)": "x + (y - x) * 0.25",
    "torch.lerp(x, y, 0.75)": "y - (y - x) * (1 - 0.75)",
    "torch.lerp(x, y, x)": "torch.where(x.abs() < 0.5, x + (y - x) * x, y - (y - x) * (1 - x))",
    "torch.frexp(x)": "(x * torch.exp2(-torch.frexp(x.detach())[1].double()).to(x.dtype), torch.frexp(x.detach())[1])",  # in float32 even of float64
    "F.hardsigmoid(x)": "torch.clamp((x + 3) / 6, 0, 1)",  # eager multiplies by a sixth in float32
    "F.soft_margin_loss(x, y.detach(), reduction='none')": "F.softplus(-x * y.detach())",  # eager's exponential overflows
}
ALL = (*UNARY, *BINARY, *SCANS, *REDUCTIONS, *REDUCTIONS_ALONG, *REDUCTIONS_OF_ALL)
CALLS = 26  # at most, for each program
OF_ONE_PRECISION = ("frexp", "nextafter", "x.to(", "x.bool")  # what means something else in float64
LEFT_OUT: tuple[tuple[str, Callable[[Sequence[float]], bool]], ...] = (  # rows of which eager's result depends on their order or on other rows
    ("prod", lambda row: sum(not math.isfinite(n) for n in row) > 1 or (sum(n == 0 for n in row) > 1 and not all(map(math.isfinite, row)))),
    ("_mean", lambda row: any(map(math.isinf, row))),  # the mean of var_mean is infinite where an infinity is last, else NaN
)


def function_of(text: str) -> Callable[..., Any]:
    return eval(f"lambda x, y=None: {text}", {"torch": torch, "F": F, "math": math})


def specials(dtype: torch.dtype) -> Tensor:
    """Return NaN, infinities, zeros, subnormal, tiny, huge and ordinary numbers, and those where formulas change their branch."""
    info = torch.finfo(dtype)
    double = dtype is torch.float64  # whose overflows no wider eager can judge
    tiny, huge = (2.0**-300, 2.0**300) if double else (info.smallest_normal, info.max if dtype is torch.float32 else info.max / 4)
    subnormal = tiny * info.eps * 2 if dtype is torch.float32 else 0.0
    bounds = (0.5, 1.0, 2.0, 3.0, 6.0, 20.0, 100.0, 0.1)
    signed = (math.inf, 0.0, subnormal, tiny, huge, huge / 3, math.sqrt(huge) * 2, math.sqrt(tiny) / 2, *bounds, 0.3, 1.7)
    return torch.tensor([math.nan, *signed, *(-n for n in signed)], dtype=torch.float64).to(dtype)


def pairs(dtype: torch.dtype, shape: tuple[int, ...], turn: int) -> tuple[Tensor, Tensor]:
    """Return two tensors that hold the pairs of special numbers from some pair on."""
    values, n = specials(dtype), math.prod(shape)
    m = len(values)
    first = torch.arange(turn * n, (turn + 1) * n) % (m * m)
    return values[first // m].reshape(shape), values[(first + first // m) % m].reshape(shape)


def planted(dtype: torch.dtype, text: str) -> list[tuple[float, ...]]:
    """Return the numbers that a reduced row holds beside ordinary ones."""
    info = torch.finfo(dtype)
    nan, inf, large, tiny = math.nan, math.inf, info.max * 2.0**-8, info.smallest_normal
    kinds = [
        *((nan,), (inf,), (-inf,), (inf, -inf), (0.0,), (0.0, 0.0), (-0.0,), (nan, inf), (nan, 0.0), (inf, 0.0), (nan, nan), (inf, inf)),
        *((large,), (tiny, tiny), (nan, 0.0, 0.0), (inf, 0.0, 0.0), (-inf, 0.0, 2.0), ()),
    ]
    refused = [test for part, test in LEFT_OUT if part in text]
    return [row for row in kinds if not any(test(row) for test in refused)]


def filled(dtype: torch.dtype, n: int, numbers: Sequence[float], generator: torch.Generator) -> Tensor:
    """Return n numbers around 1 with some special ones among them."""
    row = torch.exp((torch.rand(n, generator=generator, dtype=torch.float64) - 0.5) / n**0.5) * (torch.randint(2, (n,), generator=generator) * 2 - 1)
    for place, number in zip(torch.randperm(n, generator=generator).tolist(), numbers):
        row[place] = number
    return row.to(dtype)


def rows(text: str, dtype: torch.dtype, shape: tuple[int, ...], dim: Any, turn: int) -> Tensor:
    """Return a tensor to reduce over `dim`, special in every row or as a whole."""
    generator, kinds = torch.Generator().manual_seed(turn), planted(dtype, text)
    constants = [0.0, -0.0, 1000.1 if dtype is torch.float32 else 1000.0, math.nan, *([] if "_mean" in text else [math.inf])]
    if isinstance(dim, int) and len(shape) == 2:
        n, m = (shape[0], shape[1]) if dim in (1, -1) else (shape[1], shape[0])
        made = [filled(dtype, m, kinds[(i + turn) % len(kinds)], generator) for i in range(n)]
        for i, number in enumerate(constants):
            made[-1 - i] = torch.full((m,), number, dtype=torch.float64).to(dtype)
        x = torch.stack(made)
        return x if dim in (1, -1) else x.t().contiguous()
    if turn < len(constants):
        return torch.full(shape, constants[turn], dtype=torch.float64).to(dtype)
    return filled(dtype, math.prod(shape), kinds[(turn - len(constants)) % len(kinds)], generator).reshape(shape)


def spaced(x: Tensor | None) -> Tensor | None:
    """Return x with gaps between its elements, which eager's vectorised loops refuse."""
    return None if x is None else torch.stack([x, x], -1)[..., 0]


def flat(result: Any) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else [x for x in result if isinstance(x, Tensor)]


def tiled(x: Tensor) -> Tensor:
    """Return x 64 times, so that its first elements are in the vectorised part of eager's loops."""
    return x.detach().flatten().repeat(64)


def run(fn: Callable[..., Any], arguments: Sequence[Tensor], gradient: bool, layout: Callable[[Tensor], Tensor] | None = None) -> list[Tensor]:
    """Return the results and, where asked, the gradients of each argument; eager runs other code on another layout."""
    shape, many = arguments[0].shape, layout is tiled
    leaves = [(tiled(x) if many else x.detach().clone()).requires_grad_(gradient) for x in arguments]
    results = flat(fn(*[spaced(x) for x in leaves] if layout is spaced else leaves))
    inexact = [out for out in results if out.requires_grad]
    if inexact:
        cotangents = [cotangent(shape if many else out.shape).to(out.dtype) for out in inexact]
        grads = torch.autograd.grad(inexact, leaves, [tiled(g) for g in cotangents] if many else cotangents, allow_unused=True)
        results += [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, grads)]
    return [out.detach()[: shape.numel()].reshape(shape) if many else out.detach() for out in results]


def cotangent(shape: torch.Size) -> Tensor:
    """Return the same eighths between 0.5 and 1.5 each time, which every dtype holds."""
    return torch.randint(4, 13, shape, generator=torch.Generator().manual_seed(0)) / 8.0


@dataclass
class Difference:
    """Where a result is none that eager gives."""

    result: int
    count: int
    at: int
    arguments: tuple[float, ...]
    ours: float
    theirs: list[float]
    exact: float

    def __str__(self) -> str:
        theirs = " or ".join(dict.fromkeys(f"{n:.7g}" for n in self.theirs))
        where = f"result {self.result} at {self.at} of {self.arguments}"
        return f"{where}: {self.ours:.7g} in place of {theirs} ({self.count} elements; exactly {self.exact:.7g})"


def alike(ours: Tensor, theirs: Tensor, exact: Tensor, signed: bool, terms: int = 1) -> Tensor:
    """Return where two results of `terms` numbers each are the same but for roundings, and in zeros that are `signed` their sign."""
    if not theirs.is_floating_point():
        return ours == theirs
    info = torch.finfo(theirs.dtype)
    a, b = ours.to(torch.float64), theirs.to(torch.float64)
    steps = max(math.log2(terms) / 4, 1.0) if theirs.dtype is not torch.float64 else math.sqrt(terms)  # as `exact`
    room = 16 * info.eps * steps * (1 + b.abs()) + 4 * (b - exact).abs().nan_to_num(nan=0.0, posinf=0.0)
    if signed:
        room[(a == 0) & (b == 0) & (torch.signbit(a) != torch.signbit(b))] = -1.0
    return (torch.isfinite(a) & torch.isfinite(b) & ((a - b).abs() <= room)) | (a == b) & ~torch.isfinite(a) | (a.isnan() & b.isnan())


def differences(
    ours: list[Tensor], theirs: list[list[Tensor]], exact: list[Tensor], arguments: Sequence[Tensor], signed: int
) -> Iterator[Difference]:
    """Yield for each result where it is none that eager gives; in the first `signed` results zeros have their sign."""
    for i, got in enumerate(ours):
        variants = [each[i] for each in theirs]
        assert got.dtype is variants[0].dtype and got.shape == variants[0].shape, f"result {i}: {got.dtype}, {got.shape}"
        precise = exact[i].to(torch.float64)
        terms = 1 if signed else max([x.numel() for x in arguments], default=1)
        right = torch.stack([alike(got, each, precise, i < signed, terms) for each in variants]).any(0)
        if got.is_floating_point() and got.dtype is not torch.float64:
            right |= alike(got, exact[i].to(got.dtype), precise, False)  # more exact than eager
        if bool(right.all()):
            continue
        at = int((~right).flatten().nonzero()[0])
        values = tuple(float(x.flatten()[at]) for x in arguments) if arguments and got.shape == arguments[0].shape else ()
        yield Difference(
            i,
            int((~right).sum()),
            at,
            values,
            float(got.flatten()[at]),
            [float(each.flatten()[at]) for each in variants],
            float(precise.flatten()[at]),
        )


def dims_of(text: str, shape: tuple[int, ...]) -> list[Any]:
    """Return what {d} of a text is replaced by."""
    if "{d}" not in text:
        return [None]
    if len(shape) == 1:
        return [0]
    return [-1, 0] if text in (*SCANS, *REDUCTIONS_ALONG) else [-1, 0, (0, 1)]


def cases(text: str, shape: tuple[int, ...], dtype: torch.dtype) -> Iterator[tuple[Any, list[list[Tensor]]]]:
    """Yield (dim, a list of arguments for each call)."""
    n = math.prod(shape)
    if text in UNARY:
        values = specials(dtype)
        yield None, [[values[torch.arange(i * n, (i + 1) * n) % len(values)].reshape(shape)] for i in range(-(-len(values) // n))]
    elif text in BINARY:
        total = len(specials(dtype)) ** 2
        calls = min(-(-total // n), CALLS)
        yield None, [[*pairs(dtype, shape, i * max(1, total // n // calls))] for i in range(calls)]
    else:
        for dim in dims_of(text, shape):
            calls = 2 if isinstance(dim, int) and len(shape) == 2 else CALLS if n < LARGE else 2
            over = tuple(range(len(shape))) if dim is None else dim
            yield dim, [[rows(text, dtype, shape, over, turn)] for turn in range(calls)]


def eagers(text: str, function: Callable[..., Any], arguments: Sequence[Tensor], gradient: bool) -> tuple[list[list[Tensor]], list[Tensor]]:
    """Return the results of eager's several loops, and those in float64."""
    layouts = [None, spaced, *([tiled] if text in (*UNARY, *BINARY) and arguments[0].numel() < LARGE else [])]
    results = [run(function, arguments, gradient, layout) for layout in layouts]
    if text in ALSO:
        results.append(run(function_of(ALSO[text]), arguments, gradient))
    exact = results[0] if any(each in text for each in OF_ONE_PRECISION) else run(function, [x.double() for x in arguments], gradient)
    return results, exact


def check(
    text: str, shape: tuple[int, ...], dtype: torch.dtype, gradient: bool, executors: Any = None, layout: Callable[[Tensor], Tensor] | None = None
) -> Iterator[str]:
    """Yield a sentence for each result that is none of eager's, ours with arguments in a layout; what eager does not compute ends the check."""
    for dim, calls in cases(text, shape, dtype):
        name = text.replace("{d}", repr(dim))
        function = function_of(name)
        fast = dovetail.jit(function, executors=executors)
        label = f"{name} {'gradient' if gradient else 'forward'} {str(dtype).removeprefix('torch.')}{list(shape)}"
        kinds = set()
        for arguments in calls:
            try:
                theirs, exact = eagers(text, function, arguments, gradient)
            except RuntimeError as error:  # NotImplementedError too
                if dtype in (torch.float16, torch.bfloat16) or "derivative" in str(error):
                    return
                raise
            ours = run(fast, arguments, gradient, layout)
            if len(ours) != len(theirs[0]):
                yield f"{label}: {len(ours)} results and gradients in place of {len(theirs[0])}"
                return
            signed = len(ours) - len(arguments) * gradient if text in (*UNARY, *BINARY) else 0
            for each in differences(ours, theirs, exact, arguments, signed):
                kind = each.result, *("" if n and math.isfinite(n) else repr(n) for n in (each.ours, *each.theirs))
                if kind not in kinds:
                    kinds.add(kind)
                    yield f"{label}: {each}{'' if each.arguments else f' in {summary(arguments[0])}'}"


def summary(x: Tensor) -> str:
    """Return the first numbers of x, and how many are special."""
    numbers = ", ".join(f"{n:.4g}" for n in x.flatten()[:10].tolist())
    counts = f"{int(x.isnan().sum())} NaN, {int(x.isinf().sum())} infinities, {int((x == 0).sum())} zeros"
    return f"[{numbers}{', ...' if x.numel() > 10 else ''}] with {counts}"


if __name__ == "__main__":
    for text in ALL:
        if len(sys.argv) == 1 or any(part in text for part in sys.argv[1:]):
            for dtype, shape, gradient in product(DTYPES, SHAPES, (False, True)):
                for message in check(text, shape, dtype, gradient):
                    print(message, flush=True)
            print(f"# {text}", flush=True)
