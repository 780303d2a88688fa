"""Calls of a tracked run: Python is interpreted, the framework's functions are recorded, the rest sees plain values."""

from __future__ import annotations

import math
import sys
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial, reduce
from itertools import count, permutations, zip_longest
from string import Formatter
from types import (
    BuiltinFunctionType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

from dovetail.errors import EagerCall, Unsupported
from dovetail.frontend.class_lookup import NULL, address_of, is_in_python, lookup
from dovetail.frontend.guards.source import Source
from dovetail.frontend.interpreter.frame import Frame
from dovetail.frontend.interpreter.tracebacks import is_own_code
from dovetail.frontend.interpreter.tracking.argument_places import in_place
from dovetail.frontend.interpreter.tracking.callable_objects import BY_TYPE, called_by_rule
from dovetail.frontend.interpreter.tracking.choices import MODELS, picked
from dovetail.frontend.interpreter.tracking.constructing import check_constructor, check_created
from dovetail.frontend.interpreter.tracking.container_bases import BASES, CONTAINERS
from dovetail.frontend.interpreter.tracking.context import CONTEXT
from dovetail.frontend.interpreter.tracking.copying import STATES, reduced
from dovetail.frontend.interpreter.tracking.fresh import outside_call
from dovetail.frontend.interpreter.tracking.listeners import LOGGING_CALLS, log
from dovetail.frontend.interpreter.tracking.locks import LOCK, RLOCK
from dovetail.frontend.interpreter.tracking.lookasides import CALL_BACK, KEEP, PASSING, TABLE
from dovetail.frontend.interpreter.tracking.mirrors import Mirror, original
from dovetail.frontend.interpreter.tracking.output import call_of_stream, is_stream_call
from dovetail.frontend.interpreter.tracking.rules import (
    CHANGING,
    CHANGING_CLASSES,
    DEEP,
    FUNCTIONS,
    KEEPS,
    Fresh,
    Refused,
    is_of_numpy,
    name_of,
    rule_of,
)
from dovetail.frontend.interpreter.tracking.twins import translated
from dovetail.frontend.interpreter.world import Special


class Calls:
    """The order is: bound method, the framework's, lookaside, Python function, class, callable object, container method, C code."""

    def call(self, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
        if type(function) is Special:
            function, args = self.special(args[0], function.name), args[1:]
        while type(function) is MethodType:
            if self.source(function) is not None:
                self._bound_outside(function)
            function, args = function.__func__, [function.__self__, *args]
        if is_stream_call(function, args):
            return call_of_stream(self, function, args, kwargs, frame)
        if type(function) is MethodWrapperType:  # of `super().__setattr__`: what is known of the unbound one holds
            unbound = getattr(function.__objclass__, function.__name__, None)
            if self.lookaside(unbound) is not None:
                function, args = unbound, [function.__self__, *args]
        outside = self.source(function) is not None
        if outside and type(function) not in _GUARDED and not is_in_python(lookup(type(function), "__call__")):
            self.pin(function)  # as a function of NumPy's, which no guard tells from another yet
        result = self.recorder.call(self, function, args, kwargs, frame)
        if type(function) is FunctionType and outside and (result is not NULL or any([function in known for known in _BY_IDENTITY])):
            self.pin(function)
        if result is not NULL:
            return result
        if type(function) is FunctionType:
            if function in LOGGING_CALLS:
                return log(self, function, args, kwargs)
            if function in TABLE:
                return TABLE[function](self, function, args, kwargs, frame)
            if function in MODELS:
                return picked(self, function, args, kwargs)
            if function in FUNCTIONS:
                return outside_call(self, FUNCTIONS[function], function, args, kwargs)
        known = called_by_rule(function)
        if known is not None:
            return known(self, function, args, kwargs, frame)
        if is_in_python(lookup(type(function), "__call__")):
            self.outside(function)
            return self.call_function(self.method(function, "__call__"), [function, *args], kwargs)
        if kwargs and not isinstance(function, FunctionType):
            args, kwargs = in_place(function, args, kwargs)
        if self.recorder.writes_text and self.lookaside(function) is not None and function not in PASSING:
            args = [self.recorder.concrete(x) if self.recorder.is_text(x) else x for x in args]
        return super().call(function, args, kwargs, frame)

    def lookaside(self, function: Any) -> Callable | None:
        try:
            rule = TABLE.get(function)
        except TypeError:
            return None
        return rule or super().lookaside(function)

    def _bound_outside(self, method: MethodType) -> None:
        """Read the function and the object of a bound method from outside through it."""
        source = self.outside(method)
        for name in ("__self__", "__func__"):
            self.reach(getattr(method, name), self.sources.attr(source, name))

    def call_native(self, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
        owner = getattr(function, "__self__", None)
        if type(owner) is str and function.__name__ == "join" and len(args) == 1 and not kwargs:
            return self._join(owner, list(self.spread(args[0])))  # an iterator may write numbers into text as it goes
        if self.recorder.writes_text and not isinstance(args[0] if type(function) in _UNBOUND and args else owner, BASES):
            args, kwargs = list(self.legible(args)), self.legible(kwargs)  # but a container keeps what it gets as it is
        return self._with_values(self._call_native, function, args, kwargs, frame)

    def _with_values(self, call: Callable, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
        """Return call(function, args, kwargs, frame), where need be with values in the place of numbers that stand among atoms alone."""
        values = [*args, *kwargs.values()]
        if any([self.recorder.is_number(x) for x in values]) and all([type(x) in self.atoms or self.recorder.is_number(x) for x in values]):
            return self.recorder.with_values(call, function, args, kwargs, frame)
        return call(function, args, kwargs, frame)

    def looks_up_in_python(self, mapping: Any) -> bool:
        """Return whether the class of a dict looks keys up, or makes missing items, in Python."""
        return type(mapping) not in CONTAINERS and any([self.method(mapping, name) is not None for name in ("__getitem__", "__missing__")])

    def _join(self, separator: str, parts: list[Any]) -> Any:
        """Return separator.join(parts)."""
        if not any(map(self.recorder.is_text, parts)):
            return separator.join(self.plain(parts))
        return self.recorder.joined([piece for part in parts for piece in (separator, part)][1:])

    def _call_native(self, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
        if type(function) in _UNBOUND and args and isinstance(args[0], _METHODS_SEEN) and isinstance(args[0], function.__objclass__):
            function, args = function.__get__(args[0]), args[1:]  # as list.append(l, x)
        if isinstance(function, (BuiltinFunctionType, MethodWrapperType)) and not isinstance(function.__self__, (ModuleType, type(None))):
            result = self._method_in_c(function, args, kwargs, frame)
            if result is not NULL:
                return result
        if type(owner := getattr(function, "__self__", None)) is slice:
            function, args = getattr(self.indexed(owner), function.__name__), list(map(self.indexed, args))
        if not isinstance(owner, (ModuleType, type(None))):
            check_created(function.__self__, function.__name__)
            if function.__name__ == "throw" and len(args) == 1 and isinstance(args[0], type):
                args = [self.call(args[0], [], {}, frame)]  # or C code would create it
        rule, owner = self._rule(function, args), getattr(function, "__self__", None)
        if isinstance(rule, (Fresh, Refused)):
            return outside_call(self, rule, function, args, kwargs)
        written = args[0] if type(function) in _UNBOUND and args else owner
        if getattr(function, "__name__", None) in _WRITING and self.source(written) is not None:
            raise EagerCall(f"{name_of(function)}() writes into an object from outside")
        check_constructor(self, function, args)
        if rule is None:
            self.recorder.unknown(self, function, args, kwargs)
        elif rule is DEEP and self.source(owner) is not None:
            self.read_by_c(owner)
        self.hashing(function, args)
        if isinstance(owner, partial) and function.__name__ == "__setstate__" and args and isinstance(args[0], tuple):
            args = [tuple(map(self.shallow, self.raw_iter(args[0])))]  # it shares what it holds with the object that it copies
            return super().call_native(function, args, kwargs, frame)
        args, kwargs = self._for_native(function, rule, args, kwargs)
        self.recorder.native(self, function, args, kwargs)  # after the items of lists from outside became numbers of the program
        try:
            result = super().call_native(function, args, kwargs, frame)
        except (TypeError, AttributeError) as error:
            self.recorder.refused(error, args, kwargs)
            raise
        if isinstance(result, type) and getattr(function, "__name__", None) == "__new__":
            self.register_class(result)
        return original(result) if rule is DEEP else result

    def _method_in_c(self, method: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
        """Call a method in C that is modelled; NULL for any other."""
        owner, name = method.__self__, method.__name__
        result = self.container_method(method, args, kwargs)
        if result is NULL and type(owner) is str:
            result = self._text_method(owner, name, args, kwargs, frame)
        if type(owner) is LOCK or type(owner) is RLOCK:
            result = self.locks.call(owner, name, args, kwargs, frame)
        if result is not NULL:
            return result
        if name == "__reduce_ex__" and lookup(type(owner), "__reduce_ex__") is object.__reduce_ex__:
            return reduced(self, owner, *args)
        if name in STATES and not args and self.source(owner) is not None and not isinstance(owner, type):
            return STATES[name](self, owner)
        if isinstance(owner, ContextVar) and not kwargs and name in CONTEXT:
            return CONTEXT[name](self, owner, *args)
        if name == "__get__" and isinstance(owner, _DESCRIPTORS) and args and args[0] is not None and not kwargs:
            if self.recorder.is_tensor(args[0]) and isinstance(owner, GetSetDescriptorType):
                return self.load_attr(args[0], owner.__name__)
            return self.bound(owner, args[0], (*args, type(args[0]))[1], getattr(owner, "__name__", ""))
        return NULL

    def _text_method(self, text: str, name: str, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
        """Call a method of a string that reads its arguments by methods of theirs in Python; NULL for any other."""
        if name == "format" and not all(map(self.is_simple, (*args, *kwargs.values()))):
            return self.call(Formatter().vformat, [text, tuple(args), kwargs], {}, frame)
        if len(args) != 1 or kwargs or not isinstance(args[0], dict) or not self.looks_up_in_python(args[0]):
            return NULL
        if name == "format_map":
            return self.call(Formatter().vformat, [text, (), args[0]], {}, frame)
        return translated(self, text, args[0]) if name == "translate" else NULL

    def _rule(self, function: Any, args: list[Any]) -> Any:
        """Return what is known of a function in C, as `rule_of` does, and of the object that it belongs to."""
        if (function is sys.exception or function is sys.exc_info) and sys.exception() is not self.handled:
            return KEEPS  # the interpreter has set it to what the program handles
        owner = getattr(function, "__self__", None)
        if self.source(owner) is not None:
            looks_up = isinstance(owner, weakref.ref) and function.__name__ == "__call__"
            if looks_up or type(owner).__module__ in CHANGING_CLASSES or lookup(type(owner), "__next__") is not NULL:
                return CHANGING
        return rule_of(function, args)

    def make_native(self, maker: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
        rule = rule_of(maker)
        if self.recorder.writes_text:
            args, kwargs = list(self.legible(args)), self.legible(kwargs)
        if maker is type or maker is type.__new__:
            self._check_hooks(args[-2:])
        if maker is range and any(map(self.recorder.is_number, args)) and (counted := self.recorder.counted(args)) is not None:
            return counted
        if rule is DEEP:
            return self._with_values(self._make_native, maker, args, kwargs, frame)
        return self._make_native(maker, args, kwargs, frame)

    def _make_native(self, maker: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
        rule = rule_of(maker)
        check_constructor(self, maker, args)
        if rule is None:
            self.recorder.unknown(self, maker, args, kwargs)
        if any([maker is kind for kind in self.recorder.atoms]):  # as torch.Size
            args = [self.as_sizes(self.plain(x)) for x in args]
        args, kwargs = self._for_native(maker, rule, args, kwargs)
        self.hashing(maker, args)
        try:
            result = super().make_native(maker, args, kwargs, frame)
        except (TypeError, AttributeError) as error:
            self.recorder.refused(error, args, kwargs)
            raise
        if type(result) is FunctionType:
            return self.register_function(result)
        return self.register_class(result) if isinstance(result, type) and self.source(result) is None else result

    def _check_hooks(self, args: list[Any]) -> None:
        """Refuse a class with hooks in Python of the program that C code would call when it creates the class."""
        bases, namespace = args if len(args) == 2 and isinstance(args[0], tuple) and isinstance(args[1], dict) else ((), {})
        hooks = [getattr(lookup(base, "__init_subclass__"), "__func__", None) for base in bases if isinstance(base, type)]
        hooks += [lookup(type(value), "__set_name__") for value in dict.values(namespace)]
        for hook in hooks:
            if type(hook) is FunctionType and (hook.__module__ or "").partition(".")[0] not in _LIBRARIES:
                raise Unsupported(
                    f"a class whose {hook.__name__} is in Python cannot be created in a compiled function: C code calls that method, which would not "
                    "be traced; create the class outside"
                )

    def _for_native(self, function: Any, rule: Any, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return arguments as C code may read them.

        A function may look all through its arguments, a class stores or iterates them.  Where C code calls functions among
        them, the calls return here.
        """
        if rule is DEEP:
            read = self.all_read_by_c([*args, *kwargs.values()], into_arrays=is_of_numpy(function))
            _check_self(function, read)
            return read[: len(args)], dict(zip(kwargs, read[len(args) :], strict=True))
        created = _created_class(function)
        if issubclass(created, dict):
            first = 1 if issubclass(created, defaultdict) else 0  # its factory
            owner = OrderedDict() if issubclass(created, OrderedDict) else {}
            args = [*args[:first], *[self.items_added(owner, x) for x in args[first:]]]
        elif _iterates(function) or issubclass(created, _ITERATED):
            indexed = (lambda x: x) if created is permutations else self.indexed  # which takes an int alone
            stored = _STORED.get(function, ())
            if created.__module__ == "itertools":
                args = [x if i in stored else self.gone_through(x) for i, x in enumerate(args)]
            args = [x if i in stored else indexed(self._drawn(x)) for i, x in enumerate(args)]
            kwargs = {name: x if name in stored else indexed(self._drawn(x) if name in _ITERABLES else x) for name, x in kwargs.items()}
        stores = isinstance(function, type) or getattr(function, "__name__", None) == "__new__"
        if function in CALL_BACK if isinstance(function, (type, BuiltinFunctionType)) else False:
            first = args[:1] if function is defaultdict else [self.native(x) for x in args[:1]]
            return [*first, *[self.plain(x) for x in args[1:]]], {name: self.native(x) for name, x in kwargs.items()}
        elif stores and isinstance(function, type) and issubclass(function, KEEP):
            return args, kwargs
        else:
            convert = self.shallow if stores else self.plain
        return [convert(x) for x in args], kwargs if stores and convert is self.shallow else {name: convert(x) for name, x in kwargs.items()}

    def _drawn(self, value: Any) -> Any:
        """Return an argument that C code iterates: where its class does that in Python, the items come from here."""
        self.check_advanced(value)
        python = any([self.method(value, name) is not None for name in ("__iter__", "__next__", "__getitem__")])
        return self.spread(value) if python else value

    def all_read_by_c(self, values: list[Any], *, into_arrays: bool) -> list[Any]:
        """Return the arguments of one call as C code reads them; `into_arrays`: by functions that make arrays of sequences."""
        before, self.into_arrays = self.into_arrays, into_arrays
        try:
            return [self.read_by_c(x) for x in values]
        finally:
            self.into_arrays = before

    def read_by_c(self, value: Any) -> Any:
        """Return an argument for C code that reads it by value, and may call it or its methods."""
        if self.recorder.is_tensor(value):
            return value
        inner = value.__func__ if type(value) is MethodType else value
        if type(inner) is FunctionType and not is_own_code(inner.__code__):
            return self.reentrant(value)
        if isinstance(value, BASES) and (drawn := self._drawn(value)) is not value:
            return self.iterated(drawn)
        return self.plain(value, mirrored=True)

    def native(self, value: Any) -> Any:
        """Return an argument for C code that calls functions: calls of it return here; containers are plain."""
        inner = value.__func__ if type(value) is MethodType else value
        if type(inner) is FunctionType and is_own_code(inner.__code__):
            return value
        return self.reentrant(value) if callable(value) and not isinstance(value, BASES) else self.plain(value)

    def path(self, value: Any) -> Any:
        """Return an argument that names a file, as os.fspath returns it."""
        method = self.method(value, "__fspath__")
        return value if method is None else self.call_function(method, [value], {})

    def reentrant(self, value: Any) -> Callable:
        """Return a function for native code that calls `value` here."""
        return lambda *args, **kwargs: self.call(value, [original(x) for x in args], kwargs, None)

    def frame(self, function: FunctionType, args: list[Any], kwargs: dict[str, Any]) -> Frame:
        source = self.source(function)
        if source is None and address_of(function) not in self.fresh and not is_own_code(function.__code__):  # as `__new__`, which a class wraps
            source = self.sources.const(function)
            self.known[address_of(function)] = function, source
        if source is not None:
            self.guard("is", self.sources.attr(source, "__code__"), function.__code__)
            if source.root.kind == "arg":
                self.guard("is", self.sources.attr(source, "__globals__"), function.__globals__)
            cells = self.sources.attr(source, "__closure__")
            for i, cell in enumerate(function.__closure__ or ()):
                self.reach_cell(cell, self.sources.item(cells, i))
        if address_of(function.__globals__) not in self.fresh:
            self.namespaces[id(function.__globals__)] = function.__globals__
        try:
            return super().frame(function, args, kwargs)
        except TypeError:  # the arguments do not fit: with other defaults they may
            if source is not None:
                self.guard("is", self.sources.attr(source, "__defaults__"), function.__defaults__)
                self._guard_keywords(function, source)
            raise

    def _guard_keywords(self, function: FunctionType, source: Source) -> None:
        """Guard which keyword-only parameters have defaults."""
        source, defaults = self.sources.attr(source, "__kwdefaults__"), function.__kwdefaults__
        self.guard("type", source, type(defaults))
        if defaults:
            self.guard("keys", source, list(defaults))

    def defaults(self, function: FunctionType) -> tuple[Any, Any]:
        source, (defaults, kwdefaults) = self.source(function), super().defaults(function)
        if source is None:
            return defaults, kwdefaults
        return (
            Reached(self, defaults, self._defaults(defaults, self.sources.attr(source, "__defaults__"))) if defaults else defaults,
            Reached(self, kwdefaults, self.sources.attr(source, "__kwdefaults__")) if kwdefaults else kwdefaults,
        )

    def _defaults(self, values: tuple[Any, ...], source: Source) -> Source:
        """Return the source at which a function's defaults are read, one guard for all: the tuple itself, where the function is that object."""
        if source.root.kind == "const":
            self.guard("is", source, values)
            return self.sources.const(values)
        self.guard("type", source, tuple)
        self.guard("len", source, len(values))
        return source


def _iterates(function: Any) -> bool:
    """Return whether a function in C, or a class of itertools, iterates its arguments, rather than storing them."""
    if isinstance(function, type):
        return function.__module__ == "itertools"
    named = isinstance(function, BuiltinFunctionType) and (
        function.__module__ == "itertools" or function.__name__ in ("join", "from_iterable", "fromkeys")
    )
    return named or (isinstance(function, BuiltinFunctionType) and function in _ITERATING)


def _check_self(method: Any, args: list[Any]) -> None:
    """Refuse a method of a class in C on an object that C code sees a mirror of, which is no instance of that class."""
    owner = getattr(method, "__objclass__", object)
    if args and isinstance(args[0], Mirror) and not isinstance(args[0], owner):
        kind = type(args[0].value).__qualname__
        raise Unsupported(
            f"{owner.__qualname__}.{method.__name__}() is C code, called on a {kind}, of which it may call methods in Python unseen; "
            "call it outside the compiled function"
        )


def _created_class(function: Any) -> type:
    """Return the class of which a call creates an instance with items of its arguments; NoneType for other callables."""
    if isinstance(function, type):
        return function
    owner = getattr(function, "__self__", None)
    immutable = isinstance(owner, type) and issubclass(owner, (tuple, frozenset)) and function.__name__ == "__new__"
    return owner if immutable else type(None)


_LIBRARIES = sys.stdlib_module_names | {"torch", "numpy", "transformers"}
_DESCRIPTORS = (FunctionType, property, classmethod, staticmethod, MemberDescriptorType, GetSetDescriptorType)
_METHODS_SEEN = (*BASES, ContextVar, MappingProxyType, LOCK, RLOCK)
_UNBOUND = (MethodDescriptorType, WrapperDescriptorType)
_BY_IDENTITY = (LOGGING_CALLS, TABLE, MODELS, FUNCTIONS)
_WRITING = frozenset({"add_note", "__setstate__"})  # methods in C that write into their object, beside those of containers
_GUARDED = frozenset({FunctionType, *BY_TYPE})  # callables that are guarded by what they hold
_ITERATED = (list, tuple, set, frozenset, deque)
_ITERATING = frozenset({reduce, math.prod, math.fsum})
_ITERABLES = frozenset({"iterable", "data", "selectors"})  # keywords of what they iterate
_STORED = {
    reduce: (0, 2),
    count: (0, 1, "start", "step"),
    zip_longest: ("fillvalue",),
    math.prod: ("start",),
    OrderedDict.fromkeys: (1, "value"),
}  # arguments that are not iterated


class Reached:
    """Default values, each of them reached when it is used."""

    def __init__(self, tracker: Any, values: Sequence[Any] | Mapping[str, Any], source: Source):
        self.tracker, self.values, self.source = tracker, values, source

    def __len__(self) -> int:
        return len(self.values)

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def __getitem__(self, key: Any) -> Any:
        value = self.values[key]
        if self.source.kind == "const" and type(value) in self.tracker.atoms:  # in a tuple that is guarded by its identity
            return value
        return self.tracker.reach(value, self.tracker.sources.item(self.source, key))
