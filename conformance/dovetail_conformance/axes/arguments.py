"""Arguments besides tensors: every style in which samples pass them, and every value of flags, dimensions and keywords."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from dovetail_conformance.axes.sizes import tensors_of
from dovetail_conformance.opinfo import OpInfo, SampleInput

NO_VALUES = ("requires_grad", "sparse_grad", "pin_memory")  # flags that affect storage, not values
PLAIN = 3  # dimensions of the tensor with which a dimension's values are tried


def with_other_values(info: OpInfo, samples: Sequence[SampleInput]) -> Iterator[SampleInput]:
    """Yield calls with one argument changed: each dimension from both ends, each flag turned, each word that some sample has.

    Eager decides which of them the operation accepts.
    """
    try:
        parameters = inspect.signature(info.symbol.meta).parameters
    except (TypeError, ValueError):
        return
    names = [name for name, p in parameters.items() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    base = _base(samples)
    if base is None:
        return
    named = {**dict(zip(names, base.args)), **base.kwargs}
    words = _words(names, samples)
    for name, parameter in parameters.items():
        for value in _values(name, parameter, named, words):
            kwargs, args = dict(base.kwargs), list(base.args)
            if name in names and names.index(name) < len(args):
                args[names.index(name)] = value
            else:
                kwargs[name] = value
            yield SampleInput(tuple(args), kwargs, base.fixed)


def _base(samples: Sequence[SampleInput]) -> SampleInput | None:
    """Return the sample with a first tensor of three dimensions, or of the most."""
    candidates = [sample for sample in samples if sample.args and isinstance(sample.args[0], Tensor) and sample.args[0].numel() > 1]
    return min(candidates, key=lambda sample: (abs(sample.args[0].ndim - PLAIN), -sample.args[0].numel()), default=None)


def _values(name: str, parameter: inspect.Parameter, named: dict[str, Any], words: dict[str, list[str]]) -> list[Any]:
    """Return other values of a parameter."""
    now = named.get(name, parameter.default)
    if now is inspect.Parameter.empty or name in NO_VALUES:
        return []
    if type(now) is bool:
        return [not now]
    if ("dim" in name or "axis" in name) and (now is None or type(now) is int):
        rank = next((x.ndim for x in tensors_of(list(named.values()))), 0)
        return [d for d in range(-rank, rank) if d != now]
    return [word for word in words.get(name, ()) if word != now]


def _words(names: Sequence[str], samples: Sequence[SampleInput]) -> dict[str, list[str]]:
    """Return the strings that samples pass for each parameter."""
    words: dict[str, list[str]] = {}
    for sample in samples:
        for name, value in {**dict(zip(names, sample.args)), **sample.kwargs}.items():
            if type(value) is str and value not in words.setdefault(name, []):
                words[name].append(value)
    return words
