"""The executor: regions of lines that it has kernels for become generated Triton."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

from dovetail.extend import BoundSymbol, FusionExecutor, Trace, Verdict, options_of
from dovetail.extend.advanced import CannotFuse, Executor, ExecutorWarning, KernelCache, prims_of, region_key
from dovetail_triton_exec import __version__, availability
from dovetail_triton_exec.claims import STORED, verdict
from dovetail_triton_exec.entropy import operations_executor
from dovetail_triton_exec.graph import VIEWS
from dovetail_triton_exec.regions import Region, compiled
from dovetail_triton_exec.replay import entry
from dovetail_triton_exec.verifier import Broken

MOST = 1024  # functions of regions that are kept for regions to come


class TritonExecutor(FusionExecutor):
    """Runs elementwise operations, reductions, gathers and what lies between them as generated Triton kernels."""

    def __init__(self, devices: Iterable[str] | None = None) -> None:
        kinds = list(devices or availability.devices())
        super().__init__("triton", version=__version__, dtypes=list(STORED), devices=kinds, available=availability.available)
        self.options = {"tune": False, "folder": "", "cuda_graphs": False}  # time tiles on the GPU; where files lie; whole programs as one launch
        self.kernels = KernelCache[Region](MOST)

    def can_fuse(self, line: BoundSymbol) -> Verdict:
        """Return whether there is a kernel for a prim."""
        return verdict(line)

    def worth(self, region: Trace) -> Verdict:
        """Return whether a region computes anything: views alone are no kernel, and others make them for less."""
        if all(line.symbol.name in VIEWS for line in prims_of(region.lines)):
            return "leaves views that no kernel of its own reads to executors that make them one by one"
        return True

    def fuse(self, region: Trace) -> Callable[..., tuple]:
        """Return the region as a function; regions of equal structure share one.  Triton is imported when it is first called.

        A region whose plan the verifier refuses is refused with a warning: that is a bug, and other executors run it.
        """
        options = options_of(self)
        try:
            return self.kernels.get((region_key(region), options["tune"], options["folder"]), lambda: _configured(region, options))
        except Broken as broken:
            warnings.warn(
                f"the triton executor does not compile {region.name}, which other executors run: {broken}; please report this, with the program",
                ExecutorWarning,
                stacklevel=2,
            )
            raise CannotFuse(f"has no right plan for the region: {broken}") from broken

    def fast_call(self, prologue: Trace, computation: Trace | None, slow: Callable[[tuple, dict], Any]) -> Callable[[tuple, dict], Any] | None:
        """Return the same guards before a CUDA graph, where the option asks for one and the program can be one."""
        return entry(prologue, computation) if options_of(self)["cuda_graphs"] else None


def _configured(region: Trace, options: dict[str, Any]) -> Region:
    """Return the function of a region, under the options of the executor."""
    kernel = compiled(region)
    kernel.tune, kernel.folder = options["tune"], options["folder"]
    return kernel


def triton_executors() -> list[Executor]:
    """Return the executor of whole operations, which comes first, and the executor of regions, called "triton"."""
    return [operations_executor(), TritonExecutor()]
