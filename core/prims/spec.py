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
    Those of dimensions of size 1 are normalized by `normal_strides`: they matter only where they decide on the memory format.
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
    def repeats(self) -> bool:
        """Whether several elements are in one place, as those of an expanded tensor."""
        return self.strides is not None and any([n > 1 and step == 0 for n, step in zip(self.shape, self.strides, strict=True)])

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
    """Normalize strides: None for row-major, the stride of a size 1 as if row-major.

    Where the strides of sizes above 1 put channels innermost, PyTorch lets those of sizes of 1 decide whether a batch is channels last: they
    are as if channels last where it is, and 1 where it is not.
    """
    plain = row_major(shape)
    if strides == plain or 0 in shape:
        return None
    normal = tuple(p if n == 1 else s for n, s, p in zip(shape, strides, plain, strict=True))
    if normal == plain:
        return None
    last = channels_last_steps(shape, strides) if 1 in shape else None
    return normal if last is None else last if _is_channels_last(shape, strides) else look_alike_steps(shape, strides)


def look_alike_steps(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """Return strides that are not channels last, but for those of sizes above 1."""
    return tuple([1 if n == 1 else s for n, s in zip(shape, strides, strict=True)])


def channels_last_steps(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the strides of sizes above 1, and those of sizes of 1 as if channels last; None where sizes above 1 are not channels last."""
    if len(shape) not in (4, 5) or shape[1] == 1:
        return None
    least, new = 1, list(strides)
    for d in reversed(channels_last_order(len(shape))):
        if shape[d] == 1:
            new[d] = least
        elif strides[d] < least:
            return None
        least = new[d] * shape[d]
    return tuple(new)


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


def dense(*tensors: TensorSpec, dtype: DType | None = None, alike: bool = True) -> TensorSpec:
    """Return a new tensor of their shape, laid out as TensorIterator lays out elementwise results.

    All shapes are equal.  The result is row-major where all operands are, else dense in the order of the operands' strides: the first
    operand whose strides of two dimensions differ decides, and strides of 0 (repeated elements) are ignored.  `alike` is False where
    PyTorch has an operand of another shape, such as a number, or makes a copy.
    """
    first = tensors[0]
    for x in tensors:
        if x.strides is not None:
            order = tuple(reversed(_inner_to_outer(tensors)))
            out = laid_out(first.fresh(dtype=dtype), order)
            return _in_memory_format(out, tensors, alike) if 1 in out.shape else out
    return TensorSpec(first.shape, dtype or first.dtype, first.device)


def _in_memory_format(out: TensorSpec, tensors: tuple[TensorSpec, ...], alike: bool) -> TensorSpec:
    """Return an elementwise result with the strides of sizes of 1 that PyTorch would give it, where they decide on its memory format.

    Dense images of one shape are channels last as soon as all their sizes above 1 are.  Otherwise sizes of 1 are sorted as others are.
    """
    last = channels_last_steps(out.shape, out.steps)
    if last is None:
        return out
    whole = alike and out.rank == 4 and all(map(fills_channels_last, tensors))
    sorted_steps = strides_in_order(out.shape, tuple(reversed(_sorted_dims(tensors, list(range(out.rank))))))
    return out.view(out.shape, last if whole or _is_channels_last(out.shape, sorted_steps) else look_alike_steps(out.shape, last))


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
    """Return whether a batch of images or volumes has its channels innermost to PyTorch; gaps are allowed."""
    return x.strides is not None and x.rank in (4, 5) and x.shape[1] != 1 and _is_channels_last(x.shape, x.strides)


def fills_channels_last(x: TensorSpec) -> bool:
    """Return whether a batch fills its memory with its channels innermost, whatever its strides of sizes of 1."""
    return x.strides is not None and x.is_dense and channels_last_steps(x.shape, x.strides) is not None


def _is_channels_last(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return whether each stride is at least what lies inside of it, those of sizes of 1 included, as PyTorch's suggest_memory_format has it."""
    least = 1
    for d in reversed(channels_last_order(len(shape))):
        if strides[d] < least:
            return False
        least = strides[d] * shape[d]
    return True


def _inner_to_outer(tensors: tuple[TensorSpec, ...]) -> list[int]:
    """Sort dimensions from the fastest to the slowest.  Size 1 goes last."""
    shape = tensors[0].shape
    large = [d for d, n in enumerate(shape) if n != 1]
    return _sorted_dims(tensors, large) + [d for d in reversed(range(len(shape))) if shape[d] == 1]


def _sorted_dims(tensors: tuple[TensorSpec, ...], dims: list[int]) -> list[int]:
    """Sort dimensions from the fastest to the slowest by TensorIterator's insertion sort, in which operands may disagree."""
    order = dims[::-1]
    for i in range(1, len(order)):
        at = i
        for j in range(i - 1, -1, -1):
            wrong = _compare(tensors, order[j], order[at])
            if wrong < 0:
                break
            if wrong > 0:
                order[j], order[at], at = order[at], order[j], j
    return order


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
