"""Samples, error samples and a reference for one operation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal

import torch
from torch import Tensor

from dovetail import dtypes
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.langs.torch import FROM_TORCH as FROM_TORCH
from dovetail.langs.torch import TO_TORCH as TO_TORCH
from dovetail.langs.torch import spec_of as spec_of
from dovetail.prims import Symbol, Tag
from dovetail_conformance.draws import generator

BOOLS = (dtypes.bool_,)
INTS = (dtypes.uint8, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64)
FULL_FLOATS = (dtypes.float32, dtypes.float64)
FLOATS = (dtypes.bfloat16, dtypes.float16, *FULL_FLOATS)
COMPLEX = (dtypes.complex64, dtypes.complex128)
INEXACT = FLOATS + COMPLEX
ROUNDED = INTS + FLOATS
REAL = BOOLS + ROUNDED
NUMBERS = INTS + INEXACT
ANY = BOOLS + NUMBERS


@dataclass
class SampleInput:
    """Arguments that the operation accepts; tensors are real.

    `fixed` are inexact tensors that take no gradient in eager mode, such as running statistics and class weights.
    """

    args: tuple = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    fixed: tuple[Tensor, ...] = ()

    def arguments(self) -> dict[int | str, Any]:
        """Return the arguments by position and by name."""
        return {**dict(enumerate(self.args)), **self.kwargs}

    def with_argument(self, key: int | str, value: Any) -> SampleInput:
        """Return the sample with another value of an argument that it has."""
        if isinstance(key, str):
            return SampleInput(self.args, {**self.kwargs, key: value}, self.fixed)
        return SampleInput((*self.args[:key], value, *self.args[key + 1 :]), self.kwargs, self.fixed)


@dataclass
class ErrorSample:
    """Arguments that the operation refuses, with the type of the error and a pattern that its text matches."""

    args: tuple = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    error: type[Exception] = RuntimeError
    match: str = ""


def no_errors(device: Device) -> Iterator[ErrorSample]:
    """Yield no error samples."""
    return iter(())


@dataclass(frozen=True)
class Directive:
    """An expectation for one check of an operation: "skip" it, or "xfail", which fails when it passes.  `reason` is a sentence.

    It holds for the check of that name, or for all; for these dtypes and kinds of device, or for all.
    """

    kind: Literal["skip", "xfail"]
    reason: str
    check: str = "*"
    dtypes: tuple[DType, ...] | None = None
    devices: tuple[str, ...] | None = None

    def covers(self, check: str, dtype: DType | None, device: str) -> bool:
        """Return whether the directive is about this check."""
        return (
            self.check in ("*", check, "forward" if check == "variants" else check)
            and (self.dtypes is None or dtype is None or dtype in self.dtypes)
            and (self.devices is None or device in self.devices)
        )


@dataclass(eq=False)
class OpInfo:
    """An operation's samples, reference and properties for the conformance suite.

    `reference` computes the same from real tensors by other means than PyTorch's own operation, or is None where there are none;
    a None in its result stands for one that is not determined, a function (see `drawn.py`) for one that is known in part.
    `grad` tells that the operation is differentiable at its float64 samples; `domain` bounds the values of its real tensors, `integers` those of
    its integer tensors.
    `tolerance` is the relative one that its float32 results keep to the reference; where it is not the default, `tolerance_source` says why.
    `cancellation` is the absolute error of a float32 result that one rounding of an intermediate value explains where the result is close to 0.
    `extremes` are the values, among "large", "inf" and "nan", that the suite may put into a sample's inexact tensors: the operation gives
    what eager gives.  `random` tells that two calls return different results.  `since` is the version of the suite that it came with.
    """

    symbol: Symbol
    samples: Callable[[DType, Device], Iterator[SampleInput]]
    error_samples: Callable[[Device], Iterator[ErrorSample]] = no_errors
    reference: Callable | None = None
    dtypes: tuple[DType, ...] = FLOATS
    grad: bool = False
    domain: tuple[float, float] = (-inf, inf)
    integers: tuple[float, float] = (-inf, inf)
    tolerance: float = 1e-5
    tolerance_source: str = "a few float32 roundings, as torch.testing.assert_close allows"
    cancellation: float = 0.0
    extremes: tuple[str, ...] = ()
    random: bool = False
    directives: tuple[Directive, ...] = ()
    since: str = "0.1"

    def __post_init__(self) -> None:
        self.random = self.random or Tag.RANDOM in self.symbol.tags

    def __repr__(self) -> str:
        return self.symbol.id

    @property
    def name(self) -> str:
        """The operation's id, without what all ids of its language begin with: "prims.sin", "sin", "nn.functional.gelu"."""
        return self.symbol.id.removeprefix("torch.")

    def is_decided(self, dtype: DType | None, device: str) -> bool:
        """Return whether results are compared with eager's; those of `empty` are what the memory held."""
        return not any(each.covers("forward", dtype, device) for each in self.directives)


EXTREMES = ("large", "inf", "nan")
OPINFOS: list[OpInfo] = []  # the registry: importing a family's file fills it


@dataclass
class Maker:
    """Makes tensors of one dtype on one device, the same ones in every run with one seed; values lie well inside `domain`."""

    dtype: DType
    device: Device
    domain: tuple[float, float] = (-inf, inf)

    def __post_init__(self) -> None:
        self.generator = generator(20)

    def __call__(self, *shape: int, dtype: DType | None = None, low: float | None = None, high: float | None = None) -> Tensor:
        """Make a row-major tensor of `shape`, its values spread evenly; integers between -9 and 9, or 0 and 9."""
        dtype = dtype or self.dtype
        low, high = self._bounds(dtype, low, high)
        if dtype.kind in ("bool", "int"):
            values = torch.randint(int(low), int(high) + 1, shape, generator=self.generator)
        else:
            values = self._spread(shape, low, high)
            if dtype.kind == "complex":
                values = torch.complex(values, self._spread(shape, low, high))
        return values.to(TO_TORCH[dtype]).to(str(self.device))

    def _spread(self, shape: tuple[int, ...], low: float, high: float) -> Tensor:
        return torch.rand(shape, generator=self.generator, dtype=torch.float64) * (high - low) + low

    def _bounds(self, dtype: DType, low: float | None, high: float | None) -> tuple[float, float]:
        if dtype.kind == "bool":
            return 0, 1
        wide = 9 if dtype.kind == "int" else 3
        lowest, highest = self.domain
        low = max(lowest, -wide if dtype.signed else 0) if low is None else low
        high = min(highest, max(low, 0) + wide) if high is None else high
        return low, high

    def index(self, size: int, *shape: int) -> Tensor:
        """Make positions below `size`."""
        return self(*shape, dtype=dtypes.int64, low=0, high=size - 1)

    def distinct(self, size: int, count: int) -> Tensor:
        """Make positions below `size`, none of them twice."""
        return torch.randperm(size, generator=self.generator)[:count].to(str(self.device))

    def layouts(self) -> Iterator[Tensor]:
        """Yield tensors of typical sizes and strides: no dimensions, one and zero elements, transposed, with gaps, repeated."""
        yield self()
        yield self(0)
        yield self(1)
        yield self(4, 3)
        yield self(2, 0, 3)
        yield self(3, 4).t()
        yield self(2, 3, 4).permute(2, 0, 1)
        yield self(2, 3, 8)[:, :, ::2].permute(1, 2, 0)
        yield self(3, 1).expand(3, 4)
        yield self(1, 3, 1).expand(2, 3, 4)
        yield self(2, 1, 3).transpose(0, 2)


LAYOUTS = ("column-major", "gapped", "repeated")


def laid(make: Maker, layout: str, *shape: int) -> Tensor:
    """Make a tensor of `shape` in a layout.

    "row-major", "column-major", "channels-last" (dimension 1 innermost), "gapped" (half of a larger one) or "repeated" (expanded to its last size).
    """
    if layout == "column-major":
        return make(*reversed(shape)).permute(tuple(reversed(range(len(shape)))))
    if layout == "channels-last" and len(shape) > 2:
        return make(shape[0], *shape[2:], shape[1]).movedim(-1, 1)
    if layout == "gapped":
        return make(*shape[:-1], 2 * shape[-1])[..., ::2] if shape else make(2)[1]
    if layout == "repeated" and shape:
        return make(*shape[:-1], 1).expand(shape)
    return make(*shape)


def from_rows(rows: Iterable[tuple], dtype: DType, device: Device, *, layouts: tuple[str, ...] = LAYOUTS, **bounds: Any) -> Iterator[SampleInput]:
    """Yield samples from a table: a row is a shape, then the arguments that follow a tensor of it, then perhaps a dict of keyword arguments.

    Each row is tried on a row-major tensor, and on one in another layout, in turn.
    """
    make = Maker(dtype, device, **bounds)
    for i, (shape, *args) in enumerate(rows):
        named = args.pop() if args and isinstance(args[-1], dict) else {}
        yield SampleInput((make(*shape), *args), named)
        if layouts:
            yield SampleInput((laid(make, layouts[i % len(layouts)], *shape), *args), named)


def refused_rows(rows: Iterable[tuple], device: Device) -> Iterator[ErrorSample]:
    """Yield error samples from a table: a row is a shape, the arguments after a float32 tensor of it, then the error's type and text."""
    for shape, *args, error, match in rows:
        named = args.pop() if args and isinstance(args[-1], dict) else {}
        yield ErrorSample((unwritten(shape), *args), named, error, match)


def specs_of(value: Any) -> Any:
    """Replace each real tensor in the lists and tuples of `value` by its spec."""
    if isinstance(value, Tensor):
        return spec_of(value)
    return type(value)(map(specs_of, value)) if type(value) in (list, tuple) else value


def unwritten(shape: tuple[int, ...], dtype: DType = dtypes.float32) -> Tensor:
    """Make a tensor for error samples, of which only the spec matters."""
    return torch.zeros(shape, dtype=torch.float32).to(TO_TORCH[dtype])


def by_numpy(fn: Callable) -> Callable:
    """Make a reference from a function of NumPy arrays.  float16 and bfloat16 are computed in float64."""

    def reference(*args: Any, **kwargs: Any) -> Any:
        return _from_numpy(fn(*map(_to_numpy, args), **{k: _to_numpy(v) for k, v in kwargs.items()}))

    return reference


def by_position(fn: Callable) -> Callable:
    """Pass keyword arguments to `fn` by position, in their order: NumPy has other names."""
    return lambda *args, **kwargs: fn(*args, *kwargs.values())


def _to_numpy(value: Any) -> Any:
    if isinstance(value, Tensor):
        wide = value.to(torch.float64) if value.dtype in (torch.float16, torch.bfloat16) else value
        return wide.detach().cpu().resolve_conj().numpy()
    return type(value)(map(_to_numpy, value)) if type(value) in (list, tuple) else value


def _from_numpy(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, tuple):
        return tuple(map(_from_numpy, value))
    return torch.as_tensor(value.copy() if hasattr(value, "copy") else value)


def unlike(got: Any, expected: Any, tolerance: float) -> str | None:
    """Describe how a result differs from a reference's by more than `tolerance`, relative and absolute; None where it does not.

    Dtypes are not compared, since references may compute in others; where a reference has None, any value is right, and where it has a function,
    as for random numbers, that describes what is wrong with a result.
    """
    if expected is None:
        return None
    if callable(expected):
        return expected(got)
    if isinstance(expected, (tuple, list)):
        got = tuple(got)
        if len(got) != len(expected):
            return f"{len(got)} results in place of {len(expected)}"
        return next((message for pair in zip(got, expected) if (message := unlike(*pair, tolerance)) is not None), None)
    wide = torch.complex128 if any(torch.as_tensor(x).is_complex() for x in (got, expected)) else torch.float64
    a, b = (torch.as_tensor(x).detach().cpu().to(wide) for x in (got, expected))
    if a.shape == b.shape and bool(torch.isclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True).all()):
        return None
    try:  # the first call imports torch.distributed, which takes a second
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
    except AssertionError as error:
        return str(error)
    return None
