"""Opcodes that build containers, strings and slices, and take them apart."""

from __future__ import annotations

_CONSTANTS = frozenset({str, bytes, int, float, complex, bool, type(None)})


class Build:
    def BUILD_TUPLE(frame, n):
        frame.stack.append(tuple(frame.pop(n)))

    def BUILD_LIST(frame, n):
        frame.stack.append(frame.pop(n))

    def BUILD_SET(frame, n):
        frame.stack.append(frame.world.make_set(frame.pop(n)))

    def BUILD_STRING(frame, n):
        frame.stack.append(frame.world.join_text(frame.pop(n)))

    def BUILD_SLICE(frame, n):
        frame.stack.append(slice(*frame.pop(n)))

    def BUILD_MAP(frame, n):
        values = frame.pop(2 * n)
        frame.stack.append(frame.world.make_dict(values[::2], values[1::2]))

    def BUILD_CONST_KEY_MAP(frame, n):
        keys = frame.stack.pop()
        frame.stack.append(frame.world.make_dict(keys, frame.pop(n)))

    def LIST_APPEND(frame, n):
        value = frame.stack.pop()
        frame.stack[-n].append(value)

    def SET_ADD(frame, n):
        value = frame.stack.pop()
        frame.world.add_to(frame.stack[-n], value)

    def MAP_ADD(frame, n):
        key, value = frame.pop(2)
        frame.world.put_into(frame.stack[-n], key, value)

    def LIST_EXTEND(frame, n):
        value = frame.stack.pop()
        if not is_iterable(value):
            raise TypeError(f"Value after * must be an iterable, not {type(value).__name__}")
        frame.stack[-n].extend(frame.world.spread(value))

    def SET_UPDATE(frame, n):
        value = frame.stack.pop()
        if type(value) is frozenset and not frame.stack[-n] and _CONSTANTS.issuperset(map(type, value)):
            frame.stack[-n].update(value)  # at once, since the order of items depends on it
            return
        for item in frame.world.spread(value):
            frame.world.add_to(frame.stack[-n], item)

    def DICT_UPDATE(frame, n):
        value = frame.stack.pop()
        if frame.world.optional(value, "keys") is None:
            raise TypeError(f"'{type(value).__name__}' object is not a mapping")
        for key, item in frame.world.pairs(value):
            frame.world.put_into(frame.stack[-n], key, item)

    def LIST_TO_TUPLE(frame, arg):
        frame.stack[-1] = tuple(frame.stack[-1])

    def UNPACK_SEQUENCE(frame, n):
        frame.stack.extend(reversed(frame.world.unpack(frame.stack.pop(), n)))

    @staticmethod
    def excess(value, n):
        """Return the message about a value that has more than the `n` items that it is unpacked to."""
        return f"too many values to unpack (expected {n})"

    def UNPACK_EX(frame, arg):
        frame.stack.extend(reversed(frame.world.unpack_star(frame.stack.pop(), arg & 0xFF, arg >> 8)))

    def FORMAT_VALUE(frame, arg):
        spec = frame.stack.pop() if arg & 4 else ""
        frame.stack[-1] = frame.world.format(frame.stack[-1], arg & 3, spec)


def is_iterable(value):
    """Return whether the type of `value` can be iterated, by the iterator or the sequence protocol."""
    return hasattr(type(value), "__iter__") or hasattr(type(value), "__getitem__")
