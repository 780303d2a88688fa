"""Memory formats that are told by strides of sizes of 1 which specs do not hold.

PyTorch takes a batch of images for channels last or not by the strides of all its dimensions, and lays results out accordingly. Specs hold those of
sizes of 1 where the others put channels innermost, but not of images of a single channel and of row-major ones: `[4, 1, 1, 1]` and `[4, 1, 4, 4]` are
one spec of the shape `[2, 4, 1, 1]`, and only the second is channels last to PyTorch. So where such a stride decides on the layout of a result, the
operation gets views of its inputs whose strides say what the spec says. PyTorch runs convolutions and poolings of sequences as those of images of
one row, so the same holds for these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from dovetail.extend import BoundSymbol, Tag, TensorSpec
from dovetail.extend.advanced import Implementation, Proxy, Symbol, leaves, prims_of
from dovetail.prims import SYMBOLS
from dovetail.prims.spec import normal_strides, row_major

RANKS = (4, 5)  # of images and volumes
SEQUENTIAL = ("conv", "conv_transpose", "avg_pool", "max_pool", "adaptive_avg_pool", "adaptive_max_pool")
SEQUENCES = tuple(f"torch.nn.functional.{name}1d" for name in SEQUENTIAL)
UNAFFECTED = {Tag.ELEMENTWISE, Tag.VIEW, Tag.CREATION}  # their results follow the strides of sizes above 1
NAME = re.compile(r"restrided(k?)((?:_\d+)*)_(\D.*)")


class Restrided:
    """The variants of an executor's implementations that get restrided inputs, by what programs print for them."""

    def __init__(self) -> None:
        self._variants: dict[str, Implementation] = {}

    def chosen(self, implementation: Implementation, line: BoundSymbol) -> Implementation:
        """Return the variant where a stride of a dimension of size 1 may decide on the layout of a result, else the implementation."""
        at = undecided(line)
        if not at:
            return implementation
        name = name_of(line.symbol, at)
        if name not in self._variants:
            self._variants[name] = replace(implementation, name=name, fn=restrided(implementation.fn, at), path=None)
        return self._variants[name]


def name_of(symbol: Symbol, at: Sequence[int]) -> str:
    """Return what programs print for the variant of an operation that restrides arguments at these positions; -1 stands for keywords."""
    return "_".join(["restridedk" if -1 in at else "restrided", *(str(i) for i in at if i >= 0), symbol.id.replace(".", "_")])


def variant_called(name: str) -> tuple[Symbol, tuple[int, ...]] | None:
    """Return the operation whose variant programs print as `name`, and the positions of the arguments; None where there is none."""
    match = NAME.fullmatch(name)
    symbol = next((s for s in SYMBOLS.values() if s.id.replace(".", "_") == match[3]), None) if match else None
    if match is None or symbol is None:
        return None
    return symbol, (*((-1,) if match[1] else ()), *map(int, match[2].split("_")[1:]))


def undecided(line: BoundSymbol) -> tuple[int, ...]:
    """Return the positions of the arguments whose strides of sizes of 1 may decide on the layout of a result; -1 for keywords."""
    if line.mutates or not (line.symbol.id in SEQUENCES or any(map(_is_undecided, line.reads))):
        return ()
    results = [p.spec for p in line.writes if type(p.spec) is TensorSpec]
    if line.symbol.id in SEQUENCES:
        decisive = any([x.rank > 1 and x.shape[-2] != 1 and x.shape[-1] != 1 for x in results])
        return tuple([i for i, x in enumerate(line.args) if isinstance(x, Proxy) and 1 in x.spec.shape]) if decisive else ()
    if not any([x.rank in RANKS and x.shape[1] != 1 and any([n != 1 for n in x.shape[2:]]) for x in results]):
        return ()
    if all([UNAFFECTED & set(part.symbol.tags) for part in prims_of([line])]):
        return ()
    at = [i for i, x in enumerate(line.args) if any(map(_is_undecided, _tensors(x)))]
    return (*((-1,) if any(map(_is_undecided, _tensors(line.kwargs))) else ()), *at)


def _tensors(nest: Any) -> list[Proxy]:
    return [x for x in leaves(nest) if isinstance(x, Proxy)]


def _is_undecided(x: Proxy) -> bool:
    """Return whether PyTorch may take a tensor for channels last that is not so by its spec: one of a single channel, or row-major."""
    spec = x.spec
    return type(spec) is TensorSpec and spec.rank in RANKS and 1 in spec.shape and (spec.shape[1] == 1 or spec.strides is None)


def restrided(fn: Callable[..., Any], at: Sequence[int]) -> Callable[..., Any]:
    """Return `fn` for arguments, at these positions, whose strides of sizes of 1 are anything."""
    positions = [i for i in at if i >= 0]

    def run(*args: Any, **kwargs: Any) -> Any:
        new = list(args)
        for i in positions:
            new[i] = decided(new[i])
        return fn(*new, **({name: decided(x) for name, x in kwargs.items()} if -1 in at else kwargs))

    return run


def decided(x: Any) -> Any:
    """Return a view of a tensor, or of each in a sequence, with strides that say to PyTorch what its spec says."""
    if not isinstance(x, Tensor):
        return type(x)(map(decided, x)) if isinstance(x, (tuple, list)) else x
    shape, steps = x.shape, x.stride()
    wanted = _wanted(shape, steps)
    return x if wanted == steps else torch.as_strided(x, shape, wanted)


@lru_cache(4096)
def _wanted(shape: tuple[int, ...], steps: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides that decide on the memory format as `is_channels_last` does."""
    strides = normal_strides(shape, steps)
    if strides is None:
        return row_major(shape)
    if len(shape) not in RANKS or shape[1] != 1:
        return steps
    # The one channel lies behind everything else.
    return (steps[0], max([n * step for n, step in zip(shape[2:], steps[2:], strict=True)]), *steps[2:])
