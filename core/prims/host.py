"""Operations on the host: numbers for Python, output to the terminal, deletion of names."""

from __future__ import annotations

from typing import Any

from dovetail.errors import require
from dovetail.prims.arithmetic_table import ARITHMETIC
from dovetail.prims.op import Tag, prim
from dovetail.prims.spec import NumberSpec, TensorSpec

HOST = {Tag.HOST, Tag.NO_GRAD}
QUOTES = "'\""


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
    """A symbolic size as a number that the program returns, or one that is computed of sizes, printed as `n1 = 2*s0` or `s1 = int(s0 * 0.8)`."""
    return NumberSpec("int")


@integer.python
def integer_python(target: str, *, value: str) -> str:
    return f"{target} = {value}"


# By kind; the kind of a result does not depend on values: nothing here is a power of a negative number.
_SAMPLES = {"bool": True, "int": 1, "float": 1.0, "str": ""}


@prim(tags={Tag.NO_GRAD, Tag.CHEAP})
def arithmetic(*numbers: Any, op: str) -> NumberSpec:
    """What Python computes of numbers of the program, printed as `n2 = n0 + n1` for op "add"."""
    require(op in ARITHMETIC, "expected one of {}, got {}", ", ".join(ARITHMETIC), op)
    if op.startswith("math."):
        return NumberSpec("float")
    samples = [_SAMPLES[x.kind] if isinstance(x, NumberSpec) else x for x in numbers]
    return NumberSpec(type(ARITHMETIC[op][1](*samples)).__name__)


@arithmetic.python
def arithmetic_python(target: str, *numbers: str, op: str) -> str:
    return f"{target} = {ARITHMETIC[op.strip(QUOTES)][0].format(*[f'({x})' if x.startswith('-') else x for x in numbers])}"


@prim(tags={Tag.NO_GRAD, Tag.CHEAP})
def format_number(number: Any, *, form: str) -> NumberSpec:
    """A number of the program written out, printed as `n1 = format(n0, '.3f')`."""
    return NumberSpec("str")


@format_number.python
def format_number_python(target: str, number: str, *, form: str) -> str:
    return f"{target} = format({number}, {form})"


@prim(tags={Tag.NO_GRAD, Tag.CHEAP})
def format_tensor(x: TensorSpec) -> NumberSpec:
    """A tensor written out, printed as `n1 = str(t0)`."""
    return NumberSpec("str")


@format_tensor.python
def format_tensor_python(target: str, x: str) -> str:
    return f"{target} = str({x})"


@prim(tags={Tag.NO_GRAD, Tag.CHEAP})
def join_text(*parts: Any) -> NumberSpec:
    """Pieces of text as one, printed as `n2 = ''.join(('loss ', n1))`."""
    return NumberSpec("str")


@join_text.python
def join_text_python(target: str, *parts: str) -> str:
    return f"{target} = ''.join(({', '.join(parts)},))"


@prim(tags=HOST)
def print_(x: TensorSpec, *, message: str) -> None:
    """Print `message` and then x, when the program runs."""


@prim(tags=HOST)
def evaluate(x: Any) -> None:
    """Have x computed although nothing reads it, since that may raise an error, printed as `t0`.  The pass `dce` writes these lines."""


@evaluate.python
def evaluate_python(target: str, x: str) -> str:
    return x


@prim(tags=HOST)
def delete(*tensors: TensorSpec) -> None:
    """Release tensors after their last use, printed as `del t0, t1`.  Only the pass `release` writes these lines, as the last pass."""


@delete.python
def delete_python(target: str, *names: str) -> str:
    return f"del {', '.join(names)}"
