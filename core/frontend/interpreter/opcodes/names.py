"""Opcodes of variables: slots, cells, globals, namespaces, and imports."""

from __future__ import annotations

from types import CellType

from dovetail.frontend.class_lookup import NULL


def unbound(frame, slot):
    """Return the error of a variable without a value."""
    name = frame.decoded.slot_names[slot]
    if name in frame.code.co_freevars:
        return NameError(f"cannot access free variable '{name}' where it is not associated with a value in enclosing scope", name=name)
    return UnboundLocalError(f"cannot access local variable '{name}' where it is not associated with a value")


class Names:
    def LOAD_FAST(frame, slot):
        value = frame.slots[slot]
        if value is NULL:
            raise unbound(frame, slot)
        frame.stack.append(value)

    LOAD_FAST_CHECK = LOAD_FAST

    def STORE_FAST(frame, slot):
        frame.slots[slot] = frame.stack.pop()

    def DELETE_FAST(frame, slot):
        if frame.slots[slot] is NULL:
            raise unbound(frame, slot)
        frame.slots[slot] = NULL

    def MAKE_CELL(frame, slot):
        value = frame.slots[slot]
        frame.slots[slot] = CellType() if value is NULL else CellType(value)

    def LOAD_CLOSURE(frame, slot):
        frame.stack.append(frame.slots[slot])

    def COPY_FREE_VARS(frame, n):
        frame.slots[-n:] = frame.function.__closure__

    def LOAD_DEREF(frame, slot):
        try:
            frame.stack.append(frame.world.load_cell(frame.slots[slot]))
            return
        except ValueError:
            pass  # raised below, so that this error is not its context
        raise unbound(frame, slot)

    def STORE_DEREF(frame, slot):
        frame.world.store_cell(frame.slots[slot], frame.stack.pop())

    def DELETE_DEREF(frame, slot):
        try:
            frame.world.delete_cell(frame.slots[slot])
            return
        except ValueError:
            pass
        raise unbound(frame, slot)

    def LOAD_NAME(frame, name):
        value = from_namespace(frame, frame.names, name)
        frame.stack.append(frame.world.load_global(frame, name) if value is NULL else value)

    def STORE_NAME(frame, name):
        frame.world.set_item(frame.names, name, frame.stack.pop())

    def DELETE_NAME(frame, name):
        try:
            frame.world.delete_item(frame.names, name)
            return
        except KeyError:
            pass
        raise NameError(f"name '{name}' is not defined", name=name)

    def LOAD_GLOBAL(frame, arg):
        null, name = arg
        if null:
            frame.stack.append(NULL)
        frame.stack.append(frame.world.load_global(frame, name))

    def STORE_GLOBAL(frame, name):
        frame.world.store_global(frame, name, frame.stack.pop())

    def DELETE_GLOBAL(frame, name):
        frame.world.delete_global(frame, name)

    def SETUP_ANNOTATIONS(frame, arg):
        if from_namespace(frame, frame.names, "__annotations__") is NULL:
            frame.world.set_item(frame.names, "__annotations__", {})

    def IMPORT_NAME(frame, name):
        level, names = frame.pop(2)
        frame.stack.append(frame.world.import_name(frame, name, names, level))

    def IMPORT_FROM(frame, name):
        frame.stack.append(frame.world.import_from(frame.stack[-1], name))

    def IMPORT_STAR(frame, arg):
        frame.world.import_star(frame, frame.stack.pop())


def from_namespace(frame, names, name):
    """Return names[name], NULL when it is missing."""
    try:
        return frame.world.get_item(names, name)
    except KeyError:
        return NULL
