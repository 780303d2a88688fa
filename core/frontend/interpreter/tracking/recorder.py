"""What a tracker asks about tensors and modules of a framework; this one knows none, which suits plain values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dovetail.frontend.class_lookup import NULL
from dovetail.frontend.interpreter.frame import Frame

if TYPE_CHECKING:
    from dovetail.frontend.guards.source import Source
    from dovetail.frontend.interpreter.tracking.tracker import Tracker


class Recorder:
    """Records operations on tensors.  What it has nothing to say about it answers with NULL."""

    atoms: frozenset[type] = frozenset()  # types of the framework that are guarded by value, as torch.dtype

    def start(self, tracker: Tracker) -> None:
        """The run begins."""

    def finish(self, tracker: Tracker) -> None:
        """The run has ended; guards and writes may be added."""

    def is_tensor(self, value: Any) -> bool:
        """Whether `value` is a tensor, real or traced."""
        return False

    def is_input(self, value: Any) -> bool:
        """Whether `reach` decides what the program sees of an outside value: tensors, and what else becomes an input."""
        return self.is_tensor(value)

    def original(self, tracker: Tracker, tensor: Any) -> Source | None:
        """Where the object is found that a result has to be, None for a tensor that the computation gives."""
        return None

    def is_buffer(self, value: Any) -> bool:
        """Whether `value` holds data in C that a caller may write to, so that every call returns a copy of its own."""
        return False

    def is_module(self, value: Any) -> bool:
        """Whether `value` is a module that is guarded by its identity."""
        return False

    def handles(self, function: Any) -> bool:
        """Whether calls of `function` that C code makes, as functools.reduce does, have to come to `call`."""
        return False

    def reach(self, tracker: Tracker, tensor: Any, source: Source) -> Any:
        """A tensor was read from outside at `source`: what the program sees instead."""
        return tensor

    def place_of(self, tensor: Any) -> int:
        """The place of a tensor among what the computation gives, for a result or a write that mentions it."""
        raise NotImplementedError

    def load_attr(self, tracker: Tracker, owner: Any, name: str) -> Any:
        """An attribute of a tensor or module."""
        return NULL

    def store_attr(self, tracker: Tracker, owner: Any, name: str) -> None:
        """An attribute of a tensor is about to be set or deleted; an error where that cannot wait."""

    def boxed(self, call: Callable[[Any], Any], kind: str) -> Callable[[Any], Any]:
        """`call`, giving its number as an input of the computation."""
        return call

    def number(self, tracker: Tracker, source: Source, kind: str) -> Any:
        """A number that is computed before the program at every call: what the program sees instead."""
        raise NotImplementedError

    def operate(self, tracker: Tracker, op: Any, args: list[Any]) -> Any:
        """An operator, or an item, where one of the operands is a tensor."""
        return NULL

    def words(self, tensor: Any) -> None:
        """The value of a tensor is about to be written out; an error where nobody knows it."""

    def is_number(self, value: Any) -> bool:
        """Whether `value` is a number that the computation gives, which cannot be hashed."""
        return False

    def content(self, tracker: Tracker, value: Any, source: Source) -> None:
        """An object of unknown kind was read from outside: guard what is in it where native code may look at it."""

    def truth(self, tracker: Tracker, tensor: Any) -> bool:
        """A branch on the value of a tensor."""
        return bool(tensor)

    def class_of(self, value: Any) -> type:
        """What `type(value)` is."""
        return type(value)

    def is_instance(self, tensor: Any, kinds: Any) -> bool:
        """isinstance(tensor, kinds)"""
        return isinstance(tensor, kinds)

    def native(self, tracker: Tracker, function: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        """C code is about to be called; an error where it may not see these arguments."""

    def unknown(self, tracker: Tracker, function: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        """C code without a rule is about to be called; an error where its result may depend on what no guard sees."""

    def refused(self, error: Exception, *arguments: Any) -> None:
        """C code did not take these arguments; an error in the place of its own where one of them has no value yet."""

    def call(self, tracker: Tracker, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
        """A call of a function or module of the framework."""
        return NULL
