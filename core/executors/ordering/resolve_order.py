"""Resolve the order of executors from all layers of configuration."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import Context
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from dovetail import options
from dovetail.errors import ExecutorError
from dovetail.executors.contract.executor import EXECUTORS, Executor, OperatorExecutor, Verdict
from dovetail.executors.discovery import configuration, lockfile
from dovetail.executors.discovery.plugin_errors import ExecutorWarning
from dovetail.executors.discovery.plugin_status import Plugin
from dovetail.executors.discovery.registry import REGISTRY
from dovetail.executors.ordering.key import Identity, Key
from dovetail.executors.ordering.names import contradiction, is_pattern, known_names, like, operation_id, state_of
from dovetail.executors.ordering.order_syntax import Order
from dovetail.options import Setting, Source
from dovetail.prims import Symbol
from dovetail.trace.source_location import user_line

CAUSE_OF = {  # the status of a plugin -> the cause that `strict` may forbid
    "unavailable": "unavailable",
    **dict.fromkeys(("unmet-requirement", "incompatible"), "version"),
    **dict.fromkeys(("import-failed", "invalid", "conflict"), "load-error"),
}


class Override(NamedTuple):
    """The order for the operations that match `pattern`, as one setting has it."""

    pattern: str
    items: tuple[Any, ...]
    setting: Setting
    rank: int

    @property
    def weight(self) -> tuple:
        """The precedence among overrides: a later layer wins, then a more exact name."""
        literal = not is_pattern(self.pattern)
        return (self.rank, literal, len(self.pattern.replace("*", "")))


class Priority(tuple[Executor, ...]):
    """Executors in priority order; `for_symbol` is the order for one operation.

    `resolve_executors` makes one of all layers of configuration.  `Priority(executors)` is a fixed order, the same for every operation.

    Attributes:
        key: what compiled programs depend on; None for a fixed order, whose programs are not kept.
        provenance: which layer put each executor where it is.
        sources: every place that configures the order.
        notes: which executors were left out, and why.
    """

    key: Key | None = None
    provenance: tuple[tuple[str, Source], ...] = ()
    sources: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    _overrides: tuple[Override, ...] = ()
    _orders: dict[str, tuple[Executor, ...]]
    _resolution: _Resolution

    @property
    def executors(self) -> tuple[Executor, ...]:
        """The order for operations without an override."""
        return tuple(self)

    def for_symbol(self, symbol: Symbol) -> tuple[Executor, ...]:
        """Return the order for one operation."""
        if not self._overrides:
            return self
        if symbol.id not in self._orders:
            matching = [override for override in self._overrides if override.pattern == symbol.id or fnmatchcase(symbol.id, override.pattern)]
            self._orders[symbol.id] = self._resolution.overridden(self, matching) if matching else self
        return self._orders[symbol.id]

    def __reduce__(self) -> tuple:
        return resolve_executors, (tuple([ex.name for ex in self]),)


@dataclass(frozen=True, eq=False)
class Missing:
    """An executor that configuration names and that cannot be used: its plugin does not work, or is not installed."""

    name: str
    row: Plugin | None
    last_resort: bool = False


@dataclass
class _Resolution:
    """Resolves the settings of all layers to a Priority."""

    wanted: Setting | None
    local: dict[str, Executor] = field(default_factory=dict)  # passed to a call as objects, whether or not they are registered
    missing: dict[str, Missing] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    restated: int = -1

    def priority(self) -> Priority:
        """Return the order.  Raises ExecutorError where a setting cannot be met."""
        settings = options.settings(options.EXECUTORS) + ([self.wanted] if self.wanted else [])
        for setting in settings:
            self.local |= {each.name: each for each in setting.value if isinstance(each, Executor)}
        configuration.check_names(known_names(), {ex.name for ex in EXECUTORS})
        order = Order(*_default())
        _hints(order)
        for setting in settings:
            order.apply(setting, _rank(setting), self.lookup)
        self.restated = order.restated
        priority = Priority(self.present(order, order.sorted()))
        self.notes += [
            *order.dropped,
            *(f"{node.name} is not used: {message}" for node, message in order.removed.items() if isinstance(node, Executor)),
        ]
        self.notes += [f"{row.name} ({row.source}) is not used: {row.reason}" for row in REGISTRY.plugins or () if row.status == "disabled"]
        if order.restated < 0:
            self.degrade()
        self.require(priority)
        priority._overrides, priority._orders, priority._resolution = self.overrides(), {}, self
        for override in priority._overrides:
            self.overridden(priority, [override])  # what is wrong in it is an error now
        priority.notes = tuple(dict.fromkeys(self.notes))
        priority.provenance = tuple([(ex.name, order.by.get(ex, _place_of(ex))) for ex in priority])
        priority.sources = tuple([str(setting.source) for setting in settings])
        priority.key = Key(
            tuple(map(_identity, priority)),
            tuple([(each.pattern, each.items) for each in priority._overrides]),
            options.STRICT.read(),
            options.CHECK.read(),
            options.RANDOM.read(),
            tuple(sorted(options.trial_modes().items())),
        )
        return priority

    def lookup(self, item: Any, source: Source, text: str, optional: bool) -> Executor | Missing:
        """Return the executor that `item` is or names, or Missing for a known one that is not ready.  Raises ExecutorError for an unknown one."""
        if isinstance(item, Executor):
            return item
        if not isinstance(item, str):
            raise ExecutorError(f"executors in {source} has {item!r}; it expects executors, their names, and edits such as '+name'")
        node = self.local.get(item) or REGISTRY.executors.get(item) or self.missing.get(item)
        if node is None:
            row = next((row for row in REGISTRY.plugins or () if item in (row.name, *row.executors)), None)
            if row is None and not optional:
                raise ExecutorError(f"executors in {source}: no executor is called {item!r}; {like(item, self.local)}")
            node = self.missing[item] = Missing(item, row)
        return node

    def present(self, order: Order, nodes: list[Executor | Missing]) -> list[Executor]:
        """Return the executors that can be used.  Raises ExecutorError for one that is requested by name and cannot."""
        usable = []
        for node in nodes:
            request = order.requests.get(node)
            distribution = (getattr(node, "distribution", None) or ("",))[0]
            disabling_setting = configuration.disabling_setting(node.name, distribution) if self.is_plugin(node) else None
            if disabling_setting is not None and request is not None:
                raise ExecutorError(contradiction(node.name, request, disabling_setting))
            if isinstance(node, Missing) and request is not None:
                reason = state_of(node.name, node.row)
                raise ExecutorError(
                    f"{request[0].option.key} in {request[0].source} asks for {node.name} ({request[1]}), which cannot be used: {reason}"
                )
            if isinstance(node, Missing):
                self.notes.append(f"{node.name} is not used: {state_of(node.name, node.row)}")
            elif disabling_setting is None:
                usable.append(node)
        return usable

    def is_plugin(self, node: Executor | Missing) -> bool:
        """Whether `disable` and `allow` apply: not to executors that a program passes as objects."""
        return isinstance(node, Missing) or REGISTRY.executors.get(node.name) is node

    def degrade(self) -> None:
        """Note each plugin that would be used if it worked.  Raises ExecutorError where `strict` forbids its cause."""
        strict = options.STRICT.read()
        for row in REGISTRY.plugins or ():
            cause = CAUSE_OF.get(row.status)
            if cause is None:
                continue
            if cause in strict:
                raise ExecutorError(f"strict forbids {cause}: {row}\nto go on without it: {options.DISABLE.name}={row.name}")
            self.notes.append(f"{row.name} ({row.source}) is not used: {row.state}")
            if cause != "unavailable":
                _warn_once(row)

    def require(self, priority: Priority) -> None:
        """Raise ExecutorError for a required executor that is not ready, or that no layer lets in."""
        names = {ex.name for ex in priority}
        present = names | {row.name for row in REGISTRY.plugins or () if names & set(row.executors)}
        for setting in options.settings(options.REQUIRE):
            for name in setting.value:
                disabling_setting = configuration.disabling_setting(name)
                if disabling_setting is not None:
                    raise ExecutorError(contradiction(name, (setting, name), disabling_setting))
                row = next((row for row in REGISTRY.plugins or () if row.name == name), None)
                if name not in present:
                    message = f"{name} ({row.source}) is {row.state}" if row and row.status != "ready" else "no layer of configuration admits it"
                    raise ExecutorError(f"require in {setting.source} names {name}, and {message}")

    def overrides(self) -> tuple[Override, ...]:
        """Return the orders for single operations, the one that takes precedence last."""
        overrides = []
        for setting in options.settings(options.OPERATIONS):
            for pattern, items in setting.value:
                overrides.append(Override(operation_id(pattern, setting.source), items, setting, _rank(setting)))
        return tuple(sorted(overrides, key=lambda override: override.weight))

    def overridden(self, priority: Priority, overrides: Iterable[Override]) -> tuple[Executor, ...]:
        """Return the order for one operation: the global one, changed by each override in turn."""
        order = Order(list(priority), tuple([ex for ex in priority if ex.last_resort]))
        members = set(priority)
        for rank, override in enumerate(overrides):
            before = list(order.sequence)
            order.apply(override.setting, rank, self.lookup, items=override.items)
            if override.rank < self.restated:  # a whole list in a higher layer limits which executors may be used at all
                order.sequence = [node for node in order.sequence if node in members or isinstance(node, Missing)]
                order.sequence = order.sequence if set(order.sequence) - set(order.last) else before
        return tuple(self.present(order, order.sorted()))


def _rank(setting: Setting) -> int:
    """Return the precedence of a setting: that of its layer, and of several files or scopes the nearer one."""
    layer = options.LAYERS.index(setting.source.layer)
    peers = {"file": options.PROCESS.files, "use": options.SCOPE.get()}.get(setting.source.layer, ())
    return layer * 1000 + next((i for i, each in enumerate(peers) if _together(each.source, setting.source)), 0)


def _together(one: Source, other: Source) -> bool:
    """Whether two settings stand in one file, or in one call."""
    return one.where.rpartition(":")[0] == other.where.rpartition(":")[0] if one.layer == "file" else one is other


def _default() -> tuple[list[Executor], tuple[Executor, ...]]:
    """Return the default order, and the executors of last resort, which are its end."""
    known = list(REGISTRY.executors.values())
    added = [ex for name in REGISTRY.defaults if (ex := REGISTRY.executors.get(name))]
    local = {*REGISTRY.defaults, *_NOT_DEFAULT}
    rest = sorted((ex for ex in known if not ex.last_resort and ex.name not in local), key=lambda ex: ex.place or (ex.name, 0))
    last = tuple([ex for ex in known if ex.last_resort])
    return [*dict.fromkeys([*added, *rest, *last])], last


def _hints(order: Order) -> None:
    """Add the hints that executors declare about their own place; hints about executors that are not installed count for nothing."""
    for ex in order.sequence:
        for other in ex.before:
            if other in REGISTRY.executors:
                order.hint(ex, REGISTRY.executors[other], f"{ex.name} > {other}", _place_of(ex))
        for other in ex.after:
            if other in REGISTRY.executors:
                order.hint(REGISTRY.executors[other], ex, f"{other} > {ex.name}", _place_of(ex))


def _place_of(ex: Executor) -> Source:
    if ex.distribution:
        return Source("plugin", " ".join(filter(None, ex.distribution)))
    return Source("default", "add_operator_executor" if ex.name in REGISTRY.defaults else "default")


def _identity(ex: Executor) -> Identity:
    return Identity(ex, ex.version, getattr(ex, "distribution", None), tuple(options_of(ex).items()))


def options_of(ex: Executor) -> dict[str, Any]:
    """Return the options of `ex` as they are configured: `ex.options`, a dictionary of names and defaults, changed by the layers.

    Call it in checkers, transforms and `fuse`; a function is compiled again where an option has another value.
    """
    if not isinstance(ex, Executor):
        raise ExecutorError(f"options_of takes an executor, as get_executor(name) returns it; got {ex!r}")
    return configuration.option_values(ex.name, ex.options)


_warned: set[tuple[str, str]] = set()  # the registry: plugins that were warned about


def _warn_once(row: Plugin) -> None:
    if (row.name, row.status) not in _warned:
        _warned.add((row.name, row.status))
        warnings.warn(f"dovetail goes on without {row}; {options.DISABLE.name}={row.name} silences this", ExecutorWarning, stacklevel=2)


class _Memo(dict):
    """The registry: the orders that were resolved since configuration changed last."""

    seen: Any = None
    held: Any = None  # the configuration that the lock file was compared under last


_MEMO = _Memo()
LONGEST_MEMO = 256


def resolve_executors(wanted: Iterable[Executor | str] | str | Setting | None = None) -> Priority:
    """Return the order of executors, resolved from all layers; `wanted` is the highest of them.

    By default executors added with add_operator_executor come first, the newest before the others, then those of installed plugins, by the
    plugin's name and in the order of its hook, then those of last resort.  `wanted` is a list of executors and names, or edits:
    "+name", "-name", "a > b".
    """
    if isinstance(wanted, Priority):
        return wanted
    setting = wanted if isinstance(wanted, Setting) else requested_order(wanted)
    now = configuration.refresh()
    if options.FROZEN.read() and _MEMO.held != configuration.WATCH.seen:
        _hold()
    REGISTRY.load()
    if _MEMO.seen is not None and _MEMO.seen[0] != now:
        REGISTRY.refresh()
    installed = (now, tuple(REGISTRY.executors.items()), tuple(REGISTRY.defaults), frozenset(_NOT_DEFAULT), REGISTRY.generation)
    if installed != _MEMO.seen:
        if _MEMO.seen is not None and _MEMO.seen[1:] != installed[1:]:
            configuration.WATCH.changed()
            installed = (configuration.WATCH.generation, *installed[1:])
        _MEMO.clear()
        _MEMO.seen = installed
    return remembered(setting)


def process_wide() -> Priority:
    """Return the order outside any `dovetail.use`, as a new process with this configuration has it."""
    return Context().run(resolve_executors)


def _hold() -> None:
    """Raise unless the plugins, before any of them is imported, and then their order are those of the lock file."""
    path = configuration.lock_path()
    locked, installed = lockfile.read(path), lockfile.plugins()
    if differences := locked.differences(lockfile.Lock(installed, locked.order)):
        raise lockfile.drift(path, differences)
    _MEMO.held = configuration.WATCH.seen
    try:
        if differences := locked.differences(lockfile.Lock(installed, lockfile.order_of(process_wide()))):
            raise lockfile.drift(path, differences)
    except ExecutorError:
        _MEMO.held = None
        raise


def remembered(setting: Setting | None) -> Priority:
    """Return the order for a call's setting in this scope, without looking whether files or the environment have changed."""
    key = (configuration.WATCH.generation, options.SCOPE.get(), setting)
    priority = _MEMO.get(key)
    if priority is None:
        if len(_MEMO) > LONGEST_MEMO:
            _MEMO.clear()
        priority = _Resolution(setting).priority()
        if all([REGISTRY.executors.get(ex.name) is ex for ex in priority]):  # an executor of one program goes with that program
            _MEMO[key] = priority
    return priority


def requested_order(wanted: Iterable[Executor | str] | str | None, where: str = "") -> Setting | None:
    """Return the order that a call requests, as a setting; None where it requests none."""
    return None if wanted is None else options.EXECUTORS.setting(wanted, Source("jit", where or user_line()))


_NOT_DEFAULT: set[str] = set()  # the registry: added with add_to_default_executors=False


def use(
    executors: Iterable[Executor | str] | str | None = None,
    *,
    operations: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    disable: Iterable[str] | str | None = None,
    strict: bool | Iterable[str] | None = None,
    check: bool | None = None,
    debug: int | None = None,
    trial: str | Mapping[str, str] | None = None,
    **unknown: Any,
) -> AbstractContextManager[None]:
    """Configure what is called in a `with` block, in this thread or asynchronous task and in the tasks that it starts.

    `executors` is an order or edits of it, `operations` maps operations and patterns to such, `options` executors to their options.
    The arguments mean what the options of these names mean in a file.  A function that was compiled under another configuration is
    compiled again where the programs would differ, and runs its earlier programs again afterwards.  Raises ExecutorError where a name is
    unknown or an executor cannot be used.
    """
    settings = {"executors": executors, "operations": operations, "options": options, "disable": disable, "strict": strict}
    return _using(configuration.call_settings({**settings, "check": check, "debug": debug, "trial": trial, **unknown}, user_line()))


@contextmanager
def _using(settings: tuple[Setting, ...]) -> Iterator[None]:
    with configuration.scope(settings):
        resolve_executors()  # an unknown name is an error here, not at the first call
        yield


def add_operator_executor(
    name: str,
    implementations: Mapping[str, tuple[str, Callable[..., Verdict] | None, Callable]],
    *,
    add_to_default_executors: bool = True,
    replace: bool = False,
) -> OperatorExecutor:
    """Register an executor from a table of torch operation -> (implementation's name, checker, implementation), and return it.

    Implementations take real tensors in the operation's own signature, checkers proxies in the same.  The executor is put at the head of the
    default order, or runs only where it is named when `add_to_default_executors` is False.  A function that is compiled already is
    compiled again at its next call if its order has changed.  Raises ExecutorError where a row is malformed or the name is in use.
    """
    REGISTRY.load()
    ex = OperatorExecutor(name)
    if not isinstance(implementations, Mapping):
        raise ExecutorError(
            f"expected a dict of torch operation: (the name that programs print, checker or None, implementation), got {implementations!r}"
        )
    for operation, row in implementations.items():
        if not (isinstance(row, (tuple, list)) and len(row) == 3 and isinstance(row[0], str)):
            raise ExecutorError(f"the row of {operation!r} is {row!r}; expected (the name that programs print, checker or None, implementation)")
        implementation_name, checker, fn = row
        ex.implements(operation, fn, checker=checker, name=implementation_name)
    REGISTRY.add(ex, replace=replace)
    if add_to_default_executors:
        REGISTRY.defaults[:] = [name, *(other for other in REGISTRY.defaults if other != name)]
        _NOT_DEFAULT.discard(name)
    else:
        _NOT_DEFAULT.add(name)
    configuration.WATCH.changed()
    return ex
