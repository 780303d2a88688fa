"""The executor: a table for the prims, torch itself for the torch language."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.extend import OperatorExecutor, Symbol, symbol_for
from dovetail.langs.torch import OpaqueSymbol, TorchSymbol
from dovetail_torch_exec.fused import FUSED
from dovetail_torch_exec.grads import RULES
from dovetail_torch_exec.prims import PRIMS


def torch_executor() -> OperatorExecutor:
    """An executor called "torch", asked when no other takes a line."""
    ex = OperatorExecutor("torch", version="0.1.0", last_resort=True)
    for symbol, fn in (PRIMS | FUSED).items():
        ex.implements(symbol, fn, grad=RULES.get(symbol))
    for operation, rule in RULES.items():
        symbol = symbol_for(operation)
        if isinstance(symbol, TorchSymbol) and symbol.callable is not None:
            ex.implements(symbol, symbol.callable, grad=rule, path=symbol.path)
    ex.implements_family(torch_itself)
    return ex


def torch_itself(symbol: Symbol) -> tuple[Callable, str] | None:
    """An operation of the torch language is run by the torch function it stands for, and prints as that."""
    if isinstance(symbol, (TorchSymbol, OpaqueSymbol)) and symbol.callable is not None:
        return symbol.callable, symbol.path
    return None
