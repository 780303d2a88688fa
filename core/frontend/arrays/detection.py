"""Whether a call is one of NumPy arrays; works where NumPy is not installed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import torch

from dovetail.frontend import trees


def has_arrays(fn: Any, args: tuple, kwargs: dict) -> bool:
    """Return whether the arguments hold a plain array of NumPy and no tensor, and `fn` is no torch module."""
    numpy = sys.modules.get("numpy")
    if numpy is None or isinstance(fn, torch.nn.Module):
        return False
    if not any([type(x) in (numpy.ndarray, list, tuple, dict) for x in (*args, *kwargs.values())]):
        return False
    leaves, _ = trees.flatten((args, kwargs))
    return any([type(x) is numpy.ndarray for x in leaves]) and not any([isinstance(x, torch.Tensor) for x in leaves])


def arrays_in(args: tuple, kwargs: dict, *, written: bool = False) -> dict[int, Any]:
    """Return the plain arrays of numbers in the arguments that tensors can stand for, by their ids; where these may be `written`, too."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not any([type(x) in (numpy.ndarray, list, tuple, dict) for x in (*args, *kwargs.values())]):
        return {}
    leaves, _ = trees.flatten((args, kwargs))
    arrays = {id(x): x for x in leaves if type(x) is numpy.ndarray}
    if not arrays:
        return {}
    frontend = array_frontend()
    return {key: x for key, x in arrays.items() if frontend.is_traceable(x) and (not written or frontend.can_be_written(x))}


def shares_memory(value: Any, arrays: Iterable[Any]) -> bool:
    """Return whether an array in a result shares the memory of one of these, and is not that one itself."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return False
    outside = [x for x in arrays if isinstance(x, numpy.ndarray)]
    leaves, _ = trees.flatten(value) if outside else ((), None)
    inside = [x for x in leaves if type(x) is numpy.ndarray]
    return any([all([x is not y for y in outside]) and any([numpy.may_share_memory(x, y) for y in outside]) for x in inside])


def array_frontend() -> ModuleType:
    """Return the module that traces functions of arrays, imported when it is first needed, since it imports NumPy."""
    return importlib.import_module("dovetail.frontend.arrays.acquire")
