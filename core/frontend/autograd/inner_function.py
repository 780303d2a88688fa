"""A function inside a traced program, recorded by itself: what the transforms of functions rewrite before it becomes a part of the program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.errors import Unsupported
from dovetail.frontend import trees
from dovetail.prims import Tag, TensorSpec, recorder
from dovetail.trace import (
    BoundSymbol,
    NumberProxy,
    Proxy,
    TensorProxy,
    Trace,
    functionalize,
    is_proxy,
    prims_of,
    recording,
    requires_grad,
    substitute,
    tree_map,
    user_line,
)
from dovetail.trace.aliases import root_of, view_bases

_inside: ContextVar[bool] = ContextVar("inside", default=False)  # whether the program being recorded is that of such a function


def is_inside() -> bool:
    """Return whether the program that is recorded now is that of an inner function, which a transform will rewrite."""
    return _inside.get()


@dataclass(eq=False)
class InnerFunction:
    """A recorded function.

    Attributes:
        trace: its program: `inputs` stand for some of its arguments, `outputs` are the leaves of its result.
        tree: the structure of its result.
    """

    trace: Trace
    tree: trees.Tree


class RecordsLater:
    """A base of what records lines of an inner function when it is called, as a pullback does."""

    def facts(self) -> Any:
        """Return all that the lines to come depend on, in plain containers with the values of the outer program that they read."""
        raise NotImplementedError


def facts_of(lines: Iterable[BoundSymbol], env: dict[Proxy, Any], own: Iterable[Proxy], *ends: Any) -> list[Any]:
    """Return lines and further nests with what `env` has for their values; the inner function's `own` are numbered."""
    numbers = {p: n for n, p in enumerate(own)}

    def fact(x: Any) -> Any:
        if is_proxy(x):
            return ("own", numbers[x]) if x in numbers else env.get(x, x)
        return repr(x) if isinstance(x, (DType, Device)) else x

    return [[line.symbol, *[tree_map(fact, part) for part in (line.args, line.kwargs, line.out)]] for line in lines] + [
        tree_map(fact, end) for end in ends
    ]


def record(fn: Callable, specs: Sequence[TensorSpec], arguments: Callable[[list[Proxy]], tuple], kwargs: dict[str, Any]) -> InnerFunction:
    """Record fn(*arguments(inputs), **kwargs), with a new traced tensor for each of `specs` among the arguments."""
    outer: Trace = recorder.get()
    inner = outer.derive("tracing", language=outer.language, environment=outer.environment, constants=outer.constants, inputs=[], depth=outer.depth)
    inner.inputs = [inner.tensor(spec) for spec in specs]
    token = _inside.set(True)
    try:
        with recording(inner):
            result = inner.environment.run(fn, arguments(list(inner.inputs)), kwargs)
            flat, tree = trees.flatten(result)
            inner.outputs = tuple(flat)
    finally:
        _inside.reset(token)
    return InnerFunction(inner, tree)


def pure(inner: Trace) -> tuple[Trace, list[BoundSymbol]]:
    """Return a recorded program without writes, and the lines that write what its inputs hold afterwards into them."""
    refuse_outside_writes(inner)
    recorded = set(_written(inner.lines))
    program, epilogue = functionalize(inner)
    program.lines = program.lines + [line for line in epilogue.lines if not line.mutates]
    program.outputs = epilogue.outputs
    for line in program.lines:
        if recorded.isdisjoint(line.writes):  # made by functionalize, which leaves out whether a gradient flows
            flag(line, True, set())
    return program, [line for line in epilogue.lines if line.mutates]


def _written(lines: Iterable[BoundSymbol]) -> Iterator[Proxy]:
    """Yield the results of lines and of the lines in their bodies."""
    for line in lines:
        yield from line.writes
        yield from _written(line.body)


def refuse_outside_writes(inner: Trace) -> None:
    """Refuse a write to a tensor from outside of the function: the transform would lose it, and eager PyTorch refuses it."""
    if not any([line.mutates for line in inner.lines]):
        return
    lines = list(prims_of(inner.lines))
    own, bases = {*inner.inputs, *(p for line in lines for p in line.writes)}, view_bases(lines)
    for line in lines:
        if Tag.MEMORY in line.symbol.tags and (root := root_of(line.args[0], bases)) not in own:
            raise Unsupported(
                f'a function that is transformed inside a compiled one writes into a tensor from outside of it, {root.name}: "{root.spec}"; '
                f"return the new value instead, or pass the tensor as an argument\n  called at {line.where or user_line()}"
            )


def copied(line: BoundSymbol, env: dict[Proxy, Any], into: Trace) -> BoundSymbol:
    """Return `line` reading env[x] where it read x, with new results, which are added to `env`."""
    body = tuple([copied(inner, env, into) for inner in line.body])
    for p in line.writes:
        if p not in env:
            env[p] = into.tensor(p.spec) if isinstance(p, TensorProxy) else NumberProxy(f"n{next(into.names)}", p.spec)

    reads = [p for p in substitute(line.reads, env) if is_proxy(p)]
    args, kwargs, out = substitute((line.args, line.kwargs, line.out), env)
    return line.replace(args=args, kwargs=kwargs, out=out, reads=reads, body=body)


def flag(line: BoundSymbol, enabled: bool, constant: set[Proxy]) -> None:
    """Give the results of `line` the requires_grad that recording it here would have set."""
    for inner in line.body:
        flag(inner, enabled, constant)
    if line.body and line.symbol.vjp_rule is None:
        return
    flows = enabled and Tag.NO_GRAD not in line.symbol.tags and any(map(requires_grad, line.reads))
    for p in line.writes:
        if isinstance(p, TensorProxy) and p.spec.requires_grad != (wanted := flows and p.spec.dtype.inexact and p not in constant):
            p.spec = p.spec.like(requires_grad=wanted)
