"""Which rule differentiates a line: that of the executor that would run it, a registered one, or one that keeps autograd's graph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from dovetail.errors import DovetailError, require_function
from dovetail.executors.contract.declaration import is_claim
from dovetail.executors.contract.executor import Executor, OperatorExecutor
from dovetail.executors.discovery.plugin_errors import ask, guarded
from dovetail.executors.dispatching.dispatch import claimants
from dovetail.executors.ordering.resolve_order import Priority
from dovetail.langs.torch import closed_form, graph_rule, symbol_for
from dovetail.prims import Symbol
from dovetail.trace import BoundSymbol, Offer, Proxy, Trace
from dovetail.trace.aliases import looking_into
from dovetail.trace.passes.grad import RULES, Rule, registered


def register_grad(operation: Symbol | Callable | str, rule: Rule | None) -> None:
    """Differentiate `operation` (a symbol, a torch function, or the dotted name of one) by `rule`; None takes the rule away again.

    A rule has the operation's own signature and gets proxies.  It computes and returns the results of the operation, asks for their
    cotangents with `get_grad(out)`, and gives each argument its own with `put_grad(x, gx)`.  It may decline by returning NotImplemented.
    It takes effect for functions compiled afterwards.
    """
    symbol = symbol_for(operation)
    if symbol is None:
        raise DovetailError(f"register_grad got the unknown operation {operation!r}; name a symbol or a torch function that is traced")
    if rule is None:
        RULES.pop(symbol, None)
    else:
        require_function(f"register_grad of {symbol}", rule)
        RULES[symbol] = rule


class GradRules:
    """The rules for a line of `trace`, in interleaved form.

    First comes that of the executor that would run the line, then a registered one, then the closed form of a normalisation, or, for an opaque
    line, the rule that keeps its graph: not of a line that reads `written` inputs, which the program overwrites before the backward runs, since
    autograd would find them changed.

    An executor that would run the line and has no rule leaves it to the next that would, since without a rule no executor runs it whole.

    Attributes:
        by_executors: the lines that executors differentiate by rules of their own, as they are met.
        once: whether rules were offered that record lines without rules of their own.
        refusals: why executors that implement a line do not differentiate it.
    """

    def __init__(self, trace: Trace, executors: Priority, written: Collection[Proxy] = ()):
        self.claimants = claimants(trace, executors)
        self.operators = [ex for ex in executors if isinstance(ex, OperatorExecutor)]
        self.by_executors: list[tuple[BoundSymbol, Executor]] = []
        self.overwritten = looking_into(written, trace.lines)
        self.once = False
        self.refusals: list[Offer] = []

    def __call__(self, line: BoundSymbol) -> Iterator[Rule]:
        """Yield the rules that `line` is differentiated by, the first that does not decline."""
        self.refusals += _refusals(line, self.operators)
        if any([_rule(ex, line) is not None for ex in self.operators]):
            ex = next((ex for ex in self.claimants(line) if not isinstance(ex, OperatorExecutor) or _rule(ex, line) is not None), None)
            if isinstance(ex, OperatorExecutor):
                self.by_executors.append((line, ex))
                self.once = True
                yield partial(guarded, "the grad rule", ex, line, None, _rule(ex, line))
        yield from registered(line)
        if (rule := closed_form(line)) is not None:
            yield rule
        if self.overwritten.isdisjoint(line.reads) and (rule := graph_rule(line)) is not None:
            self.once = True
            yield rule


def _rule(ex: OperatorExecutor, line: BoundSymbol) -> Rule | None:
    implementation = ex.implementation(line.symbol)
    return implementation.grad if implementation is not None else None


NO_RULE = "has no grad rule for it, so that its parts, or another's rule, stand in its place"


def _refusals(line: BoundSymbol, operators: Sequence[OperatorExecutor]) -> Iterator[Offer]:
    """Yield why executors that implement this very operation do not differentiate it: only its parts are offered later."""
    for ex in operators:
        implementation = None if ex.last_resort else ex.implementation(line.symbol)
        if implementation is not None and not is_claim(verdict := ask(ex, line, ex.verdict, line.where)):
            yield Offer(line, ex.name, verdict)
        elif implementation is not None and implementation.grad is None:
            yield Offer(line, ex.name, NO_RULE)
