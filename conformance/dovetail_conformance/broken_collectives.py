"""Executors with one deliberate fault in a collective each; the suite is tested with them, as with those of `broken.py`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, distributed

from dovetail.extend import OperatorExecutor, get_grad, put_grad
from dovetail.extend.advanced import Symbol, executors
from dovetail.prims import collectives
from dovetail_conformance.subject import is_referee

Run = Callable[..., Tensor]


def right(symbol: Symbol) -> Run:
    """Return the function by which the first executor of last resort runs an operation."""
    return next(each.fn for ex in executors() if is_referee(ex) and (each := ex.implementation(symbol)) is not None)


def completed(symbol: Symbol) -> Run:
    """Return a function that runs a collective and waits for it, so that its result can be changed."""
    start, wait = right(symbol), right(collectives.wait)
    return lambda x, **keywords: wait(start(x, **keywords))


def around(symbol: Symbol, wrong: Callable[[Run, Tensor, dict[str, Any]], Any], **how: Any) -> OperatorExecutor:
    """Return an executor that runs one collective as `wrong` does with the right function."""
    ex, run = OperatorExecutor("broken"), completed(symbol)
    ex.implements(symbol, lambda x, **keywords: wrong(run, x, keywords), name=symbol.name, **how)
    return ex


def last() -> bool:
    return distributed.get_rank() == distributed.get_world_size() - 1


def sound() -> OperatorExecutor:
    """Run `all_reduce` correctly."""
    return around(collectives.all_reduce, lambda run, x, keywords: run(x, **keywords))


def always_sums() -> OperatorExecutor:
    """Ignore the reduction operation."""
    return around(collectives.all_reduce, lambda run, x, keywords: run(x, **{**keywords, "op": "sum"}))


def wrong_on_the_last_rank() -> OperatorExecutor:
    """Return something else on one rank."""
    return around(collectives.all_gather, lambda run, x, keywords: run(x, **keywords) + last())


def another_order() -> OperatorExecutor:
    """Concatenate the parts in reverse."""
    return around(collectives.all_gather, lambda run, x, keywords: run(x.flip(0), **keywords).flip(0))


def equal_parts() -> OperatorExecutor:
    """Exchange the same number of rows with every rank, whatever the splits."""

    def exchange(run: Run, x: Tensor, keywords: dict[str, Any]) -> Tensor:
        n, rows = keywords["ranks"], sum(keywords["outputs"])
        even = (x.shape[0] // n,) * n
        return run(x[: sum(even)], **{**keywords, "outputs": even, "inputs": even})[:rows] if x.shape[0] % n == 0 else x.new_zeros(rows, *x.shape[1:])

    return around(collectives.all_to_all, exchange)


def writes_its_operand() -> OperatorExecutor:
    """Reduce in place."""

    def reduce(run: Run, x: Tensor, keywords: dict[str, Any]) -> Tensor:
        return x.copy_(run(x, **keywords)).clone()

    return around(collectives.all_reduce, reduce)


def one_buffer() -> OperatorExecutor:
    """Return the same memory in every call."""
    buffers: dict[Any, Tensor] = {}

    def reduce(run: Run, x: Tensor, keywords: dict[str, Any]) -> Tensor:
        out = run(x, **keywords)
        return buffers.setdefault((x.shape, x.dtype), torch.empty_like(out)).copy_(out)

    return around(collectives.all_reduce, reduce)


def own_gradient() -> OperatorExecutor:
    """Differentiate as if there were one rank."""

    def rule(x: Any, *, op: str, group: str, ranks: int) -> Any:
        out = collectives.all_reduce(x, op=op, group=group, ranks=ranks)
        put_grad(x, get_grad(out))
        return out

    return around(collectives.all_reduce, lambda run, x, keywords: run(x, **keywords), grad=rule)


def raises_on_the_last_rank() -> OperatorExecutor:
    """Raise an error on one rank, for which the others would wait."""

    def reduce(run: Run, x: Tensor, keywords: dict[str, Any]) -> Tensor:
        if last():
            raise RuntimeError("no memory is left")
        return run(x, **keywords)

    return around(collectives.all_reduce, reduce)


def ends_the_last_rank() -> OperatorExecutor:
    """End the process of one rank."""
    return around(collectives.all_reduce, lambda run, x, keywords: os._exit(3) if last() else run(x, **keywords))


FAULTS: dict[Callable[[], OperatorExecutor], tuple[str, str, str]] = {  # a maker: (check, state, pattern of the message)
    always_sums: ("reference", "fail", r"'op': 'avg'.*result 0 is not that of the reference"),
    wrong_on_the_last_rank: ("reference", "fail", r"on rank 1 of 2, result 0 is not that of the reference"),
    another_order: ("reference", "fail", r"on rank 0 of 2, result 0"),
    equal_parts: ("reference", "fail", r"'inputs': \(0, 1\).*result 0"),
    writes_its_operand: ("inputs", "fail", r"it wrote into operand 0"),
    one_buffer: ("repeat", "fail", r"a second call changed the result of the first"),
    own_gradient: ("backward", "fail", r"gradient 0 is not that of the reference"),
    raises_on_the_last_rank: ("reference", "error", r"on rank 1 of 2, RuntimeError: no memory is left"),
    ends_the_last_rank: ("reference", "crash", r"on rank 1 of 2, the process ended"),
}
