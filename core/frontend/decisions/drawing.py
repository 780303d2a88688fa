"""The part of an exploration that draws random numbers between two segments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dovetail.devices import device
from dovetail.frontend.decisions.driver import GoEager
from dovetail.frontend.decisions.outcome import Outcome
from dovetail.frontend.decisions.requests import FEW, Request
from dovetail.frontend.decisions.sized import SizedRequester
from dovetail.frontend.recording.tracked_environment import DRAWN, tensor_of


class DrawingRequester(SizedRequester):
    """Answers requests with random numbers, and records their generators."""

    def draw(self, call: Callable[[], Any], kind: str, what: str, mark: Any, generator: Any) -> Any:
        if generator is not None:
            self.graph.generators.note_host(generator)

        def step() -> tuple[Outcome, tuple]:
            if kind not in DRAWN and kind != "array":
                return Outcome.of_value(call()), ()
            return Outcome.of_results(tensor_of(call()) if kind == "array" else torch.tensor(call(), dtype=DRAWN[kind]), {})

        outcome, arriving = self.decide(Request(f"the result of {what}", mark, [], step, FEW if kind == "unique" else None))
        if kind not in DRAWN and kind != "array":
            return outcome.value
        (spec,) = outcome.specs()
        number = self.trace.tensor(spec)
        arriving[number] = len(arriving)
        return number if kind == "array" else number.item()

    def note_draw(self, devices: Sequence[Any]) -> None:
        if (why := self.graph.generators.note_devices([device(str(each or torch.get_default_device())) for each in devices])) is not None:
            raise GoEager(f"{why}, which a call that starts again would repeat")

    def note_any_draw(self) -> None:
        self.graph.generators.note_all()
