"""Gradients at ties, bounds and NaN, where versions of PyTorch disagree.

An operation has no derivative at a kink: its gradient there is a convention, and releases changed some.  A grad rule reads the convention of
the installed torch here, so that compiled gradients stay those of eager.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch

from dovetail.torch_internals.undisturbed import in_new_thread

nan = float("nan")


@dataclass(frozen=True)
class Convention:
    """One answer: its `name`, the `gradients` at the probed points, operand by operand, the oldest and the newest torch it was `seen` in."""

    name: str
    gradients: tuple[tuple[float, ...], ...]
    seen: tuple[str, str]


@dataclass(eq=False)
class Subgradient:
    """The convention for the gradient of `operation` at `place`.

    The probe differentiates `function` once, at `points`: one row of numbers for each operand.  `conventions` are the known answers, the
    oldest first; a torch with another answer is taken to follow the newest, and `problem` says so.
    """

    operation: str
    place: str
    function: Callable[..., torch.Tensor]
    points: tuple[tuple[float, ...], ...]
    conventions: tuple[Convention, ...]

    @cached_property
    def gradients(self) -> tuple[tuple[float, ...], ...]:
        """The gradients at the points in this torch, whatever modes the caller is in."""
        return in_new_thread(self._differentiate)

    def _differentiate(self) -> tuple[tuple[float, ...], ...]:
        operands = [torch.tensor(row, dtype=torch.float32, device="cpu", requires_grad=True) for row in self.points]
        out = self.function(*operands)
        grads = torch.autograd.grad(out, operands, torch.ones(out.shape, dtype=out.dtype, device=out.device))
        return tuple([tuple(grad.tolist()) for grad in grads])

    @cached_property
    def _known(self) -> Convention | None:
        return next((c for c in self.conventions if c.gradients == self.gradients), None)

    @property
    def convention(self) -> str:
        """The name of the convention that this torch follows."""
        return (self._known or self.conventions[-1]).name

    @property
    def problem(self) -> str | None:
        """Why compiled gradients may differ from eager's, None where this torch follows a known convention."""
        if self._known is not None:
            return None
        newest = self.conventions[-1].seen[1]
        return (
            f"the gradient of {self.operation} {self.place} in torch {torch.__version__} is {self.gradients}, which no torch up to {newest} returns"
        )


CLAMP_BY_NUMBERS = Subgradient(
    "torch.clamp by numbers",
    "at a bound",
    lambda x: torch.clamp(x, 0.0, 1.0),
    points=((0.0, 1.0),),
    conventions=(Convention("closed", ((1.0, 1.0),), ("2.13", "2.13")), Convention("open", ((0.0, 0.0),), ("2.14", "2.15"))),
)
CLAMP_BY_TENSORS = Subgradient(
    "torch.clamp by tensors",
    "at ties and NaN",
    lambda x, low: torch.clamp(x, min=low),
    points=((0.0, nan), (0.0, 0.0)),
    conventions=(
        Convention("first operand", ((1.0, 0.0), (0.0, 0.0)), ("2.13", "2.13")),
        Convention("shared", ((0.5, 1.0), (0.5, 1.0)), ("2.14", "2.15")),
    ),
)
FMAX = Subgradient(
    "torch.fmax and torch.fmin",
    "at ties and NaN",
    torch.fmax,
    points=((0.0, nan), (0.0, 0.0)),
    conventions=(
        Convention("first operand", ((1.0, 0.0), (0.0, 1.0)), ("2.13", "2.13")),
        Convention("shared, NaN to both", ((0.5, 1.0), (0.5, 1.0)), ("2.14", "2.14")),
        Convention("shared", ((0.5, 0.0), (0.5, 1.0)), ("2.15", "2.15")),
    ),
)

# every gradient that depends on the version of PyTorch
SUBGRADIENTS: tuple[Subgradient, ...] = (CLAMP_BY_NUMBERS, CLAMP_BY_TENSORS, FMAX)
