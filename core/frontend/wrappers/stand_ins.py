"""Real tensors without memory that stand for traced ones while torch's own C++ works out which operations a call consists of."""

from __future__ import annotations

from typing import Any

import torch

from dovetail.errors import Unsupported
from dovetail.torch_internals import make_wrapper
from dovetail.trace import TensorProxy, user_line


class StandIn(torch.Tensor):
    """A tensor with the shape, the dtype and the device of a traced one."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Refuse what no mode has taken."""
        raise Unsupported(f"{func} of a tensor subclass is not traced here\n  called at {user_line()}")


class StandIns:
    """The stand-ins of one run, and what each stands for."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[StandIn, TensorProxy]] = {}

    def closed(self, x: Any) -> Any:
        """Return a stand-in for a traced tensor, anything else as it is."""
        if not isinstance(x, TensorProxy):
            return x
        shape, strides = [int(n) for n in x.shape], [int(n) for n in x.stride()]
        new = make_wrapper(StandIn, shape, strides=strides, dtype=x.dtype, device=x.device)
        self.known[id(new)] = new, x
        return new

    def opened(self, x: Any) -> Any:
        """Return the traced tensor that a stand-in stands for, anything else as it is."""
        return self.known[id(x)][1] if type(x) is StandIn else x
