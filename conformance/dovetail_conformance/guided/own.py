"""A plugin's own code: the functions that it registers, what they refer to, and which files belong to it."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

NEVER = ("torch", "dovetail", "numpy", "scipy")  # packages whose functions are not a plugin's own where it registers them as they are
SUITE = ("dovetail_conformance",)
INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
MOST = 400  # objects that are looked at
REFERRED = 40  # names of a function that are looked up


@dataclass
class Own:
    """The functions of a plugin from `roots` on, the values that they refer to, and the files that its code lies in."""

    roots: list[Any]
    functions: dict[CodeType, FunctionType] = field(default_factory=dict)
    values: list[Any] = field(default_factory=list)  # globals, cells, defaults and attributes that the code reads, but for functions
    files: set[str] = field(default_factory=set)  # the files of the functions

    def __post_init__(self) -> None:
        self._looked: set[int] = set()
        self._packages: set[str] = set()
        self._kept: list[Any] = []  # so that no address is another object's later
        for root in self.roots:
            self._look(root, known=True)
        self._known = dict.fromkeys(self.codes, True)

    @property
    def codes(self) -> list[CodeType]:
        """The code objects of the functions, nested ones included."""
        return list(dict.fromkeys(code for outer in self.functions for code in nested(outer)))

    def owns(self, code: CodeType) -> bool:
        """Return whether a code object belongs to the plugin."""
        if code not in self._known:
            file = code.co_filename
            self._known[code] = file in self.files and not is_never(file) and not file.startswith(_folders(SUITE))
        return self._known[code]

    def _is_inside(self, file: str) -> bool:
        """Return whether a file is of a package that has one of the functions."""
        return any(file == place or file.startswith(place + os.sep) for place in self._packages)

    def _look(self, value: Any, *, known: bool = False) -> None:
        """Register a function and what it refers to; `known` ones are the plugin's wherever they lie."""
        if id(value) in self._looked or len(self._looked) > MOST:
            return
        self._looked.add(id(value))
        self._kept.append(value)
        if isinstance(value, functools.partial):
            for part in (value.func, *value.args, *value.keywords.values()):
                self._look(part, known=known)
        elif isinstance(value, MethodType):
            self._look(value.__func__, known=known)
            self._object(value.__self__)
        elif isinstance(value, FunctionType):
            self._function(value, known)
        elif hasattr(value, "__wrapped__") and callable(value):
            self._look(value.__wrapped__, known=known)
        elif isinstance(value, type):
            self._class(value)
        elif not isinstance(value, (ModuleType, BuiltinFunctionType)):
            if callable(value) and isinstance(call := inspect.getattr_static(type(value), "__call__", None), FunctionType):
                self._look(call, known=known)
            self._object(value)

    def _function(self, function: FunctionType, known: bool) -> None:
        file = function.__code__.co_filename
        if is_never(file) or not (known or self._is_inside(file) or not is_installed(file)):
            return
        self.functions[function.__code__] = function
        if not is_installed(file) or INSTALLED[0] in file:
            self.files.add(file)
            self._packages |= {_package(function) or file}
        for cell in function.__closure__ or ():
            try:
                self._look(cell.cell_contents, known=known)
            except ValueError:
                continue  # an empty cell
        for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values(), getattr(function, "__wrapped__", None)):
            self._look(value)
        for value in _referred(function):
            self._look(value)

    def _class(self, cls: type) -> None:
        if self._is_own_class(cls):
            for value in vars(cls).values():
                self._look(value.__func__ if isinstance(value, (staticmethod, classmethod)) else value)

    def _is_own_class(self, cls: type) -> bool:
        file = getattr(sys.modules.get(cls.__module__), "__file__", None) or ""
        return bool(file) and not is_never(file) and (self._is_inside(file) or not is_installed(file))

    def _object(self, value: Any) -> None:
        """Register a value, and the attributes of an object of the plugin's own class."""
        self.values.append(value)
        if not self._is_own_class(type(value)):
            return
        self._look(type(value))
        for attribute in list(getattr(value, "__dict__", {}).values()):
            self._look(attribute)


def nested(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and those inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from nested(constant)


def names_of(code: CodeType) -> Iterator[str]:
    """Yield the names of globals and attributes that a code object and those inside it use."""
    for each in nested(code):
        yield from each.co_names


def _referred(function: FunctionType) -> Iterator[Any]:
    """Yield the globals that a function reads, and attributes of its own modules among them."""
    names = list(dict.fromkeys(names_of(function.__code__)))[:REFERRED]
    for name in names:
        if name not in function.__globals__:
            continue
        value = function.__globals__[name]
        if isinstance(value, ModuleType):
            yield from (getattr(value, other) for other in names if isinstance(getattr(value, other, None), FunctionType))
        else:
            yield value


def _package(function: FunctionType) -> str:
    """Return the folder of the package that a function is part of; empty where it is in none."""
    module = sys.modules.get((function.__module__ or "").partition(".")[0])
    paths: Iterable[str] = getattr(module, "__path__", ())
    return next(iter(paths), "") if module is not None and function.__module__ != "__main__" else ""


def is_never(file: str) -> bool:
    """Return whether a file is of the standard library, of torch or of Dovetail itself."""
    standard = file.startswith(_standard()) and not any(part in file for part in INSTALLED)
    return file.startswith("<") or standard or file.startswith(_folders(NEVER))


def is_installed(file: str) -> bool:
    """Return whether a file is of an installed package, or of this suite."""
    return is_never(file) or any(part in file for part in INSTALLED) or file.startswith(_folders(SUITE))


@functools.cache
def _standard() -> tuple[str, ...]:
    return tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})


@functools.cache
def _folders(packages: tuple[str, ...]) -> tuple[str, ...]:
    """Return the folders of packages."""
    specs = [spec for name in packages if (spec := importlib.util.find_spec(name)) is not None]
    return tuple(folder + os.sep for spec in specs for folder in spec.submodule_search_locations or ())
