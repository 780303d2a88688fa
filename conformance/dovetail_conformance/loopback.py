"""An executor that runs everything as the executors of last resort do: a check that it does not pass is a fault of the suite."""

from __future__ import annotations

import re
from dataclasses import replace

from dovetail.extend import OperatorExecutor
from dovetail.extend.advanced import Implementation, Symbol, executors
from dovetail_conformance.subject import is_referee


class Loopback(OperatorExecutor):
    """Runs each operation with the function of the first executor of last resort that has one."""

    def __init__(self, name: str = "loopback"):
        super().__init__(name)
        self.behind = [ex for ex in executors() if is_referee(ex)]
        self.implements_family(lambda symbol: None)
        for ex in self.behind:
            for symbol, implementation in ex.table.items():
                self.table.setdefault(symbol, self._own(symbol, implementation))

    def implementation(self, symbol: Symbol) -> Implementation | None:
        """Return the implementation of `symbol` by the executors behind."""
        implementation = next((implementation for ex in self.behind if (implementation := ex.implementation(symbol)) is not None), None)
        return None if implementation is None else self._own(symbol, implementation)

    def _own(self, symbol: Symbol, implementation: Implementation) -> Implementation:
        """Rename an implementation after the whole operation: `prims.take` and `torch.take` may stand in one program."""
        return replace(implementation, executor=self.name, name=re.sub(r"\W", "_", symbol.id), path=None)


def loopback() -> Loopback:
    """Return the executor for `check("dovetail_conformance.loopback:loopback")`."""
    return Loopback()
