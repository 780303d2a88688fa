"""What a plugin makes: an executor that runs symbols one by one, or one that runs regions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from keyword import iskeyword
from types import MappingProxyType
from typing import Any
from weakref import WeakSet

from dovetail.dtypes import DType
from dovetail.errors import ExecutorError, require_function
from dovetail.executors.contract.declaration import Claim as Claim
from dovetail.executors.contract.declaration import Verdict as Verdict
from dovetail.executors.contract.declaration import as_verdict, devices_of, dtypes_of, supports, words_of
from dovetail.langs.torch import lookaside, symbol_for
from dovetail.options import suggestion
from dovetail.prims import SYMBOLS, Symbol, Tag, make_prim
from dovetail.trace import BoundSymbol, Proxy, Trace


@dataclass(frozen=True)
class Implementation:
    """How one executor runs one symbol.

    `fn` takes real tensors and the symbol's own signature.  `path` is how a printed program calls it when that can be imported without
    the executor ("torch.nn.functional.softmax", ".view"); else it prints as `<executor>_exec.<name>`.  `grad` is a grad rule.  `dtypes`,
    `devices` and `differentiable` are what was declared for this symbol alone, None where the executor's declaration holds.  `stateful` is
    a class; each line that is run this way gets an object of it, which is the `fn` of that line.  `writes` are the arguments of a line that it
    writes results into.
    """

    executor: str
    name: str
    fn: Callable[..., Any] | None
    checker: Callable[..., Verdict] | None = None
    execution_transform: Callable[..., Any] | None = None
    grad: Callable[..., Any] | None = None
    path: str | None = None
    dtypes: frozenset[DType] | None = None
    devices: frozenset[str] | None = None
    differentiable: bool | None = None
    stateful: type | None = None
    writes: tuple[Proxy, ...] = ()

    def placed(self, line: BoundSymbol) -> Implementation:
        """Return what runs `line`: this, or where there is state, a copy with a new state, named after the result of the line."""
        if self.stateful is None:
            return self
        named_after = (line.writes or line.reads)[:1]
        return replace(self, name="_".join([self.name, *(p.name for p in named_after)]), fn=self.stateful())


EXECUTORS: WeakSet[Executor] = WeakSet()  # the registry: all executors that programs hold, whether or not a plugin provides them


class Executor:
    """The common part of both kinds, and the declaration that dispatch and the conformance suite read.

    `dtypes` are the element types of the tensors that its operations may read, `devices` the kinds of device that they may be on ("cuda"),
    None for any.  `grad` says whether it takes operations through which a gradient flows.  `available` is called once, before the executor is
    used.  `last_resort` puts it behind all others in the default order; `before` and `after` are hints, the lowest layer of configuration.
    `symbolic` says that it takes programs whose sizes are symbols: its checkers and kernels call `int` on no size of a spec, and use the run-time
    shapes of the tensors that they get.
    """

    distribution: tuple[str, str | None] | None = None  # the name and version of what it was installed with; discovery sets it
    place: tuple[str, int] | None = None  # its plugin's name, and which of the plugin's executors it is; discovery sets it
    before: tuple[str, ...] = ()  # executors that are offered operations after it, unless configuration says otherwise
    after: tuple[str, ...] = ()  # executors that are offered operations before it
    options: Mapping[str, Any] = MappingProxyType({})  # what users may configure, with the defaults; `options_of` reads it

    def __init__(
        self,
        name: str,
        *,
        version: str = "0",
        last_resort: bool = False,
        dtypes: Iterable[Any] | None = None,
        devices: Iterable[str] | None = None,
        grad: bool = True,
        symbolic: bool = False,
        available: Callable[[], Verdict] | None = None,
    ):
        if not (isinstance(name, str) and name.isidentifier()):
            raise ExecutorError(f"an executor's name is an identifier, since programs print it; got {name!r}")
        self.name, self.version, self.last_resort, self.grad = name, version, last_resort, grad
        self.dtypes, self.devices, self.symbolic = dtypes_of(dtypes), devices_of(devices), symbolic
        if available is not None and not callable(available):
            raise ExecutorError(f"available= is a function that returns True or a sentence, got {available!r}; write available=lambda: {available!r}")
        self._available = available
        EXECUTORS.add(self)

    def __repr__(self) -> str:
        return f"<executor {self.name} {self.version}>"

    def available(self) -> Verdict:
        """Return True, or a sentence that says what this machine lacks and what would help."""
        return True if self._available is None else self._available()

    def verdict(self, line: BoundSymbol) -> Verdict:
        """Return True or a Claim to run `line`, or a refusal.  The declaration is checked first, then the checker is called."""
        raise NotImplementedError

    def prepare(self, trace: Trace, executors: Sequence[Executor]) -> Trace:
        """Rewrite the program before dispatch.

        A pass: it leaves `trace` as it is and returns it, or another program that computes the same from the same inputs.  Called for each
        computation, forward and backward, in the order of `executors`, all of which are then offered the result.  Use it to join lines into
        an operation of this executor, with those lines as its decomposition, or to lay out what a kernel reads.
        """
        return trace

    def fast_call(self, prologue: Trace, computation: Trace | None, slow: Callable[[tuple, dict], Any]) -> Callable[[tuple, dict], Any] | None:
        """Return a fast call path, a function of (args, kwargs) that replaces a compiled program's prologue, or None, which is always right.

        It gives the result for calls that it is sure fit `prologue`, every guard of it; any other call it hands over to `slow`, the prologue
        as it was compiled, and gives what that gives.  `computation` is the program that the prologue runs, where it runs nothing besides
        and its outputs are the result as it stands; else None, and the last line of the prologue names the function that is to be called.
        """
        return None

    def declaration(self) -> dict[str, Any]:
        """Return what it supports as plain data, which JSON can hold; None stands for anything."""
        declared = {"name": self.name, "version": self.version, "kind": "executor", "last_resort": self.last_resort, "symbolic": self.symbolic}
        return declared | words_of(self.dtypes, self.devices) | {"grad": self.grad, "operations": {}}


class OperatorExecutor(Executor):
    """Runs symbols one by one.  Implementations get real tensors and the symbol's own signature, checkers get proxies and the same."""

    def __init__(self, name: str, **declared: Any):
        super().__init__(name, **declared)
        self.table: dict[Symbol, Implementation] = {}
        self._named: dict[str, Implementation] = {}
        self._from_family: dict[Symbol, Implementation] = {}  # looked up in the family so far
        self._family: Callable[[Symbol], tuple[Callable, str] | None] | None = None

    def implements(
        self,
        operation: Symbol | Callable | str,
        fn: Callable[..., Any] | None = None,
        *,
        checker: Callable[..., Verdict] | None = None,
        execution_transform: Callable[..., Any] | None = None,
        grad: Callable[..., Any] | bool | None = None,
        stateful: type | None = None,
        dtypes: Iterable[Any] | None = None,
        devices: Iterable[str] | None = None,
        name: str | None = None,
        path: str | None = None,
    ) -> None:
        """Run `operation` (a symbol, a torch function, or the dotted name of one) with `fn` where `checker` says True, or a Claim.

        `execution_transform` rewrites the call instead: it gets proxies and calls this executor's own symbols.  `stateful` is a class in
        the place of `fn`: each call site of a compiled program gets an object of it, constructed without arguments and called with the operation's.
        `grad` is the rule, in interleaved form, that differentiates the operation where this executor claims it; or a bool, whether a
        gradient may flow through it.  `dtypes` and `devices` are declared for this operation alone.  `name` is what programs print.
        """
        symbol = _operation(f"{self.name} implements", operation)
        functions = {"fn": fn, "checker": checker, "execution_transform": execution_transform, "stateful": stateful, "grad": grad}
        for what, value in functions.items():
            if value is not None and not callable(value) and not (what == "grad" and isinstance(value, bool)):
                raise ExecutorError(f"{self.name} implements {symbol} with {what}={value!r}, which cannot be called; pass a function")
        if name is not None and not is_name(name):
            raise ExecutorError(f"programs print the name of an implementation: expected an identifier for {symbol}, got name={name!r}")
        if sum(way is not None for way in (fn, execution_transform, stateful)) != 1:
            raise ExecutorError(f"{self.name} implements {symbol} in one way: with a function, an execution_transform, or a stateful class")
        name = self._free_name(symbol, name)
        rule, differentiable = (None, grad) if isinstance(grad, bool) else (grad, None)
        declared = {"dtypes": dtypes_of(dtypes), "devices": devices_of(devices), "differentiable": differentiable, "stateful": stateful}
        self.table[symbol] = self._named[name] = Implementation(self.name, name, fn, checker, execution_transform, rule, path, **declared)

    def operation(
        self,
        name: str,
        fn: Callable[..., Any] | None = None,
        *,
        meta: Callable[..., Any],
        tags: Iterable[Tag] = (),
        vjp: Callable[..., Any] | None = None,
        replaces: Callable | Iterable[Callable] = (),
        replace: bool = False,
        **how: Any,
    ) -> Symbol:
        """Define a new operation, called `<executor>.<name>`, which this executor runs; `how` is what `implements` takes.

        `meta` maps the specs of its arguments to that of its result, `vjp(g, out, *args, **kwargs)` gives the cotangents of its arguments.
        A traced call of a function in `replaces` becomes the operation.
        """
        if not is_name(name):
            raise ExecutorError(f"programs print the name of an operation: expected an identifier, got {name!r}")
        if vjp is not None:
            require_function(f"vjp= of {self.name}.{name}", vjp)
        symbol = make_prim(f"{self.name}.{name}", name, meta=meta, tags=tags, replace=replace)
        if vjp is not None:
            symbol.vjp(vjp)
        self.implements(symbol, fn, name=name, **how)
        for function in replaces if isinstance(replaces, Iterable) else (replaces,):
            lookaside(function, symbol)
        return symbol

    def implements_family(self, find: Callable[[Symbol], tuple[Callable, str] | None]) -> None:
        """Run every symbol for which `find` gives (function, path), besides those in the table."""
        self._family = find

    def add_variant(self, name: str, fn: Callable[..., Any]) -> Implementation:
        """Register a second function for operations in the table, printed under `name`; `choose_variant` chooses it for a line."""
        if name in self._named:
            raise ExecutorError(f"{self.name} has an implementation called {name} already; give the variant another name")
        variant = self._named[name] = Implementation(self.name, name, fn)
        return variant

    def choose_variant(self, implementation: Implementation, line: BoundSymbol) -> Implementation:
        """Return what runs a claimed `line`; override it to choose a variant by the specs of operands and results."""
        return implementation.placed(line)

    def in_place(self, line: BoundSymbol) -> Implementation | None:
        """Return what writes the result of a claimed `line` into its first argument, and returns that; None where there is nothing of the kind.

        Asked where the result has the layout of that argument, and nothing reads the argument as it was later.
        """
        return None

    def _free_name(self, symbol: Symbol, name: str | None) -> str:
        for candidate in (name,) if name else (symbol.name, f"{symbol.module.replace('.', '_')}_{symbol.name}"):
            known = self._named.get(candidate)
            if known is None or self.table.get(symbol) is known:
                return candidate
        raise ExecutorError(f"{self.name} has an implementation called {candidate} already; give the one for {symbol} another name=")

    def implementation(self, symbol: Symbol) -> Implementation | None:
        """Return what runs `symbol`, before any checker is called."""
        implementation = self.table.get(symbol) or self._from_family.get(symbol)
        if implementation is None and self._family is not None and (answer := self._family(symbol)) is not None:
            if not (isinstance(answer, tuple) and len(answer) == 2 and callable(answer[0])):
                raise ExecutorError(f"the family of {self.name} returned {answer!r} for {symbol}; return (function, path), or None to refuse")
            fn, path = answer
            implementation = self._from_family[symbol] = Implementation(self.name, symbol.name, fn, path=path)
        return implementation

    def own(self, name: str) -> Implementation | None:
        """Return the implementation of its table that is called `name`."""
        return self._named.get(name)

    def named(self, name: str) -> Callable[..., Any]:
        """Return the function that programs print under `name`; a new state where that has one, as the call sites of a program do."""
        implementation = self._named.get(name)
        if implementation is None and (of := self._named.get(name.rpartition("_")[0])) is not None and of.stateful is not None:
            implementation = of
        if implementation is None:
            raise AttributeError(f"executor {self.name} has no implementation called {name}")
        return implementation.fn if implementation.stateful is None else implementation.stateful()

    def verdict(self, line: BoundSymbol) -> Verdict:
        """Return True or a Claim to run `line`, or a refusal.  The declaration is checked first, then the checker is called."""
        implementation = self.implementation(line.symbol)
        if implementation is None:
            return f"does not implement {line.symbol}"
        verdict = supports(line, *self._declared(implementation))
        if verdict is not True or implementation.checker is None:
            return verdict
        return as_verdict(implementation.checker(*line.args, **line.kwargs))

    def _declared(self, implementation: Implementation) -> tuple[frozenset[DType] | None, frozenset[str] | None, bool]:
        """The declaration that holds for one implementation."""
        dtypes = self.dtypes if implementation.dtypes is None else implementation.dtypes
        devices = self.devices if implementation.devices is None else implementation.devices
        return dtypes, devices, self.grad if implementation.differentiable is None else implementation.differentiable

    def declaration(self) -> dict[str, Any]:
        """Return what it supports as plain data, which JSON can hold; None stands for anything.

        `operations` are those in its table by id; `family` says that a function adds others.
        """
        rows = {}
        for symbol, implementation in self.table.items():
            dtypes, devices, grad = self._declared(implementation)
            has = {
                "checker": implementation.checker,
                "execution_transform": implementation.execution_transform,
                "grad_rule": implementation.grad,
                "stateful": implementation.stateful,
            }
            row = {"name": implementation.name, **words_of(dtypes, devices), "grad": grad, **{key: value is not None for key, value in has.items()}}
            rows[symbol.id] = row | {"path": implementation.path}
        operations = dict(sorted(rows.items()))
        return super().declaration() | {"kind": "operator", "operations": operations, "family": self._family is not None}


class CannotFuse(ExecutorError):
    """Raised by `FusionExecutor.fuse` to refuse a region after all: its lines go to the executors behind, and `explain` shows the message."""


class FusionExecutor(Executor):
    """Runs regions: connected lines that it can all run, handed over as one pure trace.

    `operations` are the prims that it fuses, None where `can_fuse` alone decides.
    """

    def __init__(self, name: str, *, operations: Iterable[Symbol | Callable | str] | None = None, **declared: Any):
        super().__init__(name, **declared)
        self.operations = None if operations is None else frozenset(_operation(f"{name} fuses", each) for each in operations)

    def can_fuse(self, line: BoundSymbol) -> Verdict:
        """Return whether one line could be part of a region.

        Called for prims; a composite is claimed when its whole decomposition is, and `claims_whole` agrees.
        """
        if self.operations is None:
            raise NotImplementedError(f"executor {self.name} declares no operations=, so it has to define can_fuse(line)")
        return True

    def claims_whole(self, line: BoundSymbol) -> Verdict:
        """Return whether to claim a composite of which every part can be fused; where a sentence says why not, the next executors may run it whole.

        Where none of them does, its parts are offered one by one.
        """
        return True

    def worth(self, region: Trace) -> Verdict:
        """Return whether a region of claimed lines is worth fusing; where a sentence says why not, they go to the executors behind it."""
        return True

    def fuse(self, region: Trace) -> Callable[..., tuple]:
        """Return a function of the region's inputs that returns the tuple of its outputs; raise CannotFuse where there is none."""
        raise NotImplementedError(f"executor {self.name} has to define fuse(region)")

    def fuse_in_place(self, region: Trace, into: dict[Proxy, Proxy]) -> Callable[..., tuple] | None:
        """Compile a region that may write results into inputs; return None to leave the region to `fuse`.

        `into` maps each result to the input that it may overwrite, since nothing reads that input later.  A result written there is returned
        as that input itself.
        """
        return None

    def verdict(self, line: BoundSymbol) -> Verdict:
        """Return whether one line could be part of a region: the declaration is checked first, then `can_fuse` is called."""
        if self.operations is not None and line.symbol not in self.operations:
            return f"does not fuse {line.symbol}"
        verdict = supports(line, self.dtypes, self.devices, self.grad)
        return as_verdict(self.can_fuse(line)) if verdict is True else verdict

    def declaration(self) -> dict[str, Any]:
        """Return what it supports as plain data, which JSON can hold; None stands for anything."""
        declared = super().declaration() | {"kind": "fusion"}
        row = {
            "dtypes": declared["dtypes"],
            "devices": declared["devices"],
            "grad": self.grad,
            "checker": type(self).can_fuse is not FusionExecutor.can_fuse,
        }
        rows = None if self.operations is None else {id: dict(row) for id in sorted(symbol.id for symbol in self.operations)}
        return declared | {"operations": rows}


def is_name(word: str) -> bool:
    """Return whether a program can call something `ex.word`."""
    return word.isidentifier() and not iskeyword(word)


def _operation(claims: str, operation: Symbol | Callable | str) -> Symbol:
    """Return the symbol of an operation; raise ExecutorError, with the names that are nearest, for anything else."""
    symbol = symbol_for(operation)
    if symbol is not None:
        return symbol
    near = suggestion(operation if "." in operation else f"torch.{operation}", SYMBOLS) if isinstance(operation, str) else ""
    near = near if near.startswith("did you") else "name a symbol, or a torch function that Dovetail decomposes (docs/operations.md)"
    raise ExecutorError(f"{claims} {operation!r}, which is not an operation; {near}")
