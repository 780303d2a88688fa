"""Symbolic sizes as the user's code sees them: a torch.SymInt that a torch.Size holds, with the operators of an int."""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

import torch

from dovetail.errors import InvalidTrace
from dovetail.prims import recorder
from dovetail.prims.sizes import Size, magnitude
from dovetail.trace.printing import LITERALS


class SymbolicInt(torch.SymInt):
    """A size that is known when the program runs.

    `isinstance(n, int)`, `type(n)` and `isinstance(n, torch.SymInt)` say in traced code what they say of an int; arithmetic gives other such
    numbers, comparisons give bools, and what needs a plain int pins the size: see `dovetail.prims.sizes.Size`.
    """

    __array_ufunc__ = None  # so that NumPy's numbers leave arithmetic to the methods here

    def __init__(self, size: Size):
        super().__init__(_Node(size))
        self.size = size

    def __hash__(self) -> int:
        return hash(int(self.size))

    def __index__(self) -> int:
        return int(self.size)

    __int__ = __index__

    def __bool__(self) -> bool:
        return bool(self.size)

    def __float__(self) -> float:
        return float(int(self.size))

    def __complex__(self) -> complex:
        return complex(int(self.size))

    def __str__(self) -> str:
        return str(int(self.size))

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return format(int(self.size), spec)

    def __neg__(self) -> Any:
        return symint(-self.size)

    def __abs__(self) -> Any:
        return symint(abs(self.size))

    def __invert__(self) -> Any:
        return symint(-self.size - 1)

    def __round__(self, digits: Any = None) -> Any:
        return self if digits is None else round(int(self.size), digits)

    def __pos__(self) -> Any:
        return self

    __floor__ = __ceil__ = __trunc__ = conjugate = __pos__

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self

    def __copy__(self) -> Any:
        return self

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return int, (int(self.size),)

    def __getattr__(self, name: str) -> Any:
        if name == "size" or not hasattr(int, name):
            raise AttributeError(f"'int' object has no attribute {name!r}")
        return getattr(int(self.size), name)


class _Node:
    """What torch's C++ code asks a SymInt for, where it gets one: the value, which pins the size."""

    def __init__(self, size: Size):
        self.size = size

    def is_int(self) -> bool:
        return True

    def is_symbolic(self) -> bool:
        return True

    def is_float(self) -> bool:
        return False

    is_bool = is_nested_int = is_constant = is_float

    def maybe_as_int(self) -> None:
        return None

    constant_int = maybe_as_int

    def guard_int(self, file: str = "", line: int = 0) -> int:
        return int(self.size)

    int_ = guard_int


def symint(n: Any) -> Any:
    """Return a size for the user's code; a plain int as it is."""
    if type(n) is not Size:
        return n
    known = n.known()
    return SymbolicInt(n) if known is None else known


def size_of(n: Any) -> Any:
    """Return the Size that the user's code has as a SymbolicInt, also in a slice; anything else as it is."""
    if type(n) is slice:
        return slice(size_of(n.start), size_of(n.stop), size_of(n.step))
    return n.size if type(n) is SymbolicInt else n


def _leaked(n: SymbolicInt) -> tuple[str, str]:
    raise InvalidTrace(f"the program would hold the size {n.size} as a constant; compile with dynamic=False")


LITERALS[SymbolicInt] = _leaked


def shape_of(shape: tuple[Any, ...]) -> torch.Size:
    """Return sizes as a torch.Size for the user's code."""
    return torch.Size([symint(n) for n in shape] if Size in map(type, shape) else shape)


_PLAIN_OPERATORS = (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.pow, operator.lshift, operator.rshift, divmod)
_PINNING = (operator.truediv, operator.and_, operator.or_, operator.xor)
_NUMBERS = (operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow)
_LARGEST = (1 << 63) - 1  # kernels and prologues compute sizes with 64 bits
_DIVIDING = (operator.truediv, operator.floordiv, operator.mod)
_COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)


def _is_other_number(x: Any) -> bool:
    return isinstance(x, (float, complex)) or (type(x).__module__ == "numpy" and hasattr(x, "__index__"))


def _floating(op: Callable, a: Any, b: Any) -> Any:
    """Return a float, or a power of an int, that is computed of sizes, as a number of the program; None where it has to be known."""
    kinds, environment = (type(a), type(b)), getattr(recorder.get(), "environment", None)
    if environment is None or op not in _NUMBERS or not {*kinds} <= {int, float, Size}:
        return None
    if op is operator.pow and kinds == (int, Size) and a > 0 and b >= 0:
        return environment.of_sizes("pow", (a, b))
    if op is operator.pow:
        floats = kinds[0] is Size and (kinds[1] is float or (kinds[1] is int and b < 0))
        return environment.of_sizes("power", (a, b)) if floats or (kinds[0] is float and a > 0) else None
    if (op is not operator.truediv and float not in kinds) or (op in _DIVIDING and b == 0):
        return None
    return environment.of_sizes(op.__name__, (a, b))


def _each(result: Any) -> tuple:
    return result if isinstance(result, tuple) else (result,)


def _binary(op: Callable, *, swapped: bool = False, pins: bool = False) -> Callable[[Any, Any], Any]:
    """Return the method of an operator; with a float, or where it `pins`, it computes with the plain value."""

    def method(self: SymbolicInt, other: Any) -> Any:
        other = size_of(other)
        if isinstance(other, float) and op in _COMPARISONS:
            return op(self.size, other)
        if (number := _floating(op, *((other, self.size) if swapped else (self.size, other)))) is not None:
            return number
        if _is_other_number(other) or (pins and isinstance(other, (int, Size))):
            return op(other, int(self.size)) if swapped else op(int(self.size), other if not isinstance(other, Size) else int(other))
        if not isinstance(other, (int, Size)):
            return NotImplemented
        result = op(other, self.size) if swapped else op(self.size, other)
        if op not in _COMPARISONS and any([type(n) is Size and magnitude(n) > _LARGEST for n in _each(result)]):
            a, b = int(self.size), int(other)
            return op(b, a) if swapped else op(a, b)
        return tuple(map(symint, result)) if isinstance(result, tuple) else symint(result)

    return method


for _op in (*_PLAIN_OPERATORS, *_PINNING):
    _name = _op.__name__.rstrip("_")
    setattr(SymbolicInt, f"__{_name}__", _binary(_op, pins=_op in _PINNING))
    setattr(SymbolicInt, f"__r{_name}__", _binary(_op, swapped=True, pins=_op in _PINNING))
for _op in _COMPARISONS:
    setattr(SymbolicInt, f"__{_op.__name__}__", _binary(_op))


def _method_of_int(name: str) -> Callable:
    """Return a method of int, which pins: torch.SymInt has some of its own, in Python."""

    def method(self: SymbolicInt, *args: Any, **kwargs: Any) -> Any:
        return getattr(int(self.size), name)(*args, **kwargs)

    return method


for _name in dir(int):
    if not _name.startswith("_") and callable(getattr(int, _name)) and _name != "conjugate":
        setattr(SymbolicInt, _name, _method_of_int(_name))


class _Native:
    """A method that runs as it is where bytecode is interpreted, as one of int does: only Python functions are interpreted."""

    def __init__(self, function: Callable):
        self.function = function

    def __get__(self, owner: Any, cls: type) -> Any:
        return self if owner is None else MethodType(self.function, owner)


for _name, _method in list(vars(SymbolicInt).items()):
    if isinstance(_method, FunctionType) and _name not in ("__init__", "__getattr__"):
        setattr(SymbolicInt, _name, _Native(_method))
