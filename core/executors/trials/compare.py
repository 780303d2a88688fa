"""Compare the results of one line with the reference's, for trials and for `dovetail.verify`.

Both run a line and the reference on the same inputs, and differ in what stands around it.  `verify` walks a program as it was dispatched,
compares every line whatever it takes, and goes on with what the executor computed, so that it names the first line that is wrong.  A trial
runs inside of the program as it is lowered, within a budget, and goes on with what the reference computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch

from dovetail.executors.dispatching.check_contract import tensors
from dovetail.executors.ordering.resolve_order import Priority
from dovetail.executors.trials.reference import exact, rounded
from dovetail.executors.trials.tolerance import agreement, differs
from dovetail.trace import BoundSymbol, Proxy

SAMPLES = 4  # programs with other rounding that a difference is judged by
FEW = 1 << 16  # elements up to which there are twice as many
SLACK = {torch.float64: 1e-2, torch.complex128: 1e-2}  # of the tolerances, by which one sees what was computed in float32
WROTE = "it wrote into"  # how a sentence about a contract begins, where an executor wrote into its arguments


class Result(NamedTuple):
    """A result of a line: its index among the line's results, its name, what the executor and the reference compute.

    `positions` are the indices in dimension 0 that a sentence gives, where only some rows are compared.
    """

    index: int
    name: str
    got: Any
    expected: Any
    positions: torch.Tensor | None = None

    @property
    def slack(self) -> float:
        """How many times the tolerances it may differ by."""
        return SLACK.get(getattr(self.got, "dtype", None), 1.0)


class LineComparison:
    """How the results of one line differ from the reference's beyond rounding.

    What a line computes in twice the precision is computed for the results that are beyond the tolerances.  Where their errors are larger than the
    reference's own, so is what it computes with other rounding, one sample after another until they explain it: a difference that some samples
    explain, more of them explain as well.

    Attributes:
        ulps: the largest error of the results that agree.
    """

    def __init__(self, line: BoundSymbol, values: dict[Proxy, Any], reference: Priority):
        self.line, self.values, self.reference = line, values, reference
        self.ulps = 0.0
        self._samples: list[list[Any]] = []
        self._doubtful: set[Proxy] = set()

    def difference(self, results: Iterable[Result]) -> str | None:
        """Return how the first result that differs does so; None where all agree."""
        doubtful = [result for result in results if not self._agrees(result)]
        self._doubtful = {self.line.writes[result.index] for result in doubtful}
        for result in doubtful:
            i, name, got, expected, positions = result
            exact_result = self._exact[i] if self._exact else None
            message: str | None = None
            for others in self._growing(result):
                message = differs(got, expected, exact_result, slack=result.slack, rounded=others, positions=positions)
                if message is None:
                    break
            if message is not None:
                return f"{name}: {message}"
        return None

    def _agrees(self, result: Result) -> bool:
        """Return whether a result is within the tolerances."""
        verdict = agreement(result.got, result.expected, slack=result.slack)
        if verdict.difference is None:
            self.ulps = max(self.ulps, verdict.ulps)
        return verdict.difference is None

    @cached_property
    def _exact(self) -> list[Any] | None:
        return exact(self.line, self.values, self.reference, self._doubtful)

    @cached_property
    def _further(self) -> Iterator[list[Any]]:
        size = max([x.numel() for x in self.values.values() if isinstance(x, torch.Tensor)], default=0)
        return rounded(self.line, self.values, self.reference, SAMPLES if size > FEW else 2 * SAMPLES, self._doubtful)

    def _growing(self, result: Result) -> Iterator[list[Any]]:
        """Yield what other rounding makes of a result: what the reference computes, then samples, one more each time."""
        yield [result.expected]
        yield from ([each[result.index] for each in self._samples[:k]] for k in range(1, len(self._samples) + 1))
        for sample in self._further:
            self._samples.append(sample)
            yield [each[result.index] for each in self._samples]
        if not self._samples:
            yield []


def restore_written(breach: str | None, args: Any, kwargs: Any, before: Sequence[torch.Tensor]) -> None:
    """Restore arguments that an executor wrote into, from copies of them."""
    if breach is not None and breach.startswith(WROTE):
        for x, was in zip(tensors((args, kwargs)), before, strict=True):
            x.copy_(was)
