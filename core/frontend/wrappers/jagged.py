"""Nested tensors of the jagged layout: how they are created, and the symbol that their ragged size is."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
from torch.fx.operator_schemas import get_signature_for_torch_op

from dovetail.errors import Unsupported
from dovetail.frontend.class_lookup import NULL
from dovetail.frontend.subclasses import is_jagged
from dovetail.torch_internals import NESTED_TENSORS, aten, make_jagged
from dovetail.trace import Proxy, is_proxy, user_line

if TYPE_CHECKING:
    from dovetail.frontend.guards.source import Source
    from dovetail.frontend.interpreter.tracking.tracker import Tracker

_METADATA = frozenset({"_size", "_strides"})  # consist of symbols, and of sizes of what is held


class RaggedSizes:
    """The symbols of one run: two nested tensors have equal ragged sizes where they share their offsets."""

    def __init__(self, recorder: Any, created: dict[int, torch.Tensor]):
        self.recorder, self.created = recorder, created
        self.of_offsets: dict[Proxy, Any] = {}
        self.kept: list[torch.Tensor] = []
        self.sources: dict[int, Source] = {}  # id of offsets from outside, or of lengths: where they are read first

    def reach(self, tracker: Tracker, wrapper: Any, source: Source) -> None:
        """Guard which offsets, and lengths, a nested tensor from outside shares with others: its sizes are equal to those of these."""
        for name in ("_values", "_offsets", "_lengths"):
            tracker.load_attr(wrapper, name)
        for name in ("_offsets", "_lengths"):
            tensor, place = getattr(wrapper, name), tracker.sources.field(source, name)
            if tensor is None or id(tensor) in self.sources:
                continue
            for other in self.sources.values():
                tracker.guard("notsame", place, other)
            self.sources[id(tensor)] = place

    def symbol(self, offsets: Any) -> Any:
        """Return the symbol that stands for offsets, traced or real."""
        of_tensor = sys.modules[NESTED_TENSORS].get_tensor_symint
        if not is_proxy(offsets):
            return of_tensor(offsets)
        if (real := self.recorder.real.get(offsets)) is not None:
            return of_tensor(real)
        if offsets not in self.of_offsets:
            self.kept.append(torch.empty(0))
            self.of_offsets[offsets] = of_tensor(self.kept[-1])
        return self.of_offsets[offsets]

    def create(self, tracker: Tracker, values: Any, offsets: Any, *, lengths: Any = None, **options: Any) -> torch.Tensor:
        """Return NestedTensor(values, offsets, ...), as its constructor does."""
        symbol, ragged = self.symbol(offsets if lengths is None else lengths), options.get("_ragged_idx", 1)
        shape, strides = [int(n) for n in values.shape], [int(n) for n in values.stride()]
        r = ragged - 1
        size = (int(offsets.shape[0]) - 1, *shape[:r], symbol, *shape[r + 1 :])
        new: Any = make_jagged(sys.modules[NESTED_TENSORS].NestedTensor, values, size, (symbol * strides[r], *strides))
        cache = options.get("_metadata_cache")
        new.__dict__.update(
            _ragged_idx=ragged,
            _size=size,
            _strides=(symbol * strides[r], *strides),
            _values=values,
            _offsets=offsets,
            _lengths=lengths,
            _metadata_cache={} if cache is None else dict(tracker.pairs(cache)),
        )
        self.created[id(new)] = new
        return new

    def call(self, tracker: Tracker, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call what torch implements nested tensors with, where it is not interpreted; NULL for anything else."""
        module = sys.modules.get(NESTED_TENSORS)
        if module is None:
            return NULL
        if function is module.get_tensor_symint:
            return self.symbol(args[0])
        if function is module.NestedTensor:
            return self.create(tracker, *args, **kwargs)
        if function is get_signature_for_torch_op:
            return function(*args, **kwargs)  # of an operator, which never changes; torch keeps it in a dict that the program need not guard
        return NULL

    def dispatched(self, tracker: Tracker, func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Return x.to(...), for which torch notes that two real tensors of offsets have one symbol; NULL for another operation."""
        if func is not aten("_to_copy.default") or not is_jagged(args[0]):
            return NULL
        x, device = args[0], kwargs.get("device")
        if device is not None and torch.device(device) != x.device:
            raise Unsupported(f"a nested tensor is copied to another device, which is not traced; do it outside\n  called at {user_line()}")
        held = {name: tracker.load_attr(x, f"_{name}") for name in ("values", "offsets", "lengths", "metadata_cache", "ragged_idx")}
        values = tracker.call(func, [held["values"]], {name: value for name, value in kwargs.items() if name != "layout"}, None)
        options = {"_metadata_cache": held["metadata_cache"], "_ragged_idx": held["ragged_idx"]}
        return self.create(tracker, values, held["offsets"], lengths=held["lengths"], **options)


def has_symbols(values: Any) -> bool:
    """Return whether symbols of ragged sizes are among operands."""
    return any([type(x) is torch.SymInt for x in values])


def metadata(owner: torch.Tensor, name: str) -> Any:
    """Return what a nested tensor says of its sizes; NULL for another attribute."""
    return owner.__dict__[name] if name in _METADATA else NULL


def untraced_size() -> Unsupported:
    """Return the error for a ragged size that leaves the program."""
    return Unsupported(
        f"the ragged size of a nested tensor is returned, or stored, which is not traced; return x.offsets()\n  called at {user_line()}"
    )
