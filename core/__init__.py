"""Dovetail: a source-to-source compiler for PyTorch with executors that plug in.

One word per thing.  A *prim* is a primitive operation; a *symbol* an operation that a trace can record, a prim or a language operation;
a *bound symbol* a symbol applied to arguments, one line of a trace; a *spec* what is known of a tensor before it is computed; a *proxy*
a traced value; a *meta* the rule from input specs to output specs; a *trace* a program of bound symbols that prints and runs as Python;
a *pass* a function from trace to trace; a *language* how people spell programs; an *executor* what runs operations; a *claim* its offer
to run one; a *checker* what decides on a claim; a *refusal* a checker's no, as a sentence; a *prologue* the guards and unpacking of inputs.
"""

if __name__ == "core":
    raise ImportError("this folder is the package `dovetail`; write `import dovetail`")

from dovetail import distributed as distributed
from dovetail import extend as extend
from dovetail.compiler.api import cache_misses as cache_misses
from dovetail.compiler.api import jit as jit
from dovetail.compiler.api import last_backward_traces as last_backward_traces
from dovetail.compiler.api import last_driver as last_driver
from dovetail.compiler.api import last_epilogue_traces as last_epilogue_traces
from dovetail.compiler.api import last_prologue_traces as last_prologue_traces
from dovetail.compiler.api import last_traces as last_traces
from dovetail.errors import DovetailError as DovetailError
from dovetail.errors import GuardWarning as GuardWarning
from dovetail.executors import DisagreementWarning as DisagreementWarning
from dovetail.executors import use as use
from dovetail.frontend import from_fx as from_fx
from dovetail.frontend import make_trace as make_trace
from dovetail.frontend import to_fx as to_fx
from dovetail.frontend.guards.symbolic_sizes import mark_dynamic as mark_dynamic
from dovetail.frontend.guards.symbolic_sizes import mark_static as mark_static
from dovetail.gradients import grad as grad
from dovetail.gradients import value_and_grad as value_and_grad
from dovetail.gradients import vjp as vjp
from dovetail.inspection import explain as explain
from dovetail.inspection import profile as profile
from dovetail.inspection import verify as verify
from dovetail.langs.torch import opaque_function as opaque
from dovetail.replaying import replay as replay

__version__ = "0.1.0"
__all__ = [
    "DisagreementWarning",
    "DovetailError",
    "GuardWarning",
    "cache_misses",
    "distributed",
    "explain",
    "from_fx",
    "grad",
    "jit",
    "last_backward_traces",
    "last_driver",
    "last_epilogue_traces",
    "last_prologue_traces",
    "last_traces",
    "make_trace",
    "mark_dynamic",
    "mark_static",
    "opaque",
    "profile",
    "replay",
    "to_fx",
    "use",
    "value_and_grad",
    "verify",
    "vjp",
]
