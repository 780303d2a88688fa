"""Classes: `class` statements, making instances, and `super()`."""

from __future__ import annotations

import builtins
from types import BuiltinFunctionType, CellType, FunctionType
from typing import TYPE_CHECKING, Any

from dovetail.frontend.class_lookup import NULL, bound, is_in_python
from dovetail.frontend.interpreter.engine import run
from dovetail.frontend.interpreter.frame import Frame

if TYPE_CHECKING:
    from dovetail.frontend.interpreter.world import World


def build_class(world: World, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    """Run `class name(*bases, **kwargs)`, with the body interpreted."""
    if len(args) < 2 or type(args[0]) is not FunctionType:
        return builtins.__build_class__(*args, **kwargs)
    body, name, *bases = args
    resolved = resolve_bases(world, tuple(bases), frame)
    kwargs = dict(kwargs)
    meta, is_meta = metaclass(world, resolved, kwargs, frame)
    prepare = world.optional(meta, "__prepare__")
    namespace = {} if prepare is None else world.call(prepare, [name, resolved], dict(kwargs), frame)
    if not hasattr(type(namespace), "__getitem__"):
        owner = meta.__name__ if is_meta else "<metaclass>"
        raise TypeError(f"{owner}.__prepare__() must return a mapping, not {type(namespace).__name__}")
    inner = world.evaluate(body.__code__, body.__globals__, namespace, body)
    run(inner)
    if resolved != tuple(bases):
        world.set_item(namespace, "__orig_bases__", tuple(bases))
    cls = world.register_class(world.call(meta, [name, resolved, namespace], kwargs, frame))
    if isinstance(inner.result, CellType) and isinstance(cls, type):
        check_class_cell(inner.result, name, cls)
    return cls


def resolve_bases(world: World, bases: tuple, frame: Frame | None) -> tuple:
    """Return the bases, with those that are no classes replaced by the result of their `__mro_entries__`."""
    resolved: list[Any] = []
    for base in bases:
        entries = None if isinstance(base, type) else world.optional(base, "__mro_entries__")
        if entries is None:
            resolved.append(base)
            continue
        replacement = world.call(entries, [bases], {}, frame)
        if not isinstance(replacement, tuple):
            raise TypeError("__mro_entries__ must return a tuple")
        resolved += world.tuple_items(replacement)
    return tuple(resolved)


def metaclass(world: World, bases: tuple, kwargs: dict[str, Any], frame: Frame | None) -> tuple[Any, bool]:
    """Return the metaclass, taken out of `kwargs` or the most derived of the bases', and whether it is a class."""
    if "metaclass" in kwargs:
        meta = kwargs.pop("metaclass")
    else:
        meta = type(bases[0]) if bases else type
    if not isinstance(meta, type):
        return meta, False
    for base in bases:
        kind = type(base)
        if issubclass(meta, kind):
            continue
        if not issubclass(kind, meta):
            raise TypeError(
                "metaclass conflict: the metaclass of a derived class must be a (non-strict) subclass of the metaclasses of all its bases"
            )
        meta = kind
    return meta, True


def check_class_cell(cell: CellType, name: str, cls: type) -> None:
    """Check that the metaclass has put the class that it returns into the cell `__class__` of its body."""
    try:
        bound = cell.cell_contents
    except ValueError:
        bound = NULL
    if bound is NULL:
        raise RuntimeError(f"__class__ not set defining {name!r} as {cls!r}. Was __classcell__ propagated to type.__new__?")
    if bound is not cls:
        raise TypeError(f"__class__ set to {bound!r} defining {name!r} as {cls!r}")


def bound_super(world: World, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    """Return `super()`: of the class in the cell `__class__` and the caller's first argument."""
    if args or kwargs or frame is None:
        return super(*args, **kwargs)
    if not frame.code.co_argcount:
        raise RuntimeError("super(): no arguments")
    first = frame.variable(0)
    if first is NULL:
        raise RuntimeError("super(): arg[0] deleted")
    if "__class__" not in frame.code.co_freevars:
        raise RuntimeError("super(): __class__ cell not found")
    cell = frame.slots[frame.decoded.slot_of["__class__"]]
    try:
        cls = cell.cell_contents
    except ValueError:
        cls = NULL
    if cls is NULL:
        raise RuntimeError("super(): empty __class__ cell")
    if not isinstance(cls, type):
        raise RuntimeError(f"super(): __class__ is not a type ({type(cls).__name__})")
    return super(cls, first)


def instantiate(world: World, cls: type, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    """Return cls(*args, **kwargs): the metaclass's `__call__`, `__new__` and `__init__` are interpreted where they are Python."""
    meta = world.from_class(type(cls), "__call__")
    if type(meta) is FunctionType:
        return world.call_function(meta, [cls, *args], kwargs)
    if is_in_python(meta):
        return world.call(world.special(cls, "__call__"), args, kwargs, frame)
    return make(world, cls, args, kwargs, frame) if meta is type.__call__ else world.make_native(cls, args, kwargs, frame)


def make(world: World, cls: type, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    """Return type.__call__(cls, *args, **kwargs)."""
    new, init = world.from_class(cls, "__new__"), world.from_class(cls, "__init__")
    new = new if type(new) in (FunctionType, BuiltinFunctionType) else bound(new, None, cls)
    if type(new) is BuiltinFunctionType and not is_in_python(init):
        return world.make_native(cls, args, kwargs, frame)
    if type(new) is BuiltinFunctionType:
        instance = world.make_native(cls.__new__, [cls, *args], kwargs, frame)
    else:  # in Python, or around it, as functools.lru_cache
        instance = world.call(new, [cls, *args], kwargs, frame)
    if cls not in type(instance).__mro__ or cls is type:  # what a metaclass says of instances does not count
        return instance
    init = world.from_class(type(instance), "__init__")
    if not is_in_python(init):
        world.call(bound(init, instance, type(instance)), args, kwargs, frame)
    elif world.call(world.special(instance, "__init__"), args, kwargs, frame) is not None:
        raise TypeError("__init__() should return None")
    return instance


def type_call(world: World, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    """Run `type.__call__(cls, ...)`, as a metaclass calls it."""
    if not args or not isinstance(args[0], type):
        return function(*args, **kwargs)
    return make(world, args[0], args[1:], kwargs, frame)


LOOKASIDES = {builtins.__build_class__: build_class, super: bound_super, type.__call__: type_call}
