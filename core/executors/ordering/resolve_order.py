"""Who is asked first: what all layers of configuration make of the executors that there are."""

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
from dovetail.executors.contract.executor import Executor, OperatorExecutor, Verdict
from dovetail.executors.discovery import configuration, lockfile
from dovetail.executors.discovery.plugin_errors import ExecutorWarning
from dovetail.executors.discovery.plugin_status import Plugin
from dovetail.executors.discovery.registry import REGISTRY
from dovetail.executors.ordering.order_syntax import Order
from dovetail.langs.torch import symbol_for
from dovetail.langs.torch.binding.symbol import resolve
from dovetail.options import Setting, Source, suggestion
from dovetail.prims import Symbol
from dovetail.prims.op import SYMBOLS
from dovetail.trace.source_location import user_line

CAUSE_OF = {  # the status of a plugin -> the cause that `strict` may forbid
    "unavailable": "unavailable",
    **dict.fromkeys(("unmet-requirement", "incompatible"), "version"),
    **dict.fromkeys(("import-failed", "invalid", "conflict"), "load-error"),
}


class Identity(NamedTuple):
    """One executor as programs depend on it."""

    executor: Executor
    version: str
    distribution: tuple[str, str | None] | None
    options: tuple[tuple[str, Any], ...]

    def __str__(self) -> str:
        message = "".join(f" {key}={value!r}" for key, value in self.options)
        return f"{self.executor.name} {(self.distribution or ('', None))[1] or self.version}{message}"


class Key(NamedTuple):
    """What a compiled program depends on, besides what it is compiled from."""

    executors: tuple[Identity, ...]
    operations: tuple[tuple[str, tuple], ...]
    strict: tuple[str, ...]
    check: bool
    random: str
    trial: tuple[tuple[str, str], ...] = ()


class Override(NamedTuple):
    """Who is asked for the operations that `pattern` fits."""

    pattern: str
    items: tuple[Any, ...]
    setting: Setting
    rank: int

    @property
    def weight(self) -> tuple:
        """The later counts more: its layer, then how much of a name it spells out."""
        literal = not _is_pattern(self.pattern)
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
        """The order for operations that nothing is said of."""
        return tuple(self)

    def for_symbol(self, symbol: Symbol) -> tuple[Executor, ...]:
        """Who is asked for `symbol`, the first one first."""
        if not self._overrides:
            return self
        if symbol.id not in self._orders:
            fitting = [each for each in self._overrides if each.pattern == symbol.id or fnmatchcase(symbol.id, each.pattern)]
            self._orders[symbol.id] = self._resolution.changed(self, fitting) if fitting else self
        return self._orders[symbol.id]

    def __reduce__(self) -> tuple:
        return resolve_executors, (tuple([ex.name for ex in self]),)


@dataclass(frozen=True, eq=False)
class Missing:
    """An executor that is named and not there: its plugin does not work, or is not installed."""

    name: str
    row: Plugin | None
    last_resort: bool = False


@dataclass
class _Resolution:
    """Makes a Priority of the settings of all layers."""

    wanted: Setting | None
    local: dict[str, Executor] = field(default_factory=dict)  # handed over in a call, whether or not they are registered
    missing: dict[str, Missing] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    restated: int = -1

    def priority(self) -> Priority:
        """The order that all layers make together."""
        settings = options.settings(options.EXECUTORS) + ([self.wanted] if self.wanted else [])
        for setting in settings:
            self.local |= {each.name: each for each in setting.value if isinstance(each, Executor)}
        configuration.check_names(_known())
        order = Order(*_usual())
        _hints(order)
        for setting in settings:
            order.apply(setting, _rank(setting), self.lookup)
        self.restated = order.restated
        made = Priority(self.present(order, order.sorted()))
        self.notes += [
            *order.dropped,
            *(f"{node.name} is not asked: {message}" for node, message in order.removed.items() if isinstance(node, Executor)),
        ]
        self.notes += [f"{row.name} ({row.source}) is not asked: {row.reason}" for row in REGISTRY.plugins or () if row.status == "disabled"]
        if order.restated < 0:
            self.degrade()
        self.require(made)
        made._overrides, made._orders, made._resolution = self.overrides(), {}, self
        for override in made._overrides:
            self.changed(made, [override])  # what is wrong in it is an error now
        made.notes = tuple(dict.fromkeys(self.notes))
        made.provenance = tuple([(ex.name, order.by.get(ex, _place_of(ex))) for ex in made])
        made.sources = tuple([str(setting.source) for setting in settings])
        made.key = Key(
            tuple(map(_identity, made)),
            tuple([(each.pattern, each.items) for each in made._overrides]),
            options.STRICT.read(),
            options.CHECK.read(),
            options.RANDOM.read(),
            tuple(sorted(options.trial_modes().items())),
        )
        return made

    def lookup(self, item: Any, source: Source, text: str, optional: bool) -> Executor | Missing:
        """The executor that `item` is or names; one that is known and not ready is Missing, an unknown one an error."""
        if isinstance(item, Executor):
            return item
        if not isinstance(item, str):
            raise ExecutorError(f"executors in {source} has {item!r}; it expects executors, their names, and edits such as '+name'")
        found = self.local.get(item) or REGISTRY.executors.get(item) or self.missing.get(item)
        if found is None:
            row = next((row for row in REGISTRY.plugins or () if item in (row.name, *row.executors)), None)
            if row is None and not optional:
                raise ExecutorError(f"executors in {source}: no executor is called {item!r}; {_like(item, self.local)}")
            found = self.missing[item] = Missing(item, row)
        return found

    def present(self, order: Order, nodes: list[Executor | Missing]) -> list[Executor]:
        """Those that can be asked; an error for one that was asked for by name and cannot."""
        found = []
        for node in nodes:
            asked = order.asked.get(node)
            distribution = (getattr(node, "distribution", None) or ("",))[0]
            disabling_setting = configuration.disabling_setting(node.name, distribution) if self.may_be_kept(node) else None
            if disabling_setting is not None and asked is not None:
                raise ExecutorError(_contradiction(node.name, asked, disabling_setting))
            if isinstance(node, Missing) and asked is not None:
                raise ExecutorError(
                    f"{asked[0].option.key} in {asked[0].source} asks for {node.name} ({asked[1]}), which cannot be used: {_state(node)}"
                )
            if isinstance(node, Missing):
                self.notes.append(f"{node.name} is not asked: {_state(node)}")
            elif disabling_setting is None:
                found.append(node)
        return found

    def may_be_kept(self, node: Executor | Missing) -> bool:
        """Whether `disable` and `allow` speak of it: executors that a program hands over itself are not plugins."""
        return isinstance(node, Missing) or REGISTRY.executors.get(node.name) is node

    def degrade(self) -> None:
        """A note for each plugin that would be asked if it worked; an error where `strict` forbids its cause."""
        strict = options.STRICT.read()
        for row in REGISTRY.plugins or ():
            cause = CAUSE_OF.get(row.status)
            if cause is None:
                continue
            if cause in strict:
                raise ExecutorError(f"strict forbids {cause}: {row}\nto go on without it: {options.DISABLE.name}={row.name}")
            self.notes.append(f"{row.name} ({row.source}) is not asked: {row.state}")
            if cause != "unavailable":
                _warn_once(row)

    def require(self, made: Priority) -> None:
        """An error for a required executor that is not ready, or that is kept out."""
        there = {ex.name for ex in made} | {row.name for row in REGISTRY.plugins or () if {ex.name for ex in made} & set(row.executors)}
        for setting in options.settings(options.REQUIRE):
            for name in setting.value:
                disabling_setting = configuration.disabling_setting(name)
                if disabling_setting is not None:
                    raise ExecutorError(_contradiction(name, (setting, name), disabling_setting))
                row = next((row for row in REGISTRY.plugins or () if row.name == name), None)
                if name not in there:
                    message = f"{name} ({row.source}) is {row.state}" if row and row.status != "ready" else "no layer lets it be asked"
                    raise ExecutorError(f"require in {setting.source} names {name}, and {message}")

    def overrides(self) -> tuple[Override, ...]:
        """What is said of single operations, the weightiest last."""
        found = []
        for setting in options.settings(options.OPERATIONS):
            for pattern, items in setting.value:
                found.append(Override(_operation(pattern, setting.source), items, setting, _rank(setting)))
        return tuple(sorted(found, key=lambda each: each.weight))

    def changed(self, made: Priority, overrides: Iterable[Override]) -> tuple[Executor, ...]:
        """The order for one operation: the global one, changed by each override in turn."""
        order = Order(list(made), tuple([ex for ex in made if ex.last_resort]))
        members = set(made)
        for rank, override in enumerate(overrides):
            before = list(order.sequence)
            order.apply(override.setting, rank, self.lookup, items=override.items)
            if override.rank < self.restated:  # a whole list in a higher layer says who may be asked at all
                order.sequence = [node for node in order.sequence if node in members or isinstance(node, Missing)]
                order.sequence = order.sequence if set(order.sequence) - set(order.last) else before
        return tuple(self.present(order, order.sorted()))


def _rank(setting: Setting) -> int:
    """The later layer before the earlier; of several files or scopes the nearer one."""
    layer = options.LAYERS.index(setting.source.layer)
    peers = {"file": options.PROCESS.files, "use": options.SCOPE.get()}.get(setting.source.layer, ())
    return layer * 1000 + next((i for i, each in enumerate(peers) if _together(each.source, setting.source)), 0)


def _together(one: Source, other: Source) -> bool:
    """Whether two settings stand in one file, or in one call."""
    return one.where.rpartition(":")[0] == other.where.rpartition(":")[0] if one.layer == "file" else one is other


def _usual() -> tuple[list[Executor], tuple[Executor, ...]]:
    """The order that nobody changed, and the executors of last resort, which stand at its end."""
    known = list(REGISTRY.executors.values())
    added = [ex for name in REGISTRY.defaults if (ex := REGISTRY.executors.get(name))]
    local = {*REGISTRY.defaults, *_NOT_DEFAULT}
    rest = sorted((ex for ex in known if not ex.last_resort and ex.name not in local), key=lambda ex: ex.place or (ex.name, 0))
    last = tuple([ex for ex in known if ex.last_resort])
    return [*dict.fromkeys([*added, *rest, *last])], last


def _hints(order: Order) -> None:
    """What executors say of their own place; of executors that are not there they may say anything."""
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
    """The options of `ex` as they are configured here: `ex.options`, a dictionary of names and defaults, changed by what the layers say.

    For checkers, transforms and `fuse`, while something is compiled; another value compiles again.
    """
    return configuration.option_values(ex.name, ex.options)


def _known(local: Iterable[str] = ()) -> dict[str, str]:
    """Every name that means an executor or a plugin here, and its status."""
    rows = REGISTRY.plugins or ()
    found = {row.distribution: row.status for row in rows if row.distribution}
    found |= {name: row.status for row in rows for name in (row.name, *row.executors)}
    return found | dict.fromkeys([*REGISTRY.executors, *local], "ready")


def _like(name: str, local: Iterable[str] = ()) -> str:
    """What was probably meant by `name`."""
    distributions = {row.distribution for row in REGISTRY.plugins or ()}
    known = {each: status for each, status in _known(local).items() if each not in distributions}
    return configuration.near(name, known) if known else "none is installed: install a distribution with an entry point in dovetail.executors"


def _state(node: Missing) -> str:
    return f"no executor is called so here; {_like(node.name)}" if node.row is None else str(node.row)


def _contradiction(name: str, requested: tuple[Setting, str], disabling: Setting) -> str:
    verb = "disables it" if disabling.option is options.DISABLE else "does not allow it"
    return (
        f"{requested[0].option.key} in {requested[0].source} asks for {name} ({requested[1]}), "
        f"and {disabling.option.key} in {disabling.source} {verb}; "
        f'take it out of one of them, or say {options.EXECUTORS.name}="-{name}"'
    )


def _is_pattern(words: str) -> bool:
    return any([sign in words for sign in "*?["])


def _operation(words: str, source: Source) -> str:
    """The id of the operation that is named, or the pattern; an error for one that no operation has."""
    if _is_pattern(words):
        if any([fnmatchcase(id, words) for id in SYMBOLS]):
            return words
    elif words in SYMBOLS:
        return words
    elif words.startswith("torch.") and resolve(words) is not None:
        return getattr(symbol_for(words), "id", words)
    raise ExecutorError(f"operations in {source} names {words!r}, and no operation is called so; {suggestion(words, SYMBOLS)}")


_warned: set[tuple[str, str]] = set()  # the registry: plugins that a warning was given of


def _warn_once(row: Plugin) -> None:
    if (row.name, row.status) not in _warned:
        _warned.add((row.name, row.status))
        warnings.warn(f"dovetail goes on without {row}; {options.DISABLE.name}={row.name} silences this", ExecutorWarning, stacklevel=2)


class _Memo(dict):
    """The orders that were worked out since configuration changed last: the registry."""

    seen: Any = None
    held: Any = None  # under which configuration the lock file was compared last


_MEMO = _Memo()
LONGEST_MEMO = 256


def resolve_executors(wanted: Iterable[Executor | str] | str | Setting | None = None) -> Priority:
    """The order in which executors are asked, as all layers have it; `wanted` is the highest of them.

    By default those added with add_operator_executor come first, the newest before the others, then those of installed plugins, by the
    plugin's name and as its hook gives them, and those of last resort behind them.  `wanted` is a list of executors and names, or edits:
    "+name", "-name", "a > b".
    """
    if isinstance(wanted, Priority):
        return wanted
    asked = wanted if isinstance(wanted, Setting) else requested_order(wanted)
    now = configuration.refresh()
    if options.FROZEN.read() and _MEMO.held != configuration.WATCH.seen:
        _hold()
    REGISTRY.load()
    if _MEMO.seen is not None and _MEMO.seen[0] != now:
        REGISTRY.refresh()
    there = (now, tuple(REGISTRY.executors.items()), tuple(REGISTRY.defaults), frozenset(_NOT_DEFAULT), REGISTRY.generation)
    if there != _MEMO.seen:
        if _MEMO.seen is not None and _MEMO.seen[1:] != there[1:]:
            configuration.WATCH.changed()
            there = (configuration.WATCH.generation, *there[1:])
        _MEMO.clear()
        _MEMO.seen = there
    return remembered(asked)


def process_wide() -> Priority:
    """The order outside any `dovetail.use`, as a new process with this configuration has it."""
    return Context().run(resolve_executors)


def _hold() -> None:
    """An error unless plugins, before any of them is imported, and then their order are those in the lock file."""
    path = configuration.lock_path()
    locked, found = lockfile.read(path), lockfile.plugins()
    if differences := locked.differences(lockfile.Lock(found, locked.order)):
        raise lockfile.drift(path, differences)
    _MEMO.held = configuration.WATCH.seen
    try:
        if differences := locked.differences(lockfile.Lock(found, lockfile.order_of(process_wide()))):
            raise lockfile.drift(path, differences)
    except ExecutorError:
        _MEMO.held = None
        raise


def remembered(asked: Setting | None) -> Priority:
    """The order for these wishes in this scope, without looking whether files or the environment have changed."""
    key = (configuration.WATCH.generation, options.SCOPE.get(), asked)
    found = _MEMO.get(key)
    if found is None:
        if len(_MEMO) > LONGEST_MEMO:
            _MEMO.clear()
        found = _Resolution(asked).priority()
        if all([REGISTRY.executors.get(ex.name) is ex for ex in found]):  # an executor of one program goes with that program
            _MEMO[key] = found
    return found


def requested_order(wanted: Iterable[Executor | str] | str | None, where: str = "") -> Setting | None:
    """What a call asks for, as a setting."""
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
    """Configuration for a `with` block: for what is called in it, in this thread or asynchronous task and in the tasks it starts.

    `executors` is an order or edits of it, `operations` maps operations and patterns to such, `options` executors to their options.
    The arguments mean what the options of these names mean in a file.  A function that was compiled under another configuration is
    compiled again where the programs would differ, and finds its earlier programs again.
    """
    given = {"executors": executors, "operations": operations, "options": options, "disable": disable, "strict": strict}
    return _using(configuration.call_settings({**given, "check": check, "debug": debug, "trial": trial, **unknown}, user_line()))


@contextmanager
def _using(made: tuple[Setting, ...]) -> Iterator[None]:
    with configuration.scope(made):
        resolve_executors()  # a name that means nothing is an error here, not at the first call
        yield


def difference(old: Key, new: Priority) -> str:
    """Why a program that was made for `old` does not do for `new`."""
    found, now = [], new.key
    were, are = [each.executor.name for each in old.executors], [each.executor.name for each in now.executors]
    if were != are:
        why = f" by {', '.join(new.sources)}" if new.sources else ""
        found.append(f"the executors are {', '.join(are) or 'none'}{why}, and were {', '.join(were) or 'none'}")
    for before, after in zip(old.executors, now.executors):
        if before.executor.name == after.executor.name and before != after:
            found.append(f"executor {before} became {after}" if str(before) != str(after) else f"executor {after} was replaced")
    if old.operations != now.operations:
        found.append(f"who runs single operations changed to {options.shown(now.operations)}")
    for name in ("strict", "check", "random", "trial"):
        if getattr(old, name) != getattr(now, name):
            found.append(f"{name} is {options.shown(getattr(now, name))}")
    return "; ".join(found)


def add_operator_executor(
    name: str,
    implementations: Mapping[str, tuple[str, Callable[..., Verdict] | None, Callable]],
    *,
    add_to_default_executors: bool = True,
    replace: bool = False,
) -> OperatorExecutor:
    """An executor from a table of torch operation -> (implementation's name, checker, implementation).

    Implementations get real tensors and the operation's own signature, checkers get proxies and the same.  It takes effect for functions
    compiled afterwards: at the head of the default order, or only where it is named when `add_to_default_executors` is False.  A function
    that is compiled already is compiled again at its next call if its order has changed.
    """
    REGISTRY.load()
    ex = OperatorExecutor(name)
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
