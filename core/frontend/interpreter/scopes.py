"""Builtins that read or run in their caller's scope: locals, vars, dir, globals, eval, exec, compile."""

from __future__ import annotations
import __future__

import builtins
import sys
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from dovetail.errors import Unsupported
from dovetail.frontend.class_lookup import is_in_python, lookup
from dovetail.frontend.interpreter.drivers import start
from dovetail.frontend.interpreter.frame import OPTIMIZED, Frame

if TYPE_CHECKING:
    from dovetail.frontend.interpreter.world import World

_FUTURE = 0
for _name in __future__.all_feature_names:
    _FUTURE |= getattr(__future__, _name).compiler_flag


def locals_of(frame: Frame) -> Any:
    """Return `locals()` of a frame."""
    if frame.names is not None:
        hidden = {name: value for name, value in frame.variables().items() if name in frame.code.co_varnames}  # of a comprehension
        return {**frame.names, **hidden} if hidden else frame.names
    if sys.version_info >= (3, 13) or not frame.code.co_flags & OPTIMIZED:
        return {**frame.variables(), **(frame.snapshot or {})}  # with what was written to `f_locals`
    if frame.snapshot is None:
        frame.snapshot = {}
    values = frame.variables()
    for name in frame.decoded.slot_names:  # one dict for each activation: what else was put into it stays
        frame.snapshot.pop(name, None)
    frame.snapshot.update(values)
    return frame.snapshot


def _locals(world: World, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    return function(*args, **kwargs) if args or kwargs or frame is None else locals_of(frame)


def _dir(world: World, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    if args or kwargs or frame is None:
        return function(*args, **kwargs)
    return sorted(locals_of(frame).keys())


def _globals(world: World, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    return function(*args, **kwargs) if args or kwargs or frame is None else frame.globals


def _compile(world: World, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    """Call `compile`, which inherits the caller's __future__ imports."""
    names = ("source", "filename", "mode", "flags", "dont_inherit")
    arguments = dict(zip(names, args)) | kwargs
    if frame is None or len(arguments) < len(args) + len(kwargs) or arguments.get("dont_inherit") or not isinstance(arguments.get("flags", 0), int):
        return function(*args, **kwargs)
    arguments |= {"flags": arguments.get("flags", 0) | frame.code.co_flags & _FUTURE, "dont_inherit": True}
    return function(**arguments)


def _evaluate(world: World, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    """Run `eval` and `exec`, with the code interpreted; they default to the caller's scope."""
    if frame is None or not 1 <= len(args) <= 3:
        return function(*args, **kwargs)
    kwargs = dict(kwargs)
    source, globals, names = [*args, None, None][:3]
    globals, names = kwargs.pop("globals", globals), kwargs.pop("locals", names)
    if globals is None:
        globals, names = frame.globals, locals_of(frame) if names is None else names
    elif names is None:
        names = globals
    if kwargs or not isinstance(globals, dict) or not hasattr(type(names), "__getitem__"):
        return function(source, globals, names, **kwargs)
    globals.setdefault("__builtins__", frame.builtins)
    if not isinstance(source, CodeType):
        if function is eval and isinstance(source, (str, bytes)):
            source = source.lstrip(" \t" if isinstance(source, str) else b" \t")
        source = compile(source, "<string>", function.__name__, frame.code.co_flags & _FUTURE, dont_inherit=True)
    if source.co_freevars:
        return function(source, globals, names)
    result = start(world.evaluate(source, globals, names))
    return result if function is eval else None


def _getattr(world: World, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    if kwargs or not 2 <= len(args) <= 3 or not isinstance(args[1], str):
        return function(*args, **kwargs)
    owner, name = args[0], attribute_name(args[1])
    if len(args) == 2:
        return world.load_attr(owner, name)
    try:
        return world.load_attr(owner, name)
    except AttributeError:
        return args[2]


def attribute_name(name: str) -> str:
    """Return the name of an attribute, of which C code takes a str of any class.

    Raises Unsupported where the class hashes or compares it in Python.
    """
    if type(name) is str:
        return name
    if any([is_in_python(lookup(type(name), method)) for method in ("__hash__", "__eq__")]):
        raise Unsupported(f"an attribute is looked up by a {type(name).__name__}, which hashes or compares in its own way; pass str(name)")
    return str.__str__(name)


def builtins_in(globals: dict[str, Any]) -> Any:
    """Return the builtins that code with these globals sees."""
    namespace = globals.get("__builtins__", builtins)
    return vars(namespace) if isinstance(namespace, ModuleType) else namespace


LOOKASIDES = {getattr: _getattr, locals: _locals, vars: _locals, dir: _dir, globals: _globals, compile: _compile, eval: _evaluate, exec: _evaluate}
