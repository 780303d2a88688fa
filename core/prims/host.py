"""Operations on the host: numbers for Python, output to the terminal, deletion of names."""

from __future__ import annotations

from typing import Any

from dovetail.errors import require
from dovetail.prims.op import Tag, prim
from dovetail.prims.spec import NumberSpec, TensorSpec

HOST = {Tag.HOST, Tag.NO_GRAD}


@prim(tags=HOST)
def item(x: TensorSpec) -> NumberSpec:
    """The one element of x as a Python number."""
    require(x.numel == 1, "expected a tensor of one element, got {}", x)
    return NumberSpec(x.dtype.kind)


@prim(tags={Tag.NO_GRAD, Tag.CHEAP})
def size(x: TensorSpec, *, dim: int) -> NumberSpec:
    """The size of x in dimension `dim`, printed as `s0 = t0.shape[0]`.  The pass `sizes` writes these lines for the symbols that a program names."""
    require(0 <= dim < x.rank, "expected a dimension of {}, got {}", x, dim)
    return NumberSpec("int")


@size.python
def size_python(target: str, x: str, *, dim: str) -> str:
    return f"{target} = {x}.shape[{dim}]"


@prim(tags={Tag.NO_GRAD, Tag.CHEAP})
def integer(*, value: Any) -> NumberSpec:
    """A symbolic size as a number that the program returns, printed as `n1 = 2*s0`."""
    return NumberSpec("int")


@integer.python
def integer_python(target: str, *, value: str) -> str:
    return f"{target} = {value}"


@prim(tags=HOST)
def print_(x: TensorSpec, *, message: str) -> None:
    """Print `message` and then x, when the program runs."""


@prim(tags=HOST)
def delete(*tensors: TensorSpec) -> None:
    """Release tensors after their last use, printed as `del t0, t1`.  Only the pass `release` writes these lines, as the last pass."""


@delete.python
def delete_python(target: str, *names: str) -> str:
    return f"del {', '.join(names)}"
