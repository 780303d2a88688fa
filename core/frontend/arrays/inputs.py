"""Arrays from outside as inputs of a trace: tensors that share their memory stand for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import Unsupported
from dovetail.frontend.arrays.conversion import BESIDE_DECISIONS, ArrayInput, needs_copy
from dovetail.frontend.arrays.floating_errors import guard_errors
from dovetail.frontend.class_lookup import address_of
from dovetail.frontend.guards.tensor_checks import tensor_facts
from dovetail.langs.torch import spec_of
from dovetail.prims import Tag
from dovetail.trace import Proxy, prims_of

if TYPE_CHECKING:
    from dovetail.frontend.guards.source import Source
    from dovetail.frontend.interpreter.tracking.tracker import Tracker
    from dovetail.frontend.recording.torch_recorder import TorchRecorder


class ArrayInputs:
    """The arrays that are inputs of a recorder's trace."""

    def __init__(self, recorder: TorchRecorder):
        self.recorder = recorder
        self.arrays: dict[Proxy, np.ndarray] = {}
        self.conversions: dict[Proxy, ArrayInput] = {}

    def reach(self, tracker: Tracker, array: np.ndarray, source: Source) -> Proxy:
        """Return the input that stands for an array that was read at `source`."""
        recorder = self.recorder
        proxy = recorder.inputs.get(id(array))
        if proxy is not None:
            if (known := tracker.source(proxy)) is not source:
                tracker.guard("same", source, known)
            return proxy
        guard_errors(tracker)
        conversion = ArrayInput(copied=needs_copy(array)) if recorder.environment.session is None else BESIDE_DECISIONS
        shared = conversion.convert(array)
        proxy = recorder.inputs[id(array)] = recorder.trace.tensor(spec_of(shared))
        recorder.trace.inputs.append(proxy)
        self.arrays[proxy], self.conversions[proxy] = array, conversion
        at = tracker.sources.make("array", source, conversion)
        recorder.sources.append((at, proxy))
        recorder.environment.tensors.append(shared)
        tracker.guard("tensor", at, tensor_facts(shared, proxy.spec.strides))
        tracker.known[address_of(proxy)] = proxy, source
        return proxy

    def check_written(self, written: list[Proxy]) -> None:
        """Decide which arrays have to be the very memory that the program uses, and refuse what cannot be."""
        trace = self.recorder.trace
        roots: dict[Any, Proxy] = dict(zip(trace.inputs, trace.inputs, strict=True))
        for line in prims_of(trace.lines):
            if Tag.VIEW in line.symbol.tags and line.reads and line.reads[0] in roots:
                roots |= dict.fromkeys(line.writes, roots[line.reads[0]])
        changed, viewed = set(written), {roots[p] for p in self.recorder.results if p in roots}
        for proxy in (changed | viewed) & self.arrays.keys():
            array, conversion = self.arrays[proxy], self.conversions[proxy]
            conversion.exclusive = True
            if proxy in changed and not array.flags.writeable:
                raise ValueError(f"assignment destination is read-only: the function writes into an array of {array.shape} that may not be written")
            if conversion.copied or not array.flags.writeable:
                why = "has a layout that tensors lack (a negative stride, or misaligned memory)" if conversion.copied else "is read-only"
                what = "writes into" if proxy in changed else "returns a view of"
                raise Unsupported(f"the function {what} an array of shape {array.shape} that {why}; pass a copy of it")
