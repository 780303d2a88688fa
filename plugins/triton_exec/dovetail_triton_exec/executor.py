"""The executor: regions of lines that it has kernels for become generated Triton."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dovetail.extend import BoundSymbol, Executor, FusionExecutor, Trace, Verdict, options_of
from dovetail_triton_exec import __version__, availability
from dovetail_triton_exec.claims import STORED, verdict
from dovetail_triton_exec.entropy import operations_executor
from dovetail_triton_exec.regions import Cache


class TritonExecutor(FusionExecutor):
    """Runs elementwise operations, reductions, gathers and what lies between them as generated Triton kernels."""

    def __init__(self, devices: Iterable[str] | None = None) -> None:
        kinds = list(devices or availability.devices())
        super().__init__("triton", version=__version__, dtypes=list(STORED), devices=kinds, available=availability.available)
        self.options = {"tune": False, "folder": ""}  # time tiles on the GPU; where generated files lie
        self.cache = Cache()

    def can_fuse(self, line: BoundSymbol) -> Verdict:
        """Whether there is a kernel for a prim."""
        return verdict(line)

    def fuse(self, region: Trace) -> Callable[..., tuple]:
        """The region as a function; regions of equal structure share one.  Triton is imported when it is first called."""
        return self.cache.get(region, **options_of(self))


def triton_executors() -> list[Executor]:
    """Whole operations, which are asked first, and the executor of regions, called "triton"."""
    return [operations_executor(), TritonExecutor()]
