"""The executor: regions of lines that it has code for become kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.extend import BoundSymbol, FusionExecutor, Trace, Verdict
from dovetail_llvm_exec.claims import verdict
from dovetail_llvm_exec.entry import entry
from dovetail_llvm_exec.graph import VIEWS, flat
from dovetail_llvm_exec.kinds import STORED
from dovetail_llvm_exec.regions import Cache

SHOWN = VIEWS | {"detach"}  # operations that compute nothing


class LLVMExecutor(FusionExecutor):
    """Runs elementwise operations, reductions, gathers and what lies between them on the CPU, as kernels made with LLVM."""

    def __init__(self) -> None:
        super().__init__("llvm", version="0.1.0", dtypes=list(STORED), devices=["cpu"])
        self.cache = Cache()

    def can_fuse(self, line: BoundSymbol) -> Verdict:
        """Whether there is code for a prim."""
        return verdict(line)

    def worth(self, region: Trace) -> Verdict:
        """Whether a region computes anything: views alone are made by others for less."""
        if all(line.symbol.name in SHOWN for line in flat(region.lines)):
            return "leaves views that no kernel of its own reads to executors that make them one by one"
        return True

    def fuse(self, region: Trace) -> Callable[..., tuple]:
        """The region as a function; regions of equal structure share one."""
        return self.cache.get(region)

    def entry(self, prologue: Trace, computation: Trace | None, slow: Callable[[tuple, dict], Any]) -> Callable[[tuple, dict], Any] | None:
        """The guards in C, and the kernels one after the other where there is nothing else."""
        return entry(prologue, computation, slow, self.name)

    def fuse_in_place(self, region: Trace, into: dict[Any, Any]) -> Callable[..., tuple] | None:
        """The region as a function that writes results into inputs, where each element is read before."""
        return self.cache.in_place(region, into)


def llvm_executor() -> LLVMExecutor:
    """An executor called "llvm"."""
    return LLVMExecutor()
