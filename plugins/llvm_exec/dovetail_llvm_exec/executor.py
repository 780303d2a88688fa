"""The executor: regions of lines that it has code for become kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dovetail.dtypes import bfloat16, float16, float32, float64
from dovetail.extend import BoundSymbol, FusionExecutor, OperatorExecutor, Trace, Verdict
from dovetail.extend.advanced import Executor, is_claim, prims_of
from dovetail.prims.sizes import hint_of
from dovetail.prims.spec import prod
from dovetail_llvm_exec.call.entry import entry
from dovetail_llvm_exec.call.kernel import Kernels
from dovetail_llvm_exec.region.biases import SHOWN, split_bias
from dovetail_llvm_exec.region.claims import verdict, whole_verdict
from dovetail_llvm_exec.region.graph import REDUCTIONS
from dovetail_llvm_exec.region.windows import add_windows
from dovetail_llvm_exec.scalars.kinds import STORED

SHORTEST = 8  # elements of a row from which a logarithm for each of them costs little beside the rest
NARROWEST = {float32: 12, float16: 12, bfloat16: 12, float64: 8}  # columns from which sums down the rows fill enough of a vector
NARROWEST_OTHER = 4  # of other dtypes
FEW_ROWS, FEW_ELEMENTS = 32, 768  # below which a call costs more than that
SCALING = frozenset({"mul", "div", "broadcast_in_dim", "reshape", "convert_element_type"})  # what a mean does, and keepdim


def _width(region: Trace) -> int:
    """Return how many elements the first reduction of a region makes one of."""
    reduction = next(line for line in prims_of(region.lines) if "dims" in line.kwargs and line.symbol.name in REDUCTIONS)
    return prod(reduction.args[0].spec.shape[d] for d in reduction.kwargs["dims"])


def _is_narrow_sum(region: Trace) -> bool:
    """Return whether a region is nothing but a sum, or a mean, down many rows of few columns: most of each vector would be empty."""
    sums = [line for line in prims_of(region.lines) if line.symbol.name not in SCALING]
    if len(region.lines) != 1 or len(sums) != 1 or sums[0].symbol.name != "sum":
        return False
    spec, dims = sums[0].args[0].spec, sums[0].kwargs["dims"]
    shape, steps = ([hint_of(n) for n in numbers] for numbers in (spec.shape, spec.steps))
    kept, nearest = [d for d in range(len(shape)) if d not in dims], min([steps[d] for d in dims if shape[d] > 1], default=0)
    columns, rows = prod([shape[d] for d in kept if steps[d] < nearest]), prod([shape[d] for d in dims])
    few = rows < FEW_ROWS or prod(shape) < FEW_ELEMENTS
    return not few and 1 < columns == nearest < NARROWEST.get(spec.dtype, NARROWEST_OTHER)


class LLVMExecutor(FusionExecutor):
    """Runs elementwise operations, reductions, gathers and what lies between them on the CPU, as kernels made with LLVM."""

    def __init__(self) -> None:
        super().__init__("llvm", version="0.1.0", dtypes=list(STORED), devices=["cpu"], symbolic=True)
        self.kernels = Kernels()

    def can_fuse(self, line: BoundSymbol) -> Verdict:
        """Return whether there is code for a prim."""
        return verdict(line)

    def claims_whole(self, line: BoundSymbol) -> Verdict:
        """Return whether to claim a composite; see `claims.whole_verdict`."""
        return whole_verdict(line)

    def prepare(self, trace: Trace, executors: Sequence[Executor]) -> Trace:
        """Split the bias off a product for the kernel that reads it, unless an executor other than a last resort claims both; write out windows."""
        others = [ex for ex in executors if isinstance(ex, OperatorExecutor) and not ex.last_resort]
        return add_windows(split_bias(trace, self._fuses, lambda line: any(is_claim(ex.verdict(line)) for ex in others)))

    def _fuses(self, line: BoundSymbol) -> bool:
        """Return whether all of a line can be part of a region."""
        return is_claim(self.claims_whole(line)) and all(map(self._fuses, line.body)) if line.body else is_claim(self.verdict(line))

    def worth(self, region: Trace) -> Verdict:
        """Return whether a region computes anything: views alone are cheaper elsewhere."""
        if all(line.symbol.name in SHOWN for line in prims_of(region.lines)):
            return "leaves views that no kernel of its own reads to executors that make them one by one"
        if len(region.lines) == 1 and region.lines[0].symbol.id == "torch.logsumexp" and (width := hint_of(_width(region))) < SHORTEST:
            return f"leaves the logarithm of each {width} numbers alone to executors that compute many at once"
        if _is_narrow_sum(region):
            return "leaves a sum down a few columns alone to executors that add up several rows at once"
        return True

    def fuse(self, region: Trace) -> Callable[..., tuple]:
        """Return the region as a function; regions of equal structure share one."""
        return self.kernels.get(region)

    def fast_call(self, prologue: Trace, computation: Trace | None, slow: Callable[[tuple, dict], Any]) -> Callable[[tuple, dict], Any] | None:
        """Return the guards in C, and the kernels one after the other where there is nothing else."""
        return entry(prologue, computation, slow, self.name)

    def fuse_in_place(self, region: Trace, into: dict[Any, Any]) -> Callable[..., tuple] | None:
        """Return the region as a function that writes results into inputs, where each element is read before."""
        return self.kernels.in_place(region, into)


def llvm_executor() -> LLVMExecutor:
    """Return an executor called "llvm"."""
    return LLVMExecutor()
