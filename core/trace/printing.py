"""A trace as Python: what prints is what runs, and a debugger steps through it."""

from __future__ import annotations

import builtins
import itertools
import linecache
import math
import pickle
import re
import weakref
from collections.abc import Callable, Iterator
from keyword import iskeyword
from pathlib import Path
from types import ModuleType
from typing import Any

from dovetail import devices, dtypes, prims
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.errors import ExecutorError, require
from dovetail.prims import SYMBOLS, symbols_of
from dovetail.prims.sizes import Form, Real, Size
from dovetail.trace.proxies import Proxy, proxies

_serial = itertools.count()


class Root:
    """The first name of a dotted path in a printed program: the line that imports it, and what it is."""

    __slots__ = ("statement", "value")

    def __init__(self, statement: str, value: Any):
        self.statement, self.value = statement, value


ROOTS: dict[str, Root] = {  # the registry: a language adds the modules that its symbols are called through
    "dtypes": Root("from dovetail import dtypes", dtypes),
    "devices": Root("from dovetail import devices", devices),
    "prims": Root("from dovetail import prims", prims),
    "math": Root("import math", math),
}
LITERALS: dict[type, Callable[[Any], tuple[str, str]]] = {  # the registry: type -> (root, how a value is written)
    DType: lambda dtype: ("dtypes", repr(dtype)),
    Device: lambda device: ("devices", repr(device)),
}
SEQUENCES: dict[type, Callable[[str], tuple[str, str]]] = {}  # the registry: subclass of tuple -> (root, how it is written), from its items
PLAIN = (bool, int, str, bytes, type(None), type(Ellipsis))


_LOCAL = re.compile(r"_|args|kwargs|tree|state|mismatch|kept|[tnv]\d+")  # names of inputs, values and variables in programs, which hide globals


class Namespace:
    """What a dotted path goes through, with attributes as fast as a module's."""


class Scope:
    """The names that a printed program needs: the imports at its head, and the objects that no import gives."""

    def __init__(self) -> None:
        self.imports: dict[str, str] = {}
        self.globals: dict[str, Any] = {}
        self._objects: dict[int, str] = {}
        self._names: dict[str, Iterator[str]] = {}  # for each word the names not yet tried, so that many objects take linear time

    def root(self, name: str) -> None:
        if name in self.imports:
            return
        if name not in ROOTS:
            ROOTS[name] = Root(f'from dovetail.extend.advanced import symbols_of; {name} = symbols_of("{name}")', symbols_of(name))
        self.imports[name] = ROOTS[name].statement
        self.globals[name] = ROOTS[name].value

    def executor(self, name: str) -> str:
        """Return the namespace of an executor's implementations, called `<name>_exec`."""
        space = f"{name}_exec"
        if space not in self.imports:
            self.imports[space] = f'from dovetail.extend.advanced import implementations_of; {space} = implementations_of("{name}")'
            self.globals[space] = Namespace()
        return space

    def object(self, value: Any) -> str:
        """Name an object that cannot be written down."""
        name = self._objects.get(id(value))
        if name is None:
            word = getattr(value, "__name__", None)
            word = word if isinstance(word, str) else type(value).__name__.lower()
            word = "function" if word == "<lambda>" else identifier(word)
            word = f"object_{word}" if _LOCAL.fullmatch(word) else word
            numbered = self._names.setdefault(word, _numbered(word))
            free = (n for n in numbered if n not in self.globals and n not in ROOTS and getattr(builtins, n, value) is value)
            name = self._objects[id(value)] = next(free)
            self.globals[name] = value
        return name

    def callee(self, line: Any) -> str:
        if (implementation := line.implementation) is not None and (path := implementation.path) is None:
            space = self.executor(implementation.executor)
            if self.globals[space].__dict__.setdefault(implementation.name, implementation.fn) is not implementation.fn:
                raise ExecutorError(
                    f"{implementation.executor} has two functions called {implementation.name}; give the one of {line.symbol} another name"
                )
            return f"{space}.{implementation.name}"
        if implementation is None and line.symbol.python_rule is not None:
            if line.symbol is prims.arithmetic and line.kwargs["op"].startswith("math."):
                self.root("math")
            return ""  # a statement of its own
        path = line.symbol.path if implementation is None else path
        if not path.startswith("."):
            self.root(path.partition(".")[0])
        return path


def identifier(word: str) -> str:
    """Return `word` as a name that a program can have."""
    word = "".join([c if c.isalnum() else "_" for c in word])
    return word if word.isidentifier() and not iskeyword(word) else f"object_{word}"


def _numbered(word: str) -> Any:
    return itertools.chain([word], (f"{word}_{i}" for i in itertools.count(1)))


def literal(value: Any, scope: Scope | None = None) -> str:
    """Write Python that makes `value` again; a proxy by its name, an object that cannot be written down by a name in `scope`."""
    kind = type(value)
    if issubclass(kind, Proxy):
        return value.name
    if kind in PLAIN:
        return repr(value)
    if kind is float:
        return repr(value) if math.isfinite(value) else f'float("{value}")'
    if kind is complex:
        return f"complex({literal(value.real)}, {literal(value.imag)})"
    if isinstance(value, tuple):
        words = ", ".join([literal(item, scope) for item in value])
        if hasattr(kind, "_fields"):  # a named tuple
            return f"{_registered(kind, type, scope)}({words})"
        words = f"({words},)" if len(value) == 1 else f"({words})"
        if kind is tuple or kind not in SEQUENCES:
            return words
        root, written = SEQUENCES[kind](words)
        if scope is not None:
            scope.root(root)
        return written
    if isinstance(value, list):
        return "[" + ", ".join([literal(item, scope) for item in value]) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join([f"{literal(k, scope)}: {literal(v, scope)}" for k, v in value.items()]) + "}"
    if kind is slice:
        return f"slice({', '.join(literal(part, scope) for part in (value.start, value.stop, value.step))})"
    return _registered(value, kind, scope)


def _registered(value: Any, kind: type, scope: Scope | None) -> str:
    if kind is Size:
        return str(value)
    if kind is Real:
        words = value.text()
        if scope is not None and "math." in words:
            scope.root("math")
        return words
    if kind is Form:
        return value.text()
    for base in kind.__mro__:
        if base in LITERALS:
            root, words = LITERALS[base](value)
            if scope is not None:
                scope.root(root)
            return words
    return f"<{kind.__name__} {id(value):x}>" if scope is None else scope.object(value)


def typed(tree: Any) -> str:
    """Write the type comment: `t63: "cpu f32[8, 12, 64, 64]"`."""
    return ", ".join([f'{p.name}: "{p.spec}"' for p in proxies(tree) if p.spec is not None])


def statement(line: Any, scope: Scope, callee: str) -> str:
    """Write the line as Python, without its comment."""
    args = [literal(a, scope) for a in line.args]
    kwargs = {k: literal(v, scope) for k, v in line.kwargs.items()}
    target = "" if line.out is None else _target(line.out)
    if line.symbol.python_rule is not None and line.implementation is None:
        return line.symbol.python_rule(target, *args, **kwargs)
    if callee.startswith("."):
        callee, args = f"{args[0]}{callee}", args[1:]
    call = f"{callee}({', '.join([*args, *(f'{k}={v}' for k, v in kwargs.items())])})"
    return f"{target} = {call}" if target else call


def _target(out: Any) -> str:
    kind = type(out)  # isinstance would also ask a proxy which class it stands for
    if issubclass(kind, Proxy):
        return out.name
    if not issubclass(kind, (tuple, list)):
        return "_"
    words = ", ".join([_target(item) for item in out])
    return f"({words},)" if len(out) == 1 else f"({words})"


def source(
    trace: Any, *, depth: int | None = None, where: bool = False, imports: bool = True, scope: Scope | None = None
) -> tuple[str, dict[str, Any]]:
    """Return the program's text and the globals it runs in.

    `depth` is how many levels of decomposition are shown in comments (None: all), `where` adds the user's file:line to each line.
    The globals hold what the imports at the head give, too, so that the text runs without them; programs of one file share a `scope`.
    """
    scope = scope or Scope()
    scope.globals |= {p.name: value for p, value in trace.constants.items()}
    rows = [f"def {trace.name}({', '.join(p.name for p in trace.inputs)}):"]
    rows += [f"    # {typed([p])}" for p in trace.inputs if p.spec is not None]
    rows += [f"    # constant {typed([p])}" for p in trace.constants if p.spec is not None]
    for line in trace.lines:
        comment = typed(line.out)
        row = "    " + statement(line, scope, scope.callee(line)) + (f"  # {comment}" if comment else "")
        rows.append(row + (f"  {'' if comment else '# '}{line.where}" if where and line.where else ""))
        if depth != 0 and line.body:
            rows += _decomposition(line, "        # ", depth)
    if not (trace.lines and trace.lines[-1].symbol is prims.call_program):
        rows.append(f"    return {literal(trace.outputs, scope)}")
    head = [f"# made by {trace.made_by}" + (f" in {trace.took * 1e3:.2f} ms" if trace.took else ""), *(scope.imports.values() if imports else ())]
    return "\n".join([*head, "", *rows, ""]), scope.globals


def _decomposition(line: Any, indent: str, depth: int | None) -> list[str]:
    rows, scope = [], Scope()
    for inner in line.body:
        rows.append(f"{indent}{statement(inner, scope, inner.symbol.path)}  # {typed(inner.out)}")
        if inner.body and depth != 1:
            rows += _decomposition(inner, indent + "    ", None if depth is None else depth - 1)
    return rows


def to_callable(trace: Any) -> Callable:
    """Compile the printed program into a function; tracebacks and pdb show its lines."""
    require(hasattr(trace, "lines"), "to_callable takes a program, as dovetail.last_traces(fn)[-1]; got {!r}", trace, error=TypeError)
    text, scope = source(trace, depth=0, imports=False)
    file = f"<dovetail {trace.name} {next(_serial)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    scope["__trace__"] = trace  # what a traceback through the program finds
    exec(compile(text, file, "exec"), scope)
    fn = scope.pop(trace.name)  # else the function and its globals hold each other
    weakref.finalize(fn, linecache.cache.pop, file, None)
    return fn


def is_region(line: Any) -> bool:
    """Return whether a line stands for lines that were fused, rather than for an operation."""
    return bool(line.body) and line.symbol.id not in SYMBOLS


def save(trace: Any, path: str | Path) -> None:
    """Write the program as a file that imports and runs on its own; what cannot be written as text goes into `path`.pickle beside it."""
    text, scope = source(trace)
    path = Path(path)
    objects = {name: value for name, value in scope.items() if not isinstance(value, (ModuleType, Namespace)) and name not in ROOTS}
    if objects:
        beside = path.with_suffix(path.suffix + ".pickle")
        beside.write_bytes(pickle.dumps(objects))
        text = f'import pickle, pathlib\nglobals().update(pickle.loads(pathlib.Path(__file__).with_name("{beside.name}").read_bytes()))\n' + text
    path.write_text(text)
