"""The public contract for plugins: executors, operations, grad rules, passes.  Everything here is documented, typed and kept.

To make an executor: `OperatorExecutor`, `FusionExecutor`, or `add_operator_executor` for a notebook; `hookimpl` marks the hook of a package.
A checker that claims may say why with `Claim`, and `fuse` may refuse with `CannotFuse`; memory for large results comes from `POOL`.
To define an operation: `make_prim` with a meta (`TensorSpec`, `NumberSpec`, `Tag`, `require`), or `make_symbol` with a program that it
decomposes to; `lookaside` makes traced calls of a function that operation.  To differentiate: `register_grad`, `get_grad`, `put_grad`.
To test an executor: `checked` holds what runs to its contract, `differs` compares results within `TOLERANCE`,
`recording` lets symbols be recorded without real tensors.
To generate code for regions: `prims_of` flattens lines, `region_key` tells equal regions, `KernelCache` keeps their kernels, `line_by_line` runs one
without a kernel.
To change programs: `Transform`, or a function of a `Trace` and its lines, each a `BoundSymbol`, which `rename` lets read other values.
"""

from dovetail import devices as devices
from dovetail import dtypes as dtypes
from dovetail import torch_internals as torch_internals
from dovetail.errors import ExecutorError as ExecutorError
from dovetail.errors import require as require
from dovetail.executors import POOL as POOL
from dovetail.executors import TOLERANCE as TOLERANCE
from dovetail.executors import CannotFuse as CannotFuse
from dovetail.executors import Claim as Claim
from dovetail.executors import Executor as Executor
from dovetail.executors import ExecutorWarning as ExecutorWarning
from dovetail.executors import Fuel as Fuel
from dovetail.executors import FusionExecutor as FusionExecutor
from dovetail.executors import Implementation as Implementation
from dovetail.executors import KernelCache as KernelCache
from dovetail.executors import OperatorExecutor as OperatorExecutor
from dovetail.executors import Verdict as Verdict
from dovetail.executors import add_operator_executor as add_operator_executor
from dovetail.executors import checked as checked
from dovetail.executors import differs as differs
from dovetail.executors import executors as executors
from dovetail.executors import get_executor as get_executor
from dovetail.executors import hookimpl as hookimpl
from dovetail.executors import implementations_of as implementations_of
from dovetail.executors import is_claim as is_claim
from dovetail.executors import line_by_line as line_by_line
from dovetail.executors import options_of as options_of
from dovetail.executors import plugins as plugins
from dovetail.executors import region_key as region_key
from dovetail.executors import register_grad as register_grad
from dovetail.langs.torch import lookaside as lookaside
from dovetail.langs.torch import make_symbol as make_symbol
from dovetail.langs.torch import symbol_for as symbol_for
from dovetail.options import debug as debug
from dovetail.prims import NumberSpec as NumberSpec
from dovetail.prims import Symbol as Symbol
from dovetail.prims import Tag as Tag
from dovetail.prims import TensorSpec as TensorSpec
from dovetail.prims import get_grad as get_grad
from dovetail.prims import make_prim as make_prim
from dovetail.prims import prim as prim
from dovetail.prims import put_grad as put_grad
from dovetail.prims import symbols_of as symbols_of
from dovetail.trace import BoundSymbol as BoundSymbol
from dovetail.trace import Proxy as Proxy
from dovetail.trace import Trace as Trace
from dovetail.trace import Transform as Transform
from dovetail.trace import compiled as compiled
from dovetail.trace import prims_of as prims_of
from dovetail.trace import recording as recording
from dovetail.trace import rename as rename
from dovetail.trace import requires_grad as requires_grad
from dovetail.trace import watch as watch
