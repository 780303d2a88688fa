"""Torch's DTensors: which of them are traced, and how one is split into what it holds and built again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from copy import copy
from types import FunctionType
from typing import Any

from dovetail.torch_internals import DTENSORS, ONE_RANK

DISTRIBUTION: ContextVar[Any] = ContextVar("distribution", default=None)  # that of the function that is compiled


def is_dtensor(x: Any) -> bool:
    """Return whether x is a DTensor; its module is not imported for the question."""
    return is_dtensor_class(type(x))


def is_dtensor_class(kind: type) -> bool:
    """Return whether a class is torch's DTensor."""
    return kind.__name__ == "DTensor" and kind.__module__.startswith("torch.distributed.")


def owned(x: Any) -> bool:
    """Return whether a DTensor is a parameter of the distribution that is compiled."""
    return (distribution := DISTRIBUTION.get()) is not None and distribution.owns(x)


def on_one_rank(x: Any) -> bool:
    """Return whether a DTensor lies on a mesh of one rank, which has all of it; parameters of a distribution are treated as everywhere."""
    return x._spec.mesh.size() == 1 and not owned(x) and ONE_RANK.problem is None


def makes_one_rank(function: FunctionType, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether a call is DTensor.from_local(...) on a mesh of one rank."""
    if function.__name__ != "from_local" or function.__module__ != DTENSORS:
        return False
    mesh = args[1] if len(args) > 1 else kwargs.get("device_mesh")
    return mesh is not None and mesh.size() == 1


def taken_apart(x: Any) -> tuple[list[Any], Callable[..., Any]]:
    """Return what a DTensor holds, with how a gradient of it lies as its context, and the function that builds one like it of these."""
    spec = x._spec

    def build(local: Any, context: str, unflatten: Callable[..., Any] | None = None) -> Any:
        return (unflatten or type(x))(local, copy(spec), requires_grad=False)

    return [x._local_tensor, f"{spec.mesh}, {gradient_spec(spec).placements}, {spec.tensor_meta}"], build


def gradient_spec(spec: Any) -> Any:
    """Return how the gradient of a DTensor lies: where that is a sum over ranks, each rank has the whole gradient."""
    if not any([placement.is_partial() for placement in spec.placements]):
        return spec
    replicated = sys.modules[DTENSORS].Replicate()
    placements = tuple([replicated if placement.is_partial() else placement for placement in spec.placements])
    return type(spec)(spec.mesh, placements, tensor_meta=spec.tensor_meta)
