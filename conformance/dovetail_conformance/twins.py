"""In-place operations: their OpInfos are derived from those of their out-of-place twins."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from dovetail import dtypes
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.langs.torch import TorchSymbol
from dovetail.prims import SYMBOLS
from dovetail_conformance.layout import overlaps
from dovetail_conformance.opinfo import OPINFOS, Directive, OpInfo, SampleInput, no_errors


def is_in_place(operation: str) -> bool:
    """Return whether an operation writes its result into its first argument, by its name."""
    return operation.startswith("torch.Tensor.") and operation.endswith("_")


def twin_of(symbol: TorchSymbol) -> TorchSymbol | None:
    """Return the out-of-place operation of an in-place one; None for other operations."""
    if not is_in_place(symbol.id):
        return None
    return next((s for s in SYMBOLS.values() if isinstance(s, TorchSymbol) and s.meta is getattr(symbol.meta, "__wrapped__", None)), None)


def twins() -> list[OpInfo]:
    """Return an OpInfo for each in-place operation whose twin has one."""
    have = {info.symbol: info for info in OPINFOS}
    symbols = [s for s in SYMBOLS.values() if isinstance(s, TorchSymbol) and s not in have]
    return [in_place(symbol, have[twin]) for symbol in symbols if (twin := twin_of(symbol)) in have]


def in_place(symbol: TorchSymbol, info: OpInfo) -> OpInfo:
    """Return the OpInfo of `symbol`, the in-place form of the operation of `info`."""

    def samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
        for sample in info.samples(dtype, device):
            if takes_its_result(symbol, sample):
                yield sample

    def reference(*args: Any, **kwargs: Any) -> Any:
        expected = info.reference(*args, **kwargs)
        written = isinstance(expected, torch.Tensor) and not (args[0].is_floating_point() or args[0].is_complex())
        return expected.to(args[0].dtype) if written else expected  # whole numbers wrap as they are written

    known = (KEEPS_BOOL,) if symbol.name in ("cumsum_", "cumprod_") else ()
    return replace(
        info, symbol=symbol, samples=samples, reference=info.reference and reference, error_samples=no_errors, grad=False, directives=known
    )


KEEPS_BOOL = Directive("skip", "eager sums booleans in place as booleans, and Dovetail refuses to", dtypes=(dtypes.bool_,))


def takes_its_result(symbol: TorchSymbol, sample: SampleInput) -> bool:
    """Return whether eager can write the result into the first argument."""
    if not sample.args or not isinstance(sample.args[0], torch.Tensor) or symbol.callable is None:
        return False
    x = sample.args[0]
    if overlaps(x):
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of arguments that PyTorch deprecates
            return symbol.callable(x.clone(), *sample.args[1:], **sample.kwargs).shape == x.shape
    except Exception:
        return False
