"""Memory formats that are told by strides of sizes of 1, of which a spec and a real tensor may say different things.

PyTorch takes a batch of images for channels last or not by the strides of all its dimensions, and lays results out accordingly. Specs normalize those
of sizes of 1: `[4, 1, 1, 1]` and `[4, 1, 4, 4]` are one spec of the shape `[2, 4, 1, 1]`, and only the second is channels last to PyTorch. So where
such a stride decides on the layout of a result, the operation gets views of its inputs whose strides say what the spec says. PyTorch runs
convolutions and poolings of sequences as those of images of one row, so the same holds for these.
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
from dovetail.prims.spec import channels_last_steps, is_channels_last, look_alike_steps, normal_strides, row_major

RANKS = (4, 5)  # of images and volumes
SEQUENTIAL = ("conv", "conv_transpose", "avg_pool", "max_pool", "adaptive_avg_pool", "adaptive_max_pool")
SEQUENCES = tuple(f"torch.nn.functional.{name}1d" for name in SEQUENTIAL)
UNAFFECTED = {Tag.ELEMENTWISE, Tag.VIEW, Tag.CREATION}  # their results follow the strides of sizes above 1
NAME = re.compile(r"restrided((?:_(?:n?\d+|n?k))+)_([^\W\d].*)")


class Restrided:
    """The variants of an executor's implementations that get restrided inputs, by what programs print for them."""

    def __init__(self) -> None:
        self._variants: dict[str, Implementation] = {}

    def chosen(self, implementation: Implementation, line: BoundSymbol, printed: str) -> Implementation:
        """Return the variant where a stride of a dimension of size 1 may decide on the layout of a result, else the implementation.

        Programs print the implementation as `printed`, and the variant with the places of its inputs in front.
        """
        at = undecided(line)
        if not at:
            return implementation
        name = "_".join(["restrided", *at, printed])
        if name not in self._variants:
            self._variants[name] = replace(implementation, name=name, fn=restrided(implementation.fn, at), path=None)
        return self._variants[name]


def variant_called(name: str) -> tuple[str, tuple[str, ...]] | None:
    """Return what programs print for the implementation of which `name` is the variant, and the places of its inputs; None where there is none."""
    match = NAME.fullmatch(name)
    return None if match is None else (match[2], tuple(match[1].split("_")[1:]))


def symbol_printed(name: str) -> Symbol | None:
    """Return the operation that programs print as `name`; None where there is none."""
    return next((s for s in SYMBOLS.values() if printed_name(s) == name), None)


def printed_name(symbol: Symbol) -> str:
    """Return the name of an operation as an identifier."""
    return re.sub(r"\W", "_", symbol.id)


def undecided(line: BoundSymbol) -> tuple[str, ...]:
    """Return the places of the arguments with strides of sizes of 1 that may decide on the layout of a result.

    A place is a position, or k for all keywords, with an n before it where the argument looks like channels last, and is not by its spec.
    """
    if line.mutates or not (line.symbol.id in SEQUENCES or any(map(_is_undecided, line.reads))):
        return ()
    results = [p.spec for p in line.writes if type(p.spec) is TensorSpec]
    if line.symbol.id in SEQUENCES:
        decisive = any([x.rank > 1 and x.shape[-2] != 1 and x.shape[-1] != 1 for x in results])
        return tuple([str(i) for i, x in enumerate(line.args) if isinstance(x, Proxy) and 1 in x.spec.shape]) if decisive else ()
    if not any([x.rank in RANKS and x.shape[1] != 1 and any([n != 1 for n in x.shape[2:]]) for x in results]):
        return ()
    if all([UNAFFECTED & set(part.symbol.tags) for part in prims_of([line])]):
        return ()
    places = [("k", line.kwargs), *[(str(i), x) for i, x in enumerate(line.args)]]
    at = [(place, list(filter(_is_undecided, _tensors(x)))) for place, x in places]
    return tuple([f"n{place}" if any(map(_is_look_alike, tensors)) else place for place, tensors in at if tensors])


def _tensors(nest: Any) -> list[Proxy]:
    return [x for x in leaves(nest) if isinstance(x, Proxy)]


def _is_undecided(x: Proxy) -> bool:
    """Return whether PyTorch takes a tensor for channels last or not, depending on its strides of sizes of 1."""
    spec = x.spec
    if type(spec) is not TensorSpec or spec.rank not in RANKS or 1 not in spec.shape:
        return False
    return spec.shape[1] == 1 or channels_last_steps(spec.shape, spec.steps) is not None


def _is_look_alike(x: Proxy) -> bool:
    """Return whether the sizes above 1 of a tensor put its channels innermost, and those of 1 say that it is not channels last."""
    return x.spec.strides is not None and x.spec.shape[1] != 1 and not is_channels_last(x.spec)


def restrided(fn: Callable[..., Any], at: Sequence[str]) -> Callable[..., Any]:
    """Return `fn` for arguments, at these places, with any strides of sizes of 1."""
    positions = [(int(place.removeprefix("n")), place[0] == "n") for place in at if place[-1] != "k"]
    keywords = next((place for place in at if place[-1] == "k"), None)

    def run(*args: Any, **kwargs: Any) -> Any:
        new = list(args)
        for i, look_alike in positions:
            new[i] = decided(new[i], look_alike)
        if keywords is not None:
            kwargs = {name: decided(x, keywords == "nk") for name, x in kwargs.items()}
        return fn(*new, **kwargs)

    return run


def decided(x: Any, look_alike: bool) -> Any:
    """Return a view of a tensor, or of each in a sequence, with strides that say to PyTorch what its spec says."""
    if not isinstance(x, Tensor):
        return type(x)([decided(each, look_alike) for each in x]) if isinstance(x, (tuple, list)) else x
    shape, steps = x.shape, x.stride()
    wanted = _wanted(shape, steps, look_alike)
    return x if wanted == steps else torch.as_strided(x, shape, wanted)


@lru_cache(4096)
def _wanted(shape: tuple[int, ...], steps: tuple[int, ...], look_alike: bool) -> tuple[int, ...]:
    """Return the strides that decide on the memory format as `is_channels_last` does of the spec."""
    if normal_strides(shape, steps) is None:
        return row_major(shape)
    if len(shape) not in RANKS:
        return steps
    if shape[1] == 1:  # its one channel lies behind everything else
        return (steps[0], max([n * step for n, step in zip(shape[2:], steps[2:], strict=True)]), *steps[2:])
    last = channels_last_steps(shape, steps)
    return steps if last is None else look_alike_steps(shape, steps) if look_alike else last
