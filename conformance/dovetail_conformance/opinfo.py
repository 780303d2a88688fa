"""Samples, error samples and a reference for one operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Any

import torch
from torch import Tensor

from dovetail import dtypes
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.langs.torch import FROM_TORCH as FROM_TORCH
from dovetail.langs.torch import TO_TORCH as TO_TORCH
from dovetail.langs.torch import spec_of as spec_of
from dovetail.prims import Symbol

BOOLS = (dtypes.bool_,)
INTS = (dtypes.uint8, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64)
FULL_FLOATS = (dtypes.float32, dtypes.float64)
FLOATS = (dtypes.bfloat16, dtypes.float16, *FULL_FLOATS)
COMPLEX = (dtypes.complex64, dtypes.complex128)
ANY = BOOLS + INTS + FLOATS + COMPLEX


@dataclass
class SampleInput:
    """Arguments that the operation accepts; tensors are real."""

    args: tuple = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass
class ErrorSample:
    """Arguments that the operation refuses, with the type of the error and a pattern that its text matches."""

    args: tuple = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    error: type[Exception] = RuntimeError
    match: str = ""


def no_errors(device: Device) -> Iterator[ErrorSample]:
    """For an operation that accepts whatever it is given."""
    return iter(())


@dataclass
class OpInfo:
    """One operation, as the conformance suite meets it.

    `reference` computes the same from real tensors by other means than PyTorch's own operation, or is None where there are none;
    a None in its result stands for one that is not determined.
    `grad` says that the operation is differentiable at its float64 samples, `domain` between which values of its tensors it is meant to work.
    `tolerance` is the relative one that its float32 results keep to the reference.
    """

    symbol: Symbol
    samples: Callable[[DType, Device], Iterator[SampleInput]]
    error_samples: Callable[[Device], Iterator[ErrorSample]] = no_errors
    reference: Callable | None = None
    dtypes: tuple[DType, ...] = FLOATS
    grad: bool = False
    domain: tuple[float, float] = (-inf, inf)
    tolerance: float = 1e-5

    def __repr__(self) -> str:
        return self.symbol.name


OPINFOS: list[OpInfo] = []


@dataclass
class Maker:
    """Makes tensors of one dtype on one device, the same ones in every run; values lie well inside `domain`."""

    dtype: DType
    device: Device
    domain: tuple[float, float] = (-inf, inf)

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(20)

    def __call__(self, *shape: int, dtype: DType | None = None, low: float | None = None, high: float | None = None) -> Tensor:
        """A row-major tensor of `shape`, its values spread evenly; integers between -9 and 9, or 0 and 9."""
        dtype = dtype or self.dtype
        low, high = self._bounds(dtype, low, high)
        if dtype.kind in ("bool", "int"):
            made = torch.randint(int(low), int(high) + 1, shape, generator=self.generator)
        else:
            made = self._spread(shape, low, high)
            if dtype.kind == "complex":
                made = torch.complex(made, self._spread(shape, low, high))
        return made.to(TO_TORCH[dtype]).to(str(self.device))

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
        """Positions below `size`."""
        return self(*shape, dtype=dtypes.int64, low=0, high=size - 1)

    def distinct(self, size: int, count: int) -> Tensor:
        """Positions below `size`, none of them twice."""
        return torch.randperm(size, generator=self.generator)[:count].to(str(self.device))

    def layouts(self) -> Iterator[Tensor]:
        """Sizes and strides that operations meet: none, one and zero elements, transposed, with gaps, repeated."""
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


def specs_of(value: Any) -> Any:
    """`value` with a spec in the place of each real tensor in its lists and tuples."""
    if isinstance(value, Tensor):
        return spec_of(value)
    return type(value)(map(specs_of, value)) if type(value) in (list, tuple) else value


def unwritten(shape: tuple[int, ...], dtype: DType = dtypes.float32) -> Tensor:
    """A tensor for error samples, of which only the spec matters."""
    return torch.zeros(shape, dtype=torch.float32).to(TO_TORCH[dtype])


def by_numpy(fn: Callable) -> Callable:
    """A reference from a function of NumPy arrays.  float16 and bfloat16 are computed in float64."""

    def reference(*args: Any, **kwargs: Any) -> Any:
        return _from_numpy(fn(*map(_to_numpy, args), **{k: _to_numpy(v) for k, v in kwargs.items()}))

    return reference


def _to_numpy(value: Any) -> Any:
    if isinstance(value, Tensor):
        wide = value.to(torch.float64) if value.dtype in (torch.float16, torch.bfloat16) else value
        return wide.detach().cpu().resolve_conj().numpy()
    return [_to_numpy(x) for x in value] if isinstance(value, list) else value


def _from_numpy(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, tuple):
        return tuple(map(_from_numpy, value))
    return torch.as_tensor(value.copy() if hasattr(value, "copy") else value)
