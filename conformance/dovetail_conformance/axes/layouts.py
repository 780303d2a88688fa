"""Layouts: a tensor with the same values that lies in memory in another way."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dovetail.langs.torch import spec_of


def laid_out(x: Tensor, layout: str) -> Tensor | None:
    """Return `x` in a layout; None where it has none of that name.

    "offset" starts behind the first element of its memory, so that its address is not aligned, "gapped" leaves out every other element,
    "transposed" has its last two dimensions swapped,
    "repeated" has one element along its longest dimension, "overlapping" rows that share elements, "flagged" the conjugate or the negative bit.
    """
    if layout == "row-major":
        return x.contiguous().clone(memory_format=torch.contiguous_format)
    if layout == "offset":
        return _into(x, x.new_empty(x.numel() + 3)[1 : 1 + x.numel()].view(x.shape))
    if layout == "column-major":
        return _into(x, x.new_empty(tuple(reversed(x.shape))).permute(tuple(reversed(range(x.ndim))))) if x.ndim > 1 else None
    if layout == "transposed":
        return _into(x, x.new_empty((*x.shape[:-2], x.shape[-1], x.shape[-2])).mT) if x.ndim > 2 else None
    if layout == "gapped":
        return _into(x, x.new_empty((*x.shape[:-1], 2 * x.shape[-1] + 1))[..., 1::2]) if x.ndim else None
    if layout == "channels-last":
        return _into(x, x.new_empty((x.shape[0], *x.shape[2:], x.shape[1])).movedim(-1, 1)) if x.ndim > 2 else None
    if layout == "repeated":
        return _repeated(x)
    if layout == "overlapping":
        return _overlapping(x)
    return _flagged(x) if layout == "flagged" else None


def with_usual_steps(x: Tensor) -> Tensor:
    """Return a row-major tensor with the usual strides for dimensions of one element, by which eager lays out some results, and nothing else."""
    steps = spec_of(x.detach()).steps
    return x.as_strided(x.shape, steps, x.storage_offset()) if x.is_contiguous() and tuple(x.stride()) != steps and x.numel() else x


def in_one(tensors: Sequence[Tensor]) -> dict[int, Tensor]:
    """Return tensors of the first's dtype as parts of one, by the ids of those: side by side, or one after the other."""
    alike = [x for x in tensors if x.dtype == tensors[0].dtype and x.device == tensors[0].device and x.numel()]
    if len(alike) < 2:
        return {}
    if alike[0].ndim > 1 and len({tuple(x.shape[:-1]) for x in alike}) == 1:
        whole = torch.cat([x.detach().resolve_conj().resolve_neg() for x in alike], -1)
        return dict(zip(map(id, alike), whole.split([x.shape[-1] for x in alike], -1)))
    whole = torch.cat([x.detach().resolve_conj().resolve_neg().flatten() for x in alike])
    return {id(x): part.view(x.shape) for x, part in zip(alike, whole.split([x.numel() for x in alike]))}


def _into(x: Tensor, memory: Tensor) -> Tensor:
    return memory.copy_(x.detach())


def _repeated(x: Tensor) -> Tensor | None:
    if not x.ndim or not x.numel():
        return None
    dim = max(range(x.ndim), key=lambda d: x.shape[d])
    return x.detach().narrow(dim, 0, 1).contiguous().expand(x.shape) if x.shape[dim] > 1 else None


def _overlapping(x: Tensor) -> Tensor | None:
    """Return rows that begin one element after another."""
    if x.ndim < 2 or x.shape[-1] < 2 or x.shape[-2] < 2 or not x.numel():
        return None
    rows = x.numel() // x.shape[-1]
    memory = x.detach().contiguous().flatten()[: rows + x.shape[-1] - 1].clone()
    steps, step = [1], 1
    for n in reversed(x.shape[:-1]):
        steps.insert(0, step)
        step *= n
    return memory.as_strided(tuple(x.shape), tuple(steps))


def _flagged(x: Tensor) -> Tensor | None:
    """Return the conjugate of a conjugate, or the imaginary part of one, as a tensor with a pending sign."""
    if x.is_complex():
        return x.detach().conj().resolve_conj().clone().conj()
    if x.dtype not in (torch.float32, torch.float64):
        return None
    return torch.complex(torch.zeros_like(x, memory_format=torch.contiguous_format), -x.detach().contiguous()).conj().imag
