"""A tensor without its numbers: shape, dtype, device, strides."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from dovetail.devices import Device, cpu
from dovetail.dtypes import DType


def fills(shape: tuple[int, ...], steps: tuple[int, ...]) -> bool:
    """Return whether elements that lie `steps` apart fill their memory without gaps or overlaps, in any order of dimensions."""
    expected = 1
    for step, n in sorted((s, n) for s, n in zip(steps, shape, strict=True) if n != 1):
        if step != expected:
            return False
        expected = step * n
    return True


@dataclass(frozen=True, slots=True, repr=False)
class TensorSpec:
    """The type of a tensor: what is known before it is computed.

    `strides` count elements; None means row-major, so that contiguous specs compare equal and cost nothing to create.
    The stride of a dimension of size 1 has no meaning and is stored as if row-major.
    """

    shape: tuple[int, ...]
    dtype: DType
    device: Device = cpu
    strides: tuple[int, ...] | None = None
    requires_grad: bool = False

    def __repr__(self) -> str:
        return (
            f"TensorSpec(shape={self.shape!r}, dtype={self.dtype!r}, device={self.device!r}, strides={self.strides!r}, "
            f"requires_grad={self.requires_grad!r})"
        )

    def fresh(self, shape: tuple[int, ...] | None = None, dtype: DType | None = None) -> TensorSpec:
        """Return a new row-major tensor on the same device."""
        return TensorSpec(self.shape if shape is None else shape, dtype or self.dtype, self.device)

    def view(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> TensorSpec:
        """Return the same elements seen with other sizes and strides."""
        return TensorSpec(shape, self.dtype, self.device, normal_strides(shape, strides))

    def like(self, **changes: Any) -> TensorSpec:
        """Return the same spec but for `changes`."""
        return replace(self, **changes)

    def agrees(self, other: TensorSpec) -> bool:
        """Return whether shape, dtype and device are the same; strides need not be."""
        return self.shape == other.shape and self.dtype is other.dtype and self.device is other.device

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def steps(self) -> tuple[int, ...]:
        """The strides in elements, also of row-major tensors."""
        return row_major(self.shape) if self.strides is None else self.strides

    @property
    def order(self) -> tuple[int, ...]:
        """The dimensions by their strides, slowest first."""
        steps = self.steps
        return tuple(sorted(range(self.rank), key=lambda d: -steps[d]))

    @property
    def numel(self) -> int:
        return prod(self.shape)

    @property
    def is_dense(self) -> bool:
        """Whether the elements fill their memory without gaps or overlaps, in any order of dimensions."""
        return fills(self.shape, self.steps)

    def __str__(self) -> str:
        layout = "" if self.strides is None else f" strides {list(self.strides)}"
        return f"{self.device} {self.dtype.short}{list(self.shape)}{layout}"


@dataclass(frozen=True, slots=True)
class NumberSpec:
    """The type of a Python number that the program computes, such as the result of `item`, or of a text that numbers are written into.

    `kind` is bool, int, float, complex or str.
    """

    kind: str

    def __str__(self) -> str:
        return self.kind


def prod(sizes: Iterable[int]) -> int:
    return math.prod(sizes)


def ceildiv(a: int, b: int) -> int:
    """Return a / b, rounded up."""
    return -(-a // b)


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return row-major strides: row_major((2, 3, 4)) == (12, 4, 1)."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n if n > 1 else 1
    return tuple(reversed(strides))


def normal_strides(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...] | None:
    """Normalize strides: None for row-major, the stride of a size 1 as if row-major."""
    plain = row_major(shape)
    if strides == plain or 0 in shape:
        return None
    strides = tuple(p if n == 1 else s for n, s, p in zip(shape, strides, plain, strict=True))
    return None if strides == plain else strides


def view_strides(spec: TensorSpec, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the strides that view `spec`'s storage as `shape`, or None where that needs a copy.

    Dimensions that lie one after the other in memory are merged into runs; each run must split exactly into new dimensions.
    """
    if spec.strides is None or spec.numel == 0:
        return row_major(shape)
    runs = _runs(spec)
    strides: list[int] = []
    size, step = runs.pop() if runs else (1, 1)
    for n in reversed(shape):
        if n == 1:
            strides.append(step)
            continue
        if size == 1 and runs:
            size, step = runs.pop()
        if size % n:
            return None
        strides.append(step)
        size, step = size // n, step * n
    return tuple(reversed(strides))


def _runs(spec: TensorSpec) -> list[tuple[int, int]]:
    """Merge dimensions that are adjacent in memory, as (size, innermost step)."""
    runs: list[tuple[int, int]] = []
    for n, step in zip(spec.shape, spec.steps, strict=True):
        if n == 1:
            continue
        if runs and runs[-1][1] == n * step:
            runs[-1] = (runs[-1][0] * n, step)
        else:
            runs.append((n, step))
    return runs


def dense(*tensors: TensorSpec, dtype: DType | None = None) -> TensorSpec:
    """Return a new tensor of their shape, laid out as TensorIterator lays out elementwise results.

    All shapes are equal.  The result is row-major where all operands are, else dense in the order of the operands' strides: the first
    operand whose strides of two dimensions differ decides, and strides of 0 (repeated elements) are ignored.
    """
    first = tensors[0]
    for x in tensors:
        if x.strides is not None:
            order = tuple(reversed(_inner_to_outer(tensors)))
            return laid_out(first.fresh(dtype=dtype), order)
    return TensorSpec(first.shape, dtype or first.dtype, first.device)


def laid_out(x: TensorSpec, order: tuple[int, ...]) -> TensorSpec:
    """Return a dense tensor whose dimensions are `order`, slowest first."""
    return x.view(x.shape, strides_in_order(x.shape, order))


def strides_in_order(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a dense tensor whose dimensions are `order`, slowest first: strides_in_order((2, 3), (1, 0)) == (1, 2)."""
    strides, step = [0] * len(shape), 1
    for d in reversed(order):
        strides[d] = step
        step *= shape[d] if shape[d] > 1 else 1
    return tuple(strides)


def channels_last_order(rank: int) -> tuple[int, ...]:
    """Return the dimensions in memory order: channels_last_order(4) == (0, 2, 3, 1)."""
    return (0, *range(2, rank), 1)


def is_channels_last(x: TensorSpec) -> bool:
    """Return whether the strides of a batch of images or volumes put channels innermost; gaps are allowed."""
    if x.strides is None or x.rank not in (4, 5) or x.shape[1] == 1:
        return False
    min_step = x.steps[1]
    if min_step == 0:
        return False
    min_step *= x.shape[1]
    for d in reversed(channels_last_order(x.rank)[:-1]):
        if x.shape[d] != 1:
            if x.steps[d] < min_step:
                return False
            min_step = x.steps[d] * x.shape[d]
    return True


def _inner_to_outer(tensors: tuple[TensorSpec, ...]) -> list[int]:
    """Sort dimensions from the fastest to the slowest by TensorIterator's insertion sort, in which operands may disagree.  Size 1 goes last."""
    shape = tensors[0].shape
    order = [d for d in reversed(range(len(shape))) if shape[d] != 1]
    for i in range(1, len(order)):
        at = i
        for j in range(i - 1, -1, -1):
            wrong = _compare(tensors, order[j], order[at])
            if wrong < 0:
                break
            if wrong > 0:
                order[j], order[at], at = order[at], order[j], j
    return order + [d for d in reversed(range(len(shape))) if shape[d] == 1]


def _compare(tensors: tuple[TensorSpec, ...], a: int, b: int) -> int:
    """Return a positive number where dimension `a` belongs outside `b`, a negative one where inside, 0 where no operand decides."""
    for x in tensors:
        steps = x.steps
        if steps[a] and steps[b]:
            if steps[a] != steps[b]:
                return 1 if steps[a] > steps[b] else -1
            if x.shape[a] > x.shape[b]:
                return 1
    return 0


def is_tensor(x: Any) -> bool:
    """Return whether an argument of a grad rule is a tensor, not a number."""
    return type(getattr(x, "spec", None)) is TensorSpec
