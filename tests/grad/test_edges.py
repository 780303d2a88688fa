"""Values and gradients at the edges of operations: NaN, infinities, zeros of both signs, ties and bounds, as eager has them.

Each point is repeated often enough to fill PyTorch's vectors: the elements left over after those get other gradients from it at NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from eager_versions import later
from torch import Tensor
from torch.nn import functional as F

import dovetail
from dovetail.torch_internals import SUBGRADIENTS

inf, nan = float("inf"), float("nan")
FILL = 64
POINTS = (nan, inf, -inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 6.0, 20.5, 1e30, -1e30)
PAIRS = (nan, inf, -inf, 0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.0)


def along(function: Callable[..., Tensor]) -> Callable[[Tensor], Tensor]:
    """`function` along the rows: of several results the first."""
    return lambda x: out[0] if isinstance(out := function(x, dim=-1), tuple) else out


def of_each(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: torch.stack([function(row) for row in x.unbind(0)])


def each(loss: Callable[..., Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda a, b: loss(a, b, reduction="none")


TORCH_UNARY = """abs sqrt rsqrt log log1p exp expm1 asin acos atan tanh acosh atanh sigmoid sign sgn angle nan_to_num relu logit sinc erf erfinv
reciprocal"""
NN_UNARY = "relu6 hardtanh hardsigmoid hardshrink softshrink leaky_relu softplus softsign mish logsigmoid tanhshrink"
TORCH_BINARY = "maximum minimum fmax fmin hypot atan2 copysign logaddexp logaddexp2 xlogy div pow remainder fmod"
UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    **{name: getattr(torch, name) for name in TORCH_UNARY.split()},
    **{name: getattr(F, name) for name in NN_UNARY.split()},
    "entr": torch.special.entr,
    "clamp": lambda x: x.clamp(-3, 3),
    "clamp min": lambda x: x.clamp(min=-3.0),
    "clamp max": lambda x: torch.clamp_max(x, 3),
    "clamp crossed": lambda x: x.clamp(3, -3),
    "clamp by NaN": lambda x: x.clamp(nan, 3.0),
    "clip at zero": lambda x: torch.clip(x, 0, 6),
    "clamp_min": lambda x: torch.clamp_min(x, min=1),
    "clamp_": lambda x: x.clone().clamp_(-1, 1),
    "clamp by scalar tensors": lambda x: x.clamp(torch.tensor(-1.0), torch.tensor(1.0)),
    "clamp by a scalar tensor and a number": lambda x: x.clamp(torch.tensor(-1.0), 1.0),
    "hardtanh by 3": lambda x: F.hardtanh(x, -3.0, 3.0),
    "softplus of 0": lambda x: F.softplus(x, beta=0),
    "logit eps": lambda x: torch.logit(x, 0.1),
    "threshold": lambda x: F.threshold(x, 1.0, 0.5),
    **{f"power {p}": lambda x, p=p: x**p for p in (0, 1, 2, 3, -1, 0.5, -0.5, 1.5)},
    **{f"power of {a}": lambda x, a=a: a**x for a in (0.0, 1.0, -2.0, inf)},
    "xlogy": lambda x: torch.xlogy(x, 2.0),
    "xlogy of zero": lambda x: torch.xlogy(0.0, x),
}
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    **{name: getattr(torch, name) for name in TORCH_BINARY.split()},
    "xlog1py": torch.special.xlog1py,
    "clamp min": lambda a, b: torch.clamp(a, min=b),
    "clamp max": lambda a, b: torch.clamp(a, max=b),
    "clamp by one": lambda a, b: torch.clamp(a, b, b),
    "clamp_max": lambda a, b: a.clone().clamp_max_(b),
    "clamp of what broadcasts": lambda a, b: a.reshape(-1, 1).clamp_min(b[::FILL]),
    "fmax of what broadcasts": lambda a, b: torch.fmax(a.reshape(-1, 1), b[::FILL]),
    "where": lambda a, b: torch.where(a > b, a, b),
    "prelu": lambda a, b: F.prelu(a.reshape(-1, 1), b[:1]) + b.reshape(-1, 1),
    **{name: each(getattr(F, name)) for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div")},
    "margin": lambda a, b: F.margin_ranking_loss(a, b, torch.ones_like(a), reduction="none"),
    "binary_cross_entropy": lambda a, b: F.binary_cross_entropy(a.clamp(0, 1).nan_to_num(0.5), b.clamp(0, 1).nan_to_num(0.5), reduction="none"),
    "cosine embedding": lambda a, b: F.cosine_embedding_loss(a.reshape(-1, 4), b.reshape(-1, 4), -torch.ones(len(a) // 4), reduction="none"),
    "triplet": lambda a, b: F.triplet_margin_loss(a.reshape(-1, 1), b.reshape(-1, 1), b.reshape(-1, 1) + 1, reduction="none"),
    "lerp": lambda a, b: torch.lerp(a, b, 0.25),
    "lerp by a tensor": lambda a, b: torch.lerp(a, b + 1, b),
    "hinge": lambda a, b: F.hinge_embedding_loss(a, torch.where(b > 0, 1.0, -1.0).detach(), reduction="none"),
}
ROWS = torch.tensor(
    [
        *([1.0, nan, 5.0, -4.0], [1.0, 5.0, 5.0, 2.0], [inf, 1.0, inf, 2.0], [-inf] * 4, [0.0, -0.0, 0.0, -0.0], [nan, nan, 1.0, 2.0]),
        *([1.0, inf, 2.0, 0.0], [inf, 0.0, 0.0, 2.0], [nan, 0.0, 1.0, 2.0], [-inf, 2.0, 0.0, -inf]),
        *([3.0] * 4, [1.0, 0.0, 2.0, 0.0], [1.0, 0.0, 2.0, 4.0], [nan] * 4, [-inf, -inf, 1.0, 2.0], [1000.1] * 4),
    ]
)
ROWWISE: dict[str, Callable[[Tensor], Tensor]] = {
    **{name: along(getattr(torch, name)) for name in ("sum", "mean", "amax", "amin", "max", "min", "median", "cummax", "std", "nanmean")},
    **{name: along(getattr(torch, name)) for name in ("logsumexp", "softmax", "log_softmax")},
    **{f"{name} of all": of_each(getattr(torch, name)) for name in ("max", "min", "amax", "std", "prod", "nanmean")},
    "least": lambda x: torch.aminmax(x, dim=-1)[0],
    "most": lambda x: torch.aminmax(x, dim=-1)[1],
    **{f"norm {p}": lambda x, p=p: torch.linalg.vector_norm(x, p, -1) for p in (1, 2, 3, inf, -inf)},
}


POOLS: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    **{f"max_pool{d}d": (lambda x, d=d: getattr(F, f"max_pool{d}d")(x, 2), d) for d in (1, 2, 3)},
    **{f"max_pool{d}d, overlapping": (lambda x, d=d: getattr(F, f"max_pool{d}d")(x, 3, 2, 1), d) for d in (1, 2, 3)},
    **{f"adaptive_max_pool{d}d": (lambda x, d=d: getattr(F, f"adaptive_max_pool{d}d")(x, 3), d) for d in (1, 2, 3)},
    "max_pool2d with gaps": (lambda x: F.max_pool2d(x, 2, 1, dilation=2), 2),
    "where max_pool2d finds it": (lambda x: F.max_pool2d(x, 2, return_indices=True)[0], 2),
}


def computed(function: Callable, *args: Tensor, cotangent: float = 1.5) -> list[Tensor]:
    """The result of `function`, and the gradients of its arguments."""
    args = tuple(x.clone().requires_grad_() for x in args)
    out = function(*args)
    return [out.detach(), *torch.autograd.grad(out, args, torch.full_like(out, cotangent), allow_unused=True)]


def assert_as_eager(function: Callable, *args: Tensor, executors: list[str] | None, cotangent: float = 1.5) -> None:
    options = {} if executors is None else {"executors": executors}
    got, want = (computed(f, *args, cotangent=cotangent) for f in (dovetail.jit(function, **options), function))
    for a, b in zip(got, want, strict=True):
        assert (a is None) == (b is None)
        if a is None:
            continue
        torch.testing.assert_close(a, b, equal_nan=True, rtol=1e-4, atol=1e-6)


EXECUTORS = pytest.mark.parametrize("executors", [None, ["torch"]], ids=["all", "torch"])


@EXECUTORS
@pytest.mark.parametrize("name", UNARY)
def test_one_operand(name: str, executors: list[str] | None) -> None:
    assert_as_eager(UNARY[name], torch.tensor(POINTS).repeat_interleave(FILL), executors=executors)


@EXECUTORS
@pytest.mark.parametrize("name", BINARY)
def test_two_operands(name: str, executors: list[str] | None) -> None:
    a, b = (x.flatten().repeat_interleave(FILL) for x in torch.meshgrid(torch.tensor(PAIRS), torch.tensor(PAIRS), indexing="ij"))
    assert_as_eager(BINARY[name], a, b, executors=executors)


@EXECUTORS
@pytest.mark.parametrize("name", ["softshrink", "hardshrink", "logsigmoid", "softplus", "softplus of 0", "power of 0.0"])
def test_infinite_cotangents(name: str, executors: list[str] | None) -> None:
    assert_as_eager(UNARY[name], torch.tensor(POINTS).repeat_interleave(FILL), executors=executors, cotangent=inf)


@EXECUTORS
@pytest.mark.parametrize("name", ["atan2", "copysign", "pow"])
def test_infinite_cotangents_of_two_operands(name: str, executors: list[str] | None) -> None:
    a, b = (x.flatten().repeat_interleave(FILL) for x in torch.meshgrid(torch.tensor(PAIRS), torch.tensor(PAIRS), indexing="ij"))
    assert_as_eager(BINARY[name], a, b, executors=executors, cotangent=inf)


@EXECUTORS
@pytest.mark.parametrize("number", [0j, 0.5 - 1j])
@pytest.mark.parametrize("function", [torch.var_mean, torch.std_mean, torch.var, torch.std], ids=lambda f: f.__name__)
@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_one_complex_number_has_no_variance(function: Callable, number: complex, executors: list[str] | None) -> None:
    def parts(x: Tensor) -> Tensor:
        x = torch.view_as_complex(x)
        return out[0] if isinstance(out := function(x), tuple) else out

    assert_as_eager(parts, torch.view_as_real(torch.tensor(number)), executors=executors)


@EXECUTORS
def test_powers_of_a_complex_zero(executors: list[str] | None) -> None:
    exponents = torch.tensor([0j, 2, 2 + 1j, -1j, -1 - 1j])
    assert_as_eager(torch.pow, torch.zeros(5, dtype=torch.complex64), exponents, executors=executors)


@EXECUTORS
@pytest.mark.parametrize(
    "function",
    [
        lambda x, m: torch.addmm(x, m, m, beta=0),
        lambda x, m: torch.addmv(x[0], m, m[0], beta=0),
        lambda x, m: torch.addr(x, m[0], m[0], beta=0, alpha=2),
        lambda x, m: torch.baddbmm(x, m[None], m[None], beta=0),
        lambda x, m: torch.addbmm(x[0], m[None], m[None], beta=0),
        lambda x, m: torch.linalg.matrix_power(x, 0) @ m,
    ],
    ids=["addmm", "addmv", "addr", "baddbmm", "addbmm", "matrix_power"],
)
def test_an_operand_that_does_not_matter_has_a_gradient_of_zeros(function: Callable, executors: list[str] | None) -> None:
    assert_as_eager(function, torch.tensor([[nan, inf], [1.0, 2.0]]), torch.tensor([[-0.0, 1.0], [2.0, -3.0]]), executors=executors)


@EXECUTORS
def test_polar_lengths_of_zero_and_infinity(executors: list[str] | None) -> None:
    lengths, angles = torch.tensor([0.0, -0.0, 2.0, -2.0, torch.inf]), torch.tensor([2.0, -1.0, 3.0, 3.0, 0.5])
    assert_as_eager(torch.polar, lengths, angles, executors=executors)


@EXECUTORS
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=later("has no derivative of aminmax") if name in ("least", "most") else ()) for name in ROWWISE]
)
def test_rows(name: str, executors: list[str] | None) -> None:
    assert_as_eager(ROWWISE[name], ROWS, executors=executors)


@EXECUTORS
def test_three_operands_of_clamp(executors: list[str] | None) -> None:
    points = torch.tensor((nan, inf, -inf, 0.0, 1.0, -1.0))
    x, low, high = (each.flatten().repeat_interleave(FILL) for each in torch.meshgrid(points, points, points, indexing="ij"))
    assert_as_eager(torch.clamp, x, low, high, executors=executors)


KNOWN = [(subgradient, convention) for subgradient in SUBGRADIENTS for convention in subgradient.conventions]


@EXECUTORS
@pytest.mark.parametrize(("subgradient", "convention"), KNOWN, ids=lambda x: getattr(x, "operation", None) or x.name)
def test_gradients_follow_each_convention_of_torch(monkeypatch, subgradient, convention, executors) -> None:
    monkeypatch.setitem(vars(subgradient), "_known", convention)
    function = dovetail.jit(subgradient.function, **({} if executors is None else {"executors": executors}))
    operands = [torch.tensor(row, requires_grad=True) for row in subgradient.points]
    out = function(*operands)

    grads = torch.autograd.grad(out, operands, torch.ones_like(out))

    assert tuple([tuple(grad.tolist()) for grad in grads]) == convention.gradients


@EXECUTORS
@pytest.mark.parametrize("name", POOLS)
def test_the_largest_of_windows_with_nan(name: str, executors: list[str] | None) -> None:
    function, rank = POOLS[name]
    points = torch.tensor((nan, inf, -inf, 0.0, 1.0, -1.0, 2.0))
    x = points[torch.randint(0, len(points), (4, 2, *[8] * rank), generator=torch.Generator().manual_seed(rank))]
    assert_as_eager(function, x, executors=executors)


@EXECUTORS
def test_the_largest_of_many_with_nan(executors: list[str] | None) -> None:
    x = torch.randn(100, 4099)
    x[3, 77] = x[50, 1] = nan
    assert_as_eager(lambda x: x.max(), x, executors=executors)
    assert_as_eager(lambda x: x.clamp(-0.5, 0.5), x, executors=executors)


@EXECUTORS
@pytest.mark.parametrize("function", [torch.relu, F.relu6, lambda x: x.clamp(min=0.0), lambda x: x.clamp(min=-0.0)])
def test_bounds_keep_the_sign_of_zero(function: Callable, executors: list[str] | None) -> None:
    x = torch.tensor([0.0, -0.0, 1.0, -1.0]).repeat_interleave(FILL)
    options = {} if executors is None else {"executors": executors}
    got, want = dovetail.jit(function, **options)(x), function(x)
    assert torch.equal(torch.signbit(got), torch.signbit(want))


def test_operands_that_broadcast_have_gradients_of_their_shapes() -> None:
    a, b = torch.rand(5, 1, 3), torch.rand(4, 1)
    for function in (torch.hypot, torch.logaddexp, torch.logaddexp2, torch.xlogy, torch.special.xlog1py):
        assert_as_eager(function, a, b, executors=None)


@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_integers_take_no_floating_alpha(alpha: float) -> None:
    for x in (torch.tensor([True, False]), torch.tensor([1, 2])):
        with pytest.raises(RuntimeError, match="alpha must not be a floating point number"):
            torch.add(x, x, alpha=alpha)
        with pytest.raises(RuntimeError, match="alpha must not be a floating point number"):
            dovetail.jit(lambda x: torch.add(x, x, alpha=alpha))(x)


@pytest.mark.parametrize("shape", [(8, 4099), (2, 200_000), (3, 64, 28, 28)])
def test_constant_rows_have_no_variance(shape: tuple[int, ...]) -> None:
    x = torch.full(shape, 1000.1)
    functions = [lambda x: F.layer_norm(x, shape[1:]), lambda x: F.group_norm(x, 1), lambda x: x.std(-1)]
    for function in functions + [F.instance_norm] * (len(shape) > 2):
        got = dovetail.jit(function)(x)
        assert got.abs().max() <= 1e-2, (function, got.abs().max())


@pytest.mark.parametrize(("shape", "dim"), [((3_000_000,), 0), ((300_007, 7), 0), ((2, 1 << 20), 1), ((1000, 1003), None)])
def test_sums_of_equal_numbers_round_as_little_as_eagers(shape: tuple[int, ...], dim: int | None) -> None:
    x = torch.full(shape, 1000.1)
    function = (lambda x: x.mean()) if dim is None else (lambda x: x.mean(dim))
    exact = function(x.double())
    ours, theirs = (float((f(x) - exact).abs().max()) for f in (dovetail.jit(function), function))
    assert ours <= 8 * theirs + 1e-4, (ours, theirs)


@pytest.mark.parametrize("scale", [1e30, 1e19, 1e-25])
def test_deviations_at_extreme_magnitudes(scale: float) -> None:
    x = torch.randn(20, 768) * scale
    for function in (lambda x: x.std(-1), lambda x: x.std(), lambda x: x.std(0)):
        torch.testing.assert_close(dovetail.jit(function)(x), function(x), rtol=1e-5, atol=0)


def test_a_norm_over_all_dimensions_given_as_a_shape() -> None:
    y = torch.randn(128, 1000)
    torch.testing.assert_close(dovetail.jit(lambda y: F.layer_norm(y, y.shape))(y), F.layer_norm(y, y.shape))


DRAWS = {
    "normal of means": lambda x: torch.normal(x, 1.0),
    "normal of deviations": lambda x: torch.normal(0.0, x.exp()),
    "normal of both": lambda x: torch.normal(x, x.exp()),
    "bernoulli": lambda x: torch.bernoulli(x.sigmoid()),
    "normal_": lambda x: x.clone().normal_(),
    "uniform_": lambda x: x.clone().uniform_(),
}


@pytest.mark.parametrize("name", DRAWS)
def test_no_gradient_flows_through_a_draw(name):
    x = torch.randn(5, requires_grad=True)
    (want,), (got,) = [torch.autograd.grad(draw(x).sum(), x) for draw in (DRAWS[name], dovetail.jit(DRAWS[name]))]
    assert torch.equal(got, want) and not want.any()


@EXECUTORS
def test_the_gradient_of_sinc_near_zero(executors: list[str] | None) -> None:
    """It is -pi**2 * x / 3 and more, where eager takes the difference of two numbers near t = pi * x."""
    x = torch.logspace(-12, -1, 200, dtype=torch.float64)
    t = torch.pi * x
    exact = torch.pi * sum((-1) ** n * 2 * n / math.factorial(2 * n + 1) * t ** (2 * n - 1) for n in range(1, 12))
    ours = x.float().requires_grad_()
    (got,) = torch.autograd.grad(dovetail.jit(torch.sinc, executors=executors)(ours).sum(), ours)
    torch.testing.assert_close(got.double(), exact, rtol=2e-6, atol=0.0)
