"""A limit of regions, as optimization fuel: a fusion executor that fuses so many regions and no more, to find the one that goes wrong."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.errors import ExecutorError
from dovetail.executors.contract.executor import FusionExecutor, Verdict
from dovetail.executors.dispatching.dispatch import dispatch
from dovetail.executors.ordering.resolve_order import resolve_executors
from dovetail.trace import BoundSymbol, Trace, to_callable


class RegionLimit(FusionExecutor):
    """`RegionLimit(ex, 3)` is `ex` for its first three regions; later ones are the same regions, run line by line by executors of last resort.

    So a program is cut up the same way whatever the number, and the least number with which it goes wrong names the region:
    `RegionLimit(ex, n).regions[-1]`.
    """

    def __init__(self, ex: FusionExecutor, limit: int):
        if not isinstance(ex, FusionExecutor) or type(limit) is not int or limit < 0:
            raise ExecutorError(
                f"RegionLimit takes a FusionExecutor, as get_executor(name) returns it, and a number of regions; got {ex!r} and {limit!r}"
            )
        super().__init__(ex.name, version=ex.version, last_resort=ex.last_resort)
        self.executor, self.limit, self.distribution = ex, limit, ex.distribution
        self.regions: list[Trace] = []  # those that `ex` fused

    def available(self) -> Verdict:
        """Delegate to `ex`."""
        return self.executor.available()

    def verdict(self, line: BoundSymbol) -> Verdict:
        """Delegate to `ex`."""
        return self.executor.verdict(line)

    def claims_whole(self, line: BoundSymbol) -> Verdict:
        """Delegate to `ex`."""
        return self.executor.claims_whole(line)

    def declaration(self) -> dict:
        """Return the declaration of `ex`."""
        return self.executor.declaration()

    def worth(self, region: Trace) -> Verdict:
        """Delegate to `ex`."""
        return self.executor.worth(region)

    def fuse(self, region: Trace) -> Callable[..., tuple]:
        """Fuse the region by `ex` up to the limit; afterwards its lines run one by one."""
        if len(self.regions) >= self.limit:
            return to_callable(dispatch(region, resolve_executors([])))
        self.regions.append(region)
        return self.executor.fuse(region)
