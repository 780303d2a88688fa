"""CPython's object protocols in Python: attributes, operators and iteration, where a class defines them by Python functions.

`World` leaves these to C, which runs the functions natively.  `Protocols` looks them up and interprets them: a tracker has to see what they
read.  A value's class and its instance dictionary are read by `from_class` and `from_instance`, where a tracker guards them.
"""

from __future__ import annotations

import enum
import itertools
import operator
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType, MethodType
from typing import Any

from dovetail.frontend.class_lookup import NULL, is_in_python, lookup
from dovetail.frontend.interpreter.world import SUSPENDED, Special, World

REFLECTED_COMPARISONS = {"__lt__": "__gt__", "__gt__": "__lt__", "__le__": "__ge__", "__ge__": "__le__", "__eq__": "__eq__", "__ne__": "__ne__"}
COMPARISON_SYMBOLS = {operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">="}
SYMBOLS = {
    op: symbol
    for op, inplace, symbol in (
        (operator.add, operator.iadd, "+"),
        (operator.sub, operator.isub, "-"),
        (operator.mul, operator.imul, "*"),
        (operator.truediv, operator.itruediv, "/"),
        (operator.floordiv, operator.ifloordiv, "//"),
        (operator.mod, operator.imod, "%"),
        (operator.pow, operator.ipow, "** or pow()"),
        (operator.matmul, operator.imatmul, "@"),
        (operator.lshift, operator.ilshift, "<<"),
        (operator.rshift, operator.irshift, ">>"),
        (operator.and_, operator.iand, "&"),
        (operator.or_, operator.ior, "|"),
        (operator.xor, operator.ixor, "^"),
    )
    for op, symbol in ((op, symbol), (inplace, f"{symbol.split()[0]}="))
}
_OWN_LOOKUP = (  # classes in C that find attributes in a way of their own
    type,
    types.ModuleType,
    super,
    MethodType,
    types.GenericAlias,
    types.UnionType,
    weakref.ProxyType,
    weakref.CallableProxyType,
)
_SEQUENCES = (list, tuple, str, bytes, bytearray)
_PROPERTY, _STATIC, _CLASS = (
    property.__dict__["__get__"],
    staticmethod.__dict__["__get__"],
    classmethod.__dict__["__get__"],
)  # also of derived classes
_CONVERSIONS = {1: ("__str__", "__repr__"), 2: ("__repr__",), 3: ("__repr__",)}


def dunder(op: Callable) -> str:
    """Return the method of a function of the module `operator`: `__add__` of add, `__and__` of and_."""
    return f"__{op.__name__.rstrip('_')}__"


def plain_kind(owner: Any) -> type:
    """Return the class in C that keeps the attributes of an object."""
    return type if isinstance(owner, type) else threading.local if isinstance(owner, threading.local) else object


class Protocols(World):
    """CPython's semantics, with every Python function that takes part in them interpreted."""

    # where classes and instances are looked into

    def from_instance(self, owner: Any, name: str) -> Any:
        """Return the value under this name in an instance dictionary; NULL when there is none."""
        try:
            namespace = (threading.local if isinstance(owner, threading.local) else object).__getattribute__(owner, "__dict__")
        except AttributeError:
            return NULL
        return namespace.get(name, NULL) if isinstance(namespace, dict) else NULL

    def method(self, value: Any, name: str) -> FunctionType | Special | None:
        """Return the method in Python that value's class has under this name; None where it has none, or something native."""
        raw = lookup(type(value), name)
        if type(raw) is FunctionType:
            return self.from_class(type(value), name)
        return Special(name) if is_in_python(raw) else None

    # attributes

    def load_attr(self, owner: Any, name: str) -> Any:
        if type(owner) in SUSPENDED:
            return super().load_attr(owner, name)
        getter = lookup(type(owner), "__getattribute__")
        in_python = is_in_python(getter)
        if isinstance(owner, _OWN_LOOKUP) or not (in_python or type(getter) is types.WrapperDescriptorType):
            return self.native_attr(owner, name)
        hook = self.raw_of(type(owner), "__getattr__")
        try:
            if in_python:
                return self.call_function(self.method(owner, "__getattribute__"), [owner, name], {})
            return self.generic_attr(owner, name)
        except AttributeError:
            if not is_in_python(hook):
                raise
        return self.call_function(self.method(owner, "__getattr__"), [owner, name], {})

    def raw_of(self, cls: type, name: str) -> Any:
        """Return what a class has under a name, itself or from a base; NULL for nothing."""
        return lookup(cls, name)

    def native_attr(self, owner: Any, name: str) -> Any:
        """Return an attribute of a class, a module, a `super` or another object with a lookup in C."""
        if type(owner) is not super or owner.__self__ is None or name == "__class__":
            return super().load_attr(owner, name)
        subject, kind = owner.__self__, owner.__self_class__
        cls = next((cls for cls in kind.__mro__[kind.__mro__.index(owner.__thisclass__) + 1 :] if name in vars(cls)), None)
        if cls is not None and subject is not kind:
            return self.bound(self.from_class(cls, name), subject, kind, name)
        value = self.class_bound(self.from_class(cls, name), kind) if cls is not None else NULL  # in a class method
        return super().load_attr(owner, name) if value is NULL else value

    def generic_attr(self, owner: Any, name: str) -> Any:
        """Return object.__getattribute__(owner, name)."""
        cls = type(owner)
        raw = self.raw_of(cls, name)
        if raw is not NULL and is_data(raw):
            return self.bound(self.from_class(cls, name), owner, cls, name)
        value = self.from_instance(owner, name)
        if value is not NULL:
            return value
        if raw is not NULL:
            return self.bound(self.from_class(cls, name), owner, cls, name)
        return self.missing_attr(owner, cls, name)

    def missing_attr(self, owner: Any, cls: type, name: str) -> Any:
        """Return an attribute that neither class nor instance has: CPython's own error, unless a class in C looks it up in its own way."""
        hooked = is_in_python(lookup(cls, "__getattr__"))
        return object.__getattribute__(owner, name) if hooked else getattr(owner, name)

    def bound(self, raw: Any, owner: Any, cls: type, name: str) -> Any:
        """Return `owner.name` where the class has `raw`: the descriptor protocol."""
        kind = type(raw)
        if kind is FunctionType:
            return MethodType(raw, owner)
        get = lookup(kind, "__get__")
        if get is NULL:
            return raw
        if get is _PROPERTY and raw.fget is not None:
            return self.call(raw.fget, [owner], {}, None)
        if get is _STATIC:
            return raw.__func__
        if get is _CLASS and (method := self.of_class_method(raw, cls)) is not NULL:
            return method
        if is_in_python(get):
            return self.call_function(self.method(raw, "__get__"), [raw, owner, cls], {})
        return self.native_bound(raw, owner, cls, name)

    def class_bound(self, raw: Any, cls: type) -> Any:
        """Return what `raw`, from the dictionary of a class, is as an attribute of `cls`; NULL where C code alone says it."""
        get = lookup(type(raw), "__get__")
        if get is NULL:
            return raw
        if get is _CLASS:
            return self.of_class_method(raw, cls)
        if get is _STATIC:
            return raw.__func__
        if is_in_python(get) and type(raw) is not enum.property:  # that of a member returns it always
            return self.call_function(self.method(raw, "__get__"), [raw, None, cls], {})
        return NULL

    def of_class_method(self, raw: classmethod, cls: type) -> Any:
        """Return what a class method is for a class; NULL where C code alone says it.  Until Python 3.12, its function may be a descriptor."""
        function = raw.__func__
        get = lookup(type(function), "__get__")
        if type(function) is FunctionType or sys.version_info >= (3, 13) or get is NULL:
            return MethodType(function, cls)
        return self.bound(function, cls, cls, "") if get is _PROPERTY or is_in_python(get) else NULL

    def native_bound(self, raw: Any, owner: Any, cls: type, name: str) -> Any:
        """Return `owner.name` through a descriptor in C, as a slot or a C function."""
        return type(raw).__get__(raw, owner, cls)

    def store_attr(self, owner: Any, name: str, value: Any) -> None:
        setter = self.method(owner, "__setattr__")
        if setter is not None:
            self.call_function(setter, [owner, name, value], {})
        else:
            self.generic_store(owner, name, value)

    def generic_store(self, owner: Any, name: str, value: Any) -> None:
        """Run object.__setattr__(owner, name, value)."""
        raw = lookup(type(owner), name)
        if isinstance(raw, property) and lookup(type(raw), "__set__") is property.__set__ and raw.fset is not None:
            self.call(self.from_class(type(owner), name).fset, [owner, value], {}, None)
        elif raw is not NULL and is_in_python(lookup(type(raw), "__set__")):
            self.call_function(self.method(raw, "__set__"), [self.from_class(type(owner), name), owner, value], {})
        else:
            self.set_native(owner, name, value)

    def set_native(self, owner: Any, name: str, value: Any) -> None:
        """Set owner.name = value, where no Python function takes part."""
        if is_in_python(lookup(type(owner), "__setattr__")):
            plain_kind(owner).__setattr__(owner, name, value)
        else:
            setattr(owner, name, value)

    def delete_attr(self, owner: Any, name: str) -> None:
        deleter = self.method(owner, "__delattr__")
        if deleter is not None:
            self.call_function(deleter, [owner, name], {})
        else:
            self.generic_delete(owner, name)

    def generic_delete(self, owner: Any, name: str) -> None:
        """Run object.__delattr__(owner, name)."""
        raw = lookup(type(owner), name)
        if isinstance(raw, property) and lookup(type(raw), "__delete__") is property.__delete__ and raw.fdel is not None:
            self.call(self.from_class(type(owner), name).fdel, [owner], {}, None)
        elif raw is not NULL and is_in_python(lookup(type(raw), "__delete__")):
            self.call_function(self.method(raw, "__delete__"), [self.from_class(type(owner), name), owner], {})
        else:
            self.delete_native(owner, name)

    def delete_native(self, owner: Any, name: str) -> None:
        """Delete owner.name, where no Python function takes part."""
        if is_in_python(lookup(type(owner), "__delattr__")):
            plain_kind(owner).__delattr__(owner, name)
        else:
            delattr(owner, name)

    def special(self, owner: Any, name: str) -> Any:
        if lookup(type(owner), name) is NULL:
            return None
        return self.bound(self.from_class(type(owner), name), owner, type(owner), name)

    # items, iteration, sizes

    def get_item(self, owner: Any, key: Any) -> Any:
        method = self.method(owner, "__getitem__")
        if method is not None:
            return self.call_function(method, [owner, key], {})
        if isinstance(owner, type):
            raw = lookup(owner, "__class_getitem__")
            if type(raw) is classmethod and type(raw.__func__) is FunctionType:
                return self.call(self.load_attr(owner, "__class_getitem__"), [key], {}, None)
        return super().get_item(owner, key)

    def set_item(self, owner: Any, key: Any, value: Any) -> None:
        method = self.method(owner, "__setitem__")
        if method is None:
            super().set_item(owner, key, value)
        else:
            self.call_function(method, [owner, key, value], {})

    def delete_item(self, owner: Any, key: Any) -> None:
        method = self.method(owner, "__delitem__")
        if method is None:
            super().delete_item(owner, key)
        else:
            self.call_function(method, [owner, key], {})

    def contains(self, container: Any, item: Any) -> bool:
        method = self.method(container, "__contains__")
        if method is not None:
            return self.truth(self.call_function(method, [container, item], {}))
        if lookup(type(container), "__contains__") is NULL and (
            self.method(container, "__iter__") is not None or self.method(container, "__getitem__") is not None
        ):
            return any(each is item or self.truth(self.compare(operator.eq, each, item)) for each in self.spread(container))
        return super().contains(container, item)

    def len(self, value: Any) -> int:
        method = self.method(value, "__len__")
        return super().len(value) if method is None else self.length(self.call_function(method, [value], {}))

    def length(self, value: Any) -> int:
        """Return what `__len__` of a class in Python has returned, as `len` gives it."""
        return _length(value)

    def iter(self, value: Any) -> Iterator[Any]:
        method = self.method(value, "__iter__")
        if method is None:
            items = lookup(type(value), "__iter__") is NULL and self.method(value, "__getitem__") is not None
            return self._items(value) if items else super().iter(value)
        iterator = self.call_function(method, [value], {})
        if lookup(type(iterator), "__next__") is NULL:
            raise TypeError(f"iter() returned non-iterator of type '{type(iterator).__name__}'")
        return iterator

    def _items(self, sequence: Any) -> Iterator[Any]:
        """Yield the items of a class that has `__getitem__` alone, as `iter` does."""
        for i in itertools.count():
            try:
                item = self.get_item(sequence, i)
            except (IndexError, StopIteration):
                return
            yield item

    def spread(self, value: Any) -> Iterable[Any]:
        iterator = self.iter(value)
        return iterator if self.method(iterator, "__next__") is None else self._each(iterator)

    def next(self, iterator: Iterator[Any]) -> Any:
        method = self.method(iterator, "__next__")
        return super().next(iterator) if method is None else self.call_function(method, [iterator], {})

    # operators

    def truth(self, value: Any) -> bool:
        method = self.method(value, "__bool__")
        if method is not None:
            result = self.call_function(method, [value], {})
            if type(result) is not bool:
                raise TypeError(f"__bool__ should return bool, returned {type(result).__name__}")
            return result
        if lookup(type(value), "__bool__") is NULL and self.method(value, "__len__") is not None:
            return self.len(value) != 0
        return super().truth(value)

    def unary(self, op: Callable, x: Any) -> Any:
        method = self.method(x, dunder(op))
        return super().unary(op, x) if method is None else self.call_function(method, [x], {})

    def binary(self, op: Callable, x: Any, y: Any) -> Any:
        return self.operator(op, x, y, dunder(op), f"__r{dunder(op)[2:]}")

    def inplace(self, op: Callable, x: Any, y: Any) -> Any:
        method = self.method(x, dunder(op))
        if method is not None:
            result = self.call_function(method, [x, y], {})
            if result is not NotImplemented:
                return result
        elif lookup(type(x), dunder(op)) is not NULL:
            return super().inplace(op, x, y)
        name = dunder(op)[3:]
        return self.operator(op, x, y, f"__{name}", f"__r{name}")

    def compare(self, op: Callable, x: Any, y: Any) -> Any:
        return self.operator(op, x, y, dunder(op), REFLECTED_COMPARISONS[dunder(op)])

    def operator(self, op: Callable, x: Any, y: Any, name: str, reflected: str) -> Any:
        """Evaluate a binary operator: the left operand's method and the right one's, which goes first where its class is derived from the left's."""
        one, other = self.method(x, name), self.method(y, reflected)
        if one is None and other is None:
            return self.native_operator(op, x, y)
        comparison = reflected in REFLECTED_COMPARISONS
        tries = [(one, x, y, name), (other, y, x, reflected)]
        if type(x) is type(y) and not comparison:
            tries.pop()
        elif type(y) is not type(x) and type(x) in type(y).__mro__ and (comparison or lookup(type(y), reflected) is not lookup(type(x), reflected)):
            tries.reverse()
        elif one is None and isinstance(x, _SEQUENCES) and name in ("__add__", "__mul__"):
            tries.reverse()  # C concatenates and repeats only when no number method wants to
        for method, left, right, which in tries:
            result = self.call_function(method, [left, right], {}) if method is not None else _native_try(left, right, which)
            if result is not NotImplemented:
                return result
        return self._refused(op, x, y)

    def native_operator(self, op: Callable, x: Any, y: Any) -> Any:
        """Return op(x, y), where no Python function takes part."""
        return op(x, y)

    def _refused(self, op: Callable, x: Any, y: Any) -> Any:
        """Return the result of an operator that both operands have declined: CPython's own error."""
        if op is operator.eq:
            return self.is_(x, y)
        if op is operator.ne:
            return not self.is_(x, y)
        kinds = f"'{type(x).__name__}' and '{type(y).__name__}'"
        if op in COMPARISON_SYMBOLS:
            raise TypeError(f"'{COMPARISON_SYMBOLS[op]}' not supported between instances of {kinds}")
        raise TypeError(f"unsupported operand type(s) for {SYMBOLS[op]}: {kinds}")

    def first_method(self, value: Any, names: tuple[str, ...]) -> FunctionType | Special | None:
        """Return the first of these methods that value's class has, if it is in Python; what `object` has does not count."""
        for name in names:
            raw = lookup(type(value), name)
            if is_in_python(raw):
                return self.method(value, name)
            if raw is not NULL and raw is not object.__dict__.get(name):
                return None
        return None

    def format(self, value: Any, conversion: int, spec: str | None) -> str:
        method = self.first_method(value, _CONVERSIONS[conversion]) if conversion else None
        if method is not None:
            text = self.call_function(method, [value], {})
            if self.is_text(text):
                return self.format(text, 0, spec)
            if isinstance(text, str):
                value, conversion = text, 3 if conversion == 3 and not text.isascii() else 0
        elif not conversion and spec is not None:
            method = self.method(value, "__format__")
            if method is not None:
                text = self.call_function(method, [value, spec], {})
                if not isinstance(text, str) and not self.is_text(text):
                    raise TypeError(f"__format__ must return a str, not {type(text).__name__}")
                return text
            plain = not spec and lookup(type(value), "__format__") is object.__format__
            if plain and self.first_method(value, _CONVERSIONS[1]) is not None:
                return self.format(value, 1, None)
        return super().format(value, conversion, spec)


def is_data(raw: Any) -> bool:
    """Return whether an attribute of a class comes before those of its instances: it is a descriptor that can be set or deleted."""
    kind = type(raw)
    return lookup(kind, "__get__") is not NULL and (lookup(kind, "__set__") is not NULL or lookup(kind, "__delete__") is not NULL)


def _native_try(left: Any, right: Any, name: str) -> Any:
    """Return left.name(right) of a class in C, NotImplemented where it has none."""
    method = lookup(type(left), name)
    if method is NULL:
        return NotImplemented
    if method is None:
        raise TypeError("'NoneType' object is not callable")
    return method(left, right) if left is None else method.__get__(left, type(left))(right)  # for None, __get__ returns the method unbound


def _length(value: Any) -> int:
    length = operator.index(value)
    if length < 0:
        raise ValueError("__len__() should return >= 0")
    if length > sys.maxsize:
        raise OverflowError("cannot fit 'int' into an index-sized integer")
    return length
