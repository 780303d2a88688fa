"""Builtins that a tracked run answers itself, since they read outside objects or call back."""

from __future__ import annotations

import copy
import importlib.metadata
import importlib.util
import operator
import re
import sys
import threading
import warnings
import weakref
from _abc import _abc_register
from collections import _count_elements, defaultdict
from collections.abc import Callable
from functools import partial, reduce
from itertools import accumulate, chain, compress, dropwhile, filterfalse, groupby, repeat, starmap, takewhile
from json.encoder import c_make_encoder
from json.scanner import c_make_scanner
from types import CellType, FunctionType, MemberDescriptorType, MethodType, ModuleType, SimpleNamespace
from typing import Any

from dovetail.frontend.class_lookup import NULL, lookup
from dovetail.frontend.interpreter.classes import instantiate, make
from dovetail.frontend.interpreter.frame import VARARGS, Frame
from dovetail.frontend.interpreter.opcodes.build import is_iterable
from dovetail.frontend.interpreter.recursion import getrecursionlimit
from dovetail.frontend.interpreter.scopes import LOOKASIDES as SCOPES
from dovetail.frontend.interpreter.scopes import attribute_name
from dovetail.frontend.interpreter.tracking.annotations import OF_CLASSES, annotations_of_class
from dovetail.frontend.interpreter.tracking.comparing import Compared
from dovetail.frontend.interpreter.tracking.json_calls import encoder_of, scanner_of
from dovetail.frontend.interpreter.tracking.listeners import LOOKASIDES as LISTENERS
from dovetail.frontend.interpreter.tracking.membership import is_instance, is_subclass, register
from dovetail.frontend.interpreter.tracking.output import LOOKASIDES as OUTPUT
from dovetail.frontend.interpreter.tracking.twins import TWINS


def _answer(function: Callable) -> Callable:
    """Return a lookaside of function(tracker, *args); calls with other arguments are left to the builtin, which has the words for its errors."""
    code, optional = function.__code__, len(function.__defaults__ or ())
    most = None if code.co_flags & VARARGS else code.co_argcount - 1
    least = code.co_argcount - 1 - optional

    def lookaside(tracker: Any, builtin: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
        if kwargs or len(args) < least or (most is not None and len(args) > most):
            return tracker.call_native(builtin, args, kwargs, frame)
        return function(tracker, *args)

    return lookaside


def _named(function: Callable) -> Callable:
    """Return `_answer` for builtins with the name of an attribute as second argument."""
    answer = _answer(function)

    def lookaside(tracker: Any, builtin: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
        name = tracker.hashable(args[1]) if len(args) > 1 else None
        if not isinstance(name, str):
            return builtin(*args, **kwargs)
        return answer(tracker, builtin, [args[0], attribute_name(name), *args[2:]], kwargs, frame)

    return lookaside


def _type(tracker: Any, builtin: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    if len(args) == 1 and not kwargs:
        tracker.outside(args[0])
        return tracker.recorder.class_of(args[0])
    return tracker.register_class(make(tracker, type, [tracker.plain(x) for x in args], kwargs, frame))


def _through_property(tracker: Any, descriptor: property, part: str, owner: Any, *value: Any) -> None:
    """Call the setter or the deleter of a property."""
    function = tracker.load_attr(descriptor, part)
    if function is None:
        (descriptor.__set__ if value else descriptor.__delete__)(owner, *value)  # raises
    tracker.call(function, [owner, *value], {}, None)


def _slot_set(tracker: Any, builtin: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    """Set or delete the slot of an object through its descriptor."""
    descriptor, owner, *value = args if len(args) > 1 else (None, None)
    if kwargs or not isinstance(descriptor, MemberDescriptorType) or lookup(type(owner), descriptor.__name__) is not descriptor:
        return tracker.call_native(builtin, args, kwargs, frame)
    return tracker.set_native(owner, descriptor.__name__, *value) if value else tracker.delete_native(owner, descriptor.__name__)


def _hasattr(tracker: Any, owner: Any, name: str) -> bool:
    try:
        tracker.load_attr(owner, name)
    except AttributeError:
        return False
    return True


def _next(tracker: Any, iterator: Any, default: Any = NULL) -> Any:
    if default is NULL:
        return tracker.next(iterator)
    try:
        return tracker.next(iterator)
    except StopIteration:
        return default


def _iter(tracker: Any, value: Any, *sentinel: Any) -> Any:
    return iter(tracker.native(value), *sentinel) if sentinel else tracker.iter(value)


def _sum(tracker: Any, items: Any, start: Any = 0) -> Any:
    if isinstance(start, (str, bytes, bytearray)):
        return sum((), start)  # raises
    for item in tracker.spread(items):
        start = tracker.binary(operator.add, start, item)
    return start


def _vars(tracker: Any, builtin: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    if len(args) == 1 and hasattr(args[0], "__dict__"):
        return tracker.load_attr(args[0], "__dict__")
    return SCOPES[vars](tracker, builtin, args, kwargs, frame)


def _globals(tracker: Any, builtin: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    return tracker.view(frame.globals, frame.globals, tracker.sources.const(frame.globals))


def _through_iterators(tracker: Any, builtin: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    """Call C code that only iterates its arguments with iterators that reach every item as it is drawn."""
    calls = builtin is map or builtin is filter
    if builtin in (tuple, frozenset) and len(args) == 1 and type(args[0]) is builtin and not kwargs:
        return args[0]
    if builtin is filter and len(args) == 2 and (args[0] is None or args[0] is bool):
        args = [lambda item: tracker.truth(item), args[1]]
    if builtin is enumerate and len(args) == 2:
        args = [args[0], tracker.indexed(args[1])]
    if builtin is zip and kwargs:
        kwargs = {name: tracker.truth(x) if name == "strict" else x for name, x in kwargs.items()}
    iterators = [tracker.native(x) if (calls and not i) or not _is_iterated(x) else tracker.spread(x) for i, x in enumerate(args)]
    if builtin is set or builtin is frozenset:
        iterators = [[tracker.hashable(item) for item in x] for x in iterators]
        tracker.make_set([item for x in iterators for item in x])
    return builtin(*iterators, **{name: tracker.native(x) for name, x in kwargs.items()})


def _all(tracker: Any, items: Any) -> bool:
    return all(map(tracker.truth, tracker.spread(items)))


def _any(tracker: Any, items: Any) -> bool:
    return any(map(tracker.truth, tracker.spread(items)))


def _accumulate(tracker: Any, builtin: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    if len(args) not in (1, 2) or not kwargs.keys() <= {"func", "initial"}:
        return builtin(*args, **kwargs)  # raises
    items, function = [*args, kwargs.pop("func", None)][:2]
    added = (lambda x, y: tracker.binary(operator.add, x, y)) if function is None else tracker.reentrant(function)
    return accumulate(tracker.spread(items), added, **kwargs)


def _groupby(tracker: Any, builtin: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    items, key = [*args, kwargs.get("key")][:2]
    groups = groupby(tracker.spread(items), lambda item: Compared(tracker, item if key is None else tracker.call(key, [item], {}, frame)))
    return ((rank.value, group) for rank, group in groups)


def _id(tracker: Any, value: Any) -> int:
    """Return id(value); a value from outside has to be this one at every call."""
    if tracker.recorder.is_tensor(value):
        stored = tracker.recorder.stored_key(tracker, value)
        if stored is not value:
            return id(stored)
    tracker.pin(value)
    if tracker.source(value) is None:
        tracker.identities[id(value)] = value
    return id(value)


def _id_called(tracker: Any, builtin: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    """Return id(value); the memo of `copy.deepcopy` depends on no object but those that it holds."""
    if len(args) != 1 or kwargs or (frame is not None and frame.globals is vars(copy)):
        return builtin(*args, **kwargs)
    return _id(tracker, args[0])


def _counted(tracker: Any, mapping: Any, items: Any) -> None:
    """Count items into a dict, as collections.Counter does."""
    for item in tracker.spread(items):
        count = tracker.call(tracker.load_attr(mapping, "get"), [item, 0], {}, None)
        tracker.set_item(mapping, item, tracker.binary(operator.add, count, 1))


def _dict(tracker: Any, builtin: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> dict:
    if len(args) > 1:
        return builtin(*args, **kwargs)  # raises
    result: dict = {}
    for argument in args:
        pairs = tracker.items_added(result, argument)
        for i, pair in enumerate(pairs.items() if isinstance(pairs, dict) else pairs):
            key, value = tracker.pair(pair, i)
            tracker.put_into(result, key, value)
    return result | kwargs


def _in_python(twin: Callable) -> Callable:
    return lambda tracker, function, args, kwargs, frame: tracker.call(twin, args, kwargs, frame)


def _length_hint(tracker: Any, value: Any, default: Any = 0) -> Any:
    if lookup(type(value), "__len__") is not NULL:
        return tracker.len(value)
    tracker.check_settled(value, "__length_hint__")
    method = tracker.method(value, "__length_hint__")
    return operator.length_hint(value, default) if method is None else tracker.call_function(method, [value], {})


def _callable(tracker: Any, value: Any) -> bool:
    tracker.method(value, "__call__")
    return callable(value)


def _sorted(tracker: Any, builtin: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    if len(args) != 1 or not kwargs.keys() <= {"key", "reverse"}:
        return builtin(*args, **kwargs)  # raises
    return tracker.sort(list(tracker.spread(args[0])), **kwargs)


def _from_iterable(tracker: Any, iterables: Any) -> Any:
    return chain.from_iterable(map(tracker.spread, tracker.spread(iterables)))


def _starmap(tracker: Any, function: Any, items: Any) -> Any:
    return starmap(tracker.reentrant(function), map(tracker.spread, tracker.spread(items)))


def _reversed(tracker: Any, value: Any) -> Any:
    method = tracker.method(value, "__reversed__")
    if method is not None:
        return tracker.call_function(method, [value], {})
    python = any([tracker.method(value, name) is not None for name in ("__getitem__", "__len__")])
    if python and lookup(type(value), "__reversed__") is NULL and lookup(type(value), "__getitem__") is not NULL:
        return iter(list(_backwards(tracker, value)))
    return reversed(tracker.copied(tracker.gone_through(value)))


def _backwards(tracker: Any, value: Any) -> Any:
    """Yield the items of a sequence from the last on, up to an index that it lacks."""
    for i in range(tracker.len(value) - 1, -1, -1):
        try:
            item = tracker.get_item(value, i)
        except (IndexError, StopIteration):
            return
        yield item


def _is_iterated(value: Any) -> bool:
    return is_iterable(value) and not isinstance(value, (str, bytes, range))


def _extremum(op: Callable) -> Callable:
    """Return min or max."""

    def lookaside(tracker: Any, builtin: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
        if not args or set(kwargs) - {"key", "default"} or (len(args) > 1 and "default" in kwargs):
            return builtin(*args, **kwargs)  # raises
        items = iter(tracker.spread(args[0]) if len(args) == 1 else args)
        key = kwargs.get("key")
        if (best := next(items, NULL)) is NULL:
            return kwargs["default"] if "default" in kwargs else builtin(())  # raises
        rank = best if key is None else tracker.call(key, [best], {}, frame)
        for item in items:
            if key is None and (number := tracker.recorder.extremum(builtin, best, item)) is not NULL:
                best = rank = number
                continue
            candidate = item if key is None else tracker.call(key, [item], {}, frame)
            if tracker.truth(tracker.compare(op, candidate, rank)):
                best, rank = item, candidate
        return best

    return lookaside


def _import(tracker: Any, builtin: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    named = dict(zip(("name", "globals", "locals", "fromlist", "level"), args)) | kwargs
    if type(named.get("name")) is not str or len(args) > 5 or not named.keys() <= {"name", "globals", "locals", "fromlist", "level"}:
        return builtin(*args, **kwargs)  # raises
    return tracker.imported(named["name"], named.get("globals") or frame.globals, named.get("fromlist") or (), named.get("level", 0))


def _operator(op: Callable, method: str) -> Callable:
    return _answer(lambda tracker, *args: getattr(tracker, method)(op, *args))


def _conversion(kind: type, *names: str) -> Callable:
    """Return a builtin of one argument that calls the first of these methods that the class has, and returns a `kind`."""

    def lookaside(tracker: Any, builtin: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
        args = list(tracker.legible(args)) if tracker.recorder.writes_text else args
        only = args[0] if len(args) == 1 and not kwargs else NULL
        if kind is str:
            only = tracker.recorder.formatted(only) if tracker.recorder.is_symbolic(only) else only
            if tracker.recorder.is_number(only) and (text := tracker.recorder.text(only, "")) is not NULL:
                return text
            if only is not NULL and (text := (tracker.str if builtin is str else tracker.repr)(only)) is not NULL:
                return text
            args = [tracker.spelled(args[0]), *args[1:]] if args else args
            tracker.words(args)
        elif only is not NULL and (number := tracker.recorder.converted(only, builtin)) is not NULL:
            return number
        method = tracker.first_method(args[0], names) if len(args) == 1 and not kwargs else None
        if method is not None:
            result = tracker.call(method, [args[0]], {}, frame)
            if isinstance(result, kind) or (kind is str and tracker.recorder.is_text(result)):
                return result
            if tracker.recorder.is_number(result) and result.spec.kind == kind.__name__:
                return result
        if kind is str and type(only) in (FunctionType, MethodType):
            return builtin(tracker.mirror(only))
        if isinstance(builtin, type):
            return instantiate(tracker, builtin, args, kwargs, frame)
        return tracker.call_native(builtin, args, kwargs, frame)

    return lookaside


def _format(tracker: Any, builtin: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    if not args or len(args) > 2 or kwargs:
        return tracker.call_native(builtin, args, kwargs, frame)
    in_python = tracker.first_method(args[0], ("__format__", "__str__", "__repr__")) is not None
    if in_python or tracker.recorder.is_tensor(args[0]) or tracker.str(args[0]) is not NULL:
        return tracker.format(args[0], 0, args[1] if len(args) > 1 else "")
    return tracker.call_native(builtin, args, kwargs, frame)


def _dir(tracker: Any, builtin: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    """Return dir(value): the names in its own dictionary and in those of its classes are guarded."""
    if len(args) != 1 or kwargs:
        return SCOPES[dir](tracker, builtin, args, kwargs, frame)
    value = args[0]
    if (method := tracker.method(value, "__dir__")) is not None:
        return tracker.sort(list(tracker.spread(tracker.call_function(method, [value], {}))))
    if isinstance(value, ModuleType) and "__dir__" in vars(value):
        return tracker.sort(list(tracker.spread(tracker.call(tracker.load_attr(value, "__dir__"), [], {}, frame))))
    cls = value if isinstance(value, type) else type(value)
    names = set(tracker.plain(tracker.reach(dir(cls), tracker.sources.call(tracker.sources.const(partial(dir, cls))))))
    if isinstance(value, ModuleType):
        names = set()
    if not isinstance(value, type) and hasattr(value, "__dict__"):
        names |= set(tracker.raw_iter(tracker.load_attr(value, "__dict__")))
    return sorted(names)


def _recursion_limit(tracker: Any) -> int:
    tracker.guard("equal", tracker.sources.setting(getrecursionlimit), tracker.limit)
    return tracker.limit


def _hash(tracker: Any, builtin: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    args = [tracker.hashable(x) for x in args]
    if len(args) == 1 and lookup(type(args[0]), "__hash__") is object.__hash__:
        _id(tracker, args[0])
    if len(args) == 1 and isinstance(args[0], (tuple, frozenset)) and tracker.is_odd(args[0]):
        return tracker.hash(args[0])
    if len(args) == 1 and not kwargs and tracker.method(args[0], "__hash__") is not None:
        return tracker.hash(args[0])
    return tracker.call_native(builtin, args, kwargs, frame)


def _indexed(tracker: Any, builtin: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    """Return hex, oct or bin."""
    method = tracker.method(args[0], "__index__") if len(args) == 1 and not isinstance(args[0], int) else None
    return tracker.call_native(builtin, args if method is None else [tracker.call(method, args, {}, frame)], kwargs, frame)


def _installed(tracker: Any, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    """Return what is installed, as it stays while the process runs: the function reads files, through caches of its own."""
    result = function(*[tracker.plain(x) for x in args], **{name: tracker.plain(x) for name, x in kwargs.items()})
    return result if result is None or type(result) is str else tracker.reach(result, tracker.sources.const(result))


def _pattern(tracker: Any, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    """Compile a pattern at once: what `re` keeps of earlier calls changes nothing but the time."""
    return function(*[tracker.read_by_c(x) for x in args], **{name: tracker.read_by_c(x) for name, x in kwargs.items()})


CALL_BACK = frozenset({reduce, sorted, map, filter, defaultdict, accumulate, dropwhile, filterfalse, groupby, starmap, takewhile})
KEEP = (
    BaseException,
    partial,
    MethodType,
    CellType,
    SimpleNamespace,
    property,
    staticmethod,
    classmethod,
    slice,
    weakref.ref,
    repeat,
)
PASSING = frozenset({print, len, warnings.warn, str, format, type, isinstance, setattr, object.__setattr__, operator.add})  # text stays what it is

_PLAIN_KINDS = (object, type, threading.local)

_UNARY = ("neg", "pos", "invert")
_BINARY = ("add", "and_", "floordiv", "lshift", "matmul", "mul", "mod", "or_", "pow", "rshift", "sub", "truediv", "xor")
_INPLACE = tuple([f"i{name.rstrip('_')}" for name in _BINARY])
_COMPARISONS = ("lt", "le", "eq", "ne", "gt", "ge")

TABLE: dict[Any, Callable] = {
    isinstance: _answer(is_instance),
    issubclass: _answer(is_subclass),
    _abc_register: _answer(register),
    type: _type,
    hasattr: _named(_hasattr),
    setattr: _named(lambda tracker, owner, name, value: tracker.store_attr(owner, name, value)),
    delattr: _named(lambda tracker, owner, name: tracker.delete_attr(owner, name)),
    **dict.fromkeys(
        [kind.__setattr__ for kind in _PLAIN_KINDS], _named(lambda tracker, owner, name, value: tracker.generic_store(owner, name, value))
    ),
    **dict.fromkeys([kind.__delattr__ for kind in _PLAIN_KINDS], _named(lambda tracker, owner, name: tracker.generic_delete(owner, name))),
    property.__set__: _answer(lambda tracker, descriptor, owner, value: _through_property(tracker, descriptor, "fset", owner, value)),
    property.__delete__: _answer(lambda tracker, descriptor, owner: _through_property(tracker, descriptor, "fdel", owner)),
    MemberDescriptorType.__set__: _slot_set,
    MemberDescriptorType.__delete__: _slot_set,
    type.__getattribute__: _named(lambda tracker, cls, name: tracker.generic_class_attr(cls, name)),
    ModuleType.__getattribute__: _named(lambda tracker, module, name: tracker.generic_module_attr(module, name)),
    **dict.fromkeys(
        (object.__getattribute__, threading.local.__getattribute__), _named(lambda tracker, owner, name: tracker.generic_attr(owner, name))
    ),
    len: _answer(lambda tracker, value: tracker.len(value)),
    bool: _answer(lambda tracker, value=False: value if value is True or value is False else tracker.truth(value)),
    iter: _answer(_iter),
    next: _answer(_next),
    sum: _answer(_sum),
    reversed: _answer(_reversed),
    callable: _answer(_callable),
    **OUTPUT,
    **LISTENERS,
    str: _conversion(str, "__str__", "__repr__"),
    repr: _conversion(str, "__repr__"),
    int: _conversion(int, "__int__", "__index__"),
    float: _conversion(float, "__float__", "__index__"),
    complex: _conversion(complex, "__complex__"),
    format: _format,
    hex: _indexed,
    oct: _indexed,
    bin: _indexed,
    abs: _conversion(object, "__abs__"),
    hash: _hash,
    dir: _dir,
    sys.getrecursionlimit: _answer(_recursion_limit),
    round: _conversion(object, "__round__"),
    vars: _vars,
    globals: _globals,
    min: _extremum(operator.lt),
    max: _extremum(operator.gt),
    OF_CLASSES.__get__: _answer(annotations_of_class),
    re._compile: _pattern,
    **dict.fromkeys((importlib.metadata.version, importlib.util.find_spec), _installed),
    MethodType: _answer(lambda tracker, function, owner: MethodType(function, owner)),
    **{getattr(operator, name): _operator(getattr(operator, name), "unary") for name in _UNARY},
    **{getattr(operator, name): _operator(getattr(operator, name), "binary") for name in _BINARY},
    **{getattr(operator, name): _operator(getattr(operator, name), "inplace") for name in _INPLACE},
    **{getattr(operator, name): _operator(getattr(operator, name), "compare") for name in _COMPARISONS},
    operator.getitem: _answer(lambda tracker, owner, key: tracker.get_item(owner, key)),
    operator.setitem: _answer(lambda tracker, owner, key, value: tracker.set_item(owner, key, value)),
    operator.iconcat: _operator(operator.iadd, "inplace"),
    operator.delitem: _answer(lambda tracker, owner, key: tracker.delete_item(owner, key)),
    operator.contains: _answer(lambda tracker, owner, item: tracker.contains(owner, item)),
    operator.is_: _answer(lambda tracker, x, y: tracker.is_(x, y)),
    operator.is_not: _answer(lambda tracker, x, y: not tracker.is_(x, y)),
    operator.not_: _answer(lambda tracker, value: not tracker.truth(value)),
    operator.truth: _answer(lambda tracker, value: tracker.truth(value)),
    **dict.fromkeys((enumerate, zip, list, tuple, map, filter, set, frozenset), _through_iterators),
    all: _answer(_all),
    filterfalse: _answer(
        lambda tracker, chosen, items: filterfalse(
            tracker.truth if chosen is None or chosen is bool else tracker.reentrant(chosen), tracker.spread(items)
        )
    ),
    operator.length_hint: _answer(_length_hint),
    dict.fromkeys: _answer(lambda tracker, keys, value=None: tracker.make_dict(keys := list(tracker.spread(keys)), [value] * len(keys))),
    compress: _answer(lambda tracker, items, chosen: compress(tracker.spread(items), map(tracker.truth, tracker.spread(chosen)))),
    accumulate: _accumulate,
    chain.from_iterable: _answer(_from_iterable),
    starmap: _answer(_starmap),
    groupby: _groupby,
    repeat: _answer(lambda tracker, value, *times: repeat(value, *map(tracker.indexed, times))),
    id: _id_called,
    __import__: _import,
    _count_elements: _answer(_counted),
    dict: _dict,
    **{function: _in_python(twin) for function, twin in TWINS.items()},
    c_make_encoder: encoder_of,
    c_make_scanner: _answer(scanner_of),
    any: _answer(_any),
    sorted: _sorted,
}
