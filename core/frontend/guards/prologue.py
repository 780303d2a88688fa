"""The prologue: a printed program that checks whether a compiled program fits a call, and finds its inputs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import torch

from dovetail import prims
from dovetail.frontend import trees
from dovetail.frontend.class_lookup import NULL, lookup
from dovetail.frontend.classify_calls import is_module_class
from dovetail.frontend.guards.guard import Guard, Miss, reason
from dovetail.frontend.guards.module_state import State, same_objects, same_values
from dovetail.frontend.guards.runtime import contents_of, has_natives, overlap, static_attribute
from dovetail.frontend.guards.source import Source
from dovetail.frontend.guards.tensor_checks import TensorChecks
from dovetail.prims import Symbol
from dovetail.torch_internals import active_mode
from dovetail.trace import BoundSymbol, Proxy, Trace, compiled, proxies
from dovetail.trace.printing import identifier

FEW = 8  # up to so many tensors, each has a line of its own
FEW_MODULES = 4  # up to so many modules, each is looked at at every call


def prologue(
    guards: Sequence[Guard],
    tensors: Sequence[tuple[Source, Proxy]],
    found: Sequence[Source],
    trace: Trace,
    *,
    written: Sequence[Proxy] = (),
    run: Callable,
    distinct: Sequence[Proxy] = (),
    changing: Collection[int] = (),
    calls: Sequence[Source] = (),
) -> Trace:
    """A program `prologue(args, kwargs)` that gives what `run` gives for the inputs it finds, or a Miss.

    `guards` come in the order of their discovery: one that leads along a path stands behind those that make the path valid.  `tensors` are
    the inputs of `trace` and where they are found, `found` the sources of the objects that `run` takes besides; the tensors in `written` may
    share no memory with other inputs, and those in `distinct` may not be one.  `changing` are the ids of the objects that `run` writes to.
    `calls` are the sources of what is run anew at every call, once all guards hold.
    """
    build = Prologue(trace, tensors, _modules(guards, changing), changing)
    build.check(prims.check_modes, active=active_mode, reason="a mode of torch is around the call, which runs in eager mode")
    together = [guard for guard in guards if build.is_together(guard)]
    for guard in guards:
        if not build.is_together(guard):
            build.guard(guard)
    build.together(together)
    build.tensors()
    if len(distinct) > 1:
        build.check(prims.check_distinct, *distinct, reason="one tensor is given twice, or two that were one are not")
    more = tuple([build.value(source) for source in found])
    if written:
        constants = trace.constants
        build.made.constants |= constants
        others = tuple([p for p in (*trace.inputs, *constants) if p not in set(written)])
        build.check(
            prims.check_disjoint, tuple(written), others, overlap=overlap, reason="an input that the program writes shares memory with another input"
        )
    for source in calls:
        build.value(source)
    program = Proxy("computation")
    build.made.constants[program] = run
    build.line(prims.call_program, (program, *trace.inputs), {"found": more} if more else {}, None)
    build.state()
    return build.made


def _modules(guards: Sequence[Guard], changing: Collection[int]) -> dict[int, torch.nn.Module]:
    """The modules that are found by themselves and that the program does not write to, by their ids; none where there are few."""
    roots = {id(source.key): source.key for guard in guards if (source := guard.source.root).kind == "const"}
    modules = {mark: x for mark, x in roots.items() if is_module_class(type(x)) and not {mark, id(_own(x))} & set(changing)}
    return modules if len(modules) > FEW_MODULES else {}


def _own(value: Any) -> dict[str, Any]:
    """The instance dictionary, whatever the class makes of the attribute."""
    return object.__getattribute__(value, "__dict__")


class Prologue:
    """Records the lines of a prologue; the value at a source is found once.

    What depends on nothing but the dictionaries of `modules` is the modules' state: those lines make a program of their own.
    """

    def __init__(self, trace: Trace, tensors: Sequence[tuple[Source, Proxy]], modules: dict[int, torch.nn.Module], changing: Collection[int]):
        args, kwargs = Proxy("args"), Proxy("kwargs")
        self.made = Trace("prologue", inputs=[args, kwargs], made_by="guards", names=trace.names)
        self.given = {"args": args, "kwargs": kwargs}
        self.proxies = dict(tensors)
        self.values: dict[Source, Proxy] = {}
        self.few, self.checks = len(tensors) <= FEW, list[BoundSymbol]()
        self.constants: dict[int, Proxy] = {}
        self.namespaces: dict[int, Proxy] = {}  # id of a constant: what its `__dict__` is now
        self.modules, self.changing, self.tables = modules, changing, dict[int, dict]()
        self.lasting: set[Proxy] = set()  # values that the state gives
        self.lines, self.held = self.made.lines, list[BoundSymbol]()
        self.place: int | None = None  # where among the lines the state is looked at

    def line(self, symbol: Symbol, args: tuple, kwargs: dict, out: Proxy | None, body: tuple = ()) -> None:
        reads = [a for a in args if isinstance(a, Proxy)]
        self.lines.append(BoundSymbol(symbol, args, kwargs, out, reads, body=body))

    @contextmanager
    def of_state(self, lasting: bool) -> Iterator[None]:
        """While open, lines are about the modules' state, if they are `lasting`."""
        before = self.lines
        if lasting:
            self.lines, self.place = self.held, len(self.made.lines) if self.place is None else self.place
        try:
            yield
        finally:
            self.lines = before

    def check(self, symbol: Symbol, *args: Any, reason: str, **kwargs: Any) -> None:
        """A line that checks something; `reason` is what a miss says."""
        self.line(symbol, args, kwargs | {"miss": Miss(reason)}, None)

    def constant(self, value: Any) -> Proxy:
        """An object that is always the same, by a name."""
        proxy = self.constants.get(id(value))
        if proxy is None:
            word = getattr(value, "__name__", None) or type(value).__name__.lower()
            word = identifier(word) if isinstance(word, str) else "object"
            proxy = self.constants[id(value)] = Proxy(f"{word}_{next(self.made.names)}")
            self.made.constants[proxy] = value
        return proxy

    def value(self, source: Source) -> Proxy:
        """The value at a source."""
        if source.kind == "arg":
            return self.given[source.key]
        if source.kind == "const":
            return self.constant(source.key)
        if source.kind == "attr" and source.key == "__dict__" and source.parent.kind == "const":
            return self.namespace(source.parent.key)
        known = self.values.get(source)
        if known is None:
            known = self.proxies.get(source)
            known = self.values[source] = Proxy(f"v{next(self.made.names)}") if known is None else known
            symbol, args, kwargs = self._reached(source)
            sure = source.kind == "fresh" or (source.parent.kind == "arg" and source.parent.key == "args")
            lasting = self.is_table(source.parent) if source.kind == "item" else self._is_held(source)
            with self.of_state(lasting):
                self.line(symbol, args, kwargs if sure else kwargs | {"miss": Miss(f"{source} is not there any more")}, known)
            if lasting:
                self.lasting.add(known)
        return known

    def namespace(self, value: Any) -> Proxy:
        """The `__dict__` of a constant: that of a module among `modules` is one too, and checked with the others."""
        if id(value) in self.modules:
            return self.constant(_own(value))
        if id(value) not in self.namespaces:
            self.namespaces[id(value)] = now = Proxy(f"v{next(self.made.names)}")
            self.line(prims.unpack_attr, (self.constant(value),), {"name": "__dict__"}, now)
        return self.namespaces[id(value)]

    def _is_held(self, source: Source) -> bool:
        """Whether a module's own dictionary holds what is at a source."""
        return source.kind == "field" and source.parent.kind == "const" and id(source.parent.key) in self.modules

    def is_table(self, source: Source) -> bool:
        """Whether a source leads to a dictionary of parameters or submodules of one of `modules`; then its changes are watched, too."""
        if not self._is_held(source) or source.key not in _TABLES:
            return False
        table = _own(source.parent.key).get(source.key)
        if type(table) is not dict or id(table) in self.changing:
            return False
        self.tables[id(table)] = table
        return True

    def _reached(self, source: Source) -> tuple[Symbol, tuple, dict]:
        if source.kind == "field" and source.parent.kind == "const":
            return prims.unpack_item, (self.namespace(source.parent.key),), {"key": source.key}
        at = self.value(source.parent)
        if source.kind == "item":
            return prims.unpack_item, (at,), {"key": source.key}
        if source.kind == "call":
            return prims.unpack_call, (at,), {}
        if source.kind == "fresh":
            return prims.unpack_fresh, (at,), {"call": source.key[1]}
        if source.kind == "contents":
            return prims.unpack_contents, (at,), {"base": source.key, "contents": contents_of}
        if source.kind == "leaves":
            return prims.unpack_leaves, (at,), {"flatten": trees.flatten, "tree": source.key}
        if source.kind == "field":
            return prims.unpack_field, (at,), {"name": source.key}
        if source.kind == "static" and not _is_itself(lookup(source.parent.key, source.key)):
            return prims.unpack_static, (at,), {"name": source.key, "lookup": static_attribute}
        return prims.unpack_attr, (at,), {"name": source.key}

    def guard(self, guard: Guard) -> None:
        at = self.value(guard.source)
        if guard.kind == "tensor":
            self.tensor(at, guard)
            return
        with self.of_state(at in self.lasting and self._lasts(guard)):
            _KINDS[guard.kind](self, at, guard.value, reason(guard))

    def _lasts(self, guard: Guard) -> bool:
        """Whether a guard on a value of the state holds as long as it is that value."""
        kind, value = guard.kind, guard.value
        if kind in ("same", "notsame"):
            return value.kind == "const" or self.value(value) in self.lasting
        if kind == "type":
            return not value.__flags__ & _HEAP
        return kind in ("is", "isnot", "equal") or (kind in ("len", "keys", "key types", "has", "hasnot") and self.is_table(guard.source))

    def same(self, symbol: Symbol, at: Proxy, value: Any, why: str) -> None:
        self.check(symbol, at, value=self.value(value) if isinstance(value, Source) else _named(self, value), reason=why)

    def switch(self, at: Proxy, value: Any, why: str) -> None:
        """A guard on what a function without arguments gives."""
        now = Proxy(f"v{next(self.made.names)}")
        self.line(prims.unpack_call, (at,), {}, now)
        self.check(prims.check_value, now, type=type(value), value=value, reason=why)

    def is_together(self, guard: Guard) -> bool:
        """Whether a guard is checked for many of `modules` in one line: their classes, that hooks are empty, that names are missing."""
        kind, source = guard.kind, guard.source
        if kind == "type":
            return source.kind == "const" and id(source.key) in self.modules
        if source.parent is None or source.parent.kind != "const" or id(source.parent.key) not in self.modules:
            return False
        if kind == "falsy":
            return source.kind == "field" and source.key.endswith("_hooks")
        return kind == "hasnot" and source.kind == "attr" and source.key == "__dict__"

    def together(self, guards: Sequence[Guard]) -> None:
        """Those guards; whether hooks were added is asked at each call, the rest is state."""
        if not self.modules:
            return
        hooks = [(_own(guard.source.parent.key), guard.source.key) for guard in guards if guard.kind == "falsy"]
        names = [(_own(guard.source.parent.key), guard.value) for guard in guards if guard.kind == "hasnot"]
        objects = tuple(self.modules.values())
        with self.of_state(True):
            rows = [self.constant(tuple(column)) for column in (objects, map(type, objects), map(_own, objects))]
            given = dict(zip(("objects", "classes", "namespaces"), rows, strict=True))
            self.check(prims.check_objects, **given, same=same_objects, reason="a module has become one of another class, or has another __dict__")
            if names:
                held, keys = (self.constant(tuple(column)) for column in zip(*names, strict=True))
                why = "an attribute was added to an object whose class had it"
                self.check(prims.check_absent, containers=held, keys=keys, contains=operator.contains, reason=why)
            if hooks:
                empty = self.constant(tuple([held[key] for held, key in hooks]))
                held, keys = (self.constant(tuple(column)) for column in zip(*hooks, strict=True))
                why = "the hooks of a module were replaced"
                self.check(prims.check_items, containers=held, keys=keys, values=empty, same=same_values, reason=why)
        if hooks:
            self.check(prims.check_empty, containers=empty, reason="a hook was added to a module")

    def state(self) -> None:
        """One line for all that was found of the modules' state, which is a program of its own."""
        if self.place is None:
            return
        read = set(proxies([(line.args, line.kwargs) for line in self.made.lines]))
        given = [out for line in self.held if (out := line.out) in read]
        program = Trace("state", made_by="guards", names=self.made.names, lines=self.held, outputs=tuple(given))
        program.constants = self.made.constants
        state = self.constant(State(compiled(program), tuple(self.modules.values()), tuple(self.tables.values())))
        line = BoundSymbol(prims.unpack_state, (), {"state": state}, tuple(given) or None, [], body=tuple(self.held))
        self.made.lines.insert(self.place, line)

    def tensor(self, proxy: Proxy, guard: Guard) -> None:
        """A line of its own for each of a few tensors; many wait, to be checked at once."""
        grad = " that requires grad" * proxy.spec.requires_grad
        miss = Miss(f'{guard.source} is no longer a tensor "{proxy.spec}"{grad}')
        line = BoundSymbol(prims.check_tensor, (proxy,), guard.value | {"miss": miss}, None, [proxy])
        (self.made.lines if self.few else self.checks).append(line)

    def tensors(self) -> None:
        """The checks that wait, as one line."""
        if self.checks:
            fit = TensorChecks([line.kwargs for line in self.checks])
            given = tuple([line.args[0] for line in self.checks])
            self.line(prims.check_tensors, given, {"fit": fit.fit, "missed": fit.missed}, None, tuple(self.checks))


def _named(build: Prologue, value: Any) -> Any:
    """An object as an argument of a line: containers by a name, since they would be written out."""
    return build.constant(value) if isinstance(value, (tuple, list, dict, int, float, complex, str, bytes)) and type(value) is not bool else value


def _equal(build: Prologue, at: Proxy, value: Any, why: str) -> None:
    build.check(prims.check_value, at, type=type(value), value=value, reason=why)


def _is(build: Prologue, at: Proxy, value: Any, why: str) -> None:
    if type(value) in (int, float, str, bytes, complex):
        _equal(build, at, value, why)
    else:
        build.same(prims.check_identity, at, value, why)


def _keys(build: Prologue, at: Proxy, value: Any, why: str) -> None:
    build.check(prims.check_keys, at, type=None, keys=tuple(value), reason=why)


_TABLES = ("_parameters", "_modules")  # of a module; what `_buffers` holds may be another tensor after each call
_HEAP = 1 << 9  # flag of classes whose instances can be given another class
_KINDS: dict[str, Callable[[Prologue, Proxy, Any, str], None]] = {
    "is": _is,
    "isnot": lambda build, at, value, why: build.same(prims.check_other, at, value, why),
    "same": lambda build, at, value, why: build.same(prims.check_identity, at, value, why),
    "notsame": lambda build, at, value, why: build.same(prims.check_other, at, value, why),
    "type": lambda build, at, value, why: build.check(prims.check_type, at, type=value, reason=why),
    "equal": _equal,
    "len": lambda build, at, value, why: build.check(prims.check_count, at, length=value, reason=why),
    "keys": _keys,
    "key types": lambda build, at, value, why: build.check(prims.check_key_types, at, types=tuple(value), reason=why),
    "key identities": lambda build, at, value, why: build.check(prims.check_key_identities, at, keys=build.constant(tuple(value)), reason=why),
    "has": lambda build, at, value, why: build.check(prims.check_contains, at, key=value, present=True, reason=why),
    "hasnot": lambda build, at, value, why: build.check(prims.check_contains, at, key=value, present=False, reason=why),
    "unset": lambda build, at, value, why: build.check(prims.check_unset, at, name=value, has=hasattr, reason=why),
    "truthy": lambda build, at, value, why: build.check(prims.check_truth, at, value=True, reason=why),
    "falsy": lambda build, at, value, why: build.check(prims.check_truth, at, value=False, reason=why),
    "natives": lambda build, at, value, why: build.check(prims.check_natives, at, methods=build.constant(value), fit=has_natives, reason=why),
    "env": lambda build, at, value, why: build.switch(at, value, why),
}


def _is_itself(raw: Any) -> bool:
    """Whether an attribute of a class is, asked for through the class, what stands there: then the lookup in C is exact, and fast."""
    return type(raw) in (FunctionType, property) or lookup(type(raw), "__get__") is NULL
