"""The executors that take programs whose sizes are known only when they run."""

from __future__ import annotations

from dovetail.executors.contract.executor import Executor
from dovetail.executors.ordering.resolve_order import Priority
from dovetail.prims import Symbol


class SymbolicOrder(Priority):
    """The executors of a priority that declare `symbolic`, in its order."""

    _whole: Priority

    def __new__(cls, whole: Priority) -> SymbolicOrder:
        """Return the order without the executors that take only sizes that are ints; notes say which those are."""
        order = super().__new__(cls, [ex for ex in whole if ex.symbolic])
        order._whole, order.key, order.provenance, order.sources = whole, whole.key, whole.provenance, whole.sources
        left_out = [f"{ex.name} is not used: it takes no program with symbolic sizes" for ex in whole if not ex.symbolic]
        order.notes = (*whole.notes, *left_out)
        return order

    def for_symbol(self, symbol: Symbol) -> tuple[Executor, ...]:
        """Return the order for one operation."""
        return tuple([ex for ex in self._whole.for_symbol(symbol) if ex.symbolic])
