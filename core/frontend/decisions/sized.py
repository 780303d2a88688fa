"""The part of an exploration that knows which sizes are symbols."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dovetail.frontend.decisions.driver import GoEager
from dovetail.frontend.decisions.graph import Graph
from dovetail.frontend.decisions.late_sizes import ArgumentSizes, LateSizes, Moving, Place, is_of_argument
from dovetail.frontend.decisions.requests import Requester
from dovetail.frontend.recording.torch_recorder import TorchRecorder
from dovetail.prims.sizes import Size


class SizedRequester(Requester):
    """Answers with symbols where sizes differ from call to call.

    Attributes:
        late: the symbols.
        arguments: those of the sizes of arguments; None before these are read.
    """

    graph: Graph
    late: LateSizes
    recorder: TorchRecorder
    arguments: ArgumentSizes | None
    args: tuple
    kwargs: dict[str, Any]

    def read_arguments(self) -> None:
        """Read the arguments that have symbolic sizes, before the first decision: what is read later has sizes that are ints."""
        recorder, tracker = self.recorder, self.environment.tracker
        if (sizes := recorder.sizes) is None:
            return
        for kind, items in (("args", enumerate(self.args)), ("kwargs", self.kwargs.items())):
            for key, x in items:
                source = tracker.sources.item(tracker.sources.arg(kind), key)
                if isinstance(x, torch.Tensor) and id(x) not in recorder.inputs and sizes.is_moving(x, source):
                    recorder.reach(tracker, x, source)
        self.late.of_arguments(sizes)
        self.graph.seen |= sizes.seen
        self.graph.hints = {place: atom.hint for place, atom in sizes.places.items()}
        self.arguments, recorder.sizes, recorder.symbolic_ints = sizes, None, False

    def moving(self, place: Place) -> Moving:
        return self.graph.sizes.of(place)

    def symbols(self, place: Place, values: Sequence[int]) -> list[Size]:
        if values:
            self.trace.relations = self.late.relations
        return [self.late.symbol(place, value) for value in values]

    def without_symbols(self) -> GoEager:
        """Start again with plain ints, which more operations and executors take."""
        self.graph.sizes.active, self.graph.arguments = False, None
        return self.graph.start_over()

    def check_sizes(self) -> None:
        """Start again with plain ints where the program needs sizes as such."""
        if pinned := self.late.pinned():
            for atom, pin in pinned.items():
                place = self.late.places[atom]
                self.graph.sizes.static.add(place)
                if self.graph.arguments is not None and is_of_argument(place):
                    self.graph.pinned.append(self.graph.arguments[0].pin(place, atom, pin))
            raise self.graph.start_over()
