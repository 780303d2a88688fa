"""Draws.  Their references know bounds and moments; eager's own numbers come from one seed.

A `generator` among the arguments is torch's own, which a seed sets as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dovetail import dtypes
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.langs.torch import symbol_for
from dovetail_conformance.drawn import Drawn
from dovetail_conformance.opinfo import (
    FLOATS,
    INEXACT,
    INTS,
    OPINFOS,
    REAL,
    ErrorSample,
    Maker,
    OpInfo,
    SampleInput,
    laid,
    refused_rows,
    unwritten,
)
from dovetail_conformance.torch.creation import NEGATIVE, NO_MEMORY_FORMAT, WIDEST, errors, like_samples, sample

NOT_DRAWN = (NotImplementedError, "not implemented for|expected a tensor of kind float")
UNIFORM = {"low": 0.0, "high": 1.0, "half_open": True, "mean": 0.5, "std": 12**-0.5}
HALF = 2**-0.5


def seeded(device: Device) -> torch.Generator:
    """Return the generator that torch.manual_seed sets."""
    return torch.default_generator if device.type == "cpu" else torch.cuda.default_generators[device.index or 0]


def size_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield sample(dtype, ())
    yield sample(dtype, 40)
    yield sample(dtype, 2, 0, 3)
    yield sample(dtype, [4, 16], device=torch.device(str(device)))
    yield sample(dtype, size=(2, 3), layout=torch.strided, requires_grad=False, pin_memory=False)
    yield sample(dtype, (5, 1), generator=seeded(device))
    yield SampleInput((3, 2))


def of_size(*size: Any, **named: Any) -> tuple[int, ...]:
    size = named.get("size", size)
    return tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else tuple(size)


def drawn(known: dict[str, Any]) -> Callable:
    """Make a reference for torch.rand or randn."""

    def reference(*size: Any, dtype: torch.dtype = torch.float32, **named: Any) -> Drawn:
        return Drawn(of_size(*size, **named), dtype, **known_of(dtype, known))

    return reference


def drawn_like(known: dict[str, Any]) -> Callable:
    return lambda x, dtype=None, **named: Drawn(x.shape, dtype or x.dtype, **known_of(dtype or x.dtype, known))


def known_of(dtype: torch.dtype, known: dict[str, Any]) -> dict[str, Any]:
    """Describe a result; the parts of a complex normal number have half of its variance."""
    return {**known, "std": known["std"] * HALF} if dtype.is_complex and "low" not in known else known


def many_like_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield from like_samples(dtype, device)
    yield SampleInput((Maker(dtype, device)(8, 5).t(),), {"generator": seeded(device)})


# Integers.


def randint_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    top = 2 if dtype.kind == "bool" else 100
    yield sample(dtype, top, (40,))
    yield sample(dtype, 1, top, (2, 3), device=torch.device(str(device)))
    yield sample(dtype, 0, 1, [2, 0])
    yield sample(dtype, low=0, high=top, size=(4,), generator=seeded(device), layout=torch.strided, requires_grad=False)
    if dtype.signed and dtype.kind != "bool":
        yield sample(dtype, -7, 7, (5, 8))
    if dtype in WIDEST:
        yield sample(dtype, 0, WIDEST[dtype], (64,))
    yield SampleInput((9, ()))


def bounds_of(args: tuple, named: dict[str, Any]) -> tuple[int, int]:
    """low and high - 1."""
    low, high = (0, *args, *[named[name] for name in ("low", "high", "from", "to") if name in named])[-2:]
    return low, high - 1


def np_randint(*args: Any, size: Any = None, dtype: torch.dtype = torch.int64, **named: Any) -> Drawn:
    *ends, size = args if size is None else (*args, size)
    low, high = bounds_of(tuple(ends), named)
    return Drawn(tuple(size), dtype, low, high, whole=True)


def randint_like_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make, top = Maker(dtype, device), 2 if dtype.kind == "bool" else 100
    yield SampleInput((make(), top))
    yield SampleInput((make(4, 3).t(), 1, top))
    yield SampleInput((laid(make, "gapped", 2, 3),), {"low": 0, "high": top})
    yield SampleInput((make(3, 1).expand(3, 4), top), {"dtype": torch.float64})
    if dtype in WIDEST:
        yield SampleInput((make(8, 8), WIDEST[dtype]))
    yield SampleInput((make(1, 2, 3, 2), top), {"memory_format": torch.channels_last, "device": torch.device(str(device))})


def np_randint_like(x: Tensor, *args: int, dtype: torch.dtype | None = None, **named: Any) -> Drawn:
    low, high = bounds_of(args, named)
    return Drawn(x.shape, dtype or x.dtype, low, high, whole=True)


def randperm_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield sample(dtype, 0)
    yield sample(dtype, 1)
    yield sample(dtype, 40, device=torch.device(str(device)))
    yield sample(dtype, n=7, generator=seeded(device), layout=torch.strided, requires_grad=False)
    yield SampleInput((5,))


def np_randperm(n: int, **named: Any) -> Callable:
    def message(got: Tensor) -> str | None:
        return None if sorted(got.tolist()) == list(range(n)) else f"{got.tolist()} is no permutation of {n} numbers"

    return message


# Distributions.


def normal_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device, (0.5, 3.0))
    yield sample(dtype, 2.0, 0.5, (40,))
    yield sample(dtype, mean=0.0, std=1.0, size=(2, 0), device=torch.device(str(device)))
    yield sample(dtype, 1.0, 0.0, [3], generator=seeded(device))
    yield SampleInput((make(4, 3).t(), 0.5))
    yield SampleInput((make(3),))
    if dtype.kind != "complex":
        yield SampleInput((0.0, laid(make, "gapped", 4, 3)))
        yield SampleInput((make(4, 3), make(3)))
        yield SampleInput((make(), make(2, 3)), {"generator": seeded(device)})


def np_normal(mean: Any, std: Any = 1.0, size: Any = None, *, dtype: torch.dtype | None = None, **named: Any) -> Drawn:
    tensors = [x for x in (mean, std) if isinstance(x, Tensor)]
    if tensors:
        return Drawn(torch.broadcast_shapes(*[x.shape for x in tensors]), tensors[0].dtype)
    return Drawn(tuple(size), dtype, mean=mean, std=std * HALF if dtype is not None and dtype.is_complex else std)


def bernoulli_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device, (0.0, 1.0))
    if dtype.kind == "float":
        yield SampleInput((make(4, 10).t(),))
        yield SampleInput((make(3, 1).expand(3, 4),))
        yield SampleInput((make(2, 0),), {"generator": seeded(device)})
    yield SampleInput((make(5, 8), 0.5))
    yield SampleInput((make(3), 0))
    yield SampleInput((laid(make, "gapped", 2, 3),), {"p": 1.0})
    yield SampleInput((make(), 0.25))


def zeros_and_ones(x: Tensor, *_: Any, **named: Any) -> Drawn:
    return Drawn(x.shape, x.dtype, 0, 1, whole=True)


def multinomial_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device, (0.1, 1.0))
    yield SampleInput((make(5), 3))
    yield SampleInput((make(5, 3).t(), 4, True))
    yield SampleInput((make(3, 5),), {"num_samples": 5, "replacement": False, "generator": seeded(device)})
    yield SampleInput((laid(make, "gapped", 2, 4), 1))
    yield SampleInput((make(1), 40), {"replacement": True})


def np_multinomial(x: Tensor, num_samples: int, replacement: bool = False, **named: Any) -> Callable:
    drawn = Drawn((*x.shape[:-1], num_samples), torch.int64, 0, x.shape[-1] - 1, whole=True)

    def message(got: Tensor) -> str | None:
        twice = not replacement and any(len(set(row)) < num_samples for row in got.reshape(-1, num_samples).tolist())
        return drawn(got) or ("it drew one position twice, without replacement" if twice else None)

    return message


# Draws into a tensor.


def written_samples(rows: tuple[tuple, ...], dtype: DType, device: Device) -> Iterator[SampleInput]:
    """Yield rows of arguments, each with another tensor, then the first with a generator.

    None lies column-major: eager draws in the order of memory, Dovetail in that of the dimensions, so that a seed gives other numbers.
    """
    make = Maker(dtype, device)
    for (*args, named), (layout, shape) in zip(rows, SHAPES):
        yield SampleInput((laid(make, layout, *shape), *args), named)
    if rows is not RATES:  # torch has no rule for the shape of exponential_ with a generator
        yield SampleInput((make(2, 3), *rows[0][:-1]), {"generator": seeded(device)})


SHAPES = (("row-major", (40,)), ("row-major", (4, 10)), ("gapped", (2, 3)), ("row-major", ()), ("row-major", (2, 0)))
UNIFORMS = (({},), (-1.0, 3.0, {}), ({"from": 2, "to": 2.5},), (0.5, {}), ({"to": 0.25},))
NORMALS = (({},), (2.0, 0.5, {}), ({"mean": -1.0, "std": 3.0},), (1.0, {}), ({"std": 0.0},))
RATES = (({},), (0.5, {}), ({"lambd": 3},), (1, {}), (2.0, {}))
RANGES = (({},), (2, {}), (1, 2, {}), ({"from": 0, "to": 2},), (2, {}))
CHANCES = ((0.5, {}), ({},), ({"p": 0.25},), (1, {}), (0.0, {}))


def bernoulli_written_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield from written_samples(CHANCES, dtype, device)
    make = Maker(dtype, device)
    yield SampleInput((make(4, 10), Maker(dtypes.float32, device, (0.0, 1.0))(10)))
    yield SampleInput((make(2, 3), Maker(dtypes.float64, device, (0.0, 1.0))(3, 2).t()))


def np_uniform(x: Tensor, *args: float, **named: float) -> Drawn:
    low, high = (*args, *(0.0, 1.0)[len(args) :])
    low, high = named.get("from", low), named.get("to", high)
    return Drawn(x.shape, x.dtype, low, high, (low + high) / 2, (high - low) * 12**-0.5)


def np_normal_written(x: Tensor, mean: float = 0.0, std: float = 1.0, **named: Any) -> Drawn:
    return Drawn(x.shape, x.dtype, mean=mean, std=std * HALF if x.is_complex() else std)


def np_exponential(x: Tensor, lambd: float = 1.0, **named: Any) -> Drawn:
    return Drawn(x.shape, x.dtype, low=0.0, mean=1 / lambd, std=1 / lambd)


def np_random(x: Tensor, *args: int, **named: int) -> Drawn:
    """Describe a result without bounds: the whole range of an integer dtype, or all whole numbers that a floating one holds."""
    ends = bounds_of(args, named) if args or {"from", "to"} & set(named) else (0, 1 if x.dtype is torch.bool else float("inf"))
    return Drawn(x.shape, x.dtype, *ends, whole=True)


def info(name: str, samples: Callable, wrong: Callable, reference: Callable, accepted: tuple[DType, ...] = FLOATS) -> OpInfo:
    return OpInfo(symbol_for(f"torch.{name}"), samples, wrong, reference, accepted, random=True)


def refused(*rows: tuple) -> Callable[[Device], Iterator[ErrorSample]]:
    return partial(refused_rows, rows)


def with_integers(*rows: tuple, error: tuple = NOT_DRAWN) -> Callable[[Device], Iterator[ErrorSample]]:
    """Make error samples of rows, and one of an int64 tensor, which cannot hold what is drawn."""

    def samples(device: Device) -> Iterator[ErrorSample]:
        yield from refused_rows(rows, device)
        yield ErrorSample((unwritten((2, 3), dtypes.int64),), {}, *error)

    return samples


ENDS = (RuntimeError, "expects 'from' to be less than 'to'")
SPREAD = (RuntimeError, "normal expects std >= 0.0")
CHANCE = (RuntimeError, r"expects p to be in \[0, 1\]")
ORDER = (((2,), 2, 1, RuntimeError, r"expects to return a \[from, to\) range"),)

OPINFOS += [
    info("rand", size_samples, errors((-1, *NEGATIVE), (2, {"dtype": torch.int64}, *NOT_DRAWN)), drawn(UNIFORM), INEXACT),
    info("randn", size_samples, errors((-1, *NEGATIVE), (2, {"dtype": torch.bool}, *NOT_DRAWN)), drawn({"mean": 0.0, "std": 1.0}), INEXACT),
    info("rand_like", many_like_samples, with_integers(NO_MEMORY_FORMAT), drawn_like(UNIFORM), INEXACT),
    info("randn_like", many_like_samples, with_integers(NO_MEMORY_FORMAT), drawn_like({"mean": 0.0, "std": 1.0}), INEXACT),
    info(
        "randint",
        randint_samples,
        errors(
            (0, (2,), *ENDS),
            (3, 3, (2,), *ENDS),
            (3, (-2,), *NEGATIVE),
            (1.5, (2,), TypeError, "must be int"),
            (3, (2,), {"dtype": torch.complex64}, RuntimeError, "handles only integral, floating-point and boolean types"),
        ),
        np_randint,
        REAL,
    ),
    info("randint_like", randint_like_samples, refused(((2,), 0, *ENDS), ((2,), 5, 2, *ENDS), ((2,), TypeError, "")), np_randint_like, REAL),
    info("randperm", randperm_samples, errors((-1, *NEGATIVE), (3, {"dtype": torch.bool}, NotImplementedError, "")), np_randperm, INTS + FLOATS),
    info(
        "normal",
        normal_samples,
        refused(((2,), -1.0, *SPREAD), ((2, 3), unwritten((2,)), RuntimeError, "must match the size|shapes that broadcast")),
        np_normal,
        INEXACT,
    ),
    info("bernoulli", bernoulli_samples, with_integers(((2,), 2.0, *CHANCE), ((2,), -1, *CHANCE)), zeros_and_ones, REAL),
    info(
        "multinomial",
        multinomial_samples,
        refused(
            ((3,), 0, RuntimeError, "cannot sample n_sample <= 0"),
            ((3,), 4, RuntimeError, r"cannot sample n_sample > prob_dist.size\(-1\)"),
            ((2, 2, 2), 1, RuntimeError, "prob_dist must be 1 or 2 dim"),
        ),
        np_multinomial,
    ),
    info("Tensor.uniform_", partial(written_samples, UNIFORMS), with_integers(*ORDER), np_uniform, INEXACT),
    info("Tensor.normal_", partial(written_samples, NORMALS), with_integers(((2,), 0, -1, *SPREAD)), np_normal_written, INEXACT),
    info("Tensor.bernoulli_", bernoulli_written_samples, refused(((2,), 2, *CHANCE), ((2,), -0.5, *CHANCE)), zeros_and_ones, REAL),
    info(
        "Tensor.exponential_",
        partial(written_samples, RATES),
        with_integers(((2,), 0, RuntimeError, "expects lambda > 0"), error=(RuntimeError, "must be a floating point")),
        np_exponential,
    ),
    info(
        "Tensor.random_",
        partial(written_samples, RANGES),
        refused(((2,), 0, *ENDS), ((2,), 3, 3, *ENDS), ((2,), 1.5, TypeError, "")),
        np_random,
        REAL,
    ),
]
