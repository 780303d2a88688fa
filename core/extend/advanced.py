"""The rest of the contract: for code generators, passes, test tools.  Less stable than `dovetail.extend`: a minor version may change it.

To generate code for regions: `prims_of` flattens lines, `region_key` tells equal regions, `KernelCache` keeps their kernels, `line_by_line` runs
a region without a kernel, `RegionSizes` and `SizedKernels` are for kernels of symbolic sizes, `fuse` may raise `CannotFuse`, `POOL` has memory
for large results, `RegionLimit` limits how many regions are fused.
To define operations: `make_symbol` makes one that decomposes, `prim` one from a function, `lookaside` records traced calls of a function as an
operation, `require` checks arguments in a meta rule, `symbol_for` and `symbols_of` look operations up.
To change programs: a pass is a function from `Trace` to `Trace`; `Transform` sees prologue and epilogue as well, `substitute` replaces values in
a line, `recording` records symbols into a trace, `to_callable` compiles a trace into a Python function.
To measure which way is faster: `undisturbed` keeps the caller's modes out, `seconds_waited` tells of other processes, `processor`
describes the CPU.
To inspect and test: `executors`, `get_executor`, `plugins` list what is installed, `checked` holds what runs to the run-time contract, `watch` shows
values, `differs` compares results within `TOLERANCE`, `NO_REASON` is the refusal that a bare False stands for.
"""

from dovetail import devices as devices
from dovetail import dtypes as dtypes
from dovetail import torch_internals as torch_internals
from dovetail.errors import ExecutorError as ExecutorError
from dovetail.errors import require as require
from dovetail.executors import NO_REASON as NO_REASON
from dovetail.executors import POOL as POOL
from dovetail.executors import TOLERANCE as TOLERANCE
from dovetail.executors import CannotFuse as CannotFuse
from dovetail.executors import Executor as Executor
from dovetail.executors import ExecutorWarning as ExecutorWarning
from dovetail.executors import Implementation as Implementation
from dovetail.executors import KernelCache as KernelCache
from dovetail.executors import RegionLimit as RegionLimit
from dovetail.executors import RegionSizes as RegionSizes
from dovetail.executors import SizedKernels as SizedKernels
from dovetail.executors import checked as checked
from dovetail.executors import differs as differs
from dovetail.executors import executors as executors
from dovetail.executors import get_executor as get_executor
from dovetail.executors import implementations_of as implementations_of
from dovetail.executors import is_claim as is_claim
from dovetail.executors import line_by_line as line_by_line
from dovetail.executors import plugins as plugins
from dovetail.executors import processor as processor
from dovetail.executors import region_key as region_key
from dovetail.executors import seconds_waited as seconds_waited
from dovetail.executors import undisturbed as undisturbed
from dovetail.langs.torch import lookaside as lookaside
from dovetail.langs.torch import make_symbol as make_symbol
from dovetail.langs.torch import symbol_for as symbol_for
from dovetail.options import debug as debug
from dovetail.options import drafts as drafts
from dovetail.prims import NumberSpec as NumberSpec
from dovetail.prims import Symbol as Symbol
from dovetail.prims import prim as prim
from dovetail.prims import symbols_of as symbols_of
from dovetail.trace import Proxy as Proxy
from dovetail.trace import Transform as Transform
from dovetail.trace import leaves as leaves
from dovetail.trace import prims_of as prims_of
from dovetail.trace import recording as recording
from dovetail.trace import requires_grad as requires_grad
from dovetail.trace import substitute as substitute
from dovetail.trace import to_callable as to_callable
from dovetail.trace import watch as watch
