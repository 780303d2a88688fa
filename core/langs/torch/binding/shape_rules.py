"""PyTorch's own rules for the shapes of results, run on sizes that are known when the program runs.

A size becomes a torch.SymInt around a node that computes with `dovetail.prims.sizes`, so the rules give sizes in terms of the arguments', and
what they ask of sizes becomes relations that the prologue checks.  A rule that needs more than the nodes here have raises; its sizes are pinned then.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from dovetail.langs.torch.binding.bridge import TO_TORCH
from dovetail.prims import TensorSpec
from dovetail.prims.sizes import Size, is_symbolic
from dovetail.trace import leaves


def has_sizes(nest: Any) -> bool:
    """Return whether a size in a nest of arguments is known only when the program runs."""
    return any(type(x) is Size or (isinstance(x, TensorSpec) and is_symbolic((*x.shape, *x.steps))) for x in leaves(nest))


def symbolic(n: Any) -> Any:
    """Return a size as torch's rules take it; an int as it is."""
    return torch.SymInt(SizeNode(n)) if type(n) is Size and n.known() is None else int(n)


def size_in(n: Any) -> Any:
    """Return the size that a rule computed."""
    return n.node.size if isinstance(n, torch.SymInt) else n


def meta_tensor(spec: TensorSpec) -> torch.Tensor:
    """Return a tensor without memory, of the shape and strides of `spec`."""
    return torch.empty_strided([symbolic(n) for n in spec.shape], [symbolic(n) for n in spec.steps], dtype=TO_TORCH[spec.dtype], device="meta")


class _Node:
    """What torch asks of every node."""

    expr = SimpleNamespace(free_symbols=frozenset())  # rules look there for symbols without a range, of which there are none
    _hint = None  # a value of the call that is traced: none, since what is known of it alone would go unguarded

    def is_symbolic(self) -> bool:
        return True

    def is_int(self) -> bool:
        return False

    is_bool = is_float = is_constant = is_nested_int = is_int

    def maybe_as_int(self) -> None:
        return None

    constant_int = constant_bool = maybe_as_int

    def clone(self) -> _Node:
        return self


class RelationNode(_Node):
    """A question about sizes, which is decided, and recorded, where a rule branches on the answer."""

    def __init__(self, ask: Callable[[], bool]):
        self.ask = ask

    def is_bool(self) -> bool:
        return True

    def bool_(self) -> bool:
        return self.ask()

    def guard_bool(self, file: str, line: int) -> bool:
        return self.ask()

    guard_or_false = guard_or_true = guard_size_oblivious = expect_true = guard_bool

    def and_(self, other: RelationNode) -> RelationNode:
        return RelationNode(lambda: self.ask() and other.ask())

    def or_(self, other: RelationNode) -> RelationNode:
        return RelationNode(lambda: self.ask() or other.ask())

    sym_and, sym_or = and_, or_

    def sym_not(self) -> RelationNode:
        return RelationNode(lambda: not self.ask())

    def wrap_bool(self, value: bool) -> RelationNode:
        return RelationNode(lambda: value)

    def str(self) -> str:
        return "a relation of sizes"

    _graph_repr = str


class RealNode(_Node):
    """A real number that a rule computes of sizes, for values alone: nothing can be asked of it."""

    def is_float(self) -> bool:
        return True

    def wrap_int(self, value: int) -> RealNode:
        return self

    def _combined(self, *others: _Node) -> RealNode:
        return self

    wrap_float, clone = wrap_int, _combined
    add = sub = mul = truediv = float_truediv = pow = float_pow = mod = neg = abs = sym_float = sym_sqrt = sym_max = sym_min = _combined

    def str(self) -> str:
        return "a number computed of sizes"

    _graph_repr = str


class SizeNode(_Node):
    """A size, or an int that a rule combines with one."""

    def __init__(self, size: Any):
        self.size = size

    def is_int(self) -> bool:
        return True

    def maybe_as_int(self) -> int | None:
        return None if type(self.size) is Size else self.size

    def has_hint(self) -> bool:
        return True  # it may be asked questions, which become guards

    def wrap_int(self, value: int) -> SizeNode:
        return SizeNode(value)

    def sym_float(self) -> RealNode:
        return RealNode()

    def int_truediv(self, other: SizeNode) -> RealNode:
        return RealNode()

    wrap_float = float_pow = int_truediv

    def int_(self) -> int:
        return int(self.size)

    def guard_int(self, file: str, line: int) -> int:
        return int(self.size)

    def neg(self) -> SizeNode:
        return SizeNode(-self.size)

    def sym_sum(self, nodes: Sequence[SizeNode]) -> SizeNode:
        return SizeNode(sum(node.size for node in nodes))

    def sym_max(self, other: SizeNode) -> SizeNode:
        return SizeNode(max(self.size, other.size))

    def sym_min(self, other: SizeNode) -> SizeNode:
        return SizeNode(min(self.size, other.size))

    def is_contiguous(self, sizes: Sequence[SizeNode], strides: Sequence[SizeNode]) -> RelationNode:
        return RelationNode(lambda: _row_major([n.size for n in sizes], [n.size for n in strides]))

    is_non_overlapping_and_dense = is_contiguous

    def is_channels_last_contiguous_2d(self, sizes: Sequence[SizeNode], strides: Sequence[SizeNode]) -> RelationNode:
        return RelationNode(lambda: _in_order(sizes, strides, (1, 3, 2, 0)))

    def is_channels_last_contiguous_3d(self, sizes: Sequence[SizeNode], strides: Sequence[SizeNode]) -> RelationNode:
        return RelationNode(lambda: _in_order(sizes, strides, (1, 4, 3, 2, 0)))

    is_channels_last_strides_2d, is_channels_last_strides_3d = is_channels_last_contiguous_2d, is_channels_last_contiguous_3d

    def str(self) -> str:
        return str(self.size)

    _graph_repr = str


def _in_order(sizes: Sequence[SizeNode], strides: Sequence[SizeNode], order: tuple[int, ...]) -> bool:
    """Return whether dimensions lie in memory one after the other, the first of `order` innermost."""
    at = order[::-1]
    return len(sizes) == len(order) and _row_major([sizes[d].size for d in at], [strides[d].size for d in at])


def _row_major(sizes: Sequence[Any], strides: Sequence[Any]) -> bool:
    step = 1
    for n, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if n != 1:
            if stride != step:
                return False
            step = step * n
    return True


def _arithmetic(operation: Callable[[Any, Any], Any]) -> Callable[[SizeNode, SizeNode], SizeNode]:
    return lambda self, other: SizeNode(operation(self.size, other.size))


def _comparison(operation: Callable[[Any, Any], bool]) -> Callable[[SizeNode, SizeNode], RelationNode]:
    return lambda self, other: RelationNode(lambda: operation(self.size, other.size))


for _name in ("add", "sub", "mul", "mod", "floordiv"):
    setattr(SizeNode, _name, _arithmetic(getattr(operator, _name)))
SizeNode.int_floordiv = SizeNode.floordiv
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(SizeNode, _name, _comparison(getattr(operator, _name)))
