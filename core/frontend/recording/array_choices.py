"""What becomes of the arrays of a function of tensors: inputs, or constants whose content is guarded; works where NumPy is not installed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dovetail.errors import TracedValueError
from dovetail.frontend.interpreter.engine import Abandon
from dovetail.trace import Proxy, Trace

LARGEST_CONTENT = 1 << 16  # bytes of arrays that may be guarded by their content


class ArrayNeeded(Abandon):
    """An array from outside meets traced values: the call has to be traced again, with that array as an input."""

    def __init__(self, array: Any):
        super().__init__("an array from outside is an input")
        self.array = array


@dataclass
class ArrayChoices:
    """What earlier attempts to trace a call learned of its arrays.

    Attributes:
        restarts: whether the call may be traced again.
        inputs: arrays that meet traced values, by their ids.
        by_value: arrays whose values Python needs, by their ids; their content is guarded.
        created: whether np.zeros, np.ones, np.empty or np.full ran while tracing.
        creates: whether those are traced, since the program writes traced values into what they return.
        gave_up: whether tracing with inputs failed, so that all arrays are guarded by their content.
        guards_contents: whether arrays may be guarded by their content, where Python needs their values.
    """

    restarts: bool = False
    inputs: dict[int, Any] = field(default_factory=dict)
    by_value: dict[int, Any] = field(default_factory=dict)
    created: bool = False
    creates: bool = False
    gave_up: bool = False
    guards_contents: bool = True

    def may_be_input(self, array: Any) -> bool:
        """Return whether an array can become an input."""
        return self.restarts and id(array) not in self.by_value

    def create(self, arrays: Mapping[Proxy, Any] | None) -> bool:
        """Return whether another attempt may go better, with new arrays traced; `arrays` is None where the program uses none."""
        if not self.restarts or self.creates or not self.created or arrays is None:
            return False
        self.creates = True
        return True

    def give_up(self) -> bool:
        """Return whether another attempt may go better, with the arrays that were inputs guarded by their content."""
        if not self.inputs or self.gave_up:
            return False
        self.gave_up = True
        self.by_value |= self.inputs
        self.inputs, self.creates = {}, False
        return True

    def learn(self, error: TracedValueError, trace: Trace, arrays: Mapping[Proxy, Any] | None) -> bool:
        """Return whether another attempt may need no value of the proxy that `error` names; `arrays` is None where the program uses none."""
        if not self.restarts or arrays is None:
            return False
        if self.create(arrays):
            return True
        needed = arrays_behind(error.proxy, trace, arrays)
        if not self.guards_contents or sum([array.nbytes for array in needed]) > LARGEST_CONTENT:
            return False
        self.by_value |= {id(array): array for array in needed}
        for array in needed:
            self.inputs.pop(id(array), None)
        return bool(needed)


def arrays_behind(proxy: Proxy | None, trace: Trace, arrays: Mapping[Proxy, Any]) -> list[Any]:
    """Return the input arrays that the value of `proxy` is computed from; in doubt, one array more."""
    needed = {proxy}
    for line in reversed(trace.lines):
        if line.mutates or not needed.isdisjoint(line.writes):
            needed.update(line.reads)
    return [array for input_proxy, array in arrays.items() if input_proxy in needed]
