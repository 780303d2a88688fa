"""DTensors on meshes of one rank: torch's own rules say how a result lies on the mesh, and its values are those of what the rank holds."""

from __future__ import annotations

import sys
from types import MethodType
from typing import TYPE_CHECKING, Any

import torch

from dovetail.errors import EagerCall, Unsupported
from dovetail.frontend.class_lookup import NULL
from dovetail.frontend.dtensors import gradient_spec, is_dtensor
from dovetail.frontend.subclasses import untraced_value
from dovetail.torch_internals import DTENSORS, ONE_RANK, OpOverload, aten, make_wrapper, no_modes, no_torch_function
from dovetail.trace import TensorProxy, leaves, tree_map, user_line

if TYPE_CHECKING:
    from dovetail.frontend.interpreter.tracking.tracker import Tracker


class OneRank:
    """The DTensors of one run.  `created` maps the id of each wrapper that the program has created to it."""

    def __init__(self, created: dict[int, torch.Tensor]):
        self.created = created

    def create(self, local: Any, spec: Any, *, requires_grad: bool = False) -> torch.Tensor:
        """Return DTensor(local, spec), without a history."""
        if spec.mesh.size() > 1:
            raise Unsupported(
                f"a DTensor of several ranks is created while tracing: create it outside of the compiled function\n  called at {user_line()}"
            )
        cls, meta = sys.modules[DTENSORS].DTensor, spec.tensor_meta
        new = make_wrapper(cls, meta.shape, strides=meta.stride, dtype=local.dtype, device=local.device)
        cls._local_tensor.__set__(new, local)
        cls._spec.__set__(new, spec)
        self.created[id(new)] = new
        return new

    def as_gradient(self, x: Any) -> torch.Tensor:
        """Return a DTensor of the same values that lies as a gradient of x does."""
        return self.create(x._local_tensor, gradient_spec(x._spec))

    def call(self, tracker: Tracker, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call what torch implements DTensors with, where it is not interpreted; NULL for anything else."""
        if (module := sys.modules.get(DTENSORS)) is None:
            return NULL
        if function is module.DTensor:
            return self.create(*args, **kwargs)
        if function is ONE_RANK.value:
            function(_empty(args[0]), *args[1:], **kwargs)  # it checks the meshes
            return args[0]  # the one rank has everything
        if function is getattr(module, "compute_global_tensor_info", None):
            return function(_empty(args[0]), *args[1:], **kwargs)
        if type(function) is MethodType and type(function.__self__) is module.DeviceMesh:
            return function(*args, **kwargs)
        return NULL

    def dispatched(self, tracker: Tracker, func: OpOverload, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Return the results of an operation on DTensors.  DTensors without memory that lie alike ask torch how the results lie."""
        if torch.Tag.inplace_view in func.tags:
            raise EagerCall(f"{func} changes the shape of a DTensor in place at {user_line()}")
        if func is aten("_local_scalar_dense.default"):
            raise untraced_value(args[0])
        if torch.Tag.nondeterministic_seeded in func.tags and any([x.device.type != "cpu" for x in leaves((args, kwargs)) if is_dtensor(x)]):
            raise EagerCall(f"{func} of a DTensor draws numbers on another device than a CPU at {user_line()}")
        asking: dict[int, Any] = {}

        def like(x: Any) -> Any:
            if not (is_dtensor(x) or isinstance(x, TensorProxy)):
                return x
            new = type(x)(_empty(x._local_tensor), x._spec, requires_grad=False) if is_dtensor(x) else _empty(x)
            asking[id(new)] = x
            kept.append(new)
            return new

        kept: list[Any] = []
        with no_modes(), no_torch_function(), torch.no_grad():
            lying = func(*tree_map(like, args), **tree_map(like, kwargs))
        args, kwargs = tree_map(lambda x: tracker.load_attr(x, "_local_tensor") if is_dtensor(x) else x, (args, kwargs))
        values = iter(leaves(tracker.call(func, list(args), kwargs, None)))

        def result(x: Any) -> Any:
            value = next(values)
            if id(x) in asking:
                return asking[id(x)]
            return self.create(value, x._spec) if is_dtensor(x) else value

        return tree_map(result, lying)


def _empty(x: Any) -> torch.Tensor:
    """Return a tensor without memory that has the shape, the strides and the dtype of a real or a traced one."""
    return torch.empty_strided([int(n) for n in x.shape], [int(n) for n in x.stride()], dtype=x.dtype, device="meta")
