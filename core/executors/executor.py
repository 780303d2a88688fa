"""What a plugin makes: an executor that runs symbols one by one, or one that runs regions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dovetail.errors import ExecutorError
from dovetail.langs.torch import symbol_for
from dovetail.prims import Symbol
from dovetail.trace import BoundSymbol, Trace

Verdict = bool | str  # True, or a refusal: a sentence saying why not


@dataclass(frozen=True)
class Implementation:
    """How one executor runs one symbol.

    `fn` takes real tensors and the symbol's own signature.  `path` is how a printed program calls it when that can be imported without
    the executor ("torch.nn.functional.softmax", ".view"); else it prints as `<executor>_exec.<name>`.
    """

    executor: str
    name: str
    fn: Callable[..., Any]
    checker: Callable[..., Verdict] | None = None
    execution_transform: Callable[..., Any] | None = None
    grad: Callable[..., Any] | None = None
    path: str | None = None


class Executor:
    """The common part of both kinds.  `last_resort` puts it behind all others in the default order."""

    def __init__(self, name: str, *, version: str = "0", last_resort: bool = False):
        if not name.isidentifier():
            raise ExecutorError(f"an executor's name is an identifier, since programs print it; got {name!r}")
        self.name, self.version, self.last_resort = name, version, last_resort

    def __repr__(self) -> str:
        return f"<executor {self.name} {self.version}>"

    def available(self) -> Verdict:
        """True, or a sentence that says what this machine lacks and what would help."""
        return True


class OperatorExecutor(Executor):
    """Runs symbols one by one.  Implementations get real tensors and the symbol's own signature, checkers get proxies and the same."""

    def __init__(self, name: str, *, version: str = "0", last_resort: bool = False):
        super().__init__(name, version=version, last_resort=last_resort)
        self.table: dict[Symbol, Implementation] = {}
        self._named: dict[str, Implementation] = {}
        self._family: Callable[[Symbol], Callable | None] | None = None

    def implements(
        self,
        operation: Symbol | Callable | str,
        fn: Callable[..., Any],
        *,
        checker: Callable[..., Verdict] | None = None,
        execution_transform: Callable[..., Any] | None = None,
        grad: Callable[..., Any] | None = None,
        name: str | None = None,
        path: str | None = None,
    ) -> None:
        """Run `operation` (a symbol, a torch function, or the dotted name of one) with `fn` where `checker` says True.

        `execution_transform` rewrites the call instead: it gets proxies and calls this executor's own symbols.  `grad` is the rule, in
        interleaved form, that differentiates the operation where this executor claims it.  `name` is what programs print.
        """
        symbol = symbol_for(operation)
        if symbol is None:
            raise ExecutorError(
                f"{self.name} implements {operation!r}, which is no operation here; name a symbol, or a torch function that Dovetail knows"
            )
        name = self._free_name(symbol, name)
        self.table[symbol] = self._named[name] = Implementation(self.name, name, fn, checker, execution_transform, grad, path)

    def implements_family(self, find: Callable[[Symbol], tuple[Callable, str] | None]) -> None:
        """Run every symbol for which `find` gives (function, path), besides those in the table."""
        self._family = find

    def _free_name(self, symbol: Symbol, name: str | None) -> str:
        for candidate in (name,) if name else (symbol.name, f"{symbol.module.replace('.', '_')}_{symbol.name}"):
            known = self._named.get(candidate)
            if known is None or self.table.get(symbol) is known:
                return candidate
        raise ExecutorError(f"{self.name} has an implementation called {candidate} already; give the one for {symbol} another name=")

    def implementation(self, symbol: Symbol) -> Implementation | None:
        """What runs `symbol`, before any checker is asked."""
        found = self.table.get(symbol)
        if found is None and self._family is not None and (made := self._family(symbol)) is not None:
            fn, path = made
            found = self.table[symbol] = Implementation(self.name, symbol.name, fn, path=path)
        return found

    def named(self, name: str) -> Callable[..., Any]:
        """The function that programs print under `name`."""
        try:
            return self._named[name].fn
        except KeyError:
            raise AttributeError(f"executor {self.name} has no implementation called {name}") from None

    def verdict(self, line: BoundSymbol) -> Verdict:
        """Whether this executor runs `line`: True, or why not."""
        found = self.implementation(line.symbol)
        if found is None:
            return f"does not implement {line.symbol}"
        if found.checker is None:
            return True
        said = found.checker(*line.args, **line.kwargs)
        return said or "gave no reason"


class FusionExecutor(Executor):
    """Runs regions: connected lines that it can all run, handed over as one pure trace."""

    def can_fuse(self, line: BoundSymbol) -> Verdict:
        """Whether one line could be part of a region.  Asked for prims; a composite is taken when its whole decomposition is."""
        raise NotImplementedError

    def fuse(self, region: Trace) -> Callable[..., tuple]:
        """A function of the region's inputs that returns the tuple of its outputs."""
        raise NotImplementedError
