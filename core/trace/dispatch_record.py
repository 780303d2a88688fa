"""What dispatch decided about a program: which executors each line was offered to, what they answered, and what runs in its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from dovetail.trace.ir import BoundSymbol
    from dovetail.trace.proxies import Proxy


class Named(Protocol):
    """An executor, as far as programs know it."""

    name: str


class Offer(NamedTuple):
    """One line that was offered to one executor; the verdict is True, a Claim, or a refusal: a sentence that says why not."""

    line: BoundSymbol
    executor: str
    verdict: Any

    @property
    def claimed(self) -> bool:
        """Whether the executor claimed the line."""
        return not isinstance(self.verdict, str)


@dataclass
class Decision:
    """What became of one line.

    Attributes:
        line: the line that was offered.
        depth: how many lines it is a part of; those stand before it.
        where: the user's line of code.
        order: the executors in the order in which they are tried.
        offers: the executors that were tried, with their verdicts.
        runs: the lines that run in its place; none where its decomposition was offered instead.
    """

    line: BoundSymbol
    depth: int
    where: str | None
    order: Sequence[Named]
    offers: list[Offer] = field(default_factory=list)
    runs: list[BoundSymbol] = field(default_factory=list)


@dataclass
class Spent:
    """How many lines one executor was offered, and the seconds of its checkers, then of its transforms and fusion."""

    offers: int = 0
    claims: int = 0
    claiming: float = 0.0
    compiling: float = 0.0


@dataclass
class DispatchRecord:
    """Every decision of one dispatch.

    Attributes:
        executors: those in the order, by priority.
        left_out: who was requested and is not there, and why, as sentences.
        decisions: one for each line that was offered, in program order.
        spent: by the executor's name.
        replaced: results that an execution transform computes, by the results of the line that it stands for.
    """

    executors: Sequence[Named]
    left_out: tuple[str, ...] = ()
    decisions: list[Decision] = field(default_factory=list)
    spent: dict[str, Spent] = field(default_factory=dict)
    replaced: dict[Proxy, Proxy] = field(default_factory=dict)

    @property
    def offers(self) -> list[Offer]:
        """Every offer in program order; lines that are plain Python are not offered."""
        return [offer for decision in self.decisions if decision.line.symbol.python_rule is None for offer in decision.offers]
