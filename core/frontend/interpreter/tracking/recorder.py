"""The interface between a tracker and a framework's tensors and modules; this one knows none, which suits plain values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dovetail.frontend.class_lookup import NULL
from dovetail.frontend.interpreter.frame import Frame

if TYPE_CHECKING:
    from dovetail.frontend.guards.source import Source
    from dovetail.frontend.interpreter.tracking.tracker import Tracker


class Recorder:
    """Records operations on tensors.  Methods return NULL for values that they do not handle."""

    symbolic_ints = False  # whether `symbolic` decides what the program sees of the ints in its arguments
    writes_text = False  # whether the program has written numbers into text
    atoms: frozenset[type] = frozenset()  # types of the framework that are guarded by value, as torch.dtype
    marks: dict[type, str] = {}  # classes that a tensor is an instance of where its attribute of that name is true

    def start(self, tracker: Tracker) -> None:
        """Begin the run."""

    def finish(self, tracker: Tracker) -> None:
        """End the run; guards and writes may be added."""

    def has_effects(self) -> bool:
        """Return whether the recorded computation writes to its inputs, or draws random numbers."""
        return False

    def refuses(self, error: BaseException) -> bool:
        """Return whether an error may be one that eager mode does not raise, so that no handler of the program sees it."""
        return False

    def recorded(self) -> int:
        """Return how many lines are recorded."""
        return 0

    def only_computes(self, start: int) -> bool:
        """Return whether the lines from `start` on draw no random numbers, and write into no tensor but their own results."""
        return True

    def writes_into(self, value: Any, start: int) -> bool:
        """Return whether the lines from `start` on write into the memory of a tensor in `value`."""
        return False

    def state_of_generator(self) -> Any:
        """Return the state of the framework's default random generator, to compare it."""
        return None

    def is_tensor(self, value: Any) -> bool:
        """Return whether `value` is a tensor, real or traced."""
        return False

    def has_identity(self, value: Any) -> bool:
        """Return whether `value` is a tensor, which is hashed by its identity."""
        return False

    def is_traced(self, value: Any) -> bool:
        """Return whether `value` is a traced tensor, not a real one."""
        return False

    def stored_key(self, tracker: Tracker, key: Any) -> Any:
        """Return what an outside container holds in the place of a traced tensor that is a key."""
        return key

    def is_input(self, value: Any) -> bool:
        """Return whether `reach` decides what the program sees of an outside value: tensors, and what else becomes an input."""
        return self.is_tensor(value)

    def original(self, tracker: Tracker, tensor: Any) -> Source | None:
        """Return the source of the object that a result has to be, None for a result of the computation."""
        return None

    def is_element_type(self, value: Any) -> bool:
        """Return whether a value is an element type that is guarded by its name: NumPy makes a new one at each access."""
        return False

    def is_buffer(self, value: Any) -> bool:
        """Return whether `value` holds data in C that a caller may write to, so that every call returns a copy of its own."""
        return False

    def copier(self, value: Any) -> Callable[[], Any] | None:
        """Return what copies `value`, an object that the program creates and that all calls use, as a call has left it; None for other objects."""
        return None

    def is_known(self, value: Any) -> bool:
        """Return whether C code of the framework may look into an outside object."""
        return False

    def only_numbers(self, iterator: Any) -> bool:
        """Return whether an outside iterator gives numbers that only have to be distinct."""
        return False

    def is_module(self, value: Any) -> bool:
        """Return whether `value` is a module that is guarded by its identity."""
        return False

    def handles(self, function: Any) -> bool:
        """Return whether calls of `function` that C code makes, as functools.reduce does, have to come to `call`."""
        return False

    def reach(self, tracker: Tracker, tensor: Any, source: Source) -> Any:
        """Return what the program sees for a tensor that was read from outside at `source`."""
        return tensor

    def known(self, value: Any) -> Any:
        """Return a number that the computation returns, where this path of the program has used its value; NULL elsewhere."""
        return NULL

    def place_of(self, tensor: Any) -> int:
        """Return the index of a tensor among the results of the computation, for a result or a write that mentions it."""
        raise NotImplementedError

    def taken_apart(self, tensor: Any) -> tuple[list[Any], Callable[..., Any]] | None:
        """Return what a tensor of a subclass holds, and the function that builds it of that; None for other tensors."""
        return None

    def load_attr(self, tracker: Tracker, owner: Any, name: str) -> Any:
        """Return an attribute of a tensor or module."""
        return NULL

    def store_attr(self, tracker: Tracker, owner: Any, name: str, value: Any) -> bool:
        """Check an attribute of a tensor that is about to be set or deleted; an error where that cannot wait.  Return whether it is done."""
        return False

    def boxed(self, call: Callable[[Any], Any], kind: str) -> Callable[[Any], Any]:
        """Return `call` with its number as an input of the computation."""
        return call

    def draw(self, call: Callable[[], Any], kind: str, what: str, mark: Any, generator: Any) -> Any:
        """Return the result of a call that reads the world outside, where it runs in the midst of the program; NULL where it is run before it."""
        return NULL

    def number(self, tracker: Tracker, source: Source, kind: str) -> Any:
        """Return what the program sees for a number that is computed before it at every call."""
        raise NotImplementedError

    def array(self, tracker: Tracker, drawn: Any, sample: Any) -> Any:
        """Return what the program sees for an array, or a scalar of NumPy's, like `sample` that is drawn at every call.

        `drawn` is the source of its tensor, or the tensor where the program draws in its midst.
        """
        raise NotImplementedError

    def symbolic(self, tracker: Tracker, value: int, source: Source) -> Any:
        """Return what the program sees for an int in its arguments: the value itself, which is then guarded, or a symbol."""
        return value

    def changing_number(self, tracker: Tracker, value: float, source: Source) -> Any:
        """Return what the program sees for a float from outside: the value itself, which is then guarded, or an input."""
        return value

    def is_symbolic(self, value: Any) -> bool:
        """Return whether a value is a symbolic size, or one of the framework's that hold them, such as a torch.Size."""
        return False

    def operate(self, tracker: Tracker, op: Any, args: list[Any]) -> Any:
        """Evaluate an operator, or an item, where one of the operands is a tensor."""
        return NULL

    def items(self, tracker: Tracker, owner: Any, key: Any) -> Any:
        """Return owner[key] of an object in C that is no tensor, for a key with tensors in it; NULL where that is nothing special."""
        return NULL

    def meets(self, tracker: Tracker, target: Any, value: Any) -> None:
        """Note that C code is about to write `value` into an object that is no tensor."""

    def words(self, tensor: Any) -> None:
        """Refuse to write out the value of a tensor that is not known."""

    def concrete(self, number: Any) -> Any:
        """Return the value of a number that the computation returns; an error where it is not known."""
        raise NotImplementedError

    def with_values(self, call: Callable, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
        """Return call(function, args, kwargs, frame), where need be with values in the place of the numbers among `args`."""
        return call(function, args, kwargs, frame)

    def sized(self, operands: tuple) -> tuple:
        """Return operands of the framework's C code with values or sizes in the place of the numbers in them."""
        return operands

    def as_it_is(self, tensor: Any) -> Any:
        """Return what prints as a tensor does now, whatever the program writes into it later."""
        return tensor

    def formatted(self, tensor: Any) -> Any:
        """Return what is written out for a tensor, before its value is asked for: for one without dimensions its number."""
        return tensor

    def is_text(self, value: Any) -> bool:
        """Return whether `value` is text that the computation writes numbers into."""
        return False

    def has_text(self, value: Any) -> bool:
        """Return whether `value` is a tensor that the computation writes out."""
        return False

    def text_of(self, tensor: Any) -> Any:
        """Return str(tensor) of one that the computation writes out."""
        raise NotImplementedError

    def text(self, number: Any, form: str) -> Any:
        """Return format(number, form) for a number that the computation returns; NULL where that takes its value."""
        return NULL

    def length_of_text(self, text: Any) -> Any:
        """Return len(text) of text that the computation writes numbers into."""
        raise NotImplementedError

    def joined(self, parts: list[Any]) -> Any:
        """Return pieces of text as one."""
        return "".join(parts)

    def counted(self, bounds: list[Any]) -> Any:
        """Return the iterator of a `for` loop over range(*bounds), numbers of the program among them; None where their values are needed."""
        return None

    def converted(self, value: Any, kind: type) -> Any:
        """Return int(value) or float(value) as a number that the computation returns; NULL where that takes its value."""
        return NULL

    def extremum(self, function: Any, x: Any, y: Any) -> Any:
        """Return min(x, y) or max(x, y) as a number that the computation returns; NULL where that takes values."""
        return NULL

    def printed(self, tracker: Tracker) -> None:
        """Guard the settings by which buffers are written out."""

    def is_number(self, value: Any) -> bool:
        """Return whether `value` is a number that the computation returns, which cannot be hashed."""
        return False

    def may_be_size(self, value: Any) -> bool:
        """Return whether `value` is a number that the computation returns, and may have a symbol for."""
        return False

    def content(self, tracker: Tracker, value: Any, source: Source) -> None:
        """Guard the content of an object of unknown kind that was read from outside, where native code may read it."""

    def truth(self, tracker: Tracker, tensor: Any) -> bool:
        """Branch on the value of a tensor."""
        return bool(tensor)

    def class_of(self, value: Any) -> type:
        """Return `type(value)` as the program sees it."""
        return type(value)

    def is_instance(self, tensor: Any, kinds: Any) -> bool:
        """Return isinstance(tensor, kinds)."""
        return isinstance(tensor, kinds)

    def native(self, tracker: Tracker, function: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Check the arguments of C code; an error where it may not read them."""

    def unknown(self, tracker: Tracker, function: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Check the arguments of C code without a rule; an error where its result may depend on what no guard covers."""

    def refused(self, error: Exception, *arguments: Any) -> None:
        """Raise an error in the place of C code's own where one of its arguments has no value yet."""

    def call(self, tracker: Tracker, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
        """Call a function or module of the framework."""
        return NULL
