"""The executor: regions of lines that it has code for become kernels."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.extend import BoundSymbol, FusionExecutor, Trace, Verdict
from dovetail_llvm_exec.claims import verdict
from dovetail_llvm_exec.kinds import STORED
from dovetail_llvm_exec.regions import Cache


class LLVMExecutor(FusionExecutor):
    """Runs elementwise operations, reductions, gathers and what lies between them on the CPU, as kernels made with LLVM."""

    def __init__(self) -> None:
        super().__init__("llvm", version="0.1.0", dtypes=list(STORED), devices=["cpu"])
        self.cache = Cache()

    def can_fuse(self, line: BoundSymbol) -> Verdict:
        """Whether there is code for a prim."""
        return verdict(line)

    def fuse(self, region: Trace) -> Callable[..., tuple]:
        """The region as a function; regions of equal structure share one."""
        return self.cache.get(region)


def llvm_executor() -> LLVMExecutor:
    """An executor called "llvm"."""
    return LLVMExecutor()
