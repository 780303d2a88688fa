"""The executor: a table for the prims, torch itself for the torch language."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.extend import OperatorExecutor, Symbol
from dovetail.langs.torch import OpaqueSymbol, TorchSymbol

from dovetail_torch_exec.prims import PRIMS


def torch_executor() -> OperatorExecutor:
    """An executor called "torch", asked when no other takes a line."""
    ex = OperatorExecutor("torch", version="0.1.0", last_resort=True)
    for symbol, fn in PRIMS.items():
        ex.implements(symbol, fn)
    ex.implements_family(torch_itself)
    return ex


def torch_itself(symbol: Symbol) -> tuple[Callable, str] | None:
    """An operation of the torch language is run by the torch function it stands for, and prints as that."""
    if isinstance(symbol, (TorchSymbol, OpaqueSymbol)) and symbol.callable is not None:
        return symbol.callable, symbol.path
    return None
