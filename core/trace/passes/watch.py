"""A pass that shows every operation and its values as the program runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dovetail.errors import require_function
from dovetail.trace.ir import BoundSymbol, Trace


def watch(*, before: Callable[..., None] | None = None, after: Callable[..., None] | None = None) -> Callable[[Trace], Trace]:
    """Return a pass for `jit(fn, passes=[watch(...)])`: `before(line, args, kwargs)` and `after(line, args, kwargs, result)` see real values.

    `line` is the bound symbol that runs: `line.symbol`, `line.implementation`, `line.where`.
    """
    for name, function in {"before": before, "after": after}.items():
        if function is not None:
            require_function(f"{name}= of watch", function)

    def watched(trace: Trace) -> Trace:
        new = trace.derive("watch")
        new.lines = [_watched(line, i, before, after) for i, line in enumerate(trace.lines)]
        return new

    return watched


def _watched(line: BoundSymbol, position: int, before: Callable | None, after: Callable | None) -> BoundSymbol:
    if line.implementation is None:
        return line
    fn = line.implementation.fn

    def run(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            _show(before, line, args, kwargs)
        result = fn(*args, **kwargs)
        if after is not None:
            _show(after, line, args, kwargs, result)
        return result

    return line.replace(implementation=replace(line.implementation, name=f"{line.implementation.name}_{position}", fn=run, path=None))


def _show(function: Callable[..., None], *values: Any) -> None:
    """Call the user's function; an error of its own is noted as such, since it arises where an executor runs."""
    try:
        function(*values)
    except Exception as error:
        error.add_note("raised by the function that dovetail.extend.advanced.watch calls, not by the executor of the line")
        raise
