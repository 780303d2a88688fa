"""What a decision may come to, beside True and False: a number or another value, or the shapes of results."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from textwrap import shorten
from typing import Any

import torch

from dovetail.frontend.decisions.late_sizes import SMALLEST, layout
from dovetail.langs.torch import spec_of
from dovetail.prims import TensorSpec
from dovetail.prims.sizes import Size, hint_of, is_symbolic
from dovetail.prims.spec import strides_in_order
from dovetail.torch_internals import no_torch_function

_WIDTH = 80  # of an outcome in messages


class Outcome(tuple):
    """An outcome that is no bool: a number, which equals others by what it prints as, since NaN equals nothing, or the facts about tensors.

    Attributes:
        value: the number, or another value that is no tensor.
        many: the class of the container of tensors that an operation returned, False for one tensor; None where the outcome is a value.
        sizes: the values of the symbols in the shapes.
    """

    value: Any
    many: type | bool | None
    sizes: tuple[int, ...] = ()

    @classmethod
    def of_value(cls, value: Any) -> Outcome:
        """Return the outcome that is a value."""
        outcome = cls((type(value), repr(value)))
        outcome.value, outcome.many = value, None
        return outcome

    @classmethod
    def of_size(cls, value: int) -> tuple[Outcome, tuple]:
        """Return the outcome of a number that is a symbol, and its value; small ones are outcomes of their own."""
        if value < SMALLEST:
            return cls.of_value(value), ()
        outcome = cls(("n0",))
        outcome.value, outcome.many, outcome.sizes = "any", None, (value,)
        return outcome, outcome.sizes

    @classmethod
    def of_results(cls, results: Any, moving: Mapping[int, Collection[int]]) -> tuple[Outcome, tuple]:
        """Return the outcome of an operation, and the tensors that come with it, and the sizes of the dimensions in `moving`, by tensor."""
        many = type(results) if isinstance(results, (tuple, list)) else False
        tensors = tuple(results) if many else (results,)
        if not all([isinstance(x, torch.Tensor) for x in tensors]):
            return cls.of_value(results), ()
        if not moving:
            outcome = cls([(x.shape, x.stride(), x.dtype, x.device, x.requires_grad) for x in tensors])
            outcome.value, outcome.many = None, many
            return outcome, tensors
        symbols: dict[int, str] = {}
        rows = [layout(x.shape, x.stride(), moving.get(i, ()), symbols) for i, x in enumerate(tensors)]
        outcome = cls([(*row, x.dtype, x.device, x.requires_grad) for row, x in zip(rows, tensors, strict=True)])
        outcome.value, outcome.many, outcome.sizes = None, many, tuple(symbols)
        return outcome, (*tensors, *symbols)

    @classmethod
    def of_gradients(cls, gradients: Sequence[Any]) -> Outcome:
        """Return the outcome that says which gradients there are, and which of them require gradients in turn."""
        outcome = cls([None if g is None else g.requires_grad for g in gradients])
        outcome.value, outcome.many = f"{sum(g is not None for g in gradients)} of {len(gradients)}", None
        return outcome

    def shapes(self) -> list[Sequence[Any]]:
        """Return the sizes in it, of each tensor; of a number, that."""
        return [[self.value]] if self.many is None else [shape for shape, *_ in self]

    def text(self) -> str:
        """Return the outcome for messages."""
        if self.sizes and self.many is None:
            return f"{SMALLEST} or more"
        return shorten(repr(self.value), _WIDTH) if self.many is None else ", ".join([f"[{', '.join(map(str, shape))}]" for shape, *_ in self])

    def specs(self, symbols: Sequence[Size] = ()) -> list[TensorSpec]:
        """Return the specs of the tensors, with `symbols` for the sizes that are some."""
        sizes = {f"n{i}": size for i, size in enumerate(symbols)}
        return [self._spec(shape, strides, dtype, device, sizes).like(requires_grad=grad) for shape, strides, dtype, device, grad in self]

    @staticmethod
    def _spec(shape: tuple, strides: tuple, dtype: torch.dtype, device: torch.device, sizes: dict[str, Size]) -> TensorSpec:
        """Return the spec of a tensor; where its shape has symbols, `strides` is the order of its dimensions in memory."""
        symbolic, order = tuple([sizes.get(n, n) for n in shape]), strides
        if str in map(type, shape):
            shape = tuple(map(hint_of, symbolic))
            strides = strides_in_order(shape, order)
        with no_torch_function():
            spec = spec_of(torch.empty_strided(shape, strides, dtype=dtype, device=device))
        if not is_symbolic(symbolic):
            return spec
        return spec.like(shape=symbolic, strides=None if spec.strides is None else strides_in_order(symbolic, order))
