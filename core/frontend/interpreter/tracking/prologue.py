"""The prologue of a trace: a printed program that checks its guards and finds its inputs."""

from __future__ import annotations

import linecache
import operator
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from dovetail.frontend.interpreter.classes import lookup
from dovetail.frontend.interpreter.frame import NULL
from dovetail.frontend.interpreter.tracking.guards import KINDS, Guard, equality
from dovetail.frontend.interpreter.tracking.sources import Source

_INLINE = (int, str, bool)
_MISSES = "(AttributeError, KeyError, IndexError, TypeError, ValueError)"


def static(cls: type, name: str) -> Any:
    """What a class or a base of it has under a name, unbound; an AttributeError where there is nothing."""
    found = lookup(cls, name)
    if found is NULL:
        raise AttributeError(name)
    return found


def _is_itself(raw: Any) -> bool:
    """Whether an attribute of a class is, asked for through the class, what stands there: then the lookup in C is exact, and fast."""
    return type(raw) in (FunctionType, property) or lookup(type(raw), "__get__") is NULL


class _Printer:
    """Lines of a prologue; a source is printed once, as a local variable."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.locals: dict[Source, str] = {}
        self.space: dict[str, Any] = {"static": static, "contains": operator.contains}
        self.names: dict[int, str] = {}

    def constant(self, value: Any, inline: bool = True) -> str:
        """A constant as text, by a name where it has none or `inline` is False."""
        if value is None or (inline and type(value) in _INLINE):
            return repr(value)
        name = self.names.get(id(value))
        if name is None:
            name = self.names[id(value)] = f"c{len(self.names)}"
            self.space[name] = value
        return name

    def source(self, source: Source) -> str:
        """The name of the value at a source."""
        if source.kind == "const":
            return self.constant(source.key)
        if source not in self.locals:
            text = self._reached(source)
            self.locals[source] = f"v{len(self.locals)}"
            self.lines.append(f"{self.locals[source]} = {text}")
        return self.locals[source]

    def _reached(self, source: Source) -> str:
        if source.kind == "arg":
            return f"args[{source.key}]"
        if source.kind == "field" and source.parent.kind == "const":
            return f"{self.constant(source.parent.key.__dict__)}[{source.key!r}]"
        parent = self.source(source.parent)
        if source.kind == "item":
            return f"{parent}[{self.constant(source.key)}]"
        if source.kind == "call":
            return f"{parent}()"
        if source.kind == "static" and not _is_itself(lookup(source.parent.key, source.key)):
            return f"static({parent}, {source.key!r})"
        if source.kind == "field":
            return f"{parent}.__dict__[{source.key!r}]"
        return f"{parent}.{source.key}" if source.key.isidentifier() else f"getattr({parent}, {source.key!r})"

    def guard(self, guard: Guard, number: int) -> None:
        s = self.source(guard.source)
        if guard.kind == "equal" or (guard.kind == "is" and type(guard.value) in (int, float, str, bytes, complex)):
            test = equality(guard.value, s, self.constant(guard.value), self.constant(type(guard.value)))
        elif guard.kind == "env":
            test = f"{s}() == {self.constant(guard.value)}"
        else:
            inline = guard.kind not in ("is", "isnot")  # `x is 2` is a SyntaxWarning
            v = self.source(guard.value) if guard.kind in ("same", "notsame") else self.constant(guard.value, inline)
            test = KINDS[guard.kind].format(s=s, v=v)
        self.lines.append(f"if not ({test}): return {number}, None")

    def group(self, guards: Sequence[Guard]) -> None:
        """Guards on pinned objects, at C speed: that dictionaries are empty, and that instance dictionaries lack names."""
        empty = tuple(guard.source.parent.key.__dict__[guard.source.key] for guard in guards if guard.kind == "falsy")
        if empty:
            self.lines.append(f"if any({self.constant(empty)}): return 'a hook was added', None")
        names = [(guard.source.parent.key.__dict__, guard.value) for guard in guards if guard.kind == "hasnot"]
        if names:
            dicts, absent = (self.constant(tuple(column)) for column in zip(*names, strict=True))
            self.lines.append(f"if any(map(contains, {dicts}, {absent})): return 'an instance attribute was added', None")


def is_pinned(guard: Guard) -> bool:
    """Whether a guard is about a pinned object's own dictionary, so that it can be checked together with others."""
    source = guard.source
    if source.parent is None or source.parent.kind != "const":
        return False
    if guard.kind == "falsy":
        return source.kind == "field" and source.key.endswith("_hooks")
    return guard.kind == "hasnot" and source.kind == "attr" and source.key == "__dict__"


def prologue(
    guards: Sequence[Guard], inputs: Sequence[Source], name: str, check_tensors: Callable[..., bool] | None = None
) -> Callable[[tuple], tuple]:
    """A function of the arguments that gives (None, values of `inputs`) where every guard holds, else (what failed, None).

    What failed is the number of a guard or a sentence.  The guards come in the order of their discovery: one that leads along a path
    stands behind those that make the path valid.  `check_tensors`, when given, is called with all tensors that have a guard, instead of
    one check for each.  The text is in the attribute `text`, and in `linecache`.
    """
    printer = _Printer()
    for number, guard in enumerate(guards):
        if not is_pinned(guard) and not (check_tensors and guard.kind == "tensor"):
            printer.guard(guard, number)
    printer.group([guard for guard in guards if is_pinned(guard)])
    values = "".join([f"{printer.source(source)}, " for source in inputs])
    if check_tensors:
        tensors = ", ".join([printer.source(guard.source) for guard in guards if guard.kind == "tensor"])
        printer.lines.append(f"if not {printer.constant(check_tensors)}({tensors}): return 'the metadata of a tensor changed', None")
    body = "".join([f"        {line}\n" for line in printer.lines])
    text = f"def prologue(args):\n    try:\n{body}        return None, ({values})\n    except {_MISSES} as error:\n        return repr(error), None\n"
    filename = f"<prologue of {name}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    exec(compile(text, filename, "exec"), printer.space)
    made = printer.space["prologue"]
    made.text = text
    return made
