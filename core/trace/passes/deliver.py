"""Hand gradients over while the backward still runs: it becomes a generator that yields those of a stage once all of them are computed.

>>> def computation(t0, t3):
...     t4 = prims.sin(t3)
...     t5 = prims.cos(t0)
...     t6 = prims.mul(t4, t5)
...     return [t6, t4]

becomes, where the gradients of a stage hold a byte at least,

>>> def computation(t0, t3):
...     t4 = prims.sin(t3)
...     yield [None, t4]
...     t5 = prims.cos(t0)
...     t6 = prims.mul(t4, t5)
...     return [t6, None]

What is returned is the last stage.  A result that is no gradient of its own, since it is another's too, is returned.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from dovetail.prims import Symbol, Tag
from dovetail.prims.op import register
from dovetail.trace.ir import BoundSymbol
from dovetail.trace.passes.split import BackwardTrace, bytes_of
from dovetail.trace.proxies import Proxy


def _deliver(gradients: Any) -> None:
    """Hand over `gradients`, one or None for each input; only in a backward that runs."""


DELIVER = register(Symbol("prims", "deliver", _deliver, tags={Tag.HOST, Tag.NO_GRAD}))


@DELIVER.python
def _deliver_python(target: str, gradients: str) -> str:
    return f"yield {gradients}"


def deliver(backward: BackwardTrace, stage_bytes: int | None = 1) -> BackwardTrace:
    """Return a backward that yields gradients in stages of at least `stage_bytes`; the backward itself where that is None or there is one stage."""
    if stage_bytes is None:
        return backward
    new = backward.derive("deliver")
    counts = Counter([p for p in backward.outputs if p is not None])
    place = {p: i for i, p in enumerate(backward.outputs) if p is not None and counts[p] == 1}
    computed = {p for line in backward.lines for p in line.writes}
    left, stage = {p for p in place if p in computed}, list[Proxy]()
    outputs = list(backward.outputs)
    for line in backward.lines:
        new.lines.append(line)
        ready = [p for p in line.writes if p in left]
        left.difference_update(ready)
        stage += ready
        if left and stage and sum(map(bytes_of, stage)) >= stage_bytes:
            gradients: list[Any] = [None] * len(outputs)
            for p in stage:
                gradients[place[p]], outputs[place[p]] = p, None
            new.lines.append(BoundSymbol(DELIVER, (gradients,), {}, None, list(stage)))
            stage = []
    return replace(new, outputs=outputs) if len(new.lines) > len(backward.lines) else backward


def stages(backward: BackwardTrace) -> list[list[int]]:
    """Return for each stage but the last the numbers of the inputs whose gradients it hands over."""
    return [[i for i, p in enumerate(line.args[0]) if p is not None] for line in backward.lines if line.symbol is DELIVER]
