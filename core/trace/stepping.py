"""Run a program line by line: one that runs a few times is not worth the time that Python takes to compile its text."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from types import NoneType
from typing import Any

from dovetail.trace.ir import BoundSymbol, Trace
from dovetail.trace.printing import literal, to_callable
from dovetail.trace.proxies import Proxy, is_proxy, tree_map

FEW_RUNS = 16  # after so many a program is printed and compiled
WRITTEN_OUT = (bool, NoneType, float, complex)  # values that a `python_rule` looks at
_STATEMENTS: dict[tuple, Callable[..., Any]] = {}  # what lines that differ in names alone have in common, for the whole process


class SteppedProgram:
    """Calls to it return what the function `to_callable(trace)` returns, without an argument.

    Each line is a statement of Python (a `python_rule` of a symbol) that assigns one value or none, and may return something of the class
    `returned`, which ends the program.
    """

    def __init__(self, trace: Trace, returned: type):
        self.trace, self.returned, self.runs = trace, returned, 0
        self.compiled: Callable[[], Any] | None = None
        self.steps = [_step(line, trace) for line in trace.lines]

    def __call__(self) -> Any:
        if self.compiled is not None:
            return self.compiled()
        self.runs += 1
        if self.runs > FEW_RUNS:
            self.compiled = to_callable(self.trace)
        values: dict[Proxy, Any] = {}
        for statement, operands, reads, out in self.steps:
            if reads:
                operands = operands.copy()
                for i in reads:
                    operands[i] = values[operands[i]]
            result = statement(*operands)
            if type(result) is self.returned:
                return result
            if out is not None:
                values[out] = result
        return tuple([values[p] for p in self.trace.outputs])


def run_steps(trace: Trace, steps: Sequence[Callable[[dict[Proxy, Any]], None]], values: Sequence[Any]) -> Any:
    """Return what `trace` computes of `values`, its inputs, by `steps`: one for each line, which puts the line's results into a dict.

    Where a step raises, the local variable `line` tells a traceback which one it was.
    """
    env = trace.constants | dict(zip(trace.inputs, values, strict=True))
    for line, step in zip(trace.lines, steps, strict=True):  # noqa: B007
        step(env)
    return tree_map(lambda leaf: env[leaf] if is_proxy(leaf) else leaf, trace.outputs)


def _step(line: BoundSymbol, trace: Trace) -> tuple[Callable[..., Any], list[Any], tuple[int, ...], Proxy | None]:
    """Return a line as a function, its operands, which of them are values of the program, and the value that it assigns."""
    values = (*line.args, *line.kwargs.values())
    words, operands, reads = [_written_out(x) for x in values], list[Any](), list[int]()
    for x, word in zip(values, words, strict=True):
        if word is not None:
            continue
        if issubclass(type(x), Proxy):  # isinstance would ask the object
            if x in trace.constants:
                x = trace.constants[x]
            else:
                reads.append(len(operands))
        operands.append(x)
    key = (line.symbol, len(line.args), tuple(line.kwargs), tuple(words), line.out is None)
    statement = _STATEMENTS.get(key)
    if statement is None:
        statement = _STATEMENTS[key] = _compiled(line, words)
    return statement, operands, tuple(reads), line.out


def _written_out(x: Any) -> str | None:
    """Return a value as text where the text of a statement depends on it."""
    kind = type(x)
    if kind in WRITTEN_OUT or (kind in (int, str, tuple) and not x):
        return literal(x)
    return x.__name__ if kind is type and getattr(builtins, x.__name__, None) is x else None


def _compiled(line: BoundSymbol, words: list[str | None]) -> Callable[..., Any]:
    """Return the statement of a line as a function of its operands, but for those that are written out as `words`."""
    names = [word or f"x{i}" for i, word in enumerate(words)]
    count = len(line.args)
    target = "" if line.out is None else "value"
    statement = line.symbol.python_rule(target, *names[:count], **dict(zip(line.kwargs, names[count:], strict=True)))
    parameters = [name for name, word in zip(names, words, strict=True) if word is None]
    scope: dict[str, Any] = {}
    exec(f"def {line.symbol.name}({', '.join(parameters)}):\n    {statement}\n    return {target or None}\n", scope)
    return scope[line.symbol.name]
