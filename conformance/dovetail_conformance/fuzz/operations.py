"""What steps are drawn from: each family adds one step to a drawing, or raises Impossible.

Steps are written as users write them, so that a finding reads as a program of theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import torch

from dovetail_conformance.fuzz.draft import Step
from dovetail_conformance.fuzz.drawing import Drawing, Impossible, Value

FAMILIES: dict[str, Callable[[Drawing], Step]] = {}  # the registry, by name

SMOOTH = (
    *("torch.sin({0})", "torch.cos({0})", "torch.tanh({0})", "torch.sigmoid({0})", "torch.exp(-{0} * {0})", "torch.exp({0})", "torch.erf({0})"),
    *("F.gelu({0})", 'F.gelu({0}, approximate="tanh")', "F.silu({0})", "F.softplus({0})", "F.mish({0})", "F.logsigmoid({0})", "torch.atan({0})"),
    *("torch.sqrt({0} * {0} + 1)", "torch.rsqrt({0} * {0} + 0.5)", "torch.log1p({0} * {0})", "torch.log({0} * {0} + 0.1)", "torch.expm1({0})"),
    *("torch.reciprocal({0} * {0} + 0.5)", "torch.asinh({0})", "torch.exp2({0})", "{0} ** 2", "{0} ** 3", "torch.square({0})", "1 / (1 + {0} ** 2)"),
    *("{0} * 0.5 + 1.25", "1 - {0}", "-{0}", "{0} / 3", "{0} * 2", "{0} + 1", "F.elu({0})", "{0} * {0}"),
)
KINKED = {  # text: where its gradient, or it itself, jumps
    "F.relu({0})": ("{0}",),
    "F.leaky_relu({0}, 0.1)": ("{0}",),
    "{0}.abs()": ("{0}",),
    "{0}.clamp(-0.5, 0.75)": ("{0} + 0.5", "{0} - 0.75"),
    "{0}.clamp(min=0)": ("{0}",),
    "F.hardtanh({0})": ("{0} + 1", "{0} - 1"),
    "F.relu6({0})": ("{0}", "{0} - 6"),
    "F.hardswish({0})": ("{0} + 3", "{0} - 3"),
    "F.hardsigmoid({0})": ("{0} + 3", "{0} - 3"),
    "F.softshrink({0})": ("{0} + 0.5", "{0} - 0.5"),
    "F.selu({0})": ("{0}",),
}
JUMPS = (
    *("torch.floor({0})", "torch.ceil({0})", "torch.round({0})", "torch.trunc({0})", "torch.sign({0})", "torch.frac({0})"),
    *("{0} > 0", "{0} <= 0.5", "{0} == 0", "{0} != 1", "torch.isnan({0})", "torch.isfinite({0})", "torch.signbit({0})", "{0}.to(torch.int64)"),
    *(
        "{0}.to(torch.int32)",
        "{0}.to(torch.bool)",
        "torch.logical_not({0})",
        "F.hardshrink({0})",
        "F.threshold({0}, 0.1, 2.0)",
    ),
    *('torch.div({0}, 0.75, rounding_mode="floor")', "{0} % 0.75", "torch.fmod({0}, 0.6)"),
)
BINARY = (
    *(
        "{0} + {1}",
        "{0} - {1}",
        "{0} * {1}",
        "{0} / ({1} * {1} + 1)",
        "{0} * {1}",
        "{1} - {0}",
        "torch.add({0}, {1}, alpha=0.5)",
        "torch.hypot({0}, {1} + 3)",
    ),
    *("torch.addcmul({0}, {1}, {1}, value=0.5)", "torch.lerp({0}, {1}, 0.25)", "torch.logaddexp({0}, {1})", "torch.xlogy({0}, {1} * {1} + 1)"),
    *("torch.addcdiv({0}, {1}, {1} * {1} + 1)", "torch.atan2({0}, {1} * {1} + 1)", "torch.rsub({0}, {1})", "({0} - {1}) ** 2"),
)
DIFFERENCES = ("{0} - {1}", "{1} - {0}", "rsub", "lerp")
INTEGER = (
    *(
        "{0} + {1}",
        "{0} - {1}",
        "{0} * {1}",
        "torch.maximum({0}, {1})",
        "torch.minimum({0}, {1})",
        "{0} & {1}",
        "{0} | {1}",
        "{0} ^ {1}",
        "{0} < {1}",
    ),
    *("{0} == {1}", "{0} >= {1}", "torch.where({0} > {1}, {0}, {1})", "{0} // ({1} * {1} + 1)", "{0} % ({1} * {1} + 1)", "{0} / ({1} * {1} + 1)"),
)
INTEGER_UNARY = (
    "{0} + 1",
    "{0} * 3",
    "-{0}",
    "{0} // 2",
    "{0} % 3",
    "{0}.clamp(-2, 2)",
    "~{0}",
    "{0} >> 1",
    "{0} << 1",
    "torch.sin({0})",
    "{0} * 0.5",
    "{0}.abs()",
)
REDUCTIONS = (
    "sum",
    "mean",
    "var",
    "std",
    "logsumexp",
    "norm",
    "sum",
    "mean",
    "amax",
    "amin",
    "prod",
    "all",
    "any",
    "argmax",
    "max",
    "count_nonzero",
    "var_mean",
)
ROWS = ("torch.softmax({0}, {d})", "torch.log_softmax({0}, {d})", "F.normalize({0}, dim={d})", "torch.cumsum({0}, {d})", "F.softmin({0}, {d})")


def family(function: Callable[[Drawing], Step]) -> Callable[[Drawing], Step]:
    """Register a family by its name."""
    FAMILIES[function.__name__] = function
    return function


def step(
    d: Drawing, text: str, *operands: Value, exact: bool = False, accumulates: bool = False, kinks: tuple[str, ...] = (), writes: bool = False
) -> Step:
    """Return a step with a new name for its result."""
    return Step(text, tuple(value.name for value in operands), f"v{len(d.steps)}", exact, accumulates, kinks, writes)


@family
def smooth(d: Drawing) -> Step:
    """Draw a function of one tensor."""
    return step(d, d.choice(SMOOTH), d.pick(lambda value: value.real or value.tensor.is_complex()))


@family
def kinked(d: Drawing) -> Step:
    """Draw a function of one tensor whose gradient jumps."""
    text, kinks = d.choice([*KINKED.items()])
    value = d.smooth()
    if "hardsigmoid" in text and d.grad and value.tensor.dtype is torch.float64:
        raise Impossible  # eager multiplies by a sixth in float32
    return step(d, text, value, kinks=kinks)


@family
def jump(d: Drawing) -> Step:
    """Draw a function that jumps, of a value that nothing rounded."""
    return step(d, d.choice(JUMPS), d.exact(lambda value: value.real), exact=True)


@family
def binary(d: Drawing) -> Step:
    """Draw a function of two tensors that broadcast."""
    value = d.real()
    other = d.other(value)
    pair = (value, other) if d.maybe(0.6) else (other, value)
    if d.maybe(0.2):
        if d.grad and not (pair[0].exact and pair[1].exact) and max(x.tensor.numel() for x in pair) > 4096:
            raise Impossible
        return step(d, d.choice(("torch.maximum({0}, {1})", "torch.minimum({0}, {1})")), *pair, exact=True, kinks=("{0} - {1}",))
    text = d.choice(BINARY)
    if value is other and any([part in text for part in DIFFERENCES]):
        raise Impossible  # gradients that cancel, in some order with others
    return step(d, text, *pair)


@family
def select(d: Drawing) -> Step:
    """Draw a choice of elements by a mask."""
    value = d.real()
    mask = _mask(d, value)
    if d.maybe(0.5):
        return step(d, "torch.where({1}, {0}, {2})", value, mask, d.other(value), exact=True)
    return step(d, d.choice(("torch.where({1}, {0}, 0.0)", "{0}.masked_fill({1}, -2.0)", "{0} * {1}")), value, mask, exact=True)


def _mask(d: Drawing, value: Value) -> Value:
    suiting = [new for new in d.values if new.tensor.dtype is torch.bool and new.shape == value.shape]
    return d.choice(suiting) if suiting and d.maybe(0.8) else d.new_input(value.shape, "bool")


@family
def integer(d: Drawing) -> Step:
    """Draw arithmetic of integers and booleans, which is exact."""
    value = d.pick(lambda value: not value.real and not value.tensor.is_complex())
    if d.maybe(0.4):
        text = d.choice(INTEGER_UNARY)
        return step(d, text, value, exact="sin" not in text and "0.5" not in text)
    text = d.choice(INTEGER)
    return step(d, text, value, d.other(value), exact=" / " not in text)


def dims_of(d: Drawing, value: Value) -> tuple[int, ...]:
    """Return dimensions to reduce: all of them as often as some."""
    if not value.dim or d.maybe(0.4):
        return tuple(range(value.dim))
    dims = sorted(d.rng.sample(range(value.dim), d.rng.randint(1, value.dim)))
    return tuple(dim - value.dim if d.maybe(0.3) else dim for dim in dims)


@family
def reduce(d: Drawing) -> Step:
    """Draw a reduction over some or all dimensions."""
    kind = d.choice(REDUCTIONS)
    if kind in ("all", "any", "argmax", "count_nonzero"):
        return _exact_reduction(d, kind)
    value = d.smooth() if kind in ("amax", "amin", "max") else d.pick(lambda value: value.real or (value.integral and kind in ("sum", "prod")))
    dims = dims_of(d, value)
    keep = ", keepdim=True" if d.maybe(0.5) else ""
    many = prod(value.shape[dim] for dim in dims)
    whole = d.maybe(0.4) and not keep and len(dims) == value.dim
    listed = "" if whole else f"{list(dims)}{keep}"
    if kind in ("amax", "amin", "max"):
        sign = "-" if kind == "amin" else ""
        gap = f"gap({sign}{{0}}, {tuple(dims)})"
        text = f"{{0}}.max({dims[0]}{keep})[0]" if kind == "max" and len(dims) == 1 else f"{{0}}.{'amax' if kind == 'max' else kind}({listed})"
        return step(d, text, value, exact=True, kinks=(gap,))
    if kind == "prod" and (many > 40 or len(dims) != 1):
        kind = "sum"
    if kind in ("var", "std") and d.maybe(0.4):
        listed = f"{listed}, correction=0" if listed else "correction=0"
    text = {
        "logsumexp": f"torch.logsumexp({{0}}, {list(dims)}{keep})",
        "norm": f"torch.linalg.vector_norm({{0}}{f', dim={list(dims)}{keep}' if listed else ''})",
        "prod": f"{{0}}.prod({dims[0] if dims else ''}{keep if dims else ''})",
        "var_mean": f"torch.var_mean({{0}}{', ' if listed else ''}{listed})[{d.choice((0, 1))}]",
    }.get(kind, f"{{0}}.{kind}({listed})")
    if kind == "sum" and value.real and many > 100:
        text += f" * {many**-0.5:.3g}"
    return step(d, text, value, accumulates=value.real, exact=not value.real)


def _exact_reduction(d: Drawing, kind: str) -> Step:
    value = d.exact(lambda value: not value.tensor.is_complex() and value.dim > 0)
    dim = d.choice(range(value.dim)) if d.maybe(0.7) else ""
    return step(d, f"{{0}}.{kind}({dim})", value, exact=True)


@family
def rows(d: Drawing) -> Step:
    """Draw something that normalises along a dimension."""
    value = d.pick(lambda value: value.real and value.dim > 0)
    return step(d, d.choice(ROWS).replace("{d}", str(d.choice(range(-value.dim, value.dim)))), value, accumulates=True)


@family
def norm(d: Drawing) -> Step:
    """Draw layers that normalise, with weights."""
    value = d.pick(lambda value: value.real and value.dim > 0)
    dtype = str(value.tensor.dtype).removeprefix("torch.")
    if value.dim >= 3 and d.maybe(0.4):
        channels = value.shape[1]
        groups = d.choice([n for n in (1, 2, 4, 8) if channels and channels % n == 0])
        weight, bias = d.new_input((channels,), dtype), d.new_input((channels,), dtype)
        text = d.choice(
            (
                f"F.group_norm({{0}}, {groups}, {{1}}, {{2}})",
                "F.batch_norm({0}, None, None, {1}, {2}, training=True)",
                "F.instance_norm({0}, weight={1}, bias={2})",
            )
        )
        return step(d, text, value, weight, bias, accumulates=True)
    shape = value.shape[-d.choice(range(1, value.dim + 1)) :]
    if d.maybe(0.4):
        return step(d, d.choice((f"F.layer_norm({{0}}, {shape})", f"F.rms_norm({{0}}, {shape})")), value, accumulates=True)
    weight = d.other(value, lambda new: new.shape == shape and new.tensor.dtype == value.tensor.dtype) if d.maybe(0.5) else d.new_input(shape, dtype)
    return step(d, f"F.layer_norm({{0}}, {shape}, {{1}}, {{2}})", value, weight, d.new_input(shape, dtype), accumulates=True)


@family
def loss(d: Drawing) -> Step:
    """Draw a loss, mean or sum."""
    value = d.pick(lambda value: value.real and value.tensor.numel() > 0)
    if value.dim == 2 and d.maybe(0.5):
        target = d.index(value.shape[1], (value.shape[0],))
        smoothing = d.choice(("", ", label_smoothing=0.1", ', reduction="sum"', ', reduction="none"'))
        return step(d, f"F.cross_entropy({{0}}, {{1}}.long(){smoothing})", value, target, accumulates=True)
    target = d.new_input(value.shape, str(value.tensor.dtype).removeprefix("torch."))
    text = d.choice(
        (
            *("F.mse_loss({0}, {1})", "F.smooth_l1_loss({0}, {1})", "F.huber_loss({0}, {1})", 'F.mse_loss({0}, {1}, reduction="none")'),
            *("F.binary_cross_entropy_with_logits({0}, torch.sigmoid({1}))", "F.cosine_similarity({0}, {1}, dim=-1)"),
            *('F.kl_div(torch.log_softmax({0}, -1), torch.sigmoid({1}) + 0.1, reduction="batchmean")', "F.l1_loss({0} ** 2, {1} - 9)"),
        )
    )
    return step(d, text, value, target, accumulates=True)


@family
def cast(d: Drawing) -> Step:
    """Draw another dtype."""
    value = d.pick(lambda value: not value.tensor.is_complex())
    wide = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
    dtype = d.choice([name for name in wide if name != str(value.tensor.dtype).removeprefix("torch.")])
    narrow = not value.real or wide[dtype] < wide[str(value.tensor.dtype).removeprefix("torch.")] or dtype == "float16"
    return step(d, f"{{0}}.to(torch.{dtype})", value, exact=not narrow)


@family
def matmul(d: Drawing) -> Step:
    """Draw a product of matrices."""
    value = d.pick(lambda value: value.real and value.dim > 0 and 0 < value.tensor.numel() <= 200_000 and value.shape[-1] <= 1024)
    dtype = str(value.tensor.dtype).removeprefix("torch.")
    out = d.choice((1, 3, 8, 16, 33))
    scale = f" * {value.shape[-1] ** -0.5:.3g}"
    if value.dim == 2 and value.shape[0] <= 512 and d.maybe(0.3):
        return step(d, f"({{0}} @ {{0}}.t()){scale}", value, accumulates=True)
    if d.maybe(0.5):
        return step(
            d,
            f"F.linear({{0}}, {{1}}, {{2}}){scale}",
            value,
            d.new_input((out, value.shape[-1]), dtype),
            d.new_input((out,), dtype),
            accumulates=True,
        )
    return step(d, f"({{0}} @ {{1}}){scale}", value, d.new_input((value.shape[-1], out), dtype), accumulates=True)
