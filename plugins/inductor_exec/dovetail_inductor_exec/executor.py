"""The executor: each region becomes a graph, and graphs of equal structure become one kernel."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import dovetail
from dovetail.extend import BoundSymbol, FusionExecutor, Trace, Verdict, options_of
from dovetail.extend.advanced import ExecutorError, torch_internals
from dovetail_inductor_exec import __version__, machine
from dovetail_inductor_exec.claims import DTYPES, verdict
from dovetail_inductor_exec.graphs import apart, computing, decomposed, example, structure

OPTIONS = {
    "backend": "inductor",
    "matmul": False,
    "least": 2,  # operations that compute, which a kernel is worth
}
Kernel = Callable[..., tuple]  # takes the inputs of a region and gives its outputs; `by` is the backend that made it


class InductorExecutor(FusionExecutor):
    """Runs regions on CPUs and CUDA devices by torch.compile's Inductor.

    Options: `backend` is "inductor", "torchscript", or "torch", which runs the graph's functions one by one; `matmul` takes sums of
    products into regions, which then are larger and take longer to compile; a region of fewer than `least` operations that compute is
    left to others.  `options` are what these are where configuration says nothing.
    """

    def __init__(self, **options: Any) -> None:
        declared = {"dtypes": [getattr(torch, name) for name in DTYPES], "devices": ["cpu", "cuda"]}
        super().__init__("inductor", version=__version__, last_resort=True, **declared)
        self.after = ("torch",)  # behind the reference: it is asked where somebody names it, since C++ takes seconds to compile
        self.options = OPTIONS | options
        self.kernels: WeakValueDictionary[Any, Kernel] = WeakValueDictionary()  # by structure, for as long as a program holds them
        self.lock = Lock()  # Inductor keeps global state while it compiles

    def available(self) -> Verdict:
        """Return True, or what this machine lacks; only Inductor needs a compiler."""
        return machine.available() if options_of(self)["backend"] == "inductor" else True

    def can_fuse(self, line: BoundSymbol) -> Verdict:
        """Return whether one line could be part of a region, by what is on it."""
        return verdict(line, options_of(self))

    def worth(self, region: Trace) -> Verdict:
        """Return whether a region computes enough for a kernel; views, copies and constants cost less elsewhere."""
        least = options_of(self)["least"]
        return computing(region) >= least or f"expected a region of at least {least} operations that compute, by the option `least`"

    def fuse(self, region: Trace) -> Kernel:
        """Return the region as a function; regions of equal structure share one."""
        backend = options_of(self)["backend"]
        if backend not in BACKENDS:
            raise ExecutorError(f"the option backend of inductor is {', '.join(BACKENDS)}, not {backend!r}")
        region = apart(region)
        gm = dovetail.to_fx(region)
        key = (backend, *structure(gm, region))
        with self.lock:
            kernel = self.kernels.get(key)
            if kernel is None:
                kernel = self.kernels[key] = BACKENDS[backend](gm, region)
                kernel.by = backend
        return kernel


def by_inductor(gm: fx.GraphModule, region: Trace) -> Kernel:
    """Compile a graph with Inductor."""
    if (lacking := machine.available()) is not True:
        raise ExecutorError(lacking)
    mode = torch_internals.fake_tensor_mode(shape_env=ShapeEnv())  # without one, Inductor does not look on disk for what it made before
    graph, fakes = decomposed(gm, region, mode)
    with torch.no_grad(), torch_internals.tracing_fakes(mode):
        compiled = torch_internals.compile_fx_inner(graph, fakes)
    call = getattr(compiled, "current_callable", None) or compiled

    def kernel(*inputs: torch.Tensor) -> tuple:
        if torch.is_grad_enabled():  # it writes into buffers, which autograd would refuse, and has no gradients to give
            with torch.no_grad():
                return tuple(call(list(inputs)))
        return tuple(call(list(inputs)))  # a list, which it empties as it goes

    return kernel


def by_torchscript(gm: fx.GraphModule, region: Trace) -> Kernel:
    """Record a graph with torch.jit.trace; its interpreter and fuser run it."""
    with torch.no_grad():
        traced = torch.jit.trace(gm, tuple([example(p.spec).zero_() for p in region.inputs]), check_trace=False)

    def kernel(*inputs: torch.Tensor) -> tuple:
        with torch.no_grad():
            return tuple(traced(*inputs))

    return kernel


def by_torch(gm: fx.GraphModule, region: Trace) -> Kernel:
    """Run the functions of the graph, one by one."""
    run = gm.forward
    return lambda *inputs: run(*inputs)


BACKENDS: dict[str, Callable[[fx.GraphModule, Trace], Kernel]] = {
    "inductor": by_inductor,
    "torchscript": by_torchscript,
    "torch": by_torch,
}


def inductor_executor(**options: Any) -> InductorExecutor:
    """Return an executor called "inductor"; `options` are what its options are where configuration says nothing."""
    return InductorExecutor(**options)
