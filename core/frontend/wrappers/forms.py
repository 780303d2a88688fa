"""How a gradient, or a result, that is a wrapper is taken apart into tensors and built of them again, and how eager autograd meets the program.

A gradient of the program is that of plain tensors.  `enter` gives it inputs that stand for the parts of the gradient of an argument, `leave`
builds a result that is a wrapper of parts with a history.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from dovetail.frontend.subclasses import is_wrapper, taken_apart
from dovetail.trace import TensorProxy


@dataclass(eq=False)
class Parts:
    """A wrapper, or a plain tensor, taken apart, with the wrappers that it holds.

    Attributes:
        tensors: the plain tensors, in order.
        build: builds one like it of such tensors; `make(cls)`, if it is there, gives what stands for `cls.__tensor_unflatten__`.
        kinds: the classes and contexts of the wrappers, outer before inner.
    """

    tensors: list[Any]
    build: Callable[..., Any]
    kinds: list[tuple[type, Any]]

    @property
    def floating(self) -> list[int]:
        """The positions of the tensors that can have a gradient."""
        if self.kinds and self.kinds[0][0].__name__ == "NestedTensor":
            return [0]  # its values; the others are offsets and lengths
        return [i for i, x in enumerate(self.tensors) if _is_inexact(x)]

    def of_floating(self, *values: Any) -> Any:
        """Return one like it, of the tensors that can have a gradient, then the others."""
        order = [*self.floating, *[i for i in range(len(self.tensors)) if i not in set(self.floating)]]
        by_position = dict(zip(order, values, strict=True))
        return self.build([by_position[i] for i in range(len(order))])

    def replaced(self, values: Sequence[Any]) -> list[Any]:
        """Return the tensors with `values` in the place of those that can have a gradient."""
        by_position = dict(zip(self.floating, values, strict=True))
        return [by_position.get(i, x) for i, x in enumerate(self.tensors)]


def _is_inexact(x: Any) -> bool:
    return x.spec.dtype.inexact if isinstance(x, TensorProxy) else x.is_floating_point() or x.is_complex()


def parts_of(x: Any) -> Parts:
    """Return a tensor taken apart."""
    if not is_wrapper(x):
        return Parts([x], lambda values, make=None: values[0], [])
    (*held, context), build = taken_apart(x)
    inner = [parts_of(item) for item in held]

    def rebuild(values: Sequence[Any], make: Callable[[type], Any] | None = None) -> Any:
        rest, again = list(values), []
        for part in inner:
            again.append(part.build(rest[: len(part.tensors)], make))
            rest = rest[len(part.tensors) :]
        return build(*again, context, unflatten=None if make is None else make(type(x)))

    kinds = [(type(x), context), *[kind for part in inner for kind in part.kinds]]
    return Parts([tensor for part in inner for tensor in part.tensors], rebuild, kinds)


def is_alike(x: Any, kinds: Sequence[tuple[type, Any]]) -> bool:
    """Return whether a tensor consists of wrappers of these classes with equal contexts."""
    return [(kind, str(context)) for kind, context in parts_of(x).kinds] == [(kind, str(context)) for kind, context in kinds]


@dataclass(eq=False)
class Arrival:
    """The gradient of an argument: `specs` are the shape, dtype and device of each of its parts that the program computes.

    `held` maps the positions of its other parts to those of the argument that they are the same tensors as.
    """

    name: str
    specs: list[tuple[tuple[int, ...], torch.dtype, torch.device]]
    parts: Parts
    held: dict[int, int]

    def examples(self) -> tuple[torch.Tensor, ...]:
        """Return tensors of one element each that look like the parts."""
        return tuple([torch.zeros((), dtype=dtype, device=device).expand(shape) for shape, dtype, device in self.specs])

    def build(self, x: Any, gradients: Sequence[Any], make: Callable[[type], Any] | None = None) -> Any:
        """Return the gradient of an argument, real or, with `make`, of the program."""
        computed = self.parts.replaced(gradients)
        own = parts_of(x).tensors if self.held else ()
        return self.parts.build([own[self.held[i]] if i in self.held else y for i, y in enumerate(computed)], make)


class _Enter(torch.autograd.Function):
    """Inputs of the program that stand for the parts of the gradient of an argument."""

    @staticmethod
    def forward(ctx: Any, arrival: Arrival, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.arrival, ctx.x = arrival, x.detach() if arrival.held else None
        ctx.set_materialize_grads(False)
        return arrival.examples()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gs: Any) -> tuple:
        if all([g is None for g in gs]):
            return None, None
        zeros = zip(gs, ctx.arrival.examples(), strict=True)
        return None, ctx.arrival.build(ctx.x, [z.clone() if g is None else g for g, z in zeros])


def enter(arrival: Arrival) -> Callable[[torch.Tensor], tuple[torch.Tensor, ...]]:
    """Return a function from an argument to the inputs that stand for the parts of its gradient."""
    return lambda x: _Enter.apply(arrival, x)


class _Leave(torch.autograd.Function):
    """A wrapper built of results of the program, which have a history."""

    @staticmethod
    def forward(ctx: Any, build: Callable[..., Any], count: int, *tensors: torch.Tensor) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        result = build(*[x.detach() for x in tensors[:count]], *tensors[count:])
        ctx.kinds, ctx.count, ctx.others = parts_of(result).kinds, count, len(tensors) - count
        return result

    @staticmethod
    def backward(ctx: Any, g: Any) -> tuple:
        none = (None, None)
        if g is None:
            return (*none, *[None] * (ctx.count + ctx.others))
        if not is_alike(g, ctx.kinds):
            name = ctx.kinds[0][0].__name__
            raise RuntimeError(
                f"the gradient of a {name} that a compiled function has returned is a {type(g).__name__}, and its backward was compiled for a "
                f"{name} like the result; compute the loss inside the compiled function"
            )
        parts = parts_of(g)
        return (*none, *[parts.tensors[i] for i in parts.floating], *[None] * ctx.others)


def leave(build: Callable[..., Any], count: int, *tensors: torch.Tensor) -> torch.Tensor:
    """Return the wrapper that `build` makes of tensors, the first `count` of which have a history."""
    return _Leave.apply(build, count, *tensors)
