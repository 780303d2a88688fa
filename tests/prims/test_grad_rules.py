"""Grad and put rules, run eagerly: every prim they call is executed at once, so that PyTorch's autograd can judge the result."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from eager_prims import Value, bare, leaves, running, swapped
from eager_versions import OLDEST
from torch import Tensor

from dovetail import devices, dtypes, prims
from dovetail.prims import Symbol, Tag
from dovetail_conformance.opinfo import OpInfo, SampleInput, specs_of
from dovetail_conformance.prims import OPINFOS
from dovetail_torch_exec.prims import PRIMS

DIFFERENTIABLE = [
    pytest.param(info, dtype, id=f"{info}-{dtype.short}")
    for info in OPINFOS
    for dtype in (dtypes.float64, dtypes.complex128)
    if info.grad and dtype in info.dtypes
]
# What PyTorch differentiates in the place of its own function, where it does not differentiate that one.
STAND_INS = {
    prims.floordiv: lambda a, b: torch.div(a, b, rounding_mode="floor"),
    prims.remainder: lambda a, b: torch.remainder(torch.as_tensor(a), b),
    prims.coo_mm: lambda rows, columns, values, x, num_rows: x.new_zeros(num_rows, x.shape[1]).index_add(0, rows, values[:, None] * x[columns]),
    prims.embedding_backward: lambda g, index, num_weights, padding_idx: g.new_zeros(num_weights, g.shape[-1]).index_put(
        (index,), torch.where((index == padding_idx)[..., None], 0, g), accumulate=True
    ),
}
VIEWS = [info for info in OPINFOS if Tag.VIEW in info.symbol.tags]


def by_rule(symbol: Symbol, sample: SampleInput, out: Any, cotangents: list[Tensor | None]) -> list[Tensor | None]:
    """The gradients of the arguments, from the prim's own rule."""
    given = [None if g is None else Value(g) for g in cotangents]
    args = swapped(sample.args, lambda x: Value(x.detach()))
    with running(), torch.no_grad():
        result = swapped(out, lambda x: Value(x.detach()))
        grads = symbol.vjp_rule(tuple(given) if isinstance(out, tuple) else given[0], result, *args, **sample.kwargs)
    return bare(leaves(grads))


def by_autograd(symbol: Symbol, sample: SampleInput, which: int | None = None) -> tuple[Any, list[Tensor | None], list[Tensor | None]]:
    """The result, cotangents for it (of its result `which` only, or of all), and the gradients of the arguments, from PyTorch."""
    args = swapped(sample.args, lambda x: x.detach().requires_grad_(x.is_floating_point() or x.is_complex()))
    out = STAND_INS.get(symbol, PRIMS[symbol])(*args, **sample.kwargs)
    outs = leaves(out)
    generator = torch.Generator().manual_seed(5)
    cotangents = [
        torch.rand(x.shape, dtype=torch.float64, generator=generator).to(x.dtype)
        if which in (None, i) and (x.is_floating_point() or x.is_complex())
        else None
        for i, x in enumerate(outs)
    ]
    pairs = [(x, g) for x, g in zip(outs, cotangents, strict=True) if g is not None and x.requires_grad]
    wanted = [x for x in leaves(args) if isinstance(x, Tensor) and x.requires_grad]
    found = iter(torch.autograd.grad([x for x, _ in pairs], wanted, [g for _, g in pairs], allow_unused=True) if pairs else [None] * len(wanted))
    return out, cotangents, [next(found) if isinstance(x, Tensor) and x.requires_grad else None for x in leaves(args)]


def assert_rule_agrees(symbol: Symbol, sample: SampleInput, which: int | None = None) -> None:
    out, cotangents, expected = by_autograd(symbol, sample, which)

    if not any(g is not None for g in cotangents):
        return
    grads = by_rule(symbol, sample, out, cotangents)

    where = f"{symbol} of {specs_of(sample.args)} {sample.kwargs}"
    for got, want, x in zip(grads, expected, leaves(sample.args), strict=True):
        if not isinstance(x, Tensor) or not (x.is_floating_point() or x.is_complex()):
            continue
        want = torch.zeros_like(x) if want is None else want
        got = torch.zeros_like(x) if got is None else got
        assert (got.shape, got.dtype) == (x.shape, x.dtype), where
        torch.testing.assert_close(got, want, rtol=1e-7, atol=1e-7, equal_nan=True, msg=lambda m: f"{where}: {m}")


@pytest.mark.filterwarnings("ignore:Casting complex values to real", "ignore:.*degrees of freedom is <= 0")
@pytest.mark.parametrize(("info", "dtype"), DIFFERENTIABLE)
def test_rules_agree_with_autograd(info: OpInfo, dtype: dtypes.DType) -> None:
    if OLDEST and info.symbol is prims.nextafter:
        pytest.skip("torch 2.10 has no derivative of nextafter")
    for sample in info.samples(dtype, devices.cpu):
        assert_rule_agrees(info.symbol, sample)


@pytest.mark.parametrize("which", [0, 1])
def test_a_result_that_nothing_reads_has_no_cotangent(which: int) -> None:
    x = torch.arange(12, dtype=torch.float64).reshape(3, 4) ** 2

    assert_rule_agrees(prims.var_mean, SampleInput((x,), {"dims": (1,), "correction": 1}), which)


def t(*values: float, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor(values, dtype=dtype)


EDGES = {
    "sqrt at 0": (prims.sqrt, (t(0.0, 4.0),), {}),
    "abs at 0": (prims.abs, (t(0.0, -0.0, 2.0),), {}),
    "abs at complex 0": (prims.abs, (t(0, 3 + 4j, dtype=torch.complex128),), {}),
    "sign at complex 0": (prims.sign, (t(0, 3 + 4j, dtype=torch.complex128),), {}),
    "pow 0 of 0": (prims.pow, (t(0.0, 2.0), 0), {}),
    "pow 2 of 0": (prims.pow, (t(0.0, -2.0), 2), {}),
    "pow 3 of a negative": (prims.pow, (t(0.0, -2.0), 3.0), {}),
    "pow of exponents 0 and 1": (prims.pow, (t(0.0, 2.0, 0.0), t(0.0, 0.0, 1.0)), {}),
    "pow of a number": (prims.pow, (2.0, t(0.0, -1.0, 3.0)), {}),
    "pow of the number 0": (prims.pow, (0.0, t(0.0, 1.0, 3.0)), {}),
    "pow of complex": (prims.pow, (t(0, 1 + 2j, dtype=torch.complex128), t(2, 0.5j, dtype=torch.complex128)), {}),
    "ties of maximum": (prims.maximum, (t(1.0, 2.0, float("nan")), t(1.0, 3.0, 1.0)), {}),
    "ties of minimum": (prims.minimum, (t(1.0, 2.0, float("nan")), t(1.0, 3.0, 1.0)), {}),
    "ties of amax": (prims.amax, (t(3.0, 1.0, 3.0),), {"dims": (0,)}),
    "ties of amin": (prims.amin, (t(1.0, 1.0, 3.0),), {"dims": (0,)}),
    "prod with a zero": (prims.prod, (t(2.0, 0.0, 3.0),), {"dims": (0,)}),
    "prod with two zeros": (prims.prod, (t(2.0, 0.0, 0.0),), {"dims": (0,)}),
    "cumprod without a zero": (prims.cumprod, (t(2.0, 5.0, 3.0),), {"dim": 0}),
    "cumprod with a zero": (prims.cumprod, (t(2.0, 5.0, 0.0, 3.0, 4.0),), {"dim": 0}),
    "cumprod with two zeros": (prims.cumprod, (t(2.0, 0.0, 3.0, 0.0, 4.0),), {"dim": 0}),
    "copysign at 0": (prims.copysign, (t(0.0, -1.0), t(1.0, 2.0)), {}),
    "atan2 on the axes": (prims.atan2, (t(0.0, 1.0, 0.0), t(1.0, 0.0, -1.0)), {}),
    "var without freedom": (prims.var, (t(1.0, 2.0),), {"dims": (0,), "correction": 2}),
    "var of one": (prims.var, (t(1.0),), {"dims": (0,), "correction": 1}),
    "remainder of negatives": (prims.remainder, (t(-5.0, 5.0), t(3.0, -3.0)), {}),
    "fmod of negatives": (prims.fmod, (t(-5.0, 5.0), t(3.0, -3.0)), {}),
    "cummax of equals": (prims.cummax, (t(1.0, 1.0, 0.0, 2.0),), {"dim": 0}),
    "frexp of extremes": (prims.frexp, (t(1e300, 0.0, -1.0),), {}),
    "log at 0": (prims.log, (t(0.0),), {}),
    "maximum with a number": (prims.maximum, (t(1.0, 0.0), 0.0), {}),
}


@pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0")
@pytest.mark.parametrize("name", EDGES)
def test_rules_agree_at_edges(name: str) -> None:
    symbol, args, kwargs = EDGES[name]

    assert_rule_agrees(symbol, SampleInput(args, kwargs))


@pytest.mark.parametrize("info", VIEWS, ids=repr)
def test_put_rules_say_what_a_write_does(info: OpInfo) -> None:
    view = PRIMS[info.symbol]
    for sample in info.samples(dtypes.float32 if dtypes.float32 in info.dtypes else dtypes.complex64, devices.cpu):
        base, *others = (x.clone() if overlaps(x) else x for x in sample.args)
        expected = base.clone()
        place = view(expected, *others, **sample.kwargs)
        if overlaps(place) or sample.kwargs.get("size", 0) > sample.kwargs.get("step", 0):
            continue
        value = torch.rand(place.shape).to(place.dtype)
        place.copy_(value)

        with running():
            got = info.symbol.put_rule(Value(base), Value(value), **sample.kwargs)

        torch.testing.assert_close(got.tensor, expected, rtol=0, atol=0, equal_nan=True, msg=f"{info} of {specs_of(sample.args)} {sample.kwargs}")


def overlaps(x: Tensor) -> bool:
    """Whether x shows some element of its storage twice."""
    size = x.untyped_storage().nbytes() // x.element_size()
    return torch.arange(size).as_strided(x.shape, x.stride(), x.storage_offset()).unique().numel() < x.numel()


@pytest.mark.parametrize(
    ("view", "shape", "kwargs", "match"),
    [
        (
            prims.broadcast_in_dim,
            (1,),
            {"shape": (3,), "dims": (0,)},
            "more than one element of the written-to tensor refers to a single memory location",
        ),
        (prims.unfold, (4,), {"dim": 0, "size": 3, "step": 1}, "windows of 3 every 1 overlap"),
    ],
)
def test_writes_to_repeated_elements_are_refused(view: Symbol, shape: tuple, kwargs: dict, match: str) -> None:
    base = torch.zeros(shape)
    value = torch.zeros(PRIMS[view](base, **kwargs).shape)

    with running(), pytest.raises(RuntimeError, match=match):
        view.put_rule(Value(base), Value(value), **kwargs)
