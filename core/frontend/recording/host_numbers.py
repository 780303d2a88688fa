"""Numbers that a program computes, in Python's arithmetic and in text: lines of the program, so that nothing depends on their values."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dovetail import prims
from dovetail.prims import recorder
from dovetail.prims.arithmetic_table import ARITHMETIC, COMPARISONS
from dovetail.trace import NumberProxy

_REAL = frozenset({"bool", "int", "float"})
_TYPES = {"bool": bool, "int": int, "float": float}
_BINARY = frozenset({"add", "sub", "mul", "truediv", "floordiv", "mod"})
DIVISIONS = frozenset({"truediv", "floordiv", "mod"})
_UNARY = frozenset({"neg", "pos", "abs"})
_ROUNDINGS = frozenset({"round", "trunc", "floor", "ceil"})  # of floats they raise for NaN and infinities
FUNCTIONS = {getattr(math, op.removeprefix("math.")): op for op in ARITHMETIC if op.startswith("math.")}  # of Python's module -> operation
CONVERSIONS: dict[str, Callable] = {"__bool__": bool, "__int__": int, "__float__": float, "__index__": operator.index, "__complex__": complex}
ROUNDINGS = ("__round__", "__trunc__", "__floor__", "__ceil__")
VALUE = "value"  # the question for the number itself
_LARGEST = 64  # exponent of a power that is computed when the program runs


def is_number(value: Any) -> bool:
    """Return whether a value is a number that the program computes, and no complex one."""
    return type(value) is NumberProxy and value.spec.kind in _REAL


def is_text(value: Any) -> bool:
    """Return whether a value is text that the program writes numbers into."""
    return type(value) is NumberProxy and value.spec.kind == "str"


Known = Mapping[Any, Any]  # numbers of the program whose values it has used already
Raising = Callable[..., NumberProxy] | None  # records arithmetic that may raise; None where its result has to be known


def computed(number: NumberProxy, question: str, others: tuple, *, known: Known, raising: Raising) -> Any:
    """Return `number.question(*others)` as a number of the program; None where that takes its value."""
    op, operands = _read(question, number, others)
    operands = tuple([known.get(x, x) if type(x) is NumberProxy else x for x in operands])
    if not any([type(x) is NumberProxy for x in operands]):
        return None
    if op == "pow" and raising is not None and len(operands) == 2 and are_real(operands) and "float" in map(_kind, operands):
        return raising(*operands, op="power") if _is_real_power(*operands) else None
    if is_text(number):
        joins = op == "add" and all([type(x) is str or is_text(x) for x in operands])
        return prims.join_text(*operands) if joins else None
    if op is None or not are_real(operands):
        return None
    record = _recording(op, operands, raising)
    return None if record is None else record(*operands, op=op)


def _read(question: str, number: NumberProxy, others: tuple) -> tuple[str | None, tuple]:
    """Return the operation that a method stands for, and its operands in order."""
    name = question.strip("_")
    if not others:
        rounds = name in _ROUNDINGS and number.spec.kind == "float"
        return (f"{name}ed" if rounds and name == "round" else name if rounds or name in _UNARY else None), (number,)
    if name == "round":
        return name, (number, *others)
    for prefix, operands in (("", (number, *others)), ("i", (number, *others)), ("r", (*others, number))):
        op = name.removeprefix(prefix)
        if name.startswith(prefix) and (op in _BINARY or op == "pow"):
            return op, operands
    return None, ()


def are_real(operands: Iterable[Any]) -> bool:
    """Return whether all values are real numbers, known or computed by the program."""
    return all([type(x) in (bool, int, float) or is_number(x) for x in operands])


def _is_real_power(base: Any, exponent: Any) -> bool:
    """Return whether a power is real; where that depends on the sign of a base that the program computes, that is a decision."""
    if type(exponent) is not NumberProxy and float(exponent).is_integer():
        return True
    return bool(base >= 0)


def applied(function: Callable, numbers: Sequence[Any], *, known: Known, raising: Raising) -> Any:
    """Return what `divmod`, `min`, `max` or a function of the module `math` gives, as numbers of the program; None where that takes values."""
    numbers = [known.get(x, x) if type(x) is NumberProxy else x for x in numbers]
    if recorder.get().depth or not are_real(numbers) or not any([type(x) is NumberProxy for x in numbers]):
        return None
    if function in (min, max):  # the kind of the result must not depend on values
        return prims.arithmetic(*numbers, op=function.__name__) if _kind(numbers[0]) == _kind(numbers[1]) else None
    if function is divmod:
        record = _recording("mod", numbers, raising) if len(numbers) == 2 else None
        return None if record is None else (record(*numbers, op="floordiv"), record(*numbers, op="mod"))
    if ARITHMETIC[FUNCTIONS[function]][0].count("{}") != len(numbers):
        return None
    return None if raising is None else raising(*numbers, op=FUNCTIONS[function])


def _recording(op: str, operands: Sequence[Any], raising: Raising) -> Raising:
    """Return what records an operation; None where the type of its result is unknown."""
    last = operands[-1]
    if len(operands) == 1 and op not in _UNARY:
        return raising
    if op in DIVISIONS:
        return raising if is_number(last) else prims.arithmetic if last != 0 else None
    if op == "pow":
        return raising if len(operands) == 2 and type(last) is int and 0 <= last <= _LARGEST else None
    return prims.arithmetic if op != "round" or (type(last) is int and _kind(operands[0]) == "float") else None


def _kind(x: Any) -> str:
    return x.spec.kind if type(x) is NumberProxy else type(x).__name__


def converted(number: NumberProxy, kind: type, *, known: Known, raising: Raising) -> NumberProxy | None:
    """Return int(number) or float(number) as a number of the program; None where that takes its value."""
    if recorder.get().depth or number in known or not is_number(number):
        return None
    if _TYPES[number.spec.kind] is kind:
        return number
    record = raising if kind is int and number.spec.kind == "float" else prims.arithmetic
    return None if record is None else record(number, op=kind.__name__)


def formatted(number: NumberProxy, form: str, *, known: Known) -> NumberProxy | None:
    """Return format(number, form) as text of the program; None where that takes its value.  Raises ValueError for a form that does not fit."""
    if recorder.get().depth or number in known or not is_number(number) or form.endswith("c"):
        return None
    format(_TYPES[number.spec.kind](1), form)
    return prims.format_number(number, form=form)


def joined(parts: list[Any]) -> Any:
    """Return pieces of text as one."""
    return prims.join_text(*parts) if any(map(is_text, parts)) else "".join(parts)


def meaning(question: str, value: Any, others: tuple) -> Any:
    """Return what a method such as `__add__` returns for the number `value`."""
    if question == VALUE:
        return value
    if question in CONVERSIONS:
        return CONVERSIONS[question](value)
    if question in ROUNDINGS or not others:
        return getattr(value, question)(*others)
    name = question.strip("_")
    if (plain := _operator(name)) is not None:
        return plain(value, *others)
    return _operator(name[1:])(*((others[0], value) if name[0] == "r" else (value, *others)))  # `__rsub__`, and `__isub__` of what does not change


def as_function(question: str, others: tuple) -> tuple[Callable, str]:
    """Return the function that the method `question` of a number is, of it and `others`, and how that is written, with {} for each."""
    name = question.strip("_")
    if name in COMPARISONS:
        return getattr(operator, name), f"{{}} {COMPARISONS[name]} {{}}"
    form = "{}" if question == VALUE else f"{{}}.{question}({', '.join(['{}'] * len(others))})"
    return lambda x, *operands: meaning(question, x, operands), form


def _operator(name: str) -> Callable | None:
    return getattr(operator, name, None) or getattr(operator, f"{name}_", None)
