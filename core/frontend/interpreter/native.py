"""Single opcodes left to CPython, and calls from code with the user's globals, for C code that reads them."""

from __future__ import annotations

import dis
from functools import cache
from types import CodeType, FunctionType
from typing import Any

Instructions = tuple[tuple[str, int], ...]


def native(body: Instructions, operands: int, globals: dict[str, Any], names: tuple[str, ...] = ()) -> FunctionType:
    """Return a function of one to three arguments that puts them on the stack, runs these instructions natively, and returns the top."""
    return FunctionType(_code(body, operands, names), globals)


@cache
def _code(body: Instructions, operands: int, names: tuple[str, ...]) -> CodeType:
    template = (_one_operand, _two_operands, _three_operands)[operands - 1]
    lines = (("RESUME", 0), *(("LOAD_FAST", i) for i in range(operands)), *body, ("RETURN_VALUE", 0))
    code = b"".join([bytes((dis.opmap[name], arg)) for name, arg in lines])
    return template.__code__.replace(co_code=code, co_names=names, co_stacksize=4, co_linetable=b"", co_exceptiontable=b"")


def _one_operand(x: Any) -> Any:
    return x


def _two_operands(x: Any, y: Any) -> Any:
    return x, y


def _three_operands(x: Any, y: Any, z: Any) -> Any:
    return x, y, z


def call_in(globals: dict[str, Any], function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Return function(*args, **kwargs), where C code that reads the caller's globals, as `type` does, gets these."""
    return FunctionType(_call.__code__, globals)(function, args, kwargs)


def _call(function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return function(*args, **kwargs) if kwargs else function(*args)  # some C code refuses keyword arguments, also an empty dict of them
