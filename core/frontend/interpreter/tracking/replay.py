"""The part of a call after its computation: build the result, and do the writes in order.

A value is kept as a template: tensors by their index among the results of the computation, outside objects by their source, fresh containers
and instances as recipes, since every call has to create new ones.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from copy import copy
from functools import partial
from types import BuiltinMethodType, CellType, CodeType, FunctionType, GeneratorType, MethodType, MethodWrapperType, ModuleType
from typing import TYPE_CHECKING, Any
from weakref import ref

from dovetail.errors import EagerCall, Unsupported
from dovetail.frontend.class_lookup import NULL, address_of, attributes_of, lookup
from dovetail.frontend.guards.source import Source
from dovetail.frontend.interpreter.protocols import is_data, plain_kind
from dovetail.frontend.interpreter.tracking.container_bases import CONTAINERS, base_of
from dovetail.frontend.interpreter.tracking.effects import DELETED, Write
from dovetail.frontend.interpreter.tracking.remaking import MAPPING_VIEWS, c_base, is_of_python, iterator_again, maker
from dovetail.frontend.interpreter.tracking.t_strings import T_STRINGS, arguments_of

if TYPE_CHECKING:
    from dovetail.frontend.interpreter.tracking.tracker import Tracker


class Values:
    """The values of one call: results of the computation, objects that the prologue read, and the fresh objects that were built so far."""

    def __init__(self, tensors: list[Any], objects: tuple):
        self.tensors, self.objects = tensors, objects
        self.built: dict[int, Any] = {}


Template = Callable[[Values], Any]
_PARTS: dict[type, tuple[Callable[[Any], Iterable[Any]], Callable[..., Any]]] = {  # what immutable objects hold, and what builds one of these
    tuple: (tuple, lambda *items: items),
    frozenset: (tuple, lambda *items: frozenset(items)),
    slice: (lambda x: (x.start, x.stop, x.step), slice),
    MethodType: (lambda x: (x.__func__, x.__self__), MethodType),
    partial: (lambda x: (x.func, x.args, x.keywords), lambda function, args, keywords: partial(function, *args, **keywords)),
    ref: (lambda x: (x(), x.__callback__), ref),
    **{kind: (arguments_of, kind) for kind in T_STRINGS},
}


class Templates:
    """Templates of the values of one trace.

    `sources` are those of the outside objects that the templates mention, in the order of `Values.objects`.
    """

    def __init__(self, tracker: Tracker):
        self.tracker = tracker
        self.sources: list[Source] = []
        self.places: dict[int, int] = {}
        self.fresh: dict[int, tuple[Any, Template]] = {}  # id of a fresh object: itself, and its template

    def of(self, value: Any) -> Template:
        """Return the template that builds `value` again."""
        tracker = self.tracker
        if tracker.recorder.is_tensor(value):
            if (source := tracker.recorder.original(tracker, value)) is not None:
                return self._outside(value, source)
            if (number := tracker.recorder.known(value)) is not NULL:
                return lambda values: number
            if (recipe := tracker.recorder.taken_apart(value)) is not None:
                return self.fresh[id(value)][1] if id(value) in self.fresh else self._built(value, *recipe)
            place = tracker.recorder.place_of(value)
            return lambda values: values.tensors[place]
        if type(value) in tracker.atoms and not tracker.recorder.is_symbolic(value):
            return lambda values: value
        source = tracker.source(value)
        if source is not None:
            return self._outside(value, source)
        if id(value) in self.fresh:
            return self.fresh[id(value)][1]
        maker = self._maker(value)
        return (lambda values: value) if maker is None else self._fresh(value, *maker)

    def _built(self, value: Any, held: list[Any], build: Callable[..., Any]) -> Template:
        """Return a template that builds a tensor of a subclass of what it holds."""
        return self._fresh(value, self._of_parts(held, build), None)

    def _of_parts(self, held: Iterable[Any], build: Callable[..., Any]) -> Template:
        """Return a template that calls `build` with what an object holds."""
        parts = [self.of(item) for item in held]
        return lambda values: build(*[part(values) for part in parts])

    def _outside(self, value: Any, source: Source) -> Template:
        if source.kind == "const":
            return lambda values: value
        place = self.places.get(id(value))
        if place is None:
            place = self.places[id(value)] = len(self.sources)
            self.sources.append(source)
        return lambda values: values.objects[place]

    def _fresh(self, value: Any, make: Template | None, fill: Callable[[], Callable[[Any, Values], None]] | None) -> Template:
        """Return a template that builds an object once for each call: first the empty object, then its parts, which may lead back to it."""
        key, parts = id(value), []

        def template(values: Values) -> Any:
            if key not in values.built:
                values.built[key] = empty = make(values)
                for part in parts:
                    part(empty, values)
            return values.built[key]

        self.fresh[key] = value, template
        if fill is not None:
            parts.append(fill())
        return template

    def _maker(self, value: Any) -> tuple[Template, Callable | None] | None:
        """Return how to create the empty object and how to fill it; None for what all calls can share."""
        kind = type(value)
        created = value if isinstance(value, type) else kind
        if self.tracker.is_fresh(created):
            raise EagerCall(f"the class {created.__qualname__} or an instance of it leaves the program, and every call creates another class")
        if kind is MethodType and (self.tracker.recorder.is_tensor(value.__self__) or self.tracker.recorder.is_symbolic(value.__self__)):
            raise EagerCall("a method of a traced value leaves the program")
        if kind in _PARTS and not (kind is ref and value() is None):
            parts_of, build = _PARTS[kind]
            return self._of_parts(parts_of(value), build), None
        if isinstance(value, tuple):
            own_new = hasattr(kind, "n_sequence_fields") or not is_of_python(kind)  # classes in C, such as torch.Size
            new = kind if own_new else partial(tuple.__new__, kind)
            fill = (lambda: self._attributes(value)) if getattr(value, "__dict__", None) else None
            return self._of_parts(tuple.__iter__(value), lambda *parts: new(parts)), fill
        if kind is FunctionType:
            return self._function(value)
        if kind is CellType:
            return lambda values: CellType(), lambda: self._cell(value)
        if kind in (BuiltinMethodType, MethodWrapperType) and not isinstance(value.__self__, (ModuleType, type, type(None))):
            method, holder = getattr(c_base(type(value.__self__)), value.__name__), self.of(value.__self__)
            return lambda values: method.__get__(holder(values)), None
        if isinstance(value, (bytearray, array)) or self.tracker.recorder.is_buffer(value):
            kept = copy(value)
            return lambda values: copy(kept), None
        if (copied := self.tracker.recorder.copier(value)) is not None:
            return lambda values: copied(), None
        if isinstance(value, GeneratorType):
            raise Unsupported(f"the generator {value.__qualname__} leaves the program before it has ended; return list(...) of it")
        if (again := iterator_again(value, self.of)) is not None:
            return again, None
        if lookup(kind, "__next__") is not NULL and type(lookup(kind, "__next__")) is not FunctionType:
            raise Unsupported(f"a {kind.__name__} leaves the program, which no later call could make again; return list(...) of it")
        if kind not in MAPPING_VIEWS and (kind in CONTAINERS or isinstance(value, (list, dict, set, deque))):
            return self._emptied(value), lambda: self._content(value)
        return maker(value, self.of, self._attributes)

    def _emptied(self, value: Any) -> Template:
        """Return what creates an empty container of the same class; no code of the class runs."""
        kind, base = type(value), base_of(value)
        arguments: tuple[Template, ...] = ()
        if base is defaultdict:
            arguments = (self.of(defaultdict.default_factory.__get__(value)),)
        elif base is deque:
            maxlen = deque.maxlen.__get__(value)
            arguments = (lambda values: (), lambda values: maxlen)

        def make(values: Values) -> Any:
            empty = base.__new__(kind)
            base.__init__(empty, *[argument(values) for argument in arguments])
            return empty

        return make

    def _content(self, value: Any) -> Callable[[Any, Values], None]:
        attributes = self._attributes(value)
        if isinstance(value, dict):
            base = OrderedDict if isinstance(value, OrderedDict) else dict  # each keeps an order of its own
            pairs, put = [(self.of(key), self.of(item)) for key, item in base.items(value)], base.__setitem__

            def fill(target: Any, values: Values) -> None:
                attributes(target, values)
                for key, item in pairs:
                    put(target, key(values), item(values))
        else:
            base = base_of(value)
            parts, add = [self.of(item) for item in base.__iter__(value)], set.add if base is set else base.append

            def fill(target: Any, values: Values) -> None:
                attributes(target, values)
                for part in parts:
                    add(target, part(values))

        return fill

    def _attributes(self, value: Any) -> Callable[[Any, Values], None]:
        parts = {name: self.of(item) for name, item in attributes_of(value).items()}
        hidden = {
            name for name in getattr(value, "__dict__", None) or () if is_data(lookup(type(value), name))
        }  # by a property, as those of scipy's results

        def fill(target: Any, values: Values) -> None:
            for name, part in parts.items():
                if name in hidden:
                    target.__dict__[name] = part(values)
                else:
                    object.__setattr__(target, name, part(values))

        return fill

    def _function(self, value: FunctionType) -> tuple[Template, Callable] | None:
        code: CodeType = value.__code__
        cells = [self.of(cell) for cell in value.__closure__ or ()]
        defaults, kwdefaults = self.of(value.__defaults__), self.of(value.__kwdefaults__)

        def make(values: Values) -> FunctionType:
            closure = tuple([cell(values) for cell in cells]) if cells else None
            function = FunctionType(code, value.__globals__, value.__name__, defaults(values), closure)
            function.__kwdefaults__, function.__qualname__ = kwdefaults(values), value.__qualname__
            return function

        return make, lambda: self._function_attributes(value)

    def _function_attributes(self, value: FunctionType) -> Callable[[Any, Values], None]:
        attributes, evaluated = self._attributes(value), self.tracker.annotations.get(id(value))
        annotate = getattr(value, "__annotate__", None)  # from Python 3.14 on
        if evaluated is not None:
            name, annotations = "__annotations__", self.of(evaluated)
        elif annotate is not None:
            name, annotations = "__annotate__", self.of(annotate)
        else:
            name, annotations = "__annotations__", lambda values: value.__annotations__

        def fill(target: FunctionType, values: Values) -> None:
            attributes(target, values)
            setattr(target, name, annotations(values))

        return fill

    def _cell(self, value: CellType) -> Callable[[Any, Values], None]:
        try:
            part = self.of(value.cell_contents)
        except ValueError:
            return lambda target, values: None

        def fill(target: CellType, values: Values) -> None:
            target.cell_contents = part(values)

        return fill


def writes(templates: Templates, log: list[Write]) -> list[Callable[[Values], None]]:
    """Return a function for each write of a trace, which does it."""
    return [_write(templates, write) for write in _final(log)]


def _final(log: list[Write]) -> list[Write]:
    """Return the writes with the last value of each attribute and item in place of earlier ones that nothing sees.

    The earlier ones may have no value outside of the function that a transform was applied to, as the parameters that a module has for one call.
    """
    last: dict[tuple, Write] = {}
    final = []
    for write in reversed(log):
        place = _place(write)
        if write.what == "call":  # which may look at anything
            last.clear()
        elif place is None:
            last = {other: later for other, later in last.items() if other[0] != address_of(write.owner)}
        final.append(write if place is None else last.setdefault(place, write))
    return final[::-1]


def _place(write: Write) -> tuple | None:
    """Return what a write sets, of which the value before does not matter to it; None for any other write."""
    if write.what in ("attribute", "item", "field"):
        return None if write.value is DELETED else (address_of(write.owner), write.what, write.name)
    if write.what != "method" or write.name != "__setitem__":
        return None
    key = write.value[0][0]
    return (address_of(write.owner), write.what, type(key), key) if type(key) in (str, int) else None


def _context_write(templates: Templates, write: Write) -> Callable[[Values], None]:
    """Set a context variable, or reset it by the token that setting it returned in the same call."""
    variable, key = write.owner, id(write.name)
    if write.value is DELETED:
        return lambda values: variable.reset(values.built[key])
    value = templates.of(write.value)
    return lambda values: values.built.__setitem__(key, variable.set(value(values)))


def _write(templates: Templates, write: Write) -> Callable[[Values], None]:
    name = write.name
    if write.what in ("method", "call"):
        args, kwargs = [templates.of(x) for x in write.value[0]], {key: templates.of(x) for key, x in write.value[1].items()}
        if write.what == "call":
            return lambda values: name(*[x(values) for x in args], **{key: x(values) for key, x in kwargs.items()})
        owner = templates.of(write.owner)
        method = getattr(base_of(write.owner), name, None) or getattr(type(write.owner), name)  # what its class has in Python has been interpreted
        return lambda values: method(owner(values), *[x(values) for x in args], **{key: x(values) for key, x in kwargs.items()})
    if write.what == "context":
        return _context_write(templates, write)
    owner = (lambda values: write.owner) if write.what == "item" else templates.of(write.owner)
    gone = write.value is DELETED
    value = None if gone else templates.of(write.value)
    if write.what == "item":
        return (lambda values: owner(values).pop(name, NULL)) if gone else (lambda values: owner(values).__setitem__(name, value(values)))
    if write.what == "field":
        return lambda values: owner(values).__dict__.pop(name, NULL) if gone else owner(values).__dict__.__setitem__(name, value(values))
    set_, delete = _setters(write.owner)
    return (lambda values: delete(owner(values), name)) if gone else (lambda values: set_(owner(values), name, value(values)))


def _setters(owner: Any) -> tuple[Callable, Callable]:
    """Return what sets and deletes attributes of an object; what its class does in Python then has been interpreted already."""
    plain = plain_kind(owner)
    in_python = [type(lookup(type(owner), name)) is FunctionType for name in ("__setattr__", "__delattr__")]
    return plain.__setattr__ if in_python[0] else setattr, plain.__delattr__ if in_python[1] else delattr
