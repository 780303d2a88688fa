"""Attributes in a tracked run: of classes, of instances, and missing ones."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from types import BuiltinFunctionType, CellType, FunctionType, MappingProxyType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

from dovetail.errors import EagerCall, Unsupported
from dovetail.frontend.class_lookup import IMMUTABLE, NULL, address_of, is_in_python, lookup
from dovetail.frontend.guards.source import Source
from dovetail.frontend.interpreter.protocols import is_data
from dovetail.frontend.interpreter.tracking.annotations import ANNOTATIONS, REPLACING, annotations_of
from dovetail.frontend.interpreter.tracking.constants import is_foreign_memory
from dovetail.frontend.interpreter.tracking.effects import DELETED
from dovetail.frontend.interpreter.tracking.lacking import LIBRARIES, is_library
from dovetail.frontend.interpreter.tracking.output import check_redirected
from dovetail.frontend.interpreter.world import Special

_WRAPPERS = (property, staticmethod, classmethod)
_LOOKED_UP = frozenset({"__class__", "__dict__", "__bases__", "__code__"})  # by which C code looks up everything else


class Attributes:
    """The places where `Protocols` looks into classes and instances, with guards."""

    def load_attr(self, owner: Any, name: str) -> Any:
        if type(owner) in self.atoms:
            return getattr(owner, name)
        value = self.recorder.load_attr(self, owner, name)
        if value is not NULL:
            return value
        self.outside(owner)
        if not is_library(type(owner)) and not self.recorder.is_module(owner):
            self.guard_class(type(owner), "__getattribute__")
        return super().load_attr(owner, name)

    def raw_of(self, cls: type, name: str) -> Any:
        return self._raw_and_owner(cls, name)[0]

    def _raw_and_owner(self, cls: type, name: str) -> tuple[Any, type | None]:
        """Return what a class has under a name as the program has left it, and the base where it lies; None for one that the program has written."""
        if not self.effects.of_classes or not any([(address_of(base), name) in self.effects.written for base in cls.__mro__]):
            return lookup(cls, name), cls
        for base in cls.__mro__:
            now = self.effects.now(base, name)
            if now is not NULL and now is not DELETED:
                return now, None
            if now is NULL:
                self._guard_own(base, name)
                if name in vars(base):
                    return vars(base)[name], base
        return NULL, cls

    def _guard_own(self, cls: type, name: str) -> None:
        """Guard whether a class itself has something under a name, which decides whether what the program has written on a base is seen."""
        if not cls.__flags__ & IMMUTABLE and not self.is_fresh(cls):
            self.guard("has" if name in vars(cls) else "hasnot", self.sources.attr(self.sources.const(cls), "__dict__"), name)

    def from_class(self, cls: type, name: str) -> Any:
        raw, owner = self._raw_and_owner(cls, name)
        if raw is NULL or owner is None or cls.__flags__ & IMMUTABLE:
            return raw
        if self.is_fresh(cls):
            return self._from_base(cls, name, raw)
        hidden = owner is not cls and lookup(cls, name) is not raw  # what hides it is deleted
        raw = self.reach(raw, self.sources.static(owner if hidden else cls, name))
        self._know_wrapped(raw)
        return raw

    def _from_base(self, cls: type, name: str, raw: Any) -> Any:
        """Return what a class of the trace has under this name, itself or from a base outside."""
        owner = next(base for base in cls.__mro__ if name in vars(base))
        if owner.__flags__ & IMMUTABLE or self.is_fresh(owner):
            return raw
        self.guard_class(cls, name)
        return self.reach(raw, self.sources.static(owner, name))

    def method(self, value: Any, name: str) -> FunctionType | Special | None:
        """Return the method in Python that the class of `value` has under this name, None where it has none: both are facts about the class."""
        kind = type(value)
        if kind in self.atoms:
            return None
        raw, is_tensor = self.raw_of(kind, name), self.recorder.is_tensor(value)
        if self.source(value) is not None and not is_tensor:
            self.outside(value)
        if type(raw) is FunctionType:
            return self.from_class(kind, name)
        if is_tensor:
            return None
        self.guard_class(kind, name)
        return Special(name) if is_in_python(raw) else None

    def first_method(self, value: Any, names: tuple[str, ...]) -> FunctionType | Special | None:
        for name in names:
            if type(lookup(type(value), name)) is not FunctionType and not self.recorder.is_tensor(value):
                self.guard_class(type(value), name)
        return super().first_method(value, names)

    def guard_class(self, cls: type, name: str) -> None:
        """Guard that a class keeps what it has under a name, or that it has nothing."""
        if not cls.__flags__ & IMMUTABLE:
            self.natives.setdefault(cls, {}).setdefault(name, lookup(cls, name))

    def guard_bases(self, cls: type) -> None:
        """Guard that a class derives from the same ones."""
        if not cls.__flags__ & IMMUTABLE:
            self.natives.setdefault(cls, {})

    def guard_flag(self, cls: type, flag: int) -> bool:
        """Return whether a class has a flag of CPython's, and guard that."""
        present = bool(cls.__flags__ & flag)
        if not cls.__flags__ & IMMUTABLE and not self.is_fresh(cls):
            self.guard("flag" if present else "no flag", self.sources.const(cls), flag)
        return present

    def _guard_field(self, owner: Any, name: str) -> None:
        """Guard that an attribute of an object is no descriptor of its class."""
        cls = type(owner)
        if not cls.__flags__ & IMMUTABLE and not is_library(cls) and not self.recorder.is_module(owner):
            self.guard_class(cls, name)
            self._guard_descriptor(lookup(cls, name))

    def _guard_descriptor(self, raw: Any) -> None:
        """Guard what makes an attribute of a class a descriptor."""
        kind = type(raw)
        if raw is not NULL and not kind.__flags__ & IMMUTABLE and not is_library(kind):
            for name in ("__get__", "__set__", "__delete__"):
                self.guard_class(kind, name)

    def _guard_super(self, bound: super, name: str) -> None:
        """Guard the order of the bases, and what those lack that come before the one in which `super()` finds an attribute."""
        kind = bound.__self_class__
        if is_library(kind) or self.is_fresh(kind):
            return
        self.guard("is", self.sources.attr(self.sources.const(kind), "__mro__"), kind.__mro__)
        for base in kind.__mro__[kind.__mro__.index(bound.__thisclass__) + 1 :]:
            if name in vars(base):
                break
            self.guard_class(base, name)

    def from_instance(self, owner: Any, name: str) -> Any:
        now = self.effects.now(owner, name)
        if now is not NULL:
            return NULL if now is DELETED else now
        source = self.source(owner)
        value = super().from_instance(owner, name)
        if value is not NULL:
            self._guard_field(owner, name)
        if source is None:
            return value
        if value is not NULL:
            return self.reach(value, self.sources.field(source, name))
        if hasattr(type(owner), "__dict__") and hasattr(owner, "__dict__"):
            self.guard("hasnot", self.sources.attr(source, "__dict__"), name)
        return NULL

    def generic_attr(self, owner: Any, name: str) -> Any:
        if type(owner) is CellType and name == "cell_contents":
            return self.load_cell(owner)
        if self.effects.now(owner, name) is DELETED and lookup(type(owner), name) is NULL:
            raise AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}", name=name, obj=owner)
        return super().generic_attr(owner, name)

    def bound(self, raw: Any, owner: Any, cls: type, name: str) -> Any:
        self._know_wrapped(raw)  # of a base, as super() finds it
        self._guard_descriptor(raw)
        return super().bound(raw, owner, cls, name)

    def class_bound(self, raw: Any, cls: type) -> Any:
        """Return what `raw`, from the dictionary of a class, is as an attribute of `cls`; NULL where C code alone says it."""
        self._know_wrapped(raw)
        self._guard_descriptor(raw)
        return super().class_bound(raw, cls)

    def _know_wrapped(self, raw: Any) -> None:
        """Remember the functions in a property, class method or static method: each stays that object, but its code and its closure may change."""
        if isinstance(raw, _WRAPPERS) and self.source(raw) is not None:
            for function in (raw.fget, raw.fset, raw.fdel) if isinstance(raw, property) else (raw.__func__,):
                if type(function) not in self.atoms:
                    self.known.setdefault(address_of(function), (function, self.sources.const(function)))

    def native_bound(self, raw: Any, owner: Any, cls: type, name: str) -> Any:
        now = self.effects.now(owner, name)
        if now is not NULL and now is not DELETED:
            return now
        if name == ANNOTATIONS and (evaluated := annotations_of(self, owner)) is not NULL:
            return evaluated
        source = self.source(owner)
        try:
            value = super().native_bound(raw, owner, cls, name)
        except AttributeError:
            if source is not None and type(raw) is MemberDescriptorType:
                self.guard("unset", source, name)
            raise
        if source is not None and name == "__dict__" and not isinstance(owner, type):
            return self.view(value, owner, self.sources.attr(source, name))
        if source is None or callable(raw):  # a C function bound to its owner is a new object
            return value
        return self.reach(value, self.sources.attr(source, name))

    def native_attr(self, owner: Any, name: str) -> Any:
        if isinstance(owner, ModuleType):
            return self._module_attr(owner, name)
        if isinstance(owner, type):
            return self._class_attr(owner, name)
        if type(owner) is MethodType and lookup(MethodType, name) is NULL:
            return self.load_attr(owner.__func__, name)
        if type(owner) is super and owner.__self__ is not None:
            self._guard_super(owner, name)
        if name == ANNOTATIONS and (evaluated := annotations_of(self, owner)) is not NULL:
            return evaluated
        return self._native_value(owner, name, super().native_attr(owner, name))

    def matches(self, error: BaseException, kinds: Any) -> bool:
        self.guard_bases(type(error))
        return super().matches(error, kinds)

    def missing_attr(self, owner: Any, cls: type, name: str) -> Any:
        if self.effects.of_classes and lookup(cls, name) is not NULL:  # the program has deleted it
            raise AttributeError(f"{cls.__name__!r} object has no attribute {name!r}", name=name, obj=owner)
        if name == "__dict__" and isinstance(owner, threading.local) and (source := self.source(owner)) is not None:
            return self.view(threading.local.__getattribute__(owner, name), owner, self.sources.attr(source, name))
        if not self.recorder.is_tensor(owner):
            self.guard_class(cls, "__getattr__")
            self.guard_class(cls, name)
        return self._native_value(owner, name, super().missing_attr(owner, cls, name))

    def _native_value(self, owner: Any, name: str, value: Any) -> Any:
        """Return what C code reads from an object by itself."""
        source = self.source(owner)
        return value if source is None or isinstance(value, BuiltinFunctionType) else self.reach(value, self.sources.attr(source, name))

    def _module_attr(self, module: ModuleType, name: str) -> Any:
        if is_in_python(lookup(type(module), "__getattribute__")):
            return self.call_function(self.method(module, "__getattribute__"), [module, name], {})
        return self.generic_module_attr(module, name)

    def generic_module_attr(self, module: ModuleType, name: str) -> Any:
        """Return types.ModuleType.__getattribute__(module, name), with what `__getattr__` of the module's class adds."""
        kind = type(module)
        raw = NULL if kind is ModuleType else lookup(kind, name)
        through_python = isinstance(raw, property) or is_in_python(lookup(type(raw), "__get__"))
        if through_python and is_data(raw):
            return self.bound(self.from_class(kind, name), module, kind, name)
        loads = "__getattr__" in vars(module) or lookup(type(module), "__getattr__") is not NULL
        if name not in vars(module) and loads and self.effects.now(vars(module), name) is NULL:
            getattr(module, name, None)  # a module that is loaded when it is first touched is there from now on
        value = self.from_namespace(vars(module), name)
        if value is not NULL:
            return value
        if through_python:
            return self.bound(self.from_class(kind, name), module, kind, name)
        if raw is NULL and loads and (hook := self._module_hook(module)) is not None:
            return hook(name)
        return self.reach(super().native_attr(module, name), self.sources.attr(self.sources.const(module), name))

    def _module_hook(self, module: ModuleType) -> Callable[[str], Any] | None:
        """Return the `__getattr__` in Python of a module, or of its class; None for those of libraries, which read nothing that a program changes."""
        own = self.from_namespace(vars(module), "__getattr__")
        if module.__name__.partition(".")[0] in LIBRARIES:
            return None
        if type(own) is FunctionType:
            return lambda name: self.call_function(own, [name], {})
        method = self.method(module, "__getattr__")
        return None if method is None else lambda name: self.call_function(method, [module, name], {})

    def _of_metaclass(self, cls: type, name: str) -> Any:
        """Return an attribute of a class through a descriptor in Python of its metaclass, or its `__getattr__`; NULL where there is none."""
        meta = type(cls)
        if meta.__flags__ & IMMUTABLE or is_library(meta):
            return NULL
        raw, own, now = lookup(meta, name), lookup(cls, name), self.effects.now(cls, name)
        if now is not NULL:
            own = NULL if now is DELETED else now
        if raw is NULL and own is NULL and is_in_python(lookup(meta, "__getattr__")):
            self.guard_class(meta, name)
            self.guard_class(cls, name)
            return self.call_function(self.method(cls, "__getattr__"), [cls, name], {})
        if raw is NULL or not (isinstance(raw, (property, FunctionType)) or is_in_python(lookup(type(raw), "__get__"))):
            return NULL
        if own is not NULL and not is_data(raw):
            return NULL
        self.guard_class(cls, name)
        return self.bound(self.from_class(meta, name), cls, meta, name)

    def _class_attr(self, cls: type, name: str) -> Any:
        if is_library(type(cls)) or not is_in_python(lookup(type(cls), "__getattribute__")):
            return self.generic_class_attr(cls, name)
        try:
            return self.call_function(self.method(cls, "__getattribute__"), [cls, name], {})
        except AttributeError:
            if not is_in_python(lookup(type(cls), "__getattr__")):
                raise
        return self.call_function(self.method(cls, "__getattr__"), [cls, name], {})

    def generic_class_attr(self, cls: type, name: str) -> Any:
        """Return type.__getattribute__(cls, name)."""
        if (value := self._of_metaclass(cls, name)) is not NULL:
            return value
        if self.is_fresh(cls):
            if name == ANNOTATIONS:
                annotations_of(self, cls)
            return super().native_attr(cls, name)
        now = self.effects.now(cls, name)
        if now is not NULL and now is not DELETED:
            return now
        raw = self.from_class(cls, name)
        if raw is NULL:
            if any([self.effects.now(base, name) is DELETED for base in cls.__mro__]):
                raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}", name=name, obj=cls)
            self.guard_class(cls, name)
            if (of_meta := self.from_class(type(cls), name)) is not NULL and not type(cls).__flags__ & IMMUTABLE:
                return self.bound(of_meta, cls, type(cls), name)
            self.guard_class(type(cls), name)
            self.guard_class(type(cls), "__getattr__")
        if raw is not NULL and not is_data(lookup(type(cls), name)) and (value := self.class_bound(raw, cls)) is not NULL:
            return value
        value = super().native_attr(cls, name)
        if name == "__dict__" and type(value) is MappingProxyType:
            return self.reach(value, self.sources.attr(self.sources.const(cls), name))
        if raw is not NULL:
            return value  # the guard is on what the class has
        source = self.sources.attr(self.sources.const(cls), name)
        return value if isinstance(value, MethodType) or callable(value) else self.reach(value, source)

    def view(self, namespace: dict[str, Any], owner: Any, source: Source) -> dict[str, Any]:
        """Return a dict with the attributes of `owner`, or a module's variables: reads and writes are the same through both."""
        self.views[id(namespace)] = owner
        self.known.setdefault(address_of(namespace), (namespace, source))
        return namespace

    def from_view(self, namespace: dict[str, Any], name: str) -> Any:
        """Return namespace[name], NULL where it is missing."""
        owner = self.views[id(namespace)]
        return self.from_namespace(namespace, name) if owner is namespace else self.from_instance(owner, name)

    def set_view(self, namespace: dict[str, Any], name: str, value: Any) -> None:
        """Set or delete namespace[name]."""
        owner = self.views[id(namespace)]
        self.effects.set(owner, name, value, "item" if owner is namespace else "field")

    def import_from(self, module: Any, name: str) -> Any:
        try:
            return self.load_attr(module, name)
        except AttributeError:
            return super().import_from(module, name)

    def set_native(self, owner: Any, name: str, value: Any) -> None:
        if self.recorder.is_tensor(owner):
            if not self.recorder.store_attr(self, owner, name, value):
                self.effects.set(owner, name, value)
        elif isinstance(owner, ModuleType):
            check_redirected(self, owner, name, value)
            self.effects.set(vars(owner), name, value, "item")
        elif is_foreign_memory(type(owner)):
            raise Unsupported(f"the program sets .{name} of a {type(owner).__name__}, whose memory others may share; pass a tensor of that memory")
        elif type(owner) in weakref.ProxyTypes:
            raise EagerCall(f"the program sets .{name} through a weak proxy")
        elif name in _LOOKED_UP and (self.is_outside(owner) or (name == "__dict__" and self.is_outside(value))):
            raise EagerCall(f"the program sets .{name} of a {type(owner).__name__}, which is from outside or shares it with what is")
        elif self.is_outside(owner) and _can_be_set(owner, name):
            self._guard_field(owner, name)
            self.effects.set(owner, name, value)
        else:
            self._guard_field(owner, name)
            super().set_native(owner, name, value)
            if name in REPLACING:
                self.annotations.pop(id(owner), None)

    def delete_native(self, owner: Any, name: str) -> None:
        if self.recorder.is_tensor(owner):
            self.load_attr(owner, name)
            if not self.recorder.store_attr(self, owner, name, DELETED):
                self.effects.set(owner, name, DELETED)
        elif isinstance(owner, ModuleType):
            self._check_owned(owner, name, self.from_namespace(vars(owner), name) is not NULL)
            self.effects.set(vars(owner), name, DELETED, "item")
        elif isinstance(owner, type) and self.is_outside(owner):
            now = self.effects.now(owner, name)
            self._guard_own(owner, name)
            self._check_owned(owner, name, name in vars(owner) if now is NULL else now is not DELETED)
            self.effects.set(owner, name, DELETED)
        elif self.is_outside(owner) and not isinstance(lookup(type(owner), name), property):
            if is_data(lookup(type(owner), name)):
                self.load_attr(owner, name)
            else:
                self._check_owned(owner, name, self.from_instance(owner, name) is not NULL)
            self.effects.set(owner, name, DELETED)
        else:
            super().delete_native(owner, name)

    def _check_owned(self, owner: Any, name: str, owned: bool) -> None:
        """Raise AttributeError where an object itself has nothing to delete under a name."""
        if not owned:
            kind = f"type object {owner.__name__!r}" if isinstance(owner, type) else f"{type(owner).__name__!r} object"
            raise AttributeError(f"{kind} has no attribute {name!r}")

    def is_outside(self, value: Any) -> bool:
        """Return whether writing to `value` has to wait."""
        return self.source(value) is not None or (isinstance(value, type) and not self.is_fresh(value))


def _can_be_set(owner: Any, name: str) -> bool:
    """Return whether setting an attribute is no error: an object without a dictionary has slots alone, and a property may have no setter."""
    if isinstance(owner, type):
        return not owner.__flags__ & IMMUTABLE
    raw = lookup(type(owner), name)
    if isinstance(raw, property):
        return raw.fset is not None
    return hasattr(owner, "__dict__") or (raw is not NULL and lookup(type(raw), "__set__") is not NULL)
