"""Writes windows that are added where they overlap, as the backward of a pooling does, as a sum of padded parts, which a kernel computes on its way.

>>> t9 = prims.fold_add(t8, shape=(4, 33), dim=1, size=3, step=2)

gets a decomposition.  Element i of the result is the `phase` i % 2 of group i // 2: there lies element `phase + 2 * j` of the window j groups before.
So each phase is a sum of elements of the windows, shifted by j, and the phases lie side by side.  Windows that do not overlap lie so as they are; few
windows are shifted and added; and large ones are cut into pieces as long as a step, of which each lies in its own place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from dovetail import prims
from dovetail.dtypes import bfloat16, float16, float32
from dovetail.extend import BoundSymbol, Trace
from dovetail.extend.advanced import prims_of, recording
from dovetail.prims.creation import zero_of
from dovetail.prims.shape import replaced
from dovetail.prims.spec import ceildiv

FEW = 8  # parts to add: of more, PyTorch adds as fast


def add_windows(trace: Trace) -> Trace:
    """Return the trace with a decomposition of each `fold_add` of few windows, or of windows of few pieces."""
    if not any([_is_small(line) for line in prims_of(trace.lines)]):
        return trace
    new = trace.derive("windows")
    new.lines = [_expanded(line, new) for line in trace.lines]
    return new


def _is_small(line: BoundSymbol) -> bool:
    if line.symbol is not prims.fold_add:
        return False
    size, step, count = line.kwargs["size"], line.kwargs["step"], line.args[0].spec.shape[line.kwargs["dim"]]
    pieces = type(size) is int and type(step) is int and 0 < size <= FEW * step
    return pieces or _are_few(count)


def _are_few(count: Any) -> bool:
    """Return whether there is one window or more, and a known number of them to add."""
    return type(count) is int and 0 < count <= FEW


def _expanded(line: BoundSymbol, trace: Trace) -> BoundSymbol:
    """Return a line with such decompositions in its own, or for its own."""
    if line.body:
        body = tuple([_expanded(part, trace) for part in line.body])
        return line.replace(body=body) if any([a is not b for a, b in zip(body, line.body, strict=True)]) else line
    if not _is_small(line):
        return line
    part = trace.derive("windows")
    with recording(part):
        _added(line.args[0], **line.kwargs)
    last = part.lines[-1]
    return line.replace(body=(*part.lines[:-1], last.replace(out=line.out)))


def _added(x: Any, *, shape: tuple[Any, ...], dim: int, size: int, step: int) -> Any:
    """Record fold_add(x) as a sum of padded parts."""
    dtype = x.spec.dtype
    x = prims.convert_element_type(x, dtype=float32 if dtype in (bfloat16, float16) else dtype)  # the sum is rounded once
    whole = _way(x.spec.shape[dim], size, step)(x, shape, dim, size, step)
    return prims.convert_element_type(whole, dtype=dtype)


def _way(count: Any, size: Any, step: Any) -> Callable[..., Any]:
    """Return what records the sum of `count` windows, with fewest parts."""
    known = type(size) is int and type(step) is int
    if known and size <= step:
        return _by_piece
    if _are_few(count) and not (known and ceildiv(size, step) < count):
        return _by_window
    return _by_phase if size <= FEW else _by_piece


def _by_window(x: Any, shape: tuple[Any, ...], dim: int, size: Any, step: Any) -> Any:
    """Record the sum of the windows, each shifted to its place."""
    last = len(shape)
    parts = []
    for i in range(x.spec.shape[dim]):
        window = prims.squeeze(_piece(x, dim, i, i + 1), dims=(dim,))
        window = prims.transpose(window, order=(*range(dim), last - 1, *range(dim, last - 1)))
        parts.append(_padded(window, dim, i * step, shape[dim] - size - i * step))
    return reduce(prims.add, parts)


def _by_phase(x: Any, shape: tuple[Any, ...], dim: int, size: int, step: int) -> Any:
    """Record the sum of each phase, and the phases side by side."""
    count, groups, last = x.spec.shape[dim], ceildiv(shape[dim], step), len(shape)
    phases = []
    for phase in range(step):
        elements = [prims.squeeze(_piece(x, last, k, k + 1), dims=(last,)) for k in range(phase, size, step)]
        phases.append(reduce(prims.add, [_padded(element, dim, j, groups - count - j) for j, element in enumerate(elements)]))
    if step == 1:
        return phases[0]
    side_by_side = prims.cat([prims.reshape(y, shape=(*shape[:dim], groups, 1, *shape[dim + 1 :])) for y in phases], dim=dim + 1)
    whole = prims.reshape(side_by_side, shape=replaced(shape, dim, groups * step))
    return _padded(whole, dim, 0, shape[dim] - groups * step)


def _by_piece(x: Any, shape: tuple[Any, ...], dim: int, size: int, step: int) -> Any:
    """Record the sum of the pieces of windows, each with those in the same place of other windows."""
    count, pieces, last = x.spec.shape[dim], ceildiv(size, step), len(shape)
    if size != pieces * step:
        x = _padded(x, last, 0, pieces * step - size)
    parts = []
    for j in range(pieces):
        piece = _piece(x, last, j * step, (j + 1) * step)
        side_by_side = prims.clone(prims.transpose(piece, order=(*range(dim + 1), last, *range(dim + 1, last))))
        rows = prims.reshape(side_by_side, shape=replaced(shape, dim, count * step))
        parts.append(_padded(rows, dim, j * step, shape[dim] - (count + j) * step))
    return reduce(prims.add, parts)


def _piece(x: Any, dim: int, start: int, stop: int) -> Any:
    """Record x[start:stop], in one dimension."""
    starts, steps = (0,) * x.spec.rank, (1,) * x.spec.rank
    return prims.strided_slice(x, starts=replaced(starts, dim, start), stops=replaced(x.spec.shape, dim, stop), steps=steps)


def _padded(x: Any, dim: int, low: Any, high: Any) -> Any:
    """Record x with zeros before and after it in one dimension."""
    zeros = (0,) * x.spec.rank
    return prims.pad(x, value=zero_of(x.spec.dtype), low=replaced(zeros, dim, low), high=replaced(zeros, dim, high), interior=zeros)
