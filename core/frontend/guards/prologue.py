"""The prologue: a printed program that checks whether a compiled program fits a call, and reads its inputs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FunctionType
from typing import Any

import torch

from dovetail import prims
from dovetail.frontend import trees
from dovetail.frontend.class_lookup import HEAP, NULL, address_of, lookup
from dovetail.frontend.classify_calls import is_module_class
from dovetail.frontend.guards.guard import KINDS, Guard, Lasting, Miss, Named, reason
from dovetail.frontend.guards.module_state import ModuleState, same_objects, same_values
from dovetail.frontend.guards.overlap import memory_overlap
from dovetail.frontend.guards.runtime import contents_of, static_attribute
from dovetail.frontend.guards.size_guards import SizeGuards
from dovetail.frontend.guards.source import Source
from dovetail.frontend.guards.symbolic_sizes import SymbolicSizes
from dovetail.frontend.guards.tensor_checks import TensorChecks
from dovetail.prims import Symbol
from dovetail.prims.sizes import is_symbolic
from dovetail.torch_internals import active_mode
from dovetail.trace import BoundSymbol, NumberProxy, Proxy, Trace, proxies
from dovetail.trace.printing import identifier
from dovetail.trace.stepping import SteppedProgram

FEW = 8  # up to so many tensors, each has a line of its own
FEW_MODULES = 4  # up to so many modules, each is checked at every call
_TABLES = ("_parameters", "_modules")  # of a module; what `_buffers` holds may be another tensor after each call


def prologue(
    guards: Sequence[Guard],
    tensors: Sequence[tuple[Source, Proxy]],
    objects: Sequence[Source],
    trace: Trace,
    *,
    written: Sequence[Proxy] = (),
    run: Callable,
    distinct: Sequence[Proxy] = (),
    changing: Collection[int] = (),
    calls: Sequence[Source] = (),
    sizes: SymbolicSizes | None = None,
    buffers: Sequence[Source] = (),
) -> Trace:
    """Return a program `prologue(args, kwargs)` that returns what `run` returns for the inputs it reads, or a Miss.

    Args:
        guards: in the order of their discovery; one that leads along a path stands behind those that make the path valid.
        tensors: the inputs of `trace`, and where they are read.
        objects: the sources of the objects that `run` takes besides.
        trace: the computation.
        written: tensors that may share no memory with other inputs.
        run: called with the inputs, and with the objects as `objects`, where there are any.
        distinct: tensors no two of which may be one object.
        changing: ids of the objects that `run` writes to.
        calls: sources of what runs anew at every call, once all guards hold.
        sizes: the symbols of the program; what is known of them is closed here.
        buffers: sources of the buffers whose content is guarded; what the program writes may share no memory with them.
    """
    builder = PrologueBuilder(trace, tensors, _modules(guards, changing), changing, sizes)
    builder.tuples = {guard.source for guard in guards if guard.kind == "type" and guard.value is tuple}
    builder.check(prims.check_modes, active=active_mode, reason="a mode of torch is around the call, which runs in eager mode")
    batched = []
    for guard in guards:
        if builder.is_batched(guard):
            batched.append(guard)
        else:
            builder.guard(guard)
    builder.batch(batched)
    builder.batch_classes([guard for guard in batched if guard.kind == "lacks"])
    builder.batch_tensors()
    if len(distinct) > 1:
        builder.check(prims.check_distinct, *distinct, reason="one tensor is passed twice, or two that were one are not")
    values = tuple([builder.value(source) for source in objects])
    if written:
        builder.check_disjoint(trace, written, buffers)
    for source in calls:
        builder.value(source)
    program = Proxy("computation")
    builder.trace.constants[program] = run
    builder.line(prims.call_program, (program, *trace.inputs), {"objects": values} if values else {}, None)
    builder.read_state()
    return builder.trace


def checks(guards: Sequence[Guard]) -> Trace:
    """Return a program that returns a Miss where one of these guards fails; they do not depend on arguments."""
    builder = PrologueBuilder(Trace(), (), {}, (), None)
    for guard in guards:
        builder.guard(guard)
    return builder.trace


def _modules(guards: Sequence[Guard], changing: Collection[int]) -> dict[int, torch.nn.Module]:
    """Return the modules that are constants of the program and that it does not write to, by their ids; none where there are few."""
    sources = dict.fromkeys([guard.source.root for guard in guards])
    roots = {address_of(source.key): source.key for source in sources if source.kind == "const"}
    modules = {mark: x for mark, x in roots.items() if is_module_class(type(x)) and not {mark, address_of(_instance_dict(x))} & set(changing)}
    return modules if len(modules) > FEW_MODULES else {}


def _instance_dict(value: Any) -> dict[str, Any]:
    """Return the `__dict__` of an instance, whatever its class makes of the attribute."""
    return object.__getattribute__(value, "__dict__")


class PrologueBuilder:
    """Records the lines of a prologue; each source is read once.

    What depends on nothing but the dictionaries of `modules` is the modules' state: those lines make a program of their own.
    """

    def __init__(
        self,
        trace: Trace,
        tensors: Sequence[tuple[Source, Proxy]],
        modules: dict[int, torch.nn.Module],
        changing: Collection[int],
        sizes: SymbolicSizes | None,
    ):
        self.symbols = SizeGuards(sizes, trace.inputs) if sizes else None
        args, kwargs = Proxy("args"), Proxy("kwargs")
        self.trace = Trace("prologue", inputs=[args, kwargs], made_by="guards", names=trace.names)
        self.arguments = {"args": args, "kwargs": kwargs}
        self.proxies = dict(tensors)
        self.values: dict[Source, Proxy] = {}
        self.few_tensors, self.tensor_checks = len(tensors) <= FEW, list[BoundSymbol]()
        self.passed: list[Proxy] = []  # the tensors that are no parameters or buffers
        self.constants = {address_of(source.key): proxy for source, proxy in tensors if source.kind == "const"}  # tensors that are keys of a dict
        self.trace.constants |= {proxy: source.key for source, proxy in tensors if source.kind == "const"}
        self.namespaces: dict[int, Proxy] = {}  # id of a constant -> its `__dict__` at the call
        self.modules, self.changing, self.tables = modules, changing, dict[int, dict]()
        self.state_values: set[Proxy] = set()  # values that the modules' state has
        self.tuples: set[Source] = set()  # sources of what is guarded to be a tuple
        self.lines, self.state_lines = self.trace.lines, list[BoundSymbol]()
        self.state_index: int | None = None  # before which line the state is read

    def line(self, symbol: Symbol, args: tuple, kwargs: dict, out: Proxy | None, body: tuple = ()) -> None:
        """Record a line."""
        reads = [a for a in args if isinstance(a, Proxy)]
        self.lines.append(BoundSymbol(symbol, args, kwargs, out, reads, body=body))

    @contextmanager
    def of_state(self, lasting: bool) -> Iterator[None]:
        """Record lines as the modules' state while open, if they are `lasting`."""
        before = self.lines
        if lasting:
            self.lines, self.state_index = self.state_lines, len(self.trace.lines) if self.state_index is None else self.state_index
        try:
            yield
        finally:
            self.lines = before

    def check(self, symbol: Symbol, *args: Any, reason: str | Callable[[], str], **kwargs: Any) -> None:
        """Record a line that checks something; `reason` is the sentence of its miss."""
        self.line(symbol, args, kwargs | {"miss": Miss(reason)}, None)

    # values

    def constant(self, value: Any) -> Proxy:
        """Return the name of an object that is the same at every call."""
        proxy = self.constants.get(address_of(value))
        if proxy is None:
            word = getattr(value, "__name__", None) or type(value).__name__.lower()
            word = identifier(word) if isinstance(word, str) else "object"
            proxy = self.constants[address_of(value)] = Proxy(f"{word}_{next(self.trace.names)}")
            self.trace.constants[proxy] = value
        return proxy

    def value(self, source: Source) -> Proxy:
        """Return the value at a source, which is read once."""
        if source.kind == "arg":
            return self.arguments[source.key]
        if source.kind == "const":
            return self.constant(source.key)
        if source.kind == "attr" and source.key == "__dict__" and source.parent.kind == "const":
            return self.namespace(source.parent.key)
        proxy = self.values.get(source)
        if proxy is None:
            proxy = self.proxies.get(source)
            proxy = self.values[source] = Proxy(f"v{next(self.trace.names)}") if proxy is None else proxy
            symbol, args, kwargs = self._read(source)
            certain = source.kind in ("fresh", "setting") or (source.parent.kind == "arg" and source.parent.key == "args")
            lasting = self._is_part(source, args[0]) if source.kind == "item" else self._is_field(source)
            with self.of_state(lasting):
                self.line(symbol, args, kwargs if certain else kwargs | {"miss": Miss(partial(_unreadable, source))}, proxy)
            if lasting:
                self.state_values.add(proxy)
        return proxy

    def namespace(self, value: Any) -> Proxy:
        """Return the `__dict__` of a constant; that of a module among `modules` is a constant too, and checked with the others."""
        if address_of(value) in self.modules:
            return self.constant(_instance_dict(value))
        if address_of(value) not in self.namespaces:
            self.namespaces[address_of(value)] = now = Proxy(f"v{next(self.trace.names)}")
            self.line(prims.unpack_attr, (self.constant(value),), {"name": "__dict__"}, now)
        return self.namespaces[address_of(value)]

    def _read(self, source: Source) -> tuple[Symbol, tuple, dict]:
        """Return the prim that reads a source, and its arguments."""
        if source.kind == "field" and source.parent.kind == "const":
            return prims.unpack_item, (self.namespace(source.parent.key),), {"key": source.key}
        parent = self.value(source.parent)
        if source.kind == "item":
            return prims.unpack_item, (parent,), {"key": source.key}
        if source.kind in ("call", "setting"):
            return prims.unpack_call, (parent,), {}
        if source.kind == "fresh":
            return prims.unpack_fresh, (parent,), {"call": source.key[1]}
        if source.kind == "contents":
            return prims.unpack_contents, (parent,), {"base": source.key, "contents": contents_of}
        if source.kind == "array":
            return prims.unpack_array, (parent,), {"convert": source.key.convert}
        if source.kind == "leaves":
            return prims.unpack_leaves, (parent,), {"flatten": trees.flatten, "tree": source.key}
        if source.kind == "field":
            return prims.unpack_field, (parent,), {"name": source.key}
        if source.kind == "static" and not _is_plain(source.parent.key, source.key):
            return prims.unpack_static, (parent,), {"name": source.key, "lookup": static_attribute}
        return prims.unpack_attr, (parent,), {"name": source.key}

    # guards

    def guard(self, guard: Guard) -> None:
        """Record the check of a guard."""
        value, kind = self.value(guard.source), KINDS[guard.kind]
        if guard.kind == "tensor":
            self.tensor(value, guard)
            return
        if guard.kind == "integer":
            self.check(kind.prim, value, reason=partial(reason, guard), type=int)
            self.lines += self.symbols.of_int(guard.value)
            return
        with self.of_state(value in self.state_values and self._lasts(guard)):
            arguments = {name: self.argument(x) for name, x in kind.arguments(guard.value).items()}
            self.check(kind.prim, value, reason=partial(reason, guard), **arguments)

    def argument(self, value: Any) -> Any:
        """Return an argument of a check as the line has it."""
        if isinstance(value, Source):
            return self.value(value)
        return self.constant(value.value) if isinstance(value, Named) else value

    def tensor(self, proxy: Proxy, guard: Guard) -> None:
        """Record the check of a tensor: a line of its own for each of a few; many wait for `batch_tensors`."""
        grad = " that requires grad" * proxy.spec.requires_grad
        miss = Miss(partial(reason, guard, f'"{proxy.spec}"{grad}'))
        line = BoundSymbol(prims.check_tensor, (proxy,), guard.value | {"miss": miss}, None, [proxy])
        if self.symbols is not None and (is_symbolic((guard.value["shape"], guard.value["strides"])) or self.symbols.takes_size_of(proxy)):
            self.check(prims.check_rank, proxy, type=guard.value["type"], rank=len(guard.value["shape"]), reason=miss.reason)
            self.lines += self.symbols.of_tensor(proxy)
            for read in self.symbols.sizes.of_strides.get(proxy, ()):  # behind the sizes, which strides may equal
                self.guard(read)
            self.lines.append(line)
            return
        (self.trace.lines if self.few_tensors else self.tensor_checks).append(line)
        if guard.source.kind != "field":  # others than parameters and buffers of modules
            self.passed.append(proxy)

    def batch_tensors(self) -> None:
        """Record one line for the tensor checks that wait."""
        if self.tensor_checks:
            tensors, passed = tuple([line.args[0] for line in self.tensor_checks]), set(self.passed)
            checks = TensorChecks([line.kwargs for line in self.tensor_checks], [i for i, p in enumerate(tensors) if p in passed])
            self.line(prims.check_tensors, tensors, {"fit": checks.fit, "missed": checks.missed}, None, tuple(self.tensor_checks))

    def check_disjoint(self, trace: Trace, written: Sequence[Proxy], buffers: Sequence[Source]) -> None:
        """Record the check that the tensors which the program writes share no memory with its other inputs and constants, or with `buffers`."""
        self.trace.constants |= trace.constants
        apart = {*written, *(p for source, p in self.proxies.items() if source.kind == "fresh")}  # what a call makes shares no memory
        others = tuple([p for p in (*trace.inputs, *trace.constants) if p not in apart and not isinstance(p, NumberProxy)])
        why = "an input that the program writes shares memory with another input"
        by_value = [self.value(source) for source in buffers]
        self.check(prims.check_disjoint, tuple(written), others, *by_value, overlap=memory_overlap, reason=why)

    # the state of modules

    def _is_field(self, source: Source) -> bool:
        """Return whether a module's own dictionary holds what is at a source."""
        return source.kind == "field" and source.parent.kind == "const" and address_of(source.parent.key) in self.modules

    def is_table(self, source: Source) -> bool:
        """Return whether a source leads to the parameters or submodules of one of `modules`; then that dictionary is watched, too."""
        if not self._is_field(source) or source.key not in _TABLES:
            return False
        table = _instance_dict(source.parent.key).get(source.key)
        if type(table) is not dict or address_of(table) in self.changing:
            return False
        self.tables[address_of(table)] = table
        return True

    def _is_part(self, source: Source, container: Proxy) -> bool:
        """Return whether an item is one of a dictionary that is watched, or of a tuple that the state has: what is in that never changes."""
        return self.is_table(source.parent) or (source.parent in self.tuples and container in self.state_values)

    def _lasts(self, guard: Guard) -> bool:
        """Return whether a guard on a value of the state holds as long as the state does not change."""
        lasting, value = KINDS[guard.kind].lasting, guard.value
        if lasting is Lasting.ALIAS:
            return value.kind == "const" or self.value(value) in self.state_values
        if lasting is Lasting.CLASS:
            return not value.__flags__ & HEAP
        if guard.kind == "len" and guard.source in self.tuples:
            return True
        return lasting is Lasting.OBJECT or (lasting is Lasting.TABLE and self.is_table(guard.source))

    def is_batched(self, guard: Guard) -> bool:
        """Return whether one line checks a guard for all of `modules`: their classes, that hooks are empty, that names are missing."""
        kind, source = guard.kind, guard.source
        if kind == "lacks":
            return True
        if kind == "type":
            return source.kind == "const" and address_of(source.key) in self.modules
        if source.parent is None or source.parent.kind != "const" or address_of(source.parent.key) not in self.modules:
            return False
        if kind == "falsy":
            return source.kind == "field" and source.key.endswith("_hooks")
        return kind == "hasnot" and source.kind == "attr" and source.key == "__dict__"

    def batch(self, guards: Sequence[Guard]) -> None:
        """Record the lines for batched guards: whether hooks were added is checked at each call, the rest is state."""
        if not self.modules:
            return
        hooks = [(_instance_dict(guard.source.parent.key), guard.source.key) for guard in guards if guard.kind == "falsy"]
        names = [(_instance_dict(guard.source.parent.key), guard.value) for guard in guards if guard.kind == "hasnot"]
        modules = tuple(self.modules.values())
        with self.of_state(True):
            columns = [self.constant(tuple(column)) for column in (modules, map(type, modules), map(_instance_dict, modules))]
            columns = dict(zip(("objects", "classes", "namespaces"), columns, strict=True))
            self.check(prims.check_objects, **columns, same=same_objects, reason="a module has become one of another class, or has another __dict__")
            if names:
                containers, keys = (self.constant(tuple(column)) for column in zip(*names, strict=True))
                why = "an attribute was added to an object that had it from its class"
                self.check(prims.check_absent, containers=containers, keys=keys, contains=operator.contains, reason=why)
            if hooks:
                empty = self.constant(tuple([namespace[key] for namespace, key in hooks]))
                containers, keys = (self.constant(tuple(column)) for column in zip(*hooks, strict=True))
                why = "the hooks of a module were replaced"
                self.check(prims.check_items, containers=containers, keys=keys, values=empty, same=same_values, reason=why)
        if hooks:
            self.check(prims.check_empty, containers=empty, reason="a hook was added to a module")

    def batch_classes(self, guards: Sequence[Guard]) -> None:
        """Record one line for all that classes lack."""
        pairs = [(guard.source.key, name) for guard in guards for name in guard.value]
        if pairs:
            containers, keys = (self.constant(tuple(column)) for column in zip(*pairs, strict=True))
            why = "a class has got an attribute that it lacked"
            self.check(prims.check_absent, containers=containers, keys=keys, contains=operator.contains, reason=why)

    def read_state(self) -> None:
        """Record one line that reads the modules' state, which is a program of its own."""
        if self.state_index is None:
            return
        read = set(proxies([(line.args, line.kwargs) for line in self.trace.lines]))
        outputs = tuple([out for line in self.state_lines if (out := line.out) in read])
        program = Trace("state", made_by="guards", names=self.trace.names, lines=self.state_lines, outputs=outputs)
        program.constants = self.trace.constants
        state = self.constant(ModuleState(SteppedProgram(program, Miss), tuple(self.modules.values()), tuple(self.tables.values())))
        line = BoundSymbol(prims.unpack_state, (), {"state": state}, outputs or None, [], body=tuple(self.state_lines))
        self.trace.lines.insert(self.state_index, line)


def _is_plain(cls: type, name: str) -> bool:
    """Return whether `cls.name` is what stands in the class under this name, unbound: then a lookup in C is exact, and fast."""
    raw, of_metaclass = lookup(cls, name), lookup(type(cls), name)  # as `__class__`, which a metaclass has before the class
    shadowed = of_metaclass is not NULL and lookup(type(of_metaclass), "__set__") is not NULL
    return not shadowed and (type(raw) in (FunctionType, property) or lookup(type(raw), "__get__") is NULL)


def _unreadable(source: Source) -> str:
    """Return the sentence that nothing could be read at a source."""
    return f"{source} is no longer an array of this layout, or such a number" if source.kind == "array" else f"{source} is not there any more"
