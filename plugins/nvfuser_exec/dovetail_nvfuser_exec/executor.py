"""The executor: regions of lines that nvFuser supports become definitions, which it compiles at their first run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dovetail.extend import BoundSymbol, FusionExecutor, Trace, Verdict, options_of
from dovetail.extend.advanced import Executor
from dovetail_nvfuser_exec import __version__, availability
from dovetail_nvfuser_exec.attention import attention_executor
from dovetail_nvfuser_exec.claims import verdict
from dovetail_nvfuser_exec.definitions import Definitions
from dovetail_nvfuser_exec.program import computing
from dovetail_nvfuser_exec.translators import DTYPES

OPTIONS = {
    "least": 2,  # least number of operations that compute, for a region to become a definition
    "matmul": False,
    "linear": False,
    "sdpa": False,
    "embedding": False,
    "indexing": False,
    "in_place": False,
    "enable": "",  # nvFuser's own switches, as in NVFUSER_ENABLE and NVFUSER_DISABLE, with commas between
    "disable": "",
}


class NvfuserExecutor(FusionExecutor):
    """Run elementwise operations, reductions, scans and data movement between them on CUDA devices with nvFuser.

    `options` are defaults, which configuration overrides.
    """

    def __init__(self, devices: Iterable[str] = ("cuda",), **options: Any) -> None:
        declared = {"dtypes": list(DTYPES), "devices": list(devices), "available": availability.available}
        super().__init__("nvfuser", version=__version__, last_resort=True, **declared)
        # behind the reference: nvFuser exists for a few pairs of Python and torch, so it runs only where the user names it
        self.after = ("torch", "inductor")
        self.options = OPTIONS | options
        self.definitions = Definitions()

    def can_fuse(self, line: BoundSymbol) -> Verdict:
        """Return whether nvFuser has an operation for a prim."""
        return verdict(line, options_of(self))

    def worth(self, region: Trace) -> Verdict:
        """Return whether a region computes enough; one that only moves elements is faster as views and copies."""
        least = options_of(self)["least"]
        return computing(region) >= least or f"expected a region of at least {least} operations that compute, by the option `least`"

    def fuse(self, region: Trace) -> Callable[..., tuple]:
        """Compile the region; regions of equal structure share one definition.  nvFuser is imported here at the latest."""
        options = options_of(self)
        switches = {name: [each.strip() for each in options[name].split(",") if each.strip()] for name in ("enable", "disable")}
        return self.definitions.region(availability.module(), region, **switches)


def nvfuser_executors() -> list[Executor]:
    """Return the executor of whole attention, which comes first, and the executor of regions, called "nvfuser"."""
    regions = NvfuserExecutor()
    return [attention_executor(regions), regions]
