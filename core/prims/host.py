"""What leaves the program: numbers for Python, lines for the terminal, names let go."""

from __future__ import annotations

from dovetail.errors import require
from dovetail.prims.op import Tag, prim
from dovetail.prims.spec import NumberSpec, TensorSpec

HOST = {Tag.HOST, Tag.NO_GRAD}


@prim(tags=HOST)
def item(x: TensorSpec) -> NumberSpec:
    """The one element of x as a Python number."""
    require(x.numel == 1, "a tensor of one element can be a number, got {}", x)
    return NumberSpec(x.dtype.kind)


@prim(tags=HOST)
def print_(x: TensorSpec, *, message: str) -> None:
    """Print `message` and then x, when the program runs."""


@prim(tags=HOST)
def delete(*tensors: TensorSpec) -> None:
    """Let go of tensors that nothing reads any more: printed as `del t0, t1`.  Programs get these lines last; nobody else writes them."""


@delete.python
def delete_python(target: str, *names: str) -> str:
    return f"del {', '.join(names)}"
