"""The public contract for plugins: what the author of a kernel, an operation or a grad rule needs.  Stable within an executor API number.

To add an executor, subclass or fill an `OperatorExecutor` (runs operations one by one) or a `FusionExecutor` (compiles regions, each a `Trace` of
`BoundSymbol` lines) and return it from a function marked with `hookimpl`; in a script, call `add_operator_executor`.  A checker returns a
`Verdict`: True or a `Claim` to run the operation, or a sentence that says why not.  `options_of` reads what the user configured.
To define an operation, call `make_prim` with a meta rule from `TensorSpec` to `TensorSpec`, and `Tag` what it does.
To differentiate, `register_grad` a rule written with `get_grad` and `put_grad`.

Code generators, passes and test tools find more in `dovetail.extend.advanced`, which may change between minor versions.
"""

from dovetail.executors import Claim as Claim
from dovetail.executors import FusionExecutor as FusionExecutor
from dovetail.executors import OperatorExecutor as OperatorExecutor
from dovetail.executors import Verdict as Verdict
from dovetail.executors import add_operator_executor as add_operator_executor
from dovetail.executors import hookimpl as hookimpl
from dovetail.executors import options_of as options_of
from dovetail.executors import register_grad as register_grad
from dovetail.extend import advanced as advanced
from dovetail.prims import Tag as Tag
from dovetail.prims import TensorSpec as TensorSpec
from dovetail.prims import get_grad as get_grad
from dovetail.prims import make_prim as make_prim
from dovetail.prims import put_grad as put_grad
from dovetail.trace import BoundSymbol as BoundSymbol
from dovetail.trace import Trace as Trace

__all__ = [
    "BoundSymbol",
    "Claim",
    "FusionExecutor",
    "OperatorExecutor",
    "Tag",
    "TensorSpec",
    "Trace",
    "Verdict",
    "add_operator_executor",
    "get_grad",
    "hookimpl",
    "make_prim",
    "options_of",
    "put_grad",
    "register_grad",
]
