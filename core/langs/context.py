"""Which language gives a proxy its operators, methods and properties."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.trace import TensorProxy


class Language(dict[str, Callable[..., Any]]):
    """The names a proxy answers to: operators ("add", "radd", "iadd", "getitem") and methods ("sum"), each with its operation.

    `proxy` is the class of its tensors.  The language that is spoken belongs to the trace being recorded: entering a composite
    operation swaps it, so the same tensor means PyTorch in the user's code and NumPy in a NumPy operation.
    """

    def __init__(self, name: str, proxy: type[TensorProxy] = TensorProxy):
        super().__init__()
        self.name, self.proxy = name, proxy
        self.properties: dict[str, Callable[[TensorProxy], Any]] = {}  # x.shape, x.T: attributes, read without a call
        self.foreign: Callable[[Any], Any] | None = None  # makes tensors of what else the language takes for one in the arguments

    def __repr__(self) -> str:
        return f"Language({self.name!r})"
