"""How an object that a program creates is created again at every later call, where its content lies in its attributes or in C code."""

from __future__ import annotations

import copyreg
import gc
from collections.abc import Callable
from functools import partial
from struct import Struct
from types import BuiltinFunctionType, MappingProxyType, MemberDescriptorType
from typing import Any

from dovetail.errors import Unsupported
from dovetail.frontend.class_lookup import HEAP, IMMUTABLE, NULL, lookup, slots_of
from dovetail.frontend.interpreter.tracking.holders import VIEWS
from dovetail.frontend.interpreter.tracking.rules import is_state

Template = Callable[[Any], Any]
Filler = Callable[[Any, Any], None]
Recipe = tuple[Template, Callable[[], Filler] | None]  # how to create the empty object, and how to fill it

_POINTER = tuple.__itemsize__  # bytes of a slot
MAPPING_VIEWS = {**VIEWS, MappingProxyType: MappingProxyType}
_CONSTANT = (Struct,)  # nothing of it changes, although it is equal to itself alone
_REFUSED = "the program creates a {} and lets it out, and no later call could create it again: C code keeps its content; create it outside"
_ITERATORS = frozenset([type(iter(items)) for items in ([], (), range(0), range(1 << 64), {}, {}.values(), {}.items(), set(), "", "\u0100", b"")])
_CHAINED = ("__cause__", "__context__", "__suppress_context__")


def maker(value: Any, of: Callable[[Any], Template], attributes: Callable[[Any], Filler]) -> Recipe | None:
    """Return how to create an empty object like `value` and how to fill it; None where all calls can share `value`.

    `of` returns the template of a part, and `attributes` what sets the attributes in `__dict__` and slots.
    """
    kind = type(value)
    if isinstance(value, type) or kind in _CONSTANT or (callable(getattr(value, "__get__", None)) and not isinstance(value, partial)):
        return None
    if is_state(value):
        raise Unsupported(_REFUSED.format(kind.__name__))
    base = c_base(kind)
    if base is object:
        return lambda values: object.__new__(kind), lambda: attributes(value)
    if isinstance(value, BaseException):
        return _exception(value, base, of, attributes)
    if kind in MAPPING_VIEWS:
        view, mapping = MAPPING_VIEWS[kind], of(gc.get_referents(value)[0])
        return lambda values: view(mapping(values)), None
    if kind is base and lookup(kind, "__hash__") not in (object.__hash__, None, NULL):
        return None  # equal by content, and so immutable
    return _reduced(value, base, of, attributes)


def iterator_again(value: Any, of: Callable[[Any], Template]) -> Template | None:
    """Return what creates an iterator in C again: one that has ended, or iterates over what never changes; None for others."""
    if type(value) not in _ITERATORS:
        return None
    _, (items,), *state = value.__reduce__()
    state = [place for place in state if place is not None]
    ended = not items and not state
    if not ended and type(items) not in (range, str, bytes):
        return None
    inner = of(items)

    def make(values: Any) -> Any:
        iterator = iter(inner(values))
        if ended:
            next(iterator, None)
        elif state:
            iterator.__setstate__(*state)
        return iterator

    return make


def c_base(kind: type) -> type:
    """Return the first class among the bases of `kind` whose instances C code creates; `object` where attributes and slots are all there is."""
    return next(cls for cls in kind.__mro__ if cls is object or not is_of_python(cls))


def is_of_python(cls: type) -> bool:
    """Return whether a class statement created `cls`, so that its instances have no more than those of its base, attributes and slots."""
    if not cls.__flags__ & HEAP or cls.__flags__ & IMMUTABLE or isinstance(cls.__dict__.get("__new__"), BuiltinFunctionType):
        return False
    more = [cls.__dictoffset__ != 0 and not cls.__base__.__dictoffset__, cls.__weakrefoffset__ > 0 and not cls.__base__.__weakrefoffset__]
    return cls.__basicsize__ <= cls.__base__.__basicsize__ + _POINTER * (len(slots_of(cls)) + sum(more))


def _exception(value: BaseException, base: type, of: Callable[[Any], Template], attributes: Callable[[Any], Filler]) -> Recipe:
    kind, args = type(value), of(value.args)

    def make(values: Any) -> Any:
        arguments = args(values)
        new = base.__new__(kind, *arguments)
        base.__init__(new, *arguments)
        return new

    def fill() -> Filler:
        members = {name for cls in base.__mro__ for name, member in vars(cls).items() if isinstance(member, MemberDescriptorType)}
        plain = base.__new__(kind, *value.args)
        base.__init__(plain, *value.args)
        names = [name for name in (*sorted(members), *_CHAINED) if _is_set(plain, name, getattr(value, name, None))]
        parts, rest = {name: of(getattr(value, name)) for name in names}, attributes(value)

        def filled(target: Any, values: Any) -> None:
            rest(target, values)
            for name, part in parts.items():
                object.__setattr__(target, name, part(values))

        return filled

    return make, fill


def _is_set(plain: BaseException, name: str, content: Any) -> bool:
    """Return whether an exception has a content of its own for `name`, which another one with the same arguments can get."""
    try:
        setattr(plain, name, usual := getattr(plain, name, None))
    except (AttributeError, TypeError):
        return False  # read only: its arguments determine it
    return content is not usual


def _reduced(value: Any, base: type, of: Callable[[Any], Template], attributes: Callable[[Any], Filler]) -> Recipe | None:
    """Create it as `copy.copy` does: C code says by which function of which arguments, and which state."""
    kind = type(value)
    try:
        reduction = value.__reduce_ex__(4)
    except Exception as error:
        raise Unsupported(_REFUSED.format(kind.__name__)) from error
    if isinstance(reduction, str):
        return None  # the name of a global object
    function, arguments, state, items, pairs = (*reduction, None, None, None)[:5]
    if function is copyreg.__newobj__:
        function, arguments = base.__new__, (kind, *arguments[1:])  # not through a `__new__` of Python, which has run already
    args = [of(part) for part in arguments]

    def make(values: Any) -> Any:
        return function(*[part(values) for part in args])

    return make, lambda: _state(value, state, list(items or ()), list(pairs or ()), of, attributes)


def _state(value: Any, state: Any, items: list, pairs: list, of: Callable[[Any], Template], attributes: Callable[[Any], Filler]) -> Filler:
    method = lookup(type(value), "__setstate__")
    whole = of(state) if state is not None and method is not NULL else None
    rest = attributes(value) if whole is None else None
    elements, entries = [of(item) for item in items], [(of(key), of(item)) for key, item in pairs]

    def fill(target: Any, values: Any) -> None:
        if whole is not None:
            target.__setstate__(whole(values))
        else:
            rest(target, values)
        for element in elements:
            target.append(element(values))
        for key, item in entries:
            target[key(values)] = item(values)

    return fill
