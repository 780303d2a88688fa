"""The check that searches for the worst input: the one with the largest error relative to the allowed one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor

from dovetail_conformance.accuracy import excess
from dovetail_conformance.axes.values import bounds, filled
from dovetail_conformance.case import Case
from dovetail_conformance.cell import Cell, Outcome
from dovetail_conformance.opinfo import OpInfo
from dovetail_conformance.program import fresh, inexact

MANY, BEST, SECONDS, ROUNDS = 2048, 64, 1.5, 60  # elements in a round, elements kept; budget of a search


def search(cell: Cell) -> Outcome | None:
    """The worst input that a search finds within its budget is no worse than allowed."""
    usable = [case for case in cell.claimed if case.ran.error is None and case.reference is not None and case.expected.error is None]
    case = next((case for case in usable if _is_alike(case)), None) or next((case for case in usable if _inputs(case)), None)
    if case is None or cell.info.random or not cell.dtype.inexact or cell.dtype.storage_only or cell.dtype.kind == "complex":
        return None
    hunt = Search(case, cell.info, cell.seed)
    return cell.each(lambda case: hunt.elements() if case.pointwise and _is_alike(case) else hunt.tensors(), "search", [case])


def _inputs(case: Case) -> bool:
    return any(inexact(x) and x.numel() > 1 for x in case.program.inputs)


def _is_alike(case: Case) -> bool:
    """Return whether its inputs are floats of one shape, so that each element is a call of its own."""
    inputs = case.program.inputs
    return bool(inputs) and all(inexact(x) and not x.is_complex() and x.shape == inputs[0].shape and x.ndim == 1 for x in inputs) and case.pointwise


@dataclass
class Search:
    """A search for the worst input of one program; the seed decides its course."""

    case: Case
    info: OpInfo
    seed: int

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(4000 + self.seed)
        self.function = self.case.compiled()

    def elements(self) -> str | None:
        """Search among elements, thousands at once: keep the worst, and vary them."""
        limits = [bounds(x, self.info.domain) for x in self.case.program.inputs]
        like = [x.new_ones(MANY) * x.flatten()[0] for x in self.case.program.inputs]
        candidates = (
            [self._drawn(x, values) for x, values in zip(like, ("wide", "moderate"))] if len(like) == 2 else [self._drawn(x, "wide") for x in like]
        )
        for _ in self._rounds():
            worst = self._excess(candidates)
            if worst is None or worst.numel() != MANY:
                return None
            if float(worst.max()) > 1 and (problem := self._confirmed(candidates, worst)) is not None:
                return problem
            kept = worst.flatten().topk(BEST).indices
            candidates = [self._near(x[kept], low, high) for x, (low, high) in zip(candidates, limits)]
        return None

    def tensors(self) -> str | None:
        """Search among whole inputs: vary a part of the worst so far."""
        best, most = fresh(self.case.program.inputs), -1.0
        for turn in self._rounds():
            candidate = best if turn == 0 else [self._changed(x) for x in best]
            worst = self._excess(candidate)
            if worst is None:
                continue
            if float(worst.max()) > 1 and (problem := self._wrong(candidate)) is not None:
                return f"{problem}; seed {self.seed}, round {turn}"
            if float(worst.max()) > most:
                best, most = candidate, float(worst.max())
        return None

    def _rounds(self) -> Iterator[int]:
        late = perf_counter() + SECONDS
        return (turn for turn in range(ROUNDS) if perf_counter() < late)

    def _drawn(self, x: Tensor, values: str) -> Tensor:
        drawn = filled(x, values, self.info, (), self.generator)
        return x if drawn is None else drawn

    def _near(self, x: Tensor, low: float, high: float) -> Tensor:
        """Return elements near these: the same, a few units away, a factor away, with the other sign."""
        wide = x.to(torch.float64).repeat(MANY // BEST)
        noise = torch.randn(MANY, generator=self.generator, dtype=torch.float64)
        kind = torch.randint(4, (MANY,), generator=self.generator)
        moved = [wide * (1 + 4 * torch.finfo(x.dtype).eps * noise), wide * (1 + 0.1 * noise), wide * 2.0 ** (3 * noise), -wide]
        nearby = torch.stack(moved).gather(0, kind[None])[0]
        nearby[:BEST] = x.to(torch.float64)
        return nearby.clamp(low, high).to(x.dtype)

    def _changed(self, x: Tensor) -> Tensor:
        if not inexact(x) or x.numel() < 2:
            return fresh([x])[0]
        low, high = bounds(x, self.info.domain)
        wide = x.detach().to(torch.float64).clone(memory_format=torch.contiguous_format)
        flat = wide.view(-1)
        part = torch.rand(len(flat), generator=self.generator) < 0.3
        factor = 2.0 ** (2 * torch.randn(len(flat), generator=self.generator, dtype=torch.float64))
        flat[part] = (flat * factor)[part]
        return wide.clamp(low, high).to(x.dtype)

    def _excess(self, inputs: Sequence[Tensor]) -> Tensor | None:
        """Return the error of each element of the result, relative to the error allowed for fixed inputs."""
        case = self.case
        ran, eager = case.call(self.function, fresh(inputs)), case.eager(fresh(inputs))
        if ran.error is not None or eager.error is not None:
            return None
        return excess(ran.result, case.truth((eager.result, []), inputs))

    def _wrong(self, inputs: Sequence[Tensor]) -> str | None:
        case = self.case
        ran, eager = case.call(self.function, fresh(inputs)), case.eager(fresh(inputs))
        return case.wrong_for(ran.result, eager, list(inputs)) if ran.error is None and eager.error is None else None

    def _confirmed(self, inputs: Sequence[Tensor], worst: Tensor) -> str | None:
        """Describe the worst element, alone where it is wrong alone."""
        if (problem := self._wrong(inputs)) is None:
            return None
        at = int(worst.argmax())
        alone = [x[at : at + 1].clone() for x in inputs]
        values = ", ".join(f"{x.item():.17g}" for x in alone)
        confirmed = self._wrong(alone)
        return f"found by search with seed {self.seed}, at {values}: {confirmed or problem}"
