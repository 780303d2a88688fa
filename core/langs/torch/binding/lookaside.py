"""Lookasides: replace traced calls of a function by another operation."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from dovetail.errors import DovetailError, require_function
from dovetail.langs.torch.binding.names import name_of
from dovetail.langs.torch.binding.symbol import LANGUAGE, TABLE, resolve
from dovetail.prims import Symbol, recorder
from dovetail.prims.op import no_recorder, register

_BEFORE: dict[Any, Any] = {}  # the registry: function -> its code, or what the table had for it

_MARK = "lookaside target"


def lookaside(function: Callable, operation: Symbol | Callable | None) -> None:
    """Replace traced calls of `function` by `operation`, called with the same arguments; None removes the replacement.

    `function` is a Python function of any module, or a function of torch.  Calls outside of tracing are not affected.  Raises
    DovetailError for other callables.
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
            f"calls of {function!r} cannot be replaced: it is neither a Python function nor one of torch's; call the operation instead"
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
    """Return code for `function` that calls `operation` while this thread traces, else a copy of the current function.

    Other modules hold the function object, so its code is replaced.  The new code must have as many free variables as the old.
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
    """Define an operation by its decomposition: `make_symbol("mylib.swish", program=lambda x: x * torch.sigmoid(x))`.

    `program` is a Python function of traced tensors.  Its calls are the decomposition: what runs where no executor claims the operation, and
    what is differentiated where it has no grad rule.  Raises DovetailError for a malformed id, and for one in use unless `replace`.
    """
    module, dot, name = id.rpartition(".")
    if not dot or not id.replace(".", "_").isidentifier():
        raise DovetailError(f'expected a symbol id "module.name", got {id!r}')
    require_function(f"program= of {id}", program)
    return register(Symbol(module, name, program, language=LANGUAGE, id=id), replace=replace)
