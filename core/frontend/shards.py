"""Tensors of which each rank has a part: torch's DTensor, as a program takes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from dovetail.errors import Unsupported
from dovetail.frontend.dtensors import DISTRIBUTION, is_dtensor, owned
from dovetail.langs.torch import spec_of, traceable
from dovetail.prims import TensorSpec

WAYS = (
    "wrap that by dovetail.distributed.fully_sharded(module, mesh) or tensor_parallel(module, mesh, plan) rather than by torch's wrappers, "
    "compile the module that fully_shard returns, not a function that calls it"
)


@contextmanager
def distributing(distribution: Any) -> Iterator[None]:
    """Trace the DTensors that a distribution knows while open."""
    token = DISTRIBUTION.set(distribution)
    try:
        yield
    finally:
        DISTRIBUTION.reset(token)


def whole(x: torch.Tensor) -> torch.Tensor:
    """Return x, which may be a DTensor of the distribution: it is traced as the whole tensor.  Raises Unsupported for other subclasses."""
    if not is_dtensor(x):
        return traceable(x)
    if not owned(x):
        raise Unsupported(
            f"a DTensor of several ranks is not traced, but for the parameters of a module: {WAYS}, or pass x.to_local(), what lies on this rank"
        )
    return x


def local_part(x: torch.Tensor) -> torch.Tensor:
    """Return the part of a DTensor that lies on this rank, without a history; any other tensor as it is."""
    if not is_dtensor(x):
        return x
    with torch.no_grad():
        return x.to_local()


def local_spec(x: torch.Tensor) -> TensorSpec:
    """Return the spec of the part that lies on this rank, which requires grad where x does."""
    return spec_of(local_part(x)).like(requires_grad=x.requires_grad)


@dataclass(frozen=True)
class Layout:
    """How a DTensor lies on its mesh, so that its gradient can be laid out alike."""

    mesh: Any
    placements: tuple[Any, ...]
    shape: torch.Size
    stride: tuple[int, ...]

    def wrap(self, local: torch.Tensor) -> torch.Tensor:
        """Return the DTensor whose part on this rank is `local`."""
        from torch.distributed.tensor import DTensor  # 3 s, and whoever has a DTensor has imported it

        with torch.no_grad():
            return DTensor.from_local(local, self.mesh, self.placements, run_check=False, shape=self.shape, stride=self.stride)


def layout_of(x: torch.Tensor) -> Layout:
    """Return the layout of a DTensor."""
    return Layout(x.device_mesh, tuple(x.placements), x.shape, x.stride())


def layouts_of(tensors: Sequence[Any]) -> dict[int, Layout]:
    """Return the layouts of the DTensors among the inputs of a program, by their numbers."""
    return {i: layout_of(x) for i, x in enumerate(tensors) if is_dtensor(x)}


def local_parts(inputs: Sequence[Any], layouts: Mapping[int, Layout]) -> Sequence[Any]:
    """Return the inputs with local parts in the place of DTensors."""
    if not layouts:
        return inputs
    with torch.no_grad():
        return tuple([x.to_local() if i in layouts else x for i, x in enumerate(inputs)])


def wrapped(gradients: Sequence[Any], layouts: Mapping[int, Layout]) -> Sequence[Any]:
    """Return the gradients of local parts as those of DTensors."""
    if not layouts:
        return gradients
    return [g if g is None or i not in layouts else layouts[i].wrap(g) for i, g in enumerate(gradients)]
