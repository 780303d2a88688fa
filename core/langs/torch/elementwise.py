"""Functions of each element: arithmetic, comparison, bits, powers, special functions."""

from __future__ import annotations

from dovetail.langs import core
from dovetail.langs.torch.symbol import Number, Tensor, operators, torchsymbol


@torchsymbol("torch.add", methods=("add",))
def add(input: Tensor | Number, other: Tensor | Number, *, alpha: Number = 1):
    """input + alpha * other."""
    return core.add(input, other if alpha == 1 else core.mul(other, alpha))


@torchsymbol("torch.mul", "torch.multiply", methods=("mul", "multiply"))
def mul(input: Tensor | Number, other: Tensor | Number):
    """input * other."""
    return core.mul(input, other)


operators(add=add, mul=mul)
