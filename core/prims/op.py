"""What an operation is: a name, a meta rule, and the rules that go with it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from enum import Enum, auto
from types import SimpleNamespace
from typing import Any

from dovetail.errors import DovetailError, NotTracing, require_function


class Tag(Enum):
    """What a pass or an executor may rely on."""

    ELEMENTWISE = auto()  # each output element depends on one element of each input
    CHEAP = auto()  # a backward may compute it again rather than save it
    VIEW = auto()  # the result shares the first input's storage; has a `put` rule
    REDUCTION = auto()  # fewer elements out than in
    CREATION = auto()  # makes a tensor from no tensor
    MATMUL = auto()  # sums of products
    MEMORY = auto()  # writes into its first argument
    RANDOM = auto()  # draws from the generator of its device
    HOST = auto()  # talks to Python, the terminal or the host processor
    GUARD = auto()  # checks or unpacks an input; only in prologues
    NO_GRAD = auto()  # no gradient flows through it, and none is expected to
    COLLECTIVE = auto()  # starts an operation of all ranks of a process group
    WAIT = auto()  # completes a collective; it stays, and may move between that and the first line that reads the result
    ORDERED = auto()  # keeps its place among lines with effects, but may be removed, merged and run again
    AGAIN = auto()  # the backward runs it again rather than save its result
    HISTORY = auto()  # its results are arguments with another history; keyword `shared` has the numbers of those that share memory with them
    ABSENT = auto()  # a gradient that takes None for a cotangent where nothing flows, which is not the same as zeros where it is infinite
    UNINITIALIZED = auto()  # the result is whatever the memory held; a decomposition fills it with zeros

    __hash__ = object.__hash__  # that of Enum runs Python code, and passes look tags up for each line


IN_ORDER = frozenset({Tag.MEMORY, Tag.RANDOM, Tag.HOST, Tag.GUARD, Tag.COLLECTIVE, Tag.ORDERED})  # kept in order
EFFECTS = IN_ORDER - {Tag.ORDERED} | {Tag.WAIT}  # never removed, never merged


class NoRecorder:
    """The recorder outside of tracing.  The front end sets `run`, which runs one operation on real tensors."""

    run: Callable[[Symbol, tuple, dict], Any] | None = None

    def record(self, symbol: Symbol, args: tuple, kwargs: dict) -> Any:
        """Run the operation eagerly, or raise NotTracing where no front end is imported."""
        if self.run is None:
            raise NotTracing(f"{symbol} can only be called while a function is traced; call it inside dovetail.make_trace(fn)")
        return self.run(symbol, args, kwargs)


no_recorder = NoRecorder()
recorder: ContextVar[Any] = ContextVar("recorder", default=no_recorder)


class Symbol:
    """An operation that a trace can record.

    A prim's `meta` maps specs to specs and checks them; any other symbol's `meta` is a program over proxies, recorded as its subsymbols.
    `path` is how a printed program calls it: "prims.add" calls a function, ".view" a method of the first argument.
    """

    __slots__ = (
        *("doc", "effects", "id", "in_order", "is_prim", "language", "meta", "module", "name", "path", "tags"),
        *("put_rule", "python_rule", "vjp_rule"),
    )

    def __init__(
        self,
        module: str,
        name: str,
        meta: Callable,
        *,
        tags: Iterable[Tag] = (),
        is_prim: bool = False,
        language: Any = None,
        id: str | None = None,
        path: str | None = None,
    ):
        self.module, self.name, self.meta, self.doc = module, name, meta, meta.__doc__ or ""
        self.id = f"{module}.{name}" if id is None else id
        self.path = self.id if path is None else path
        self.tags, self.is_prim, self.language = frozenset(tags), is_prim, language
        self.effects, self.in_order = not EFFECTS.isdisjoint(self.tags), not IN_ORDER.isdisjoint(self.tags)
        self.vjp_rule: Callable | None = None
        self.put_rule: Callable | None = None
        self.python_rule: Callable | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return recorder.get().record(self, args, kwargs)

    def __repr__(self) -> str:
        return self.id

    def __reduce__(self) -> tuple:
        return symbol_named, (self.id,)

    def vjp(self, rule: Callable) -> Callable:
        """Register the gradient: `rule(g, out, *args, **kwargs)` returns one cotangent per positional argument, or None.

        With several results `g` and `out` are tuples, and the cotangent of an unused result is None.
        """
        self.vjp_rule = rule
        return rule

    def put(self, rule: Callable) -> Callable:
        """Register the write rule of a view: `rule(base, value, **kwargs)` returns `base` after the view is overwritten with `value`."""
        self.put_rule = rule
        return rule

    def python(self, rule: Callable) -> Callable:
        """Register the printer: `rule(target, *args, **kwargs)` returns the statement that runs the symbol where that is not a call.

        The target and the arguments are source text.
        """
        self.python_rule = rule
        return rule


SYMBOLS: dict[str, Symbol] = {}  # the registry: id -> symbol, so that traces can be pickled and printed programs run


def register(symbol: Symbol, *, replace: bool = False) -> Symbol:
    """Register `symbol` under its id.

    Raises DovetailError if the id is in use, unless `replace`, or the same definition runs again: by a reload, in a notebook or at a prompt.
    """
    before, after = _place(SYMBOLS.get(symbol.id)), _place(symbol)
    if symbol.id in SYMBOLS and not replace and not (before == after != "" or is_typed_again(before, after)):
        raise DovetailError(f"the symbol {symbol.id} is already registered; choose another name or pass replace=True")
    SYMBOLS[symbol.id] = symbol
    return symbol


def is_typed_again(old: str, new: str) -> bool:
    """Return whether definitions at two places, each "file:line" or "", may replace one another: both belong to a notebook or a prompt.

    Such a place has no file, and a cell that runs again has another one.
    """
    return bool(old and new) and not any([os.path.isfile(place.rpartition(":")[0]) for place in (old, new)])


def _place(symbol: Symbol | None) -> str:
    code = getattr(getattr(symbol, "meta", None), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""


def symbol_named(id: str) -> Symbol:
    """Return the registered symbol `id`.  Raises DovetailError where there is none."""
    try:
        return SYMBOLS[id]
    except KeyError:
        raise DovetailError(f"unknown symbol {id}; import the package that defines it") from None


def symbols_of(module: str) -> SimpleNamespace:
    """Return a namespace of the registered symbols of `module`, as a printed program calls them."""
    return SimpleNamespace(**{s.name: s for s in SYMBOLS.values() if s.module == module})


def prim(meta: Callable | None = None, /, *, tags: Iterable[Tag] = ()) -> Any:
    """Register a prim; the meta rule's name, signature, docstring and body become the operation's."""
    if meta is None:
        return lambda meta: prim(meta, tags=tags)
    return register(Symbol("prims", meta.__name__, meta, tags=tags, is_prim=True))


def make_prim(id: str, name: str, *, meta: Callable, tags: Iterable[Tag] = (), replace: bool = False) -> Symbol:
    """Register a prim from outside the core: `make_prim("mylib.snake", "snake", meta=...)`.

    Args:
        id: "module.name"; programs print the call under it.
        meta: maps the specs of the arguments to the spec of the result.

    Raises DovetailError for a malformed id, and for one in use unless `replace`.
    """
    module, dot, last = id.rpartition(".")
    if not dot or last != name or not id.replace(".", "_").isidentifier():
        raise DovetailError(f'expected a symbol id "module.name" that ends in the name, got id {id!r} and name {name!r}')
    require_function(f"meta= of {id}", meta)
    tags = list(tags)
    if any(not isinstance(tag, Tag) for tag in tags):
        raise DovetailError(f"tags= of {id} is a collection of dovetail.extend.Tag, as tags={{Tag.ELEMENTWISE}}; got {tags!r}")
    return register(Symbol(module, name, meta, tags=tags, is_prim=True, id=id), replace=replace)
