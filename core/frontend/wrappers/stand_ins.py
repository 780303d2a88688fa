"""Real tensors without memory that stand for traced ones, and for wrappers, while torch's own C++ works out which operations a call consists of.

Autograd records the operations on stand-ins that require grad, as it does on real tensors: a stand-in of a wrapper keeps its history.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.graph import increment_version

from dovetail import prims
from dovetail.errors import Unsupported
from dovetail.frontend.subclasses import is_jagged, is_wrapper
from dovetail.prims import recorder
from dovetail.torch_internals import make_jagged, make_wrapper, no_torch_function
from dovetail.trace import Proxy, TensorProxy, Trace, prims_of, user_line
from dovetail.trace.aliases import root_of, view_bases


class StandIn(torch.Tensor):
    """A tensor with the shape, the dtype and the device of a traced one, or of a wrapper."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Refuse what no mode has taken."""
        raise Unsupported(f"{func} of a tensor subclass is not traced here\n  called at {user_line()}")


class StandIns:
    """The stand-ins of one run, and what each stands for."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[StandIn, Any]] = {}
        self.of_wrappers: dict[int, StandIn] = {}  # id of a wrapper -> its stand-in
        self.created: dict[int, tuple[Trace, int]] = {}  # id of a traced tensor's stand-in -> the program then, and its number of lines

    def closed(self, x: Any) -> Any:
        """Return a stand-in for a traced tensor or a wrapper, anything else as it is."""
        if isinstance(x, TensorProxy):
            new = _like(x, [int(n) for n in x.shape], [int(n) for n in x.stride()])
            needs_grad = x.spec.requires_grad
            self.created[id(new)] = (trace := recorder.get()), len(trace.lines)
        elif is_wrapper(x):
            if (known := self.of_wrappers.get(id(x))) is not None:
                return known
            with no_torch_function():
                needs_grad = x.requires_grad
                if is_jagged(x):
                    new = make_jagged(StandIn, x, x._size, x._strides)
                else:
                    new = _like(x, x.shape, x.stride(), storage_offset=x.storage_offset())
            self.of_wrappers[id(x)] = new
        else:
            return x
        self.known[id(new)] = new, x
        return new.requires_grad_() if needs_grad else new

    def opened(self, x: Any) -> Any:
        """Return what a stand-in stands for, anything else as it is."""
        return self.known[id(x)][1] if type(x) is StandIn else x

    def count_writes(self) -> None:
        """Let autograd know which traced tensors the program has written in place since: a backward that saved one raises, as in eager mode."""
        writes: dict[int, dict[Proxy, int]] = {}
        for key, (trace, count) in list(self.created.items()):
            if id(trace) not in writes:
                writes[id(trace)] = _last_writes(trace)
            stand_in, value = self.known[key]
            if writes[id(trace)].get(value, -1) >= count:
                increment_version(stand_in)
                self.created[key] = trace, len(trace.lines)

    def history(self, wrapper: torch.Tensor) -> StandIn | None:
        """Return the stand-in of a wrapper that requires grad, None for another."""
        stand_in = self.closed(wrapper)
        return stand_in if stand_in.requires_grad else None


def _last_writes(trace: Trace) -> dict[Proxy, int]:
    """Map each value that the lines of a program write in place to the number of the last such line."""
    writing = [i for i, line in enumerate(trace.lines) if line.mutates]
    if not writing:
        return {}
    bases = view_bases(trace.lines)
    last = {root_of(line.args[0], bases): i for i in writing for line in prims_of([trace.lines[i]]) if line.symbol is prims.copy_}
    return last | {view: last[root] for view in bases if (root := root_of(view, bases)) in last}


def _like(x: Any, shape: Any, strides: Any, **more: Any) -> StandIn:
    return make_wrapper(StandIn, shape, strides=strides, dtype=x.dtype, device=x.device, **more)
