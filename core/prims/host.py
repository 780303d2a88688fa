"""Operations on the host: numbers for Python, output to the terminal, deletion of names."""

from __future__ import annotations

from dovetail.errors import require
from dovetail.prims.op import Tag, prim
from dovetail.prims.spec import NumberSpec, TensorSpec

HOST = {Tag.HOST, Tag.NO_GRAD}


@prim(tags=HOST)
def item(x: TensorSpec) -> NumberSpec:
    """The one element of x as a Python number."""
    require(x.numel == 1, "expected a tensor of one element, got {}", x)
    return NumberSpec(x.dtype.kind)


@prim(tags=HOST)
def print_(x: TensorSpec, *, message: str) -> None:
    """Print `message` and then x, when the program runs."""


@prim(tags=HOST)
def delete(*tensors: TensorSpec) -> None:
    """Release tensors after their last use, printed as `del t0, t1`.  Only the pass `release` writes these lines, as the last pass."""


@delete.python
def delete_python(target: str, *names: str) -> str:
    return f"del {', '.join(names)}"
