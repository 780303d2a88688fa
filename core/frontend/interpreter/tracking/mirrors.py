"""Objects as C code may see them: methods in Python that C code calls are interpreted.

`range(o)` calls `__index__` of o, `"%s" % o` its `__str__`, `math.floor(o)` its `__floor__`: natively, what those methods read would not be
guarded.  A mirror stands in for such an object: its class has the same methods, and each is interpreted.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from dovetail.errors import Unsupported
from dovetail.frontend.class_lookup import NULL, is_in_python, lookup

TEXT = ("__str__", "__repr__", "__format__")
ORDER = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__")
_CONVERTED = ("__bool__", "__int__", "__float__", "__complex__", "__index__", *TEXT, "__bytes__", "__fspath__")
_ROUNDED = ("__round__", "__trunc__", "__floor__", "__ceil__", "__abs__", "__neg__", "__pos__", "__invert__", "__divmod__", "__rdivmod__")
_ITERATED = ("__len__", "__iter__", "__next__", "__getitem__", "__contains__", "__reversed__", "__length_hint__", "keys", "__call__")
_ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift", "matmul")
ARRAYS = ("__array__", "__array_ufunc__", "__array_function__", "__array_wrap__")  # what NumPy calls
_MEMORY = ("__array_interface__", "__array_struct__")
_PLAIN = frozenset({"__hash__", "__len__", "__length_hint__", *_CONVERTED} - {*TEXT})  # C code needs their results as they are
SEEN_BY_C = (*ORDER, *_CONVERTED, *_ROUNDED, *_ITERATED, *ARRAYS, *[f"__{side}{name}__" for name in _ARITHMETIC for side in ("", "r", "i")])

CHECKED = ("__eq__", "__hash__", "__lt__", "__len__", "__iter__", "__getitem__", *_CONVERTED)  # what an object lacks of these is guarded


class Mirror:
    """Stands in for `value`; the methods are those of `_class_for`."""

    __slots__ = ("tracker", "value")

    def __init__(self, tracker: Any, value: Any):
        self.tracker, self.value = tracker, value

    def __repr__(self) -> str:
        return object.__repr__(self.value)

    def __eq__(self, other: object) -> bool:
        return original(other) is self.value

    def __hash__(self) -> int:
        return object.__hash__(self.value)


def _forwarded(name: str) -> Any:
    def method(self: Mirror, *args: Any, **kwargs: Any) -> Any:
        tracker, value = self.tracker, self.value
        if name == "__array_function__":
            args = (args[0], _classes(args), *args[2:])
        kwargs = {key: original(x) for key, x in kwargs.items()}
        result = tracker.call_function(tracker.method(value, name), [value, *map(original, args)], kwargs)
        if name == "__array__" and tracker.recorder.is_tensor(result):
            raise Unsupported(f"{type(value).__qualname__}.__array__ returns a traced array, which C code of NumPy's gets; pass it itself")
        if name in _PLAIN:
            result = tracker.spelled(result)
        return tracker.iterated(result) if name in ("__iter__", "__reversed__") else tracker.mirror(result)

    method.__name__ = name
    return method


def _classes(call: tuple) -> tuple[type, ...]:
    """Return the classes that `__array_function__` is told of, those of the objects in the place of those of their mirrors."""
    _, kinds, args, kwargs = call
    mirrors = [x for x in leaves_of((args, kwargs)) if isinstance(x, Mirror)]
    return tuple(dict.fromkeys([type(x.value) for x in mirrors] + [kind for kind in kinds if not issubclass(kind, Mirror)]))


def leaves_of(tree: Any) -> list[Any]:
    """Return what lies in nested lists, tuples and values of dicts."""
    if isinstance(tree, (list, tuple)):
        return [leaf for part in tree for leaf in leaves_of(part)]
    return leaves_of(list(tree.values())) if isinstance(tree, dict) else [tree]


def _memory(name: str) -> property:
    def read(self: Mirror) -> Any:
        kind = type(self.value).__qualname__
        raise Unsupported(
            f"NumPy reads the memory of a {kind} by its {name}, which may change unseen; pass numpy.asarray(x) to the compiled function"
        )

    return property(read)


class MappingMirror(Mirror):
    """Stands in for a dict whose class looks keys up in Python, where C code looks up keys in it: in `"%(key)s" % d`."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        return self.tracker.mirror(self.tracker.get_item(self.value, key))

    def __repr__(self) -> str:
        return self.tracker.format(self.value, _REPR, None)

    def __str__(self) -> str:
        return self.tracker.format(self.value, _STR, None)


_STR, _REPR = 1, 2  # of the conversions in an f-string


def python_methods(kind: type) -> tuple[str, ...]:
    """Return the methods of a class that C code may call and that are written in Python, as they are now."""
    return tuple([name for name in SEEN_BY_C if is_in_python(lookup(kind, name))])


def is_mirrored(kind: type) -> bool:
    """Return whether C code sees mirrors of the instances of a class."""
    return bool(python_methods(kind)) or any([hasattr(lookup(kind, name), "fget") for name in _MEMORY])


@lru_cache(maxsize=1024)
def _class_for(name: str, methods: tuple[str, ...], memory: tuple[str, ...] = (), values: tuple[tuple[str, Any], ...] = ()) -> type:
    forwards = {method: _forwarded(method) for method in methods}
    return type(name, (Mirror,), {"__slots__": (), **forwards, **{part: _memory(part) for part in memory}, **dict(values)})


def is_sequence(kind: type) -> bool:
    """Return whether NumPy makes an array of the items of instances of a class in Python."""
    if any([lookup(kind, name) is not NULL for name in (*ARRAYS, *_MEMORY, "keys")]):
        return False
    return all([is_in_python(lookup(kind, name)) for name in ("__len__", "__getitem__")])


def mirror_of(tracker: Any, value: Any) -> Mirror:
    """Return a mirror of an object of a class with methods in Python that C code may call."""
    kind = type(value)
    memory = tuple([name for name in _MEMORY if lookup(kind, name) is not NULL])
    values = {name: tracker.load_attr(value, name) for name in ("__array_priority__", "__array_ufunc__") if lookup(kind, name) is not NULL}
    plain = tuple([(name, x) for name, x in values.items() if x is None or type(x) in (int, float)])
    return _class_for(kind.__name__, python_methods(kind), memory, plain)(tracker, value)


def original(value: Any) -> Any:
    """Return the object itself for a mirror, and a container with the objects themselves for one of mirrors; any other value stays as it is."""
    if isinstance(value, Mirror):
        return value.value
    kind = type(value)
    if kind in (list, tuple, set, frozenset):
        parts = [original(x) for x in value]
        return value if all([a is b for a, b in zip(parts, value, strict=True)]) else kind(parts)
    if kind is dict:
        items = {original(key): original(item) for key, item in value.items()}
        same = all([a is b for a, b in zip((*items, *items.values()), (*value, *value.values()), strict=True)])
        return value if same else items
    return value
