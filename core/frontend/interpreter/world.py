"""What values mean: attributes, items, operators, variables, calls.  `World` is CPython itself; a tracker overrides what it wants to see."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from types import AsyncGeneratorType, CellType, CodeType, CoroutineType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any, NamedTuple

from dovetail.errors import Unsupported
from dovetail.frontend.class_lookup import NULL, bound, lookup
from dovetail.frontend.interpreter.binding import Mismatch, bind, partial_arguments
from dovetail.frontend.interpreter.classes import LOOKASIDES as CLASSES
from dovetail.frontend.interpreter.classes import instantiate
from dovetail.frontend.interpreter.drivers import start
from dovetail.frontend.interpreter.frame import OPTIMIZED, Frame, decode
from dovetail.frontend.interpreter.introspection import LOOKASIDES as INTROSPECTION
from dovetail.frontend.interpreter.introspection import introspected
from dovetail.frontend.interpreter.native import call_in, native
from dovetail.frontend.interpreter.opcodes.build import is_iterable
from dovetail.frontend.interpreter.py311 import Py311
from dovetail.frontend.interpreter.py312 import Py312
from dovetail.frontend.interpreter.py313 import Py313
from dovetail.frontend.interpreter.py314 import Py314
from dovetail.frontend.interpreter.scopes import LOOKASIDES as SCOPES
from dovetail.frontend.interpreter.scopes import builtins_in
from dovetail.frontend.interpreter.tracebacks import is_own_code

SUSPENDED = (GeneratorType, CoroutineType, AsyncGeneratorType)
OPCODES = {(3, 11): Py311, (3, 12): Py312, (3, 13): Py313, (3, 14): Py314}


class Special(NamedTuple):
    """A special method that is Python code, but no plain function: it is bound to the first argument of its call."""

    name: str


class World:
    """CPython's semantics on raw values.

    Opcode handlers only move values; every question about one comes here: a subclass sees all that a program reads, writes and calls.
    `limit` is how many interpreted frames may be active, `depth` how many are.
    """

    opcodes = OPCODES.get(sys.version_info[:2])
    lookasides: Mapping[Any, Callable[..., Any]] = {**CLASSES, **SCOPES, **INTROSPECTION}

    is_over = False  # whether the run has ended; what is still suspended then is not resumed
    refusals: tuple[type[BaseException], ...] = ()  # errors of the interpreter itself, which no handler of the program sees

    def __init__(self) -> None:
        self.refusal: BaseException | None = None  # the first of them
        if self.opcodes is None:
            version = ".".join(map(str, sys.version_info[:2]))
            raise Unsupported(
                f"the bytecode interpreter supports Python 3.11 to 3.14, and this is Python {version}: use one of those, or trace with "
                'interpretation="native", which does not guard all that a function reads'
            )
        self.depth, self.limit = 0, sys.getrecursionlimit()

    def refuses(self, error: BaseException) -> bool:
        """Return whether an error is the interpreter's, so that no handler of the program sees it."""
        return isinstance(error, self.refusals)

    # attributes

    def load_attr(self, owner: Any, name: str) -> Any:
        """Return owner.name."""
        if type(owner) in SUSPENDED:
            return introspected(owner, name)
        return getattr(owner, name)

    def store_attr(self, owner: Any, name: str, value: Any) -> None:
        """Set owner.name = value."""
        setattr(owner, name, value)

    def delete_attr(self, owner: Any, name: str) -> None:
        """Delete owner.name."""
        delattr(owner, name)

    def optional(self, owner: Any, name: str) -> Any:
        """Return owner.name, None where there is none."""
        try:
            return self.load_attr(owner, name)
        except AttributeError:
            return None

    def from_class(self, cls: type, name: str) -> Any:
        """Return the attribute of a class or a base of it, unbound; NULL when there is none."""
        return lookup(cls, name)

    def special(self, owner: Any, name: str) -> Any:
        """Return the method `name` of owner's type bound to owner, None where there is none; the instance does not count."""
        raw = self.from_class(type(owner), name)
        return None if raw is NULL else bound(raw, owner, type(owner))

    def has_flag(self, value: Any, flag: int) -> bool:
        """Return whether the type of `value` has a flag, as those that make it a sequence or a mapping for `match`."""
        return bool(type(value).__flags__ & flag)

    # items

    def get_item(self, owner: Any, key: Any) -> Any:
        """Return owner[key]."""
        return owner[key]

    def set_item(self, owner: Any, key: Any, value: Any) -> None:
        """Set owner[key] = value."""
        owner[key] = value

    def delete_item(self, owner: Any, key: Any) -> None:
        """Delete owner[key]."""
        del owner[key]

    def contains(self, container: Any, item: Any) -> bool:
        """Return `item in container`."""
        return item in container

    def len(self, value: Any) -> int:
        """Return len(value)."""
        return len(value)

    # new sets and dicts: their keys are hashed and compared

    def make_set(self, items: list[Any]) -> set:
        """Return {*items}."""
        return set(items)

    def make_dict(self, keys: Iterable[Any], values: list[Any]) -> dict:
        """Return {key: value, ...}."""
        return dict(zip(keys, values, strict=True))

    def add_to(self, target: set, item: Any) -> None:
        """Add to a set that is being built."""
        target.add(item)

    def put_into(self, target: dict, key: Any, value: Any) -> None:
        """Put into a dict that is being built."""
        target[key] = value

    # iteration

    def iter(self, value: Any) -> Iterator[Any]:
        """Return iter(value)."""
        return iter(value)

    def next(self, iterator: Iterator[Any]) -> Any:
        """Return next(iterator); the end is a StopIteration."""
        return next(iterator)

    def send(self, iterator: Any, value: Any, frame: Frame) -> Any:
        """Send `value` to what a `yield from` or `await` drives, and return its next value."""
        if type(iterator) is GeneratorType or type(iterator) is CoroutineType:
            return iterator.send(value)
        if value is None and hasattr(type(iterator), "__next__"):
            return self.next(iterator)
        return self.call(self.load_attr(iterator, "send"), [value], {}, frame)

    def spread(self, value: Any) -> Iterable[Any]:
        """Return the items of `*value`."""
        return self.iter(value)

    def tuple_items(self, value: tuple) -> tuple:
        """Return the items of a tuple, of which C code reads all: arguments after a star, classes after `except`, names of a class pattern."""
        return value

    def pairs(self, mapping: Any) -> Iterable[tuple[Any, Any]]:
        """Return the keys and values of `**mapping`."""
        if isinstance(mapping, dict) and type(mapping).__iter__ is dict.__iter__:
            return dict.items(mapping)
        keys = self._each(self.iter(self.call(self.load_attr(mapping, "keys"), [], {}, None)))
        return ((key, self.get_item(mapping, key)) for key in keys)

    def _each(self, iterator: Iterator[Any]) -> Iterator[Any]:
        """Yield the items of an iterator that the world knows how to advance."""
        while True:
            try:
                item = self.next(iterator)
            except StopIteration:
                return
            yield item

    def unpack(self, value: Any, n: int) -> list[Any]:
        """Return the `n` items of a value."""
        items = self._unpackable(value)
        values = list(islice(items, n))
        if len(values) < n:
            raise ValueError(f"not enough values to unpack (expected {n}, got {len(values)})")
        if next(items, NULL) is not NULL:
            raise ValueError(self.opcodes.excess(value, n))
        return values

    def unpack_star(self, value: Any, before: int, after: int) -> list[Any]:
        """Return the items of a value, those between the first `before` and the last `after` as one list."""
        values = list(self._unpackable(value))
        if len(values) < before + after:
            raise ValueError(f"not enough values to unpack (expected at least {before + after}, got {len(values)})")
        cut = len(values) - after
        return [*values[:before], values[before:cut], *values[cut:]]

    def _unpackable(self, value: Any) -> Iterator[Any]:
        if not is_iterable(value):
            raise TypeError(f"cannot unpack non-iterable {type(value).__name__} object")
        return self._each(self.iter(value))

    # operators

    def unary(self, op: Callable, x: Any) -> Any:
        """Return op(x): `op` is neg, pos or invert of the module `operator`."""
        return op(x)

    def binary(self, op: Callable, x: Any, y: Any) -> Any:
        """Return op(x, y): `op` is add, sub, ... of the module `operator`."""
        return op(x, y)

    def inplace(self, op: Callable, x: Any, y: Any) -> Any:
        """Return the new value of the variable: `op` is iadd, isub, ... of the module `operator`."""
        return op(x, y)

    def compare(self, op: Callable, x: Any, y: Any) -> Any:
        """Return op(x, y): `op` is lt, le, eq, ne, gt or ge of the module `operator`."""
        return op(x, y)

    def is_(self, x: Any, y: Any) -> bool:
        """Return `x is y`."""
        return x is y

    def truth(self, value: Any) -> bool:
        """Return bool(value), for a jump or `not`."""
        return bool(value)

    def matches(self, error: BaseException, kinds: Any) -> bool:
        """Return whether `except kinds` catches an exception: by its class, whatever `isinstance` returns."""
        return any(kind in type(error).__mro__ for kind in (self.tuple_items(kinds) if isinstance(kinds, tuple) else (kinds,)))

    def format(self, value: Any, conversion: int, spec: str | None) -> str:
        """Return a part of an f-string: converted by str, repr or ascii where `conversion` is 1, 2 or 3, then formatted unless `spec` is None."""
        if conversion:
            value = (str, repr, ascii)[conversion - 1](value)
        return value if spec is None else format(value, spec)

    def is_text(self, value: Any) -> bool:
        """Return whether a value that is no str stands for text."""
        return False

    def join_text(self, parts: list[Any]) -> Any:
        """Return the parts of an f-string as one."""
        return "".join(parts)

    # variables

    def load_cell(self, cell: CellType) -> Any:
        """Return the value in a cell; an empty one is a ValueError."""
        return cell.cell_contents

    def store_cell(self, cell: CellType, value: Any) -> None:
        """Put a value into a cell."""
        cell.cell_contents = value

    def delete_cell(self, cell: CellType) -> None:
        """Empty a cell; an empty one is a ValueError."""
        cell.cell_contents  # noqa: B018
        del cell.cell_contents

    def load_global(self, frame: Frame, name: str) -> Any:
        """Return a global variable or builtin."""
        value = frame.globals.get(name, NULL) if type(frame.globals) is dict else self._mapped(frame.globals, name)
        if value is not NULL:
            return value
        value = frame.builtins.get(name, NULL) if type(frame.builtins) is dict else self._mapped(frame.builtins, name)
        if value is not NULL:
            return value
        raise NameError(f"name '{name}' is not defined", name=name)

    @staticmethod
    def _mapped(scope: Any, name: str) -> Any:
        try:
            return scope[name]
        except KeyError:
            return NULL

    def store_global(self, frame: Frame, name: str, value: Any) -> None:
        """Set a global variable."""
        frame.globals[name] = value

    def delete_global(self, frame: Frame, name: str) -> None:
        """Delete a global variable."""
        if frame.globals.pop(name, NULL) is NULL:
            raise NameError(f"name '{name}' is not defined", name=name)

    # imports

    def import_name(self, frame: Frame, name: str, names: Any, level: int) -> ModuleType:
        """Run `import name`, or return the module of `from name import names`."""
        importer = frame.builtins.get("__import__")
        if importer is None:
            raise ImportError("__import__ not found")
        args = [name, frame.globals, frame.names, names, level]
        return importer(*args) if importer is builtins.__import__ else self.call(importer, args, {}, frame)

    def import_from(self, module: Any, name: str) -> Any:
        """Return the value of `from module import name`."""
        return native((("IMPORT_FROM", 0), ("SWAP", 2), ("POP_TOP", 0)), 1, {}, (name,))(module)

    def import_star(self, frame: Frame, module: Any) -> None:
        """Run `from module import *`."""
        namespace: dict[str, Any] = {}
        names = self.optional(module, "__all__")
        public = names is None
        if public:
            names = self.call(self.load_attr(self.load_attr(module, "__dict__"), "keys"), [], {}, frame)
        for name in list(self.spread(names)):
            if not isinstance(name, str):
                where, what = ("__dict__", "Key") if public else ("__all__", "Item")
                raise TypeError(f"{what} in {module.__name__}.{where} must be str, not {type(name).__name__}")
            if not (public and name.startswith("_")):
                namespace[name] = self.load_attr(module, name)
        for name, value in namespace.items():
            self.set_item(frame.names, name, value)

    # functions, classes and calls

    def register_function(self, function: FunctionType) -> FunctionType:
        """Register a function that a `def` or `lambda` has created."""
        return function

    def register_class(self, cls: Any) -> Any:
        """Register a class that a `class` statement has created."""
        return cls

    def call(self, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
        """Return function(*args, **kwargs), called from `frame`: Python functions are interpreted, lookasides looked up, the rest runs natively."""
        kind = type(function)
        while kind is MethodType:
            function, args = function.__func__, [function.__self__, *args]
            kind = type(function)
        if kind is FunctionType:
            return self.call_function(function, args, kwargs)
        lookaside = self.lookaside(function)
        if lookaside is not None:
            return lookaside(self, function, args, kwargs, frame)
        if isinstance(function, type):
            return instantiate(self, function, args, kwargs, frame)
        if kind is partial:
            return self.call(function.func, partial_arguments(function.args, args), {**function.keywords, **kwargs}, frame)
        method = lookup(kind, "__call__")
        if type(method) is FunctionType:
            return self.call_function(method, [function, *args], kwargs)
        return self.call_native(function, args, kwargs, frame)

    def lookaside(self, function: Any) -> Callable | None:
        """Return what replaces calls of a builtin that reads its caller's frame."""
        try:
            return self.lookasides.get(function)
        except TypeError:  # it cannot be hashed
            return None

    def make_native(self, maker: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
        """Call a class in C, or the `__new__` of one; it may read its caller's globals, as `type` does to set `__module__`."""
        return call_in(globals() if frame is None else frame.globals, maker, args, kwargs)

    def call_native(self, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
        """Call what is not Python."""
        return function(*args, **kwargs) if kwargs else function(*args)

    def call_function(self, function: FunctionType | Special, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Interpret a call of a Python function, or of a special method that wraps one; the interpreter's own run natively."""
        if type(function) is Special:
            return self.call(self.special(args[0], function.name), args[1:], kwargs, None)
        if is_own_code(function.__code__):
            return function(*args, **kwargs)
        return start(self.frame(function, args, kwargs))

    def frame(self, function: FunctionType, args: list[Any], kwargs: dict[str, Any]) -> Frame:
        """Return the new frame of a call, with its arguments bound."""
        code = function.__code__
        decoded = decode(code, self.opcodes)
        defaults, kwdefaults = self.defaults(function)
        try:
            slots = bind(function, decoded, args, kwargs, defaults, kwdefaults)
        except Mismatch:
            slots = None
        if slots is None:
            function(*args, **kwargs)  # raises
        names = None if decoded.flags & OPTIMIZED else function.__globals__  # a function of a module's code
        return Frame(code, decoded, self, slots, function.__globals__, function.__builtins__, names, function)

    def defaults(self, function: FunctionType) -> tuple[Any, Any]:
        """Return the default values of a function's parameters: a tuple or None, and those of its keyword-only parameters: a dict or None."""
        return function.__defaults__, function.__kwdefaults__

    def evaluate(self, code: CodeType, globals: dict[str, Any], names: Any, function: FunctionType | None = None) -> Frame:
        """Return a fresh frame for the code of a module, class body or `eval`, with its namespace."""
        decoded = decode(code, self.opcodes)
        builtins_ = builtins_in(globals) if function is None else function.__builtins__
        return Frame(code, decoded, self, [NULL] * len(decoded.slot_names), globals, builtins_, names, function)
