"""What each way of training would take: memory of a rank and bytes that it sends, from the program alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from dovetail.errors import DovetailError
from dovetail.frontend import make_trace
from dovetail.prims.spec import ceildiv
from dovetail.trace import JointTrace, cse, dce, functionalize, grad, peak_bytes, schedule, split

STATES = 2  # tensors like a parameter that the optimizer keeps: AdamW's


@dataclass(frozen=True)
class Way:
    """One way of training.

    Attributes:
        name: "one process", "data_parallel" or "fully_sharded".
        parameters: the bytes of the parameters that a rank holds.
        gradients: those of their gradients.
        optimizer: those of the state of the optimizer.
        activations: the most bytes that forward and backward hold besides.
        sent: the bytes that a rank sends for a step, as a ring of ranks sends them.
    """

    name: str
    parameters: int
    gradients: int
    optimizer: int
    activations: int
    sent: int

    @property
    def total(self) -> int:
        """The bytes that a rank holds at most."""
        return self.parameters + self.gradients + self.optimizer + self.activations


@dataclass(frozen=True)
class Plan:
    """The ways of training a module on `ranks` ranks."""

    ranks: int
    ways: tuple[Way, ...]

    def __getitem__(self, name: str) -> Way:
        """Return the way of this name."""
        return next(way for way in self.ways if way.name == name)

    def __str__(self) -> str:
        columns = ("parameters", "gradients", "optimizer", "activations", "total", "sent")
        head = f"{'a rank of ' + str(self.ranks):<16}" + "".join(f"{name:>14}" for name in columns)
        return "\n".join([head, *(f"{way.name:<16}" + "".join(f"{_short(getattr(way, name)):>14}" for name in columns) for way in self.ways)])


def _short(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} TiB"


def plan(module: nn.Module, mesh: Any, batch: Sequence[Any] | Any, *, states: int = STATES) -> Plan:
    """Return what one process, `data_parallel` and `fully_sharded` take, from the program alone: nothing runs.

    Args:
        module: its parameters may be on the meta device, which takes no memory.
        mesh: a DeviceMesh, or the number of ranks, or the sizes of a mesh.
        batch: the arguments of one call on one rank, a tuple where there are several; on the device of the module.
        states: how many tensors like a parameter the optimizer keeps: two for AdamW, one for SGD with momentum.
    """
    ranks = math.prod(mesh) if isinstance(mesh, (tuple, list)) else mesh if isinstance(mesh, int) else mesh.size()
    if ranks < 1:
        raise DovetailError(f"expected a mesh of one rank at least, got {mesh!r}")
    params = list({id(p): p for p in module.parameters()}.values())
    trained = [p for p in params if p.requires_grad]
    activations = _activations(module, batch if isinstance(batch, tuple) else (batch,))

    def held(size: Callable[[Any], int]) -> tuple[int, int, int]:
        return sum(map(size, params)), sum(map(size, trained)), states * sum(map(size, trained))

    def whole(p: Any) -> int:
        return p.numel() * p.element_size()

    def rows(p: Any) -> int:
        return ceildiv(p.shape[0], ranks) * math.prod(p.shape[1:]) * p.element_size() if p.dim() else whole(p)

    gathered = ranks * sum(map(rows, params))
    reduced = ranks * sum(map(rows, trained))
    return Plan(
        ranks,
        (
            Way("one process", *held(whole), activations, 0),
            Way("data_parallel", *held(whole), activations, 2 * sum(map(whole, trained)) * (ranks - 1) // ranks),
            Way("fully_sharded", *held(rows), activations + gathered // max(1, _blocks(module)), (2 * gathered + reduced) * (ranks - 1) // ranks),
        ),
    )


def _blocks(module: nn.Module) -> int:
    """Return how many equal blocks hold the parameters: about so much of them is gathered at once, twice for the block ahead."""
    items = max((len(part) for part in module.modules() if isinstance(part, (nn.ModuleList, nn.Sequential))), default=1)
    return ceildiv(items, 2)


def _activations(module: nn.Module, batch: tuple) -> int:
    """Return the most bytes that forward and backward hold besides parameters, as they are scheduled line by line."""
    computation, _ = functionalize(make_trace(module)(*batch))
    joint: JointTrace = dce(grad(cse(dce(computation))))
    if not joint.cotangents:
        return peak_bytes(schedule(joint))
    forward, backward = split(joint, fused=False)
    params = {p for p in forward.inputs if p.spec.requires_grad}
    held = sum([p.spec.numel * p.spec.dtype.bytes for p in backward.saved if p in params])
    return max(peak_bytes(schedule(forward)), peak_bytes(schedule(backward)) - held)
