"""A tracked run: values stay as they are, and their sources are kept beside them.

Three kinds of value have their source in three ways:

    atoms (numbers, strings, None, ...) are guarded by value when they are read from outside, and need no origin after that;
    objects with an identity (containers, instances, functions, cells) are looked up by it in `known`;
    tensors are inputs of the computation, which the recorder keeps.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import partial
from types import CellType, FunctionType, MappingProxyType, MethodType, SimpleNamespace
from typing import Any

from dovetail.errors import EagerCall, NoGradRule, TracedValueError, Unsupported
from dovetail.frontend.class_lookup import HEAP, NULL, address_of, lookup
from dovetail.frontend.guards.guard import PLAIN, Guard
from dovetail.frontend.guards.runtime import decimal_context
from dovetail.frontend.guards.source import Source, Sources
from dovetail.frontend.interpreter.engine import Abandon
from dovetail.frontend.interpreter.protocols import Protocols
from dovetail.frontend.interpreter.tracking.attributes import Attributes
from dovetail.frontend.interpreter.tracking.calls import Calls
from dovetail.frontend.interpreter.tracking.comparing import FIXED, Comparing
from dovetail.frontend.interpreter.tracking.constants import CONTENT_CLASSES, guard_content, is_constant, is_foreign_memory, is_member
from dovetail.frontend.interpreter.tracking.container_bases import BASES, CONTAINERS, base_of, empty_like, keys_of
from dovetail.frontend.interpreter.tracking.container_methods import ContainerMethods
from dovetail.frontend.interpreter.tracking.containers import Containers
from dovetail.frontend.interpreter.tracking.effects import Effects
from dovetail.frontend.interpreter.tracking.holders import VIEWS, check_held, held_in, parts_of
from dovetail.frontend.interpreter.tracking.holding_mirrors import holding_mirrors
from dovetail.frontend.interpreter.tracking.imports import Imports
from dovetail.frontend.interpreter.tracking.lacking import class_guards
from dovetail.frontend.interpreter.tracking.locks import Locks
from dovetail.frontend.interpreter.tracking.mirrors import CHECKED, ORDER, TEXT, Mirror, is_mirrored, is_sequence, mirror_of
from dovetail.frontend.interpreter.tracking.operators import Operators
from dovetail.frontend.interpreter.tracking.recorder import Recorder
from dovetail.frontend.interpreter.tracking.t_strings import T_STRINGS, guard_parts
from dovetail.frontend.interpreter.tracking.variables import Variables

ATOMS = frozenset({int, float, complex, bool, str, bytes, type(None), type(...), type(NotImplemented), range})
_PLAIN_BASES = (*BASES, MappingProxyType)  # of containers, which native code gets as they are for the program
_UNMIRRORED = (type, FunctionType, Mirror, Enum, BaseException, *CONTENT_CLASSES)


class Tracker(Attributes, Comparing, Containers, ContainerMethods, Imports, Operators, Variables, Calls, Protocols):
    """One trace: its guards, the outside objects that it has read, and the pending writes.

    All outside values come in through `reach`.  The program's values are never wrapped.
    """

    refusals = (Abandon, NoGradRule, TracedValueError, Unsupported)

    def __init__(self, recorder: Recorder | None = None):
        super().__init__()
        self.recorder = Recorder() if recorder is None else recorder
        self.atoms = ATOMS | self.recorder.atoms
        self.sources, self.effects, self.locks = Sources(), Effects(self), Locks(self)
        self.guards: dict[tuple, Guard] = {}
        self.later: dict[tuple, Guard] | None = None  # those that a backward needs, while it is traced
        self.known: dict[int, tuple[Any, Source]] = {}
        self.views: dict[int, Any] = {}  # id of a dict: the object that has these attributes; itself where it is a module's variables
        self.namespaces: dict[int, dict] = {}  # id of a dict: the globals of an outside function that was called
        self.readers: dict[int, Any] = {}  # id of a context variable: a function that reads it
        self.snapshots: list[
            tuple[Any, Source, Callable[[], Any], Any, Callable[[Any], None]]
        ] = []  # what was in outside buffers, and how to put it back
        self.buffers: dict[Source, Any] = {}  # outside buffers whose content is guarded: a tensor that shares their memory may not be written
        self.decimals = decimal_context()
        self.handled = sys.exception()  # what the caller handles
        self.calls: list[Source] = []  # what is run at every call, in order
        self.identities: dict[int, Any] = {}  # what id() returned -> the object that this trace created
        self.seeded: set[Any] = set()  # generators of Python's that the program has created and seeded
        self.annotations: dict[int, dict] = {}  # id of a fresh function: its annotations, once they are evaluated
        self.natives: dict[type, dict[str, Any]] = {}  # class: what it has under names that the program looked up, NULL for nothing
        self.cached: dict[tuple, tuple] = {}  # calls of functions behind functools.lru_cache: the result, and what was called
        self.held_results: list[tuple[Any, Any, list, int]] = []  # what caches outside would hold: function, result, its parts, lines up to there
        self.into_arrays = False  # whether arguments are prepared for a function of NumPy's
        self.listeners: dict[int, Any] = {}  # id: what is called with what the program has logged, or warned of
        self.hashed_tensors: dict[Source, Any] = {}  # tensors from outside that were keys
        self.reading: set[int] = set()  # ids of objects whose parts are being guarded
        self.exact = False  # whether ints that are reached stay ints, since C code reads them by itself
        self.fresh: dict[int, Any] = {}  # classes and functions that this trace created, globals of `exec`: nothing outside refers to them

    def guard(self, kind: str, source: Source, value: Any = None) -> None:
        """Add the guard that the trace depends on this fact; plain values are compared, whatever object they are."""
        if kind == "is" and type(value) in PLAIN:
            kind = "equal"
        elif kind == "same" and value.kind == "const":  # so that one check of a source is enough
            kind, value = "is", value.key
        try:
            mark = repr(value) if type(value) in (float, complex) else tuple(value) if type(value) is list else value
            key = (kind, source, mark, type(value))
            hash(key)
        except TypeError:
            key = (kind, source, id(value), type(value))
        guard = self.guards.get(key) or self.guards.setdefault(key, Guard(kind, source, value))
        if self.later is not None:
            self.later[key] = guard

    def refuses(self, error: BaseException) -> bool:
        return super().refuses(error) or self.recorder.refuses(error)

    def all_guards(self) -> list[Guard]:
        """Return all guards: those of values in the order of their discovery, then those on what classes lack."""
        return [*self.guards.values(), *self.class_guards()]

    def class_guards(self) -> list[Guard]:
        """Return the guards on what classes have, and lack."""
        return class_guards(self.natives, self.is_fresh, self.sources)

    def snapshot(self, value: Any, source: Source, read: Callable[[], Any], restore: Callable[[Any], None]) -> None:
        """Remember what is in an outside buffer, which C code may write to unseen; `restore` puts back what `read` returned."""
        self.buffers[source] = value
        self.snapshots.append((value, source, read, read(), restore))

    def check_snapshots(self) -> None:
        """Refuse a program that has written to an outside buffer: the write would happen once, while tracing.  It is undone."""
        written = [(value, source, before, restore) for value, source, read, before, restore in self.snapshots if read() != before]
        self.snapshots.clear()
        for _, _, before, restore in written:
            restore(before)
        for value, source, _, _ in written:
            raise Unsupported(
                f"the program writes to the {type(value).__name__} at {source} in place, which would happen while tracing and never again; "
                "write to a copy of it and return that, or pass a tensor"
            )

    def guard_keys(self, value: Any, source: Source) -> None:
        """Guard the keys of a mapping, or the items of a set, and their order."""
        keys = keys_of(value) if isinstance(value, BASES) else list(value)
        if all([type(key) is str for key in keys]):
            self.guard("keys", source, keys)
        elif all([type(key) in self.atoms for key in keys]):
            self.guard("key types", source, [type(key) for key in keys])
            self.guard("keys", source, keys)
        else:
            self.guard("key identities", source, keys)
            for key in keys:
                if not self.recorder.is_tensor(key):
                    self.reach(key, self.sources.const(key))
            self.check_hashes(value, filter(self.is_odd, keys))

    def source(self, value: Any) -> Source | None:
        """Return where an outside object is read; None for one that the trace created."""
        known = self.known.get(address_of(value))
        return known[1] if known is not None and known[0] is value else None

    def reach(self, value: Any, source: Source) -> Any:
        """Guard a value that was read from outside at `source`, or remember where it is; return what the program sees."""
        kind = type(value)
        if kind in self.atoms:
            if kind is int and self.recorder.symbolic_ints and not self.exact and (size := self.recorder.symbolic(self, value, source)) is not value:
                return size
            of_numpy = kind.__module__ == "numpy"
            may_change = (of_numpy or kind in (int, float)) and not self.exact
            if may_change and (number := self.recorder.changing_number(self, value, source)) is not value:
                return number
            if of_numpy and (value != value or not value):  # == does not tell the zeros apart, nor nan from nan
                self.guard("type", source, kind)
                self.guard("equal", self.sources.call(self.sources.attr(source, "tobytes")), value.tobytes())
                return value
            self.guard("equal", source, value)
            return value
        if address_of(value) in self.fresh:
            return value
        if self.recorder.is_input(value):
            return self.recorder.reach(self, value, source)
        if isinstance(value, FIXED) or is_member(value):
            if source.kind != "const":
                self.guard("is", source, value)
            self.known.setdefault(address_of(value), (value, self.sources.const(value)))
            return value
        if kind is slice:
            return self._slice(value, source)
        if kind in T_STRINGS:
            guard_parts(self, value, source)
        if kind in VIEWS and source.kind != "const":
            return self._view_of_dict(value, source)
        guard_content(self, value, source)
        self._object(value, source)
        return value

    def _view_of_dict(self, view: Any, source: Source) -> Any:
        """Return a new view of the same kind, of a dict with all that an outside dict holds, as `d.values()` was before the call."""
        self.guard("type", source, type(view))
        pairs = dict(self.raw_pairs(self.reach(view.mapping, self.sources.attr(source, "mapping"))))
        return VIEWS[type(view)](pairs)

    def _object(self, value: Any, source: Source) -> None:
        """Remember an object with an identity; one that two sources lead to is an alias, which is guarded."""
        known = self.known.get(address_of(value))
        if known is None:
            self.recorder.content(self, value, source)
            if is_foreign_memory(type(value)):
                self.buffers[source] = value
            if source.root.kind != "arg" and self.pins(value):
                if source.kind != "const":
                    self.guard("is", source, value)
                source = self._pinned(value, source)
            self.known[address_of(value)] = value, source
        elif known[1] is not source:
            self.guard("same", source, known[1])

    def _pinned(self, value: Any, source: Source) -> Source:
        constant = self.sources.const(value)
        if constant.path is None and source is not constant:
            constant.path = source
        return constant

    def reach_cell(self, cell: CellType, source: Source) -> None:
        """Remember a cell of a function's closure.  The cells of a function never change: those of two known functions need no guard."""
        known = self.known.setdefault(address_of(cell), (cell, source))
        if known[1] is not source and not known[1].root.kind == source.root.kind == "const":
            self.guard("same", source, known[1])

    def keep_apart(self) -> None:
        """Guard that objects which the trace writes to are no others that it knows: a write to one would be seen in the other."""
        log = [write for write in self.effects.log if not (write.name == "grad" and self.recorder.is_tensor(write.owner))]  # kept apart as inputs
        written = {id(write.owner): write.owner for write in log if self.source(write.owner) is not None}
        for owner in written.values():
            source = self.source(owner)
            for other, at in list(self.known.values()):
                if other is not owner and type(other) is type(owner) and not at.kind == source.kind == "const":
                    self.guard("notsame", source, at)
        self._check_attribute_dicts(written)

    def _check_attribute_dicts(self, written: dict[int, Any]) -> None:
        """Raise EagerCall where the program writes to an object, or to the dict of its attributes, and knows that dict from elsewhere."""
        dicts = {id(value) for value, _ in self.known.values() if type(value) is dict and id(value) not in self.views} if written else ()
        for owner, _ in list(self.known.values()) if dicts else ():
            namespace = getattr(owner, "__dict__", None) if type(owner).__dictoffset__ and not self.recorder.is_tensor(owner) else None
            if id(namespace) in dicts and (id(owner) in written or id(namespace) in written):
                raise EagerCall(f"the program writes to a {type(owner).__name__}, and has the dict of its attributes from elsewhere")

    def pins(self, value: Any) -> bool:
        """Return whether an object that is no argument is guarded by its identity, so that paths below it start at a constant."""
        return type(value) is FunctionType or self.recorder.is_module(value)

    def _slice(self, value: slice, source: Source) -> slice:
        """Return a slice with what the program sees of the parts of an outside one."""
        self.guard("type", source, slice)
        before = value.start, value.stop, value.step
        parts = [self.reach(part, self.sources.attr(source, name)) for name, part in zip(("start", "stop", "step"), before, strict=True)]
        return value if all([a is b for a, b in zip(parts, before, strict=True)]) else slice(*parts)

    def reach_whole(self, value: Any, source: Source, *, mirrored: bool = False) -> None:
        """Guard all of a value that C code reads by itself: the ints in it are guarded, too, instead of becoming symbols."""
        before, self.exact = self.exact, True
        try:
            self.plain(self.reach(value, source), mirrored=mirrored)
        finally:
            self.exact = before

    def outside(self, value: Any) -> Source | None:
        """Return the source of an outside object, and guard its type; None for an object that the trace created."""
        source, kind = self.source(value), type(value)
        if source is None or self.recorder.is_tensor(value):  # the guard on a tensor includes its type
            return source
        if source.kind != "const" or (kind.__flags__ & HEAP and not isinstance(value, type)):  # an object of a class in C keeps its class
            self.guard("type", source, kind)
        return source

    def copied(self, value: Any) -> Any:
        """Return a fresh copy of an outside container, with its parts reached but not copied; anything else as it is."""
        if not isinstance(value, (*BASES, MappingProxyType)) or self.source(value) is None:
            return value
        self.outside(value)
        kind = type(value)
        if isinstance(value, (dict, MappingProxyType)):
            parts = dict(self.raw_pairs(value))
            return parts if kind in (dict, MappingProxyType) else self.refilled(value, parts)
        if isinstance(value, (set, frozenset)):
            self.guard_keys(value, self.contents(value))
            items = [self.seen_key(item) for item in base_of(value).__iter__(value)]
            return kind(items) if kind in (set, frozenset) else self.refilled(value, items)
        parts = list(self.raw_iter(value))
        if isinstance(value, tuple):
            same = all([a is b for a, b in zip(parts, tuple.__iter__(value), strict=True)])
            return value if same else tuple.__new__(kind, parts)
        return parts if kind is list else self.refilled(value, parts)

    def refilled(self, value: Any, parts: Any) -> Any:
        """Return a new container of value's class, with these parts and value's attributes; no code of the class runs."""
        source = self.source(value)
        result = empty_like(value)
        if isinstance(value, frozenset):
            result = frozenset.__new__(type(value), parts)
        elif isinstance(value, dict):
            for key, item in parts.items():
                base_of(value).__setitem__(result, key, item)
        else:
            (set.update if isinstance(value, set) else base_of(value).extend)(result, parts)
        for name, item in getattr(value, "__dict__", {}).items():
            object.__setattr__(result, name, item if source is None else self.reach(item, self.sources.field(source, name)))
        return result

    def shallow(self, value: Any) -> Any:
        """Return `value` as native code may iterate or store it: a container is copied, with its writes applied; its parts stay outside."""
        if not isinstance(value, (*BASES, MappingProxyType)):
            return value
        shadow = self.effects.shadow(value)
        return self.copied(value) if shadow is value else shadow

    def plain(self, value: Any, seen: tuple[int, ...] = (), *, mirrored: bool = False) -> Any:
        """Return `value` as native code may read all of it: without any outside container in it.

        `mirrored` is for C code that only reads its arguments: objects with methods in Python are mirrors.
        """
        if not issubclass(type(value), _PLAIN_BASES) or id(value) in seen:  # isinstance would also ask a proxy which class it stands for
            return self.mirror(value) if mirrored else value
        if mirrored and type(value) not in CONTAINERS and any([self.method(value, name) is not None for name in TEXT]):
            return mirror_of(self, value)
        container, seen = self.copied(value) if (shadow := self.effects.shadow(value)) is value else shadow, (*seen, id(value))
        if isinstance(container, (list, tuple)):
            parts = [self.plain(item, seen, mirrored=mirrored) for item in base_of(container).__iter__(container)]
            if all([a is b for a, b in zip(parts, base_of(container).__iter__(container), strict=True)]):
                return container
            if type(container) is list:
                return parts
            return self.refilled(container, parts) if isinstance(container, list) else tuple.__new__(type(container), parts)
        if isinstance(container, (set, frozenset)):
            self.hashed(*base_of(container).__iter__(container))
            return self._checked(container, TEXT) if mirrored else container
        if isinstance(container, dict):
            self.hashed(*dict.keys(container))
            pairs = list(base_of(container).items(container))
            if mirrored:
                pairs = [(self._written_key(key, seen), item) for key, item in pairs]
            parts = {key: self.plain(item, seen, mirrored=mirrored) for key, item in pairs}
            if type(value) is MappingProxyType and mirrored:
                return MappingProxyType(parts)
            same = zip((*parts, *parts.values()), (*base_of(container).keys(container), *base_of(container).values(container)), strict=True)
            if all([one is other for one, other in same]):
                return container
            return parts if type(container) is dict else self.refilled(container, parts)
        if isinstance(container, deque):
            parts = [self.plain(item, seen, mirrored=mirrored) for item in deque.__iter__(container)]
            return container if all([a is b for a, b in zip(parts, deque.__iter__(container), strict=True)]) else self.refilled(container, parts)
        if mirrored:
            check_held(container, TEXT)
        return container

    def _written_key(self, key: Any, seen: tuple[int, ...]) -> Any:
        """Return a key of a dict as C code may write it out; one without methods in Python for that as it is found by."""
        return key if held_in((key,), TEXT) is None else self.plain(key, seen, mirrored=True)

    def _checked(self, value: Any, methods: tuple[str, ...]) -> Any:
        """Return an object that holds others as C code may write it out or compare it; an error where that cannot be created."""
        result = holding_mirrors(self, value)
        if result is value:
            check_held(value, methods)
        return result

    def mirror(self, value: Any) -> Any:
        """Return `value` as C code may call its methods: they are interpreted."""
        kind = type(value)
        if isinstance(value, BaseException):
            if (source := self.source(value)) is not None:
                self.load_attr(value, "args")
                self.reach_whole(value.args, self.sources.attr(source, "args"), mirrored=True)
            else:
                self._read_parts(value)
            return self._checked(value, TEXT)
        if kind in self.atoms or isinstance(value, _UNMIRRORED):
            return value
        if kind is SimpleNamespace:
            return SimpleNamespace(**{name: self.plain(part, mirrored=True) for name, part in self.pairs(self.load_attr(value, "__dict__"))})
        if not self.recorder.is_tensor(value):
            for name in CHECKED:
                if type(lookup(kind, name)) is not FunctionType:
                    self.guard_class(kind, name)
        if not is_mirrored(kind):
            self._read_whole(value)
            return self._checked(value, (*TEXT, *ORDER))
        if self.recorder.is_tensor(value) or self.recorder.is_module(value):
            return value
        self.outside(value)
        if self.into_arrays and is_sequence(kind):
            return [self.plain(item, mirrored=True) for item in self.spread(value)]
        return mirror_of(self, value)

    def _read_whole(self, value: Any) -> None:
        """Guard an outside object of a class in C that C code reads: by its parts where they are known, else by its identity."""
        source = self.source(value)
        if source is None:
            self._read_parts(value)
        if source is None or self.recorder.is_tensor(value) or is_constant(value) or self.recorder.is_element_type(value):
            return
        if isinstance(value, MethodType):
            self._bound_outside(value)
        elif isinstance(value, partial):
            for name in ("func", "args", "keywords"):
                for mirrored in (False, True):  # to the bottom: C code sees the parts themselves
                    self.reach_whole(getattr(value, name), self.sources.attr(source, name), mirrored=mirrored)
        elif lookup(type(value), "__next__") is not NULL:
            self.check_settled(value, "__next__")
        elif source.kind != "const" and not type(value).__flags__ & HEAP:
            self.guard("is", source, value)

    def _read_parts(self, value: Any) -> None:
        """Guard what an object that the trace created holds, which may be from outside."""
        if id(value) in self.reading:
            return
        self.reading.add(id(value))
        try:
            for part in parts_of(value):
                self.plain(part, mirrored=True)
        finally:
            self.reading.discard(id(value))

    def guard_decimals(self) -> None:
        """Guard precision, rounding and traps as they are at the call: all arithmetic of decimal reads them."""
        self.guard("equal", self.sources.setting(decimal_context), self.decimals)

    def iterated(self, iterator: Any) -> Any:
        """Return an iterator as C code may advance it: the items are mirrors."""
        items = self._each(iterator) if self.method(iterator, "__next__") is not None else iterator
        return map(self.mirror, items)

    def register_function(self, function: FunctionType) -> FunctionType:
        self.fresh[address_of(function)] = function
        return function

    def register_class(self, cls: Any) -> Any:
        self.fresh[address_of(cls)] = cls
        return cls

    def is_fresh(self, cls: Any) -> bool:
        """Return whether the trace created this class."""
        return address_of(cls) in self.fresh
