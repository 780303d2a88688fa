"""Opcodes of `match` statements."""

from __future__ import annotations

_SEQUENCE, _MAPPING, _SELF_MATCHING = 1 << 5, 1 << 6, 1 << 22  # flags of types


class Match:
    def GET_LEN(frame, arg):
        frame.stack.append(frame.world.len(frame.stack[-1]))

    def MATCH_MAPPING(frame, arg):
        frame.stack.append(frame.world.has_flag(frame.stack[-1], _MAPPING))

    def MATCH_SEQUENCE(frame, arg):
        frame.stack.append(frame.world.has_flag(frame.stack[-1], _SEQUENCE))

    def MATCH_KEYS(frame, arg):
        subject, keys = frame.stack[-2], frame.stack[-1]
        missing, seen, values = object(), set(), []
        get = frame.world.load_attr(subject, "get") if keys else None
        for key in keys:
            if key in seen:
                raise ValueError(f"mapping pattern checks duplicate key ({key!r})")
            seen.add(key)
            value = frame.world.call(get, [key, missing], {}, frame)
            if value is missing:
                frame.stack.append(None)
                return
            values.append(value)
        frame.stack.append(tuple(values))

    def MATCH_CLASS(frame, count):
        subject, cls, names = frame.pop(3)
        frame.stack.append(match_class(frame, subject, cls, names, count))


def match_class(frame, subject, cls, names, count):
    """Return the attributes that a class pattern with `count` positional patterns and these names looks at; None when it does not match."""
    world = frame.world
    if not isinstance(cls, type):
        raise TypeError("called match pattern must be a class")
    if not world.call(isinstance, [subject, cls], {}, frame):
        return None
    values, seen = [], set()
    for name in positional(frame, subject, cls, count, values):
        if type(name) is not str:
            raise TypeError(f"__match_args__ elements must be strings (got {type(name).__name__})")
        if not add_attribute(world, subject, cls, name, seen, values):
            return None
    for name in names:
        if not add_attribute(world, subject, cls, name, seen, values):
            return None
    return tuple(values)


def positional(frame, subject, cls, count, values):
    """Return the names that `count` positional patterns stand for; the subject itself goes to `values` for classes that match by themselves."""
    if not count:
        return ()
    names = frame.world.optional(cls, "__match_args__")
    if names is None and cls.__flags__ & _SELF_MATCHING:
        if count > 1:
            raise TypeError(f"{cls.__name__}() accepts 1 positional sub-pattern ({count} given)")
        values.append(subject)
        return ()
    names = () if names is None else names
    if type(names) is not tuple:
        raise TypeError(f"{cls.__name__}.__match_args__ must be a tuple (got {type(names).__name__})")
    names = frame.world.tuple_items(names)
    if count > len(names):
        plural = "" if len(names) == 1 else "s"
        raise TypeError(f"{cls.__name__}() accepts {len(names)} positional sub-pattern{plural} ({count} given)")
    return names[:count]


def add_attribute(world, subject, cls, name, seen, values):
    """Put subject.name to `values`; whether there is one."""
    if name in seen:
        raise TypeError(f"{cls.__name__}() got multiple sub-patterns for attribute {name!r}")
    seen.add(name)
    try:
        values.append(world.load_attr(subject, name))
        return True
    except AttributeError:
        return False
