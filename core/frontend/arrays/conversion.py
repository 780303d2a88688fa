"""Arrays as tensors and tensors as arrays, without a copy of the elements wherever both can describe the memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from dovetail.langs.numpy import FROM_NUMPY


class ArrayInput:
    """How a prologue makes a tensor of an array that is an input.

    `copied` arrays have a layout that tensors lack: a negative or fractional stride, or misaligned memory.  `exclusive` is set where the
    program writes the array or returns a view of it, so that the memory of the array itself is needed.
    """

    def __init__(self, *, copied: bool, exclusive: bool = False):
        self.copied, self.exclusive = copied, exclusive

    @property
    def convert(self) -> Any:
        """The function that the prologue calls; it raises ValueError or TypeError for an array that the program does not fit."""
        return tensor_copied if self.copied else tensor_writing if self.exclusive else tensor_sharing


BESIDE_DECISIONS = ArrayInput(copied=False, exclusive=True)  # of all programs with decisions: what they write is known when they have run


def is_traceable(x: Any) -> bool:
    """Return whether x is an array that a tensor can stand for: a plain ndarray of numbers in the machine's byte order."""
    return type(x) is np.ndarray and x.dtype in FROM_NUMPY


def needs_copy(x: np.ndarray) -> bool:
    """Return whether no tensor can share the memory of x."""
    return not x.flags.aligned or any([step < 0 or step % x.itemsize for step in x.strides])


def can_be_written(x: np.ndarray) -> bool:
    """Return whether a tensor that is written writes x."""
    return x.flags.behaved and not needs_copy(x)  # aligned, and writeable


def tensor_writing(x: Any) -> torch.Tensor:
    """Return the tensor that shares the memory of x, an array that may be written."""
    if type(x) is not np.ndarray or not x.flags.behaved:  # aligned, and writeable
        raise TypeError
    return torch.from_numpy(x)


def tensor_sharing(x: Any) -> torch.Tensor:
    """Return the tensor that shares the memory of x, which the program only reads."""
    if type(x) is not np.ndarray:
        raise TypeError
    flags = x.flags
    if flags.behaved:  # aligned, and writeable
        return torch.from_numpy(x)
    if not flags.aligned:
        raise TypeError
    return torch.from_numpy(np.asarray(_Unlocked(x)))


def tensor_copied(x: Any) -> torch.Tensor:
    """Return a tensor with the elements of x, whose memory no tensor can share."""
    if not is_traceable(x) or not needs_copy(x):
        raise TypeError
    return torch.from_numpy(np.array(x, order="C"))


class _Unlocked:
    """The memory of a read-only array, as NumPy's array interface describes memory that may be written: torch warns of any other."""

    def __init__(self, array: np.ndarray):
        self.array = array  # kept alive
        self.__array_interface__ = {**array.__array_interface__, "data": (array.__array_interface__["data"][0], False)}


def to_array(x: Any) -> Any:
    """Return a result as an array that shares its memory; what is no tensor is returned as it is."""
    if not isinstance(x, torch.Tensor):
        return x
    return x.detach().resolve_conj().resolve_neg().numpy() if x.is_complex() else x.numpy()


def to_scalar(x: torch.Tensor) -> Any:
    """Return a tensor of one element as a scalar of NumPy."""
    return to_array(x)[()]
