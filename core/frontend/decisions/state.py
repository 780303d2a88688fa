"""The state of the interpreter at a decision, in a form that is equal where the future of two runs is equal.

Traced values are numbered in the order in which they are met; containers, instances, functions and cells that the program created are written
out by their content, objects from outside by their source.  What cannot be written out, as a generator, leaves a state that equals no other.
"""

from __future__ import annotations

import gc
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, zip_longest
from types import BuiltinFunctionType, CellType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from dovetail.frontend.autograd.inner_function import RecordsLater
from dovetail.frontend.autograd.traced_autograd import TracedAutograd
from dovetail.frontend.class_lookup import HEAP, NULL, address_of
from dovetail.frontend.decisions.counters import CountedRange, Counter, is_counter
from dovetail.frontend.decisions.harmless import HARMLESS
from dovetail.frontend.decisions.late_sizes import renamed
from dovetail.frontend.decisions.liveness import live_locals
from dovetail.frontend.guards.source import Source
from dovetail.frontend.interpreter import engine
from dovetail.frontend.interpreter.frame import Frame
from dovetail.frontend.interpreter.tracking.recorder import Recorder
from dovetail.frontend.interpreter.tracking.tracker import Tracker
from dovetail.frontend.interpreter.world import World
from dovetail.frontend.recording.checkpoint import Checkpoint
from dovetail.langs.torch import SymbolicInt
from dovetail.prims import Symbol
from dovetail.prims.sizes import Size
from dovetail.trace import Environment, NumberProxy, Proxy, TensorProxy, Trace, is_proxy
from dovetail.trace.passes.functionalize import Functionalizer
from dovetail.trace.source_location import CodeMap

_ATOMS = frozenset({int, bool, str, bytes, type(None), type(...), type(NotImplemented)})
_ITERATORS = frozenset({"list_iterator", "tuple_iterator", "range_iterator", "longrange_iterator", "enumerate", "zip", "list_reverseiterator"})
_DEQUE_ITERATORS = (type(iter(deque())), type(reversed(deque())))
_VIEW_ITERATORS = frozenset({"dict_keyiterator", "dict_valueiterator", "dict_itemiterator", "odict_iterator"})
_FIXED = (type, ModuleType, CodeType, BuiltinFunctionType, Symbol)
_FIXED_NAMES = frozenset(
    {"method_descriptor", "wrapper_descriptor", "classmethod_descriptor", "getset_descriptor", "member_descriptor", "ContextVar", "Fresh"}
)


class Machinery:
    """A base of classes of this package whose instances hold no state of the program."""


class Same:
    """An object that equals itself alone, whatever its class makes of `==`; it keeps the object alive, so that its id stays its own."""

    __slots__ = ("number", "value")

    def __init__(self, value: Any):
        self.value, self.number = value, address_of(value)

    def __eq__(self, other: object) -> bool:
        return type(other) is Same and other.value is self.value

    def __hash__(self) -> int:
        return self.number


def source_key(source: Source | None) -> Any:
    """Return a source as a key that is equal for equal sources of two runs."""
    if source is None:
        return None
    key = _object_key(source.key) if source.kind in ("const", "static", "array", "leaves", "fresh") else (type(source.key), source.key)
    if source.kind == "static":
        key = (source_key(source.parent), source.key)
    return source.kind, key, source_key(source.parent)


def _object_key(x: Any) -> Any:
    """Return an object as a key that is equal for the same object, and for calls of the same method that two runs make of it."""
    if type(x) is partial:
        return partial, tuple([_object_key(part) for part in (x.func, *x.args, *chain.from_iterable(x.keywords.items()))])
    if type(x) is BuiltinFunctionType and not isinstance(x.__self__, (ModuleType, type(None))):
        return x.__name__, Same(x.__self__)
    return (type(x), x) if type(x) in _ATOMS else Same(x)


@dataclass
class State:
    """The state of the interpreter at a decision.

    Attributes:
        key: equal for states with an equal future; None where that cannot be told.
        problem: why there is no key.
        live: the values of the pure program that the rest of the run may read.
        outline: equal for states that differ in counters alone.
        counters: the ints in the program's frames.
        names: the symbols of sizes in it, as they are called in the key.
    """

    key: Any
    problem: str | None
    live: list[Proxy]
    outline: Any = None
    counters: Sequence[Counter] = ()
    names: Mapping[str, str] = field(default_factory=dict)


class Reader:
    """Writes out the state of one run."""

    def __init__(self, tracker: Tracker, functionalizer: Functionalizer, place: Callable[[Proxy], int | None], numbers: dict[Proxy, Any]):
        self.tracker, self.functionalizer, self.place, self.numbers = tracker, functionalizer, place, numbers
        self.problem: str | None = None
        self.symbolic = functionalizer.new.relations is not None
        self.seen: dict[int, int] = {}  # id of an object -> its number
        self.kept: list[Any] = []  # holds those objects, so that their ids stay theirs
        self.counters: list[Counter] = []
        self.outlines: dict[int, Any] = {}  # part of the key -> the frame that it describes, without its counters
        self.order: dict[Proxy, int] = {}
        self.sized: Mapping[Proxy, Size] = {}  # integers that are symbols where operations take them
        self.marked: tuple[Container[Proxy], ...] = ()  # what autograd notes of tensors
        self.values: dict[Proxy, int] = {}  # values of the pure program -> their numbers
        self.names: dict[str, str] = {}  # symbols of sizes, as they are called in the key
        self.written: dict[Proxy, tuple[Any, str, str]] = {}  # texts, which later states of the run need, too: a program may hold thousands

    def read(self, own: Container[CodeType], end: CodeType, context: tuple) -> State:
        """Return the state: that of all frames from the caller's up to the one that runs `end`.

        Args:
            own: code of the decision itself, which is passed over.
            end: the code that runs the program.
            context: global settings that the rest of the run may read.
        """
        parts: list[Any] = [context]
        real, innermost = sys._getframe(1), True
        while real is not None and real.f_code is not end:
            code = real.f_code
            if code is engine.loop.__code__:
                frame: Frame = real.f_locals["frame"]
                key, self.outlines[len(parts)] = self.frame(frame, real.f_locals["pc"])
                parts.append(key)
                innermost = False
            elif code not in own:
                parts.append((Same(code), _place(real), self.machine(real, innermost)))
                if code not in HARMLESS:
                    self.give_up(f"{code.co_qualname} is in the middle of its work")
            real = real.f_back
        tracker, functionalizer = self.tracker, self.functionalizer
        parts.append(self.of([(w.owner, w.what, w.name, w.value) for w in tracker.effects.log]))
        for p in functionalizer.old.inputs:
            if functionalizer.writes.get(p):
                parts.append(("written", self.place(p), p in functionalizer.followed, self.held(functionalizer.numbers(p))))
        if tracker.snapshots or tracker.annotations:
            self.give_up("the program works with an array, or with annotations")
        key = tuple(parts)
        try:
            hash(key)
        except TypeError:
            self.give_up("a value in it cannot be hashed")
        if self.problem:
            return State(None, self.problem, list(self.values), names=self.names)
        outline = tuple([self.outlines.get(i, part) for i, part in enumerate(key)])
        return State(key, None, list(self.values), outline, self.counters, self.names)

    def give_up(self, why: str) -> None:
        """Note why this state equals no other."""
        self.problem = self.problem or why

    def machine(self, real: FrameType, innermost: bool) -> Any:
        """Return what a frame of this package holds: of those between two frames of the program nothing is read again."""
        if not innermost:
            return None
        return tuple([(name, self.of(x)) for name, x in real.f_locals.items()])

    def frame(self, frame: Frame, pc: int) -> tuple[Any, Any]:
        """Return what a frame of the program holds, and the same without its counters."""
        live = live_locals(frame.code).get(frame.decoded.offsets[pc])
        if live is None or frame.snapshot is not None or frame.thrown is not None or frame.reraised:
            self.give_up("a frame is in an unusual state")
            live = range(len(frame.slots))
        slots = [(i, self.of(x)) for i, x in enumerate(frame.slots) if x is not NULL and (i in live or frame.is_cell(i))]
        stack = [(i, self.of(x)) for i, x in enumerate(frame.stack)]
        rest = (frame.keyword_names, self.of(frame.handled), self.of(frame.names), Same(frame.globals))
        head = Same(frame.code), pc
        outlines = [tuple([self.outline(values, i, part) for i, part in parts]) for values, parts in ((frame.slots, slots), (frame.stack, stack))]
        return (*head, tuple(slots), tuple(stack), rest), (*head, *outlines, rest)

    def outline(self, values: list[Any], index: int, part: Any) -> Any:
        """Return a part of a frame, of a counter its place alone."""
        if not is_counter(values[index]):
            return index, part
        self.counters.append(Counter(values, index))
        return index, type(values[index])

    def of(self, x: Any) -> Any:
        """Return a value written out."""
        kind = type(x)
        if x is NULL:
            return "NULL"
        if is_proxy(x):
            if kind is NumberProxy and x in self.numbers:
                return self.of(self.numbers[x])
            return self.proxy(x)
        if kind is int and x in self.tracker.identities:  # which is another int in each run
            return "id", self.of(self.tracker.identities[x])
        if kind in _ATOMS:
            return kind, x
        if kind is SymbolicInt or kind is Size:
            return "size", self.text(x.size if kind is SymbolicInt else x)
        if isinstance(x, tuple) and any([type(n) is SymbolicInt for n in x]):  # a shape, which is no atom then
            return kind, tuple(map(self.of, x))
        if kind in (float, complex):
            return kind, repr(x)
        if address_of(x) in self.seen:
            return "again", self.seen[address_of(x)]
        self.seen[address_of(x)] = len(self.seen)
        self.kept.append(x)
        if isinstance(x, (Machinery, World, Frame, Recorder, TracedAutograd, Environment, Trace, Checkpoint, FrameType)):
            return "machinery", kind
        if self.tracker.source(x) is not None:
            return "outside", source_key(self.tracker.source(x)), self.of(self.tracker.effects.shadows.get(address_of(x)))
        return self._fresh(x, kind)

    def _fresh(self, x: Any, kind: type) -> Any:
        """Return an object written out that the program created."""
        if kind in _CONTENTS:
            return kind, _CONTENTS[kind](self, x)
        if isinstance(x, RecordsLater):
            return kind, self.of(x.facts())
        if kind in self.tracker.atoms:
            return kind, repr(x)
        if kind is BuiltinFunctionType and not isinstance(x.__self__, (ModuleType, type(None))):
            return "method", x.__name__, self.of(x.__self__)
        if isinstance(x, type) and self.tracker.is_fresh(x):
            return "class", x.__qualname__, Same(kind), self.of(x.__bases__), tuple([(name, self.of(part)) for name, part in _parts(x)])
        if isinstance(x, _FIXED) or kind.__name__ in _FIXED_NAMES:
            return "fixed", Same(x)
        if (kind.__name__ in _ITERATORS and kind.__module__ == "builtins") or kind in _DEQUE_ITERATORS:
            return kind.__name__, self._reduced(x.__reduce__())
        if kind.__name__ in _VIEW_ITERATORS and kind.__module__ == "builtins":
            return kind.__name__, self._reduced(x.__reduce__()), self._reduced(tuple(gc.get_referents(x)))
        if _is_plain_instance(kind):
            return "instance", self.of(kind) if self.tracker.is_fresh(kind) else Same(kind), self.of(vars(x))
        self.give_up(f"a {kind.__qualname__} is alive")
        for part in _referents(x):
            if not isinstance(part, _FIXED) and address_of(part) not in self.seen and len(self.seen) < 10_000:
                self.of(part)
        return "unknown", Same(x)

    def _reduced(self, parts: tuple) -> Any:
        self.kept.append(parts)
        return tuple([self.of(part) for part in parts])

    def proxy(self, p: Proxy) -> Any:
        """Return a traced value written out: what it is, and which value of the pure program it holds."""
        if p in self.order:
            return "t", self.order[p]
        self.order[p] = len(self.order)
        functionalizer, now, base = self.functionalizer, None, None
        if p not in functionalizer.hidden:
            now = self.held(functionalizer.numbers(p))
        if p in functionalizer.parent:  # later lines may write through a view: what it looks into is live, and how it looks
            line = functionalizer.parent[p]
            base = line.symbol.id, self.texts(p)[1], self.proxy(line.args[0])
        facts = (self.texts(p)[0], isinstance(p, TensorProxy) and (p.spec.requires_grad, self.text(p.spec.strides)))
        marks = tuple([p in marks for marks in self.marked])
        return "t", self.order[p], now, base, facts, p in functionalizer.followed, marks, self.place(p), self.text(self.sized.get(p))

    def held(self, value: Proxy) -> Any:
        """Return the number of a value of the pure program: two names of one value stay one."""
        number = self.values.setdefault(value, len(self.values))
        needs_grad = isinstance(value, TensorProxy) and value.spec.requires_grad
        return number, self.texts(value)[0], needs_grad, self.place(value), value in self.functionalizer.bases

    def texts(self, p: Proxy) -> tuple[str, str]:
        """Return the spec of a traced value as text, and how it looks into another where it is a view."""
        known = self.written.get(p)
        if known is None or known[0] is not p.spec:
            line = self.functionalizer.parent.get(p)
            known = self.written[p] = p.spec, repr(p.spec), "" if line is None else repr(line.kwargs)
        return (renamed(known[1], self.names), renamed(known[2], self.names)) if self.symbolic else known[1:]

    def text(self, x: Any) -> str:
        """Return what prints with sizes in it, the same for any names of their symbols."""
        return renamed(repr(x), self.names) if self.symbolic else repr(x)


def _all_of(reader: Reader, items: Iterable[Any]) -> tuple:
    return tuple([reader.of(item) for item in items])


def _pairs(reader: Reader, x: dict) -> tuple:
    return tuple([(reader.of(key), reader.of(item)) for key, item in x.items()])


def _cell(reader: Reader, x: CellType) -> Any:
    try:
        return reader.of(x.cell_contents)
    except ValueError:
        return "empty"


def _function(reader: Reader, x: FunctionType) -> tuple:
    return Same(x.__code__), Same(x.__globals__), _all_of(reader, (x.__closure__, x.__defaults__, x.__kwdefaults__, vars(x) or None))


_CONTENTS: dict[type, Callable[[Reader, Any], Any]] = {  # a class -> what its instances hold, written out
    **dict.fromkeys((list, tuple), _all_of),
    **dict.fromkeys((set, frozenset), lambda reader, x: (sys.getsizeof(x), _all_of(reader, x))),  # its order depends on the size of its table
    dict: lambda reader, x: Same(x) if "__builtins__" in x else _pairs(reader, x),  # the globals of code are what they are
    OrderedDict: lambda reader, x: (_pairs(reader, x), reader.of(vars(x))),
    defaultdict: lambda reader, x: (_pairs(reader, x), reader.of(x.default_factory)),
    deque: lambda reader, x: (x.maxlen, _all_of(reader, x)),
    slice: lambda reader, x: _all_of(reader, (x.start, x.stop, x.step)),
    range: lambda reader, x: (x.start, x.stop, x.step),
    CountedRange: lambda reader, x: (reader.of(x.at), reader.of(x.stop), x.step),
    CellType: _cell,
    FunctionType: _function,
    MethodType: lambda reader, x: _all_of(reader, (x.__func__, x.__self__)),
    Source: lambda reader, x: source_key(x),
}


def is_looped_over() -> bool:
    """Return whether the program loops over the result of the call that it is in, and does nothing else with it."""
    real = sys._getframe(1)
    while real.f_code is not engine.loop.__code__:
        real = real.f_back
    at = real.f_locals["pc"]
    return real.f_locals["frame"].decoded.names[at + 1 : at + 3] == ["GET_ITER", "FOR_ITER"]


_POSITIONS = CodeMap[list[tuple[int | None, ...]]]()


def _place(real: FrameType) -> Any:
    """Return the expression that a frame evaluates; CPython's offset also depends on which instructions it has specialized so far."""
    code = real.f_code
    if (positions := _POSITIONS.get(code)) is None:
        positions = _POSITIONS[code] = list(code.co_positions())
    return positions[real.f_lasti // 2]


def _parts(cls: type) -> list[tuple[str, Any]]:
    """Return what a class holds, but for what CPython creates with it: the descriptors of `__dict__`, `__weakref__` and slots."""
    return [(name, part) for name, part in vars(cls).items() if getattr(part, "__objclass__", None) is not cls]


def _referents(x: Any) -> list[Any]:
    """Return what an object holds.

    The tuple of a zip_longest has holes for iterators that have ended.  To read one crashes, so what is in the tuple stands for it.
    """
    held = gc.get_referents(x)
    if type(x) is not zip_longest:
        return held
    return [inner for part in held for inner in (gc.get_referents(part) if type(part) is tuple else [part])]


def _is_plain_instance(kind: type) -> bool:
    """Return whether all state of an instance is in its `__dict__`."""
    bases = kind.__mro__[:-1]
    return bool(kind.__dictoffset__) and all([base.__flags__ & HEAP and not base.__dict__.get("__slots__") for base in bases])
