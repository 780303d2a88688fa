"""Describe one private part of PyTorch: where it is, what it is for, how to test it, what happens without it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType
from typing import Any

import torch

from dovetail.torch_internals.undisturbed import in_new_thread


def locate(path: str) -> Any:
    """Return the object at a dotted path such as "torch._C._nn.gelu"; submodules on the way are imported.

    Raises LookupError, with the reason, where this torch has no such object or its module does not import.
    """
    value: Any = torch
    parts = path.split(".")
    for i, part in enumerate(parts[1:], 2):
        try:
            value = _member(value, part, ".".join(parts[:i]))
        except Exception as error:  # importing a broken submodule raises anything
            raise LookupError(f"torch {torch.__version__} has no usable {path}: {type(error).__name__}: {error}") from error
        if value is None:
            raise LookupError(f"torch {torch.__version__} has no {path}")
    return value


def _member(owner: Any, name: str, path: str) -> Any:
    """Return what `name` of `owner` is, imported where it is a submodule, or None."""
    value = getattr(owner, name, None)
    if value is not None or not (isinstance(owner, ModuleType) and hasattr(owner, "__path__")):
        return value
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name != path:
            raise
        return None


def resolve(path: str) -> Any:
    """Return the object at a dotted path, or None where `locate` raises."""
    try:
        return locate(path)
    except LookupError:
        return None


def _exists(value: Any) -> bool:
    return value is not None


@dataclass(eq=False)
class Internal:
    """A private or unstable part of PyTorch at a dotted `path`.

    `purpose` says what Dovetail uses it for, `fallback` what happens without it, `seen` the oldest and the newest torch in which
    `probe(value)` was true.  `costly` marks a module that takes seconds to import: nothing but its user imports it.
    """

    path: str
    purpose: str
    fallback: str
    seen: tuple[str, str] = ("2.10", "2.15")
    probe: Callable[[Any], bool] = _exists
    costly: bool = False
    missing: str = field(default="", init=False)

    @cached_property
    def value(self) -> Any:
        """The object, or None where this torch lacks it; it is not tested."""
        try:
            return locate(self.path)
        except LookupError as error:
            self.missing = str(error)
            return None

    @cached_property
    def problem(self) -> str | None:
        """Why the object cannot be used, None where it can; the probe runs once, in a thread of its own: whatever mode the first user is in."""
        if self.value is None:
            return self.missing
        try:
            works = in_new_thread(lambda: self.probe(self.value)) is True
        except Exception as error:  # private code may raise anything for arguments that it does not know
            return f"{self.path} of torch {torch.__version__} raises {type(error).__name__}: {str(error).partition(chr(10))[0]}"
        return None if works else f"{self.path} of torch {torch.__version__} does not behave as expected"

    @property
    def usable(self) -> Any:
        """The object where its probe succeeds, else None."""
        return None if self.problem is not None else self.value

    @property
    def loaded(self) -> bool:
        """Whether the probe runs without importing a costly module."""
        return not self.costly or self.path.rpartition(".")[0] in sys.modules
