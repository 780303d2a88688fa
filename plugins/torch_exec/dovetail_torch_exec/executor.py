"""The executor: a table for the prims, torch itself for the torch language."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from dovetail.devices import cpu
from dovetail.extend import BoundSymbol, OperatorExecutor, Trace, Verdict
from dovetail.extend.advanced import Executor, Implementation, Proxy, Symbol, symbol_for, torch_internals
from dovetail.langs.torch import TO_TORCH, OpaqueSymbol, TorchSymbol
from dovetail_torch_exec.collectives import COLLECTIVES
from dovetail_torch_exec.convolution import USUAL
from dovetail_torch_exec.formats import Restrided, printed_name, restrided, symbol_printed, variant_called
from dovetail_torch_exec.fused import DEVICES, FUSED
from dovetail_torch_exec.grads import RULES
from dovetail_torch_exec.halves import InFloat32, float32_variant, symbol_called
from dovetail_torch_exec.large import PRODUCTS, large_results
from dovetail_torch_exec.layouts import in_rows
from dovetail_torch_exec.prims import PRIMS
from dovetail_torch_exec.updates import UPDATES


def row_major(input: Proxy, weight: Proxy, *_: Any, **__: Any) -> Verdict:
    """Take a one-dimensional convolution whose result has the strides that its meta promises."""
    laid_out = input.spec.strides is None and weight.spec.strides is None
    return laid_out or "PyTorch gives a convolution of sequences other strides where an argument is not row-major; its parts are run one by one"


def usual(input: Proxy, weight: Proxy, *_: Any, **__: Any) -> Verdict:
    """Take a convolution in a dtype whose results PyTorch lays out like its operands on CPUs."""
    return (
        input.spec.device is not cpu
        or TO_TORCH[input.spec.dtype] in USUAL
        or f"PyTorch has other layouts for convolutions of {input.spec.dtype} on CPUs"
    )


def volume(input: Proxy, weight: Proxy, *_: Any, **__: Any) -> Verdict:
    """Take a convolution of row-major volumes: how PyTorch lays out others on CPUs depends on their sizes and the number of threads."""
    laid_out = input.spec.device is not cpu or (input.spec.strides is None and weight.spec.strides is None)
    return usual(input, weight) if laid_out else "PyTorch decides by sizes and threads how volumes lie; its parts are run one by one"


def sequence(input: Proxy, weight: Proxy, *args: Any, **kwargs: Any) -> Verdict:
    """Take a one-dimensional convolution of row-major tensors in such a dtype."""
    verdict = row_major(input, weight)
    return usual(input, weight) if verdict is True else verdict


def flat(input: Proxy, *_: Any, **__: Any) -> Verdict:
    """Take a one-dimensional pooling of a row-major tensor: PyTorch pools images of one row, whose results may have their channels innermost."""
    return input.spec.strides is None or "PyTorch has other layouts for it where the argument is not row-major; its parts are run one by one"


def channels(input: Proxy, *_: Any, **__: Any) -> Verdict:
    """Take a batch norm of some channels."""
    return input.spec.shape[1] != 0 or "PyTorch refuses a batch norm of no channels here"


def real(input: Proxy, *_: Any, **__: Any) -> Verdict:
    """Take it for real numbers; PyTorch's conjugates are views that are conjugated when read."""
    return input.spec.dtype.kind != "complex" or "PyTorch returns a view that is conjugated when read"


def pairs(equation: str, *operands: Proxy) -> Verdict:
    """Take an einsum that is contracted in the order of its meta: opt_einsum, where it is installed, may choose another for other sizes."""
    fixed = len(operands) <= 2 or not torch.backends.opt_einsum.is_available()
    return fixed or "opt_einsum chooses the order, and so the layout, of three and more operands; its parts are run one by one"


CHECKERS = {
    **dict.fromkeys(("torch.nn.functional.conv1d", "torch.nn.functional.conv_transpose1d"), sequence),
    **dict.fromkeys(("torch.nn.functional.conv2d", "torch.nn.functional.conv_transpose2d"), usual),
    **dict.fromkeys(("torch.nn.functional.conv3d", "torch.nn.functional.conv_transpose3d"), volume),
    **dict.fromkeys(("torch.nn.functional.avg_pool1d", "torch.nn.functional.max_pool1d", "torch.nn.functional.adaptive_avg_pool1d"), flat),
    **dict.fromkeys(("torch.conj", "torch.adjoint"), real),
    "torch.einsum": pairs,
    f"{torch_internals.ATEN}._native_batch_norm_legit_functional": channels,
}


def item_at(x: Tensor, key: Any) -> Tensor:
    """Read x[key], where tensors count as ints: a copy, as the meta promises, where eager PyTorch returns a view."""
    item = x[key]
    return item.clone() if item.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() else item


def densely(fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return `fn`, whose results keep gaps between the elements of its first argument, as a function of that without gaps."""

    def function(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return fn(input if input.is_contiguous() else input.clone(), *args, **kwargs)

    return function


class TorchExecutor(OperatorExecutor):
    """Eager PyTorch, with inputs laid out as its kernels prefer, and large products written into the pool."""

    def __init__(self, name: str, **declared: Any):
        super().__init__(name, **declared)
        self._large: dict[str, Implementation] = {}
        self._updates: dict[Symbol, Implementation] = {}
        self._restrided = Restrided()
        self._in_float32 = InFloat32()

    def add_large_products(self) -> None:
        """Register for each product the variant that takes the memory of large results from the pool."""
        for symbol, fn in PRODUCTS.items():
            name = self.table[symbol].name
            self._large[name] = self.add_variant(f"{name}_large", fn)

    def add_updates(self) -> None:
        """Register for each operation that changes places of a tensor the variant that writes them where they lie."""
        self._updates = {symbol: self.add_variant(f"{symbol.id.replace('.', '_')}_in_place", fn) for symbol, fn in UPDATES.items()}

    def in_place(self, line: BoundSymbol) -> Implementation | None:
        """Return what writes the places that a line changes where they lie."""
        return self._updates.get(line.symbol)

    def choose_variant(self, implementation: Implementation, line: BoundSymbol) -> Implementation:
        """Choose the variant that multiplies 16-bit floats in float32, for large results, or for inputs of an undecided format."""
        chosen = self._in_float32.chosen(implementation, line)
        if chosen is not None:
            return self._restrided.chosen(chosen, line, chosen.name)
        variant = self._large.get(implementation.name)
        if variant is not None and large_results(line):
            return variant
        return self._restrided.chosen(implementation, line, printed_name(line.symbol))

    def named(self, name: str) -> Callable[..., Any]:
        """Return the function that programs print under `name`, variants included."""
        symbol = symbol_called(name)
        if symbol is not None:
            return float32_variant(symbol, self.implementation(symbol))
        variant = variant_called(name)
        if variant is not None:
            printed, at = variant
            whole = symbol_printed(printed)
            return restrided(self.named(printed) if whole is None else self.implementation(whole).fn, at)
        return super().named(name)

    def prepare(self, trace: Trace, executors: Sequence[Executor]) -> Trace:
        """Copy rows together that linear layers would gather one matrix after the other."""
        return in_rows(trace)


def torch_executor() -> OperatorExecutor:
    """Return the executor "torch", the last resort for lines that no other claims."""
    ex = TorchExecutor("torch", version="0.1.0", last_resort=True, symbolic=True)
    for symbol, fn in (PRIMS | FUSED | COLLECTIVES).items():
        ex.implements(symbol, fn, grad=RULES.get(symbol), devices=DEVICES.get(symbol))
    for operation, rule in RULES.items():
        symbol = symbol_for(operation)
        if isinstance(symbol, TorchSymbol) and symbol.callable is not None:
            ex.implements(symbol, symbol.callable, grad=rule, path=symbol.path, checker=CHECKERS.get(operation))
    for operation, checker in CHECKERS.items():
        if operation not in RULES:
            symbol = symbol_for(operation)
            ex.implements(symbol, symbol.callable, path=symbol.path, checker=checker)
    ex.implements(symbol_for("operator.getitem.at"), item_at)
    for operation in ("torch.slice_scatter", "torch.select_scatter", "torch.diagonal_scatter"):
        symbol = symbol_for(operation)
        ex.implements(symbol, densely(symbol.callable))
    for symbol in PRODUCTS:
        if isinstance(symbol, TorchSymbol):
            ex.implements(symbol, symbol.callable, path=symbol.path)
    ex.add_large_products()
    ex.add_updates()
    ex.implements_family(torch_itself)
    return ex


def torch_itself(symbol: Symbol) -> tuple[Callable, str] | None:
    """Run an operation of the torch language by its torch function, and print it as a call of that."""
    if isinstance(symbol, (TorchSymbol, OpaqueSymbol)) and symbol.callable is not None:
        return symbol.callable, symbol.path
    return None
