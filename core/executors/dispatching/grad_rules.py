"""Which rule differentiates a line: that of the executor that would run it, else one that external code has registered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from dovetail.errors import DovetailError
from dovetail.executors.contract.declaration import is_claim
from dovetail.executors.contract.executor import Executor, OperatorExecutor
from dovetail.executors.discovery.plugin_errors import ask, guarded
from dovetail.executors.dispatching.dispatch import Note, claimants
from dovetail.executors.ordering.resolve_order import Priority
from dovetail.langs.torch import symbol_for
from dovetail.prims import Symbol
from dovetail.trace import BoundSymbol, Trace
from dovetail.trace.passes.grad import RULES, Rule, registered


def register_grad(operation: Symbol | Callable | str, rule: Rule | None) -> None:
    """Differentiate `operation` (a symbol, a torch function, or the dotted name of one) by `rule`; None takes the rule away again.

    A rule has the operation's own signature and gets proxies.  It computes and returns the results of the operation, asks for their
    cotangents with `get_grad(out)`, and gives each argument its own with `put_grad(x, gx)`.  It may decline by returning NotImplemented.
    It takes effect for functions compiled afterwards.
    """
    symbol = symbol_for(operation)
    if symbol is None:
        raise DovetailError(f"register_grad was given {operation!r}, which is no operation here; name a symbol or a torch function that is traced")
    if rule is None:
        RULES.pop(symbol, None)
    else:
        RULES[symbol] = rule


def grad_rules(trace: Trace, executors: Priority) -> Callable[[BoundSymbol], Iterator[Rule]]:
    """The rules for a line of `trace`, in interleaved form and in order: that of the executor that would run it, a registered one.

    An executor that would run the line and has no rule leaves it to the next that would, since without a rule nobody runs it in one piece.
    """
    would, own = claimants(trace, executors), list[tuple[BoundSymbol, Executor]]()
    operators = [ex for ex in executors if isinstance(ex, OperatorExecutor)]

    def rules(line: BoundSymbol) -> Iterator[Rule]:
        trace.notes += _said(line, operators)
        if any([(found := ex.implementation(line.symbol)) is not None and found.grad is not None for ex in operators]):
            ex = next((ex for ex in would(line) if not isinstance(ex, OperatorExecutor) or _rule(ex, line) is not None), None)
            if isinstance(ex, OperatorExecutor):
                own.append((line, ex))
                yield partial(guarded, "the grad rule", ex, line, None, _rule(ex, line))
        yield from registered(line)

    rules.own = own  # the lines that executors differentiate by rules of their own, as they are met
    return rules


def _rule(ex: OperatorExecutor, line: BoundSymbol) -> Rule | None:
    found = ex.implementation(line.symbol)
    return found.grad if found is not None else None


NO_RULE = "has no grad rule for it, so that its parts, or another's rule, stand in its place"


def _said(line: BoundSymbol, operators: Sequence[OperatorExecutor]) -> Iterator[Note]:
    """Why those who run this very operation do not differentiate it.  What is asked later are its parts, so nothing else would show it."""
    for ex in operators:
        found = None if ex.last_resort else ex.implementation(line.symbol)
        if found is not None and not is_claim(said := ask(ex, line, ex.verdict, line.where)):
            yield Note(line, ex.name, said)
        elif found is not None and found.grad is None:
            yield Note(line, ex.name, NO_RULE)
