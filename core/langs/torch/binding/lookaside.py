"""A traced call of one function becomes another operation: a lookaside."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from dovetail.errors import DovetailError
from dovetail.langs.torch.binding.names import name_of
from dovetail.langs.torch.binding.symbol import LANGUAGE, TABLE, resolve
from dovetail.prims import Symbol, recorder
from dovetail.prims.op import no_recorder, register

_BEFORE: dict[Any, Any] = {}  # the registry: function -> its code, or what the table had for it

_MARK = "where the call goes"


def lookaside(function: Callable, operation: Symbol | Callable | None) -> None:
    """While a program is traced, a call of `function` becomes a call of `operation` with the same arguments; None takes that back.

    `function` is a Python function, whoever wrote it and however it was imported, or a function of torch.  Called while nothing is traced it
    does what it always did.
    """
    _restore(function)
    if operation is None:
        return
    if function in TABLE or (not isinstance(function, FunctionType) and resolve(name_of(function)) is function):
        _BEFORE[function], TABLE[function] = TABLE.get(function), operation
    elif isinstance(function, FunctionType):
        _BEFORE[function] = function.__code__
        function.__code__ = _detour(function, operation)
    else:
        raise DovetailError(
            f"calls of {function!r} cannot be seen: it is neither a Python function nor one of torch's; call the operation in its place"
        )


def _restore(function: Any) -> None:
    if function not in _BEFORE:
        return
    before = _BEFORE.pop(function)
    if isinstance(before, CodeType):
        function.__code__ = before
    elif before is None:
        TABLE.pop(function, None)
    else:
        TABLE[function] = before


def _detour(function: FunctionType, operation: Callable) -> CodeType:
    """Code for `function` that calls `operation` while this thread traces, else a copy of the function as it is now.

    Other modules hold the function object, so the object has to stay.  Code that is put into a function has as many free variables as its
    old code.
    """
    old = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    old.__kwdefaults__ = function.__kwdefaults__

    def target(*args: Any, **kwargs: Any) -> Any:
        return (old if recorder.get() is no_recorder else operation)(*args, **kwargs)

    free = [f"free_{i}" for i in range(len(function.__code__.co_freevars))]
    rows = [f"def outer({', '.join(free)}):", "    def inner(*args, **kwargs):", f"        if 0: [{', '.join(free)}]"]
    rows += [f"        target = {_MARK!r}", "        return target(*args, **kwargs)"]
    code = compile("\n".join(rows), function.__code__.co_filename, "exec")
    for _ in ("outer", "inner"):
        (code,) = [value for value in code.co_consts if isinstance(value, CodeType)]
    consts = tuple([target if value == _MARK else value for value in code.co_consts])
    return code.replace(co_consts=consts, co_name=function.__name__, co_firstlineno=function.__code__.co_firstlineno)


def make_symbol(id: str, *, program: Callable, replace: bool = False) -> Symbol:
    """Return an operation of your own that decomposes: `make_symbol("mylib.swish", program=lambda x: x * torch.sigmoid(x))`.

    `program` is Python on traced tensors, as a function under jit is; what it calls are the lines that the operation decomposes to, by which
    it is run where no executor takes it whole, and differentiated where no rule is given for it.
    """
    module, dot, name = id.rpartition(".")
    if not dot or not id.replace(".", "_").isidentifier():
        raise DovetailError(f'a symbol\'s id is "module.name", got {id!r}')
    return register(Symbol(module, name, program, language=LANGUAGE, id=id), replace=replace)
