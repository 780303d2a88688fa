"""Arguments besides tensors: every style in which samples pass them, and every value of flags, dimensions and keywords."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from dovetail_conformance.axes.sizes import tensors_of
from dovetail_conformance.opinfo import OpInfo, SampleInput

NO_VALUES = ("requires_grad", "sparse_grad", "pin_memory", "sorted")  # flags that affect storage or order, not values
NUMBER = (int, float)
OPERANDS: list[Any] = [1, 1.0, True, 0.1, 0.5, -0.0, -2, 2, 3]
WHOLE, REAL = (0, 2, -1), (0.0, 2.5, -1.5)  # what a number may be besides
WINDOW = ("kernel_size", "stride", "padding", "dilation", "output_padding", "output_size")
TOLERANCES = ("eps", "atol", "rtol", "tol")  # numbers that are small and positive
DIMS = ((1, 0), (-1, 0), (0, -2))  # two dimensions in any order
PLAIN = 3  # dimensions of the tensor with which a dimension's values are tried


def with_other_values(info: OpInfo, samples: Sequence[SampleInput]) -> Iterator[SampleInput]:
    """Yield calls with one argument changed: each dimension from both ends, each flag turned, each word that some sample has, other numbers.

    A number that stands where other samples have a tensor is an operand: it is 1, 1.0 and True by turns, which are equal and no more.
    Eager decides which of the calls the operation accepts.
    """
    try:
        parameters = inspect.signature(info.symbol.meta).parameters
    except (TypeError, ValueError):
        return
    names = [name for name, p in parameters.items() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    words, operands = _words(names, samples), _operands(names, samples)
    window = int(digits[-1]) if (digits := re.findall(r"(\d)d", info.name)) else 0
    numbers = {name: value for sample in samples for name, value in _named(names, sample).items() if type(value) in NUMBER}
    several = {name for sample in samples for name, value in _named(names, sample).items() if _is_dims(name, value)}
    for i, base in enumerate(_bases(names, samples, operands)):
        named = {name: p.default for name, p in parameters.items() if p.default is not inspect.Parameter.empty} | _named(names, base)
        named |= {name: numbers[name] for name, value in named.items() if value is None and name in numbers and not _is_dim(name)}
        turned = {name: not value for name, value in named.items() if type(value) is bool and name not in NO_VALUES}
        for name in named:
            if i and name not in operands:
                continue  # the first sample has these
            for value in _values(name, named, words, operands, several, window):
                yield _with(names, base, {name: value})
                if turned and _is_dim(name):
                    yield _with(names, base, {**turned, name: value})


def _named(names: Sequence[str], sample: SampleInput) -> dict[str, Any]:
    """Return the arguments of a sample by name."""
    return {**dict(zip(names, sample.args)), **sample.kwargs}


def _with(names: Sequence[str], base: SampleInput, new: dict[str, Any]) -> SampleInput:
    """Return a sample with other values of some arguments."""
    args = [new.get(names[i], value) if i < len(names) else value for i, value in enumerate(base.args)]
    return SampleInput(tuple(args), {**base.kwargs, **{name: value for name, value in new.items() if name not in names[: len(args)]}}, base.fixed)


def _is_dim(name: str) -> bool:
    return "dim" in name or "axis" in name


def _is_dims(name: str, value: Any) -> bool:
    """Return whether an argument is several dimensions."""
    return _is_dim(name) and type(value) in (tuple, list) and all(type(d) is int for d in value)


def _bases(names: Sequence[str], samples: Sequence[SampleInput], operands: set[str]) -> Iterator[SampleInput]:
    """Yield the sample whose arguments are changed, and one with a number for each operand that may be one."""
    base = _base(samples)
    if base is not None:
        yield base
    for operand in sorted(operands):
        styled = [sample for sample in samples if type(_named(names, sample).get(operand)) in NUMBER]
        if (other := _base(styled) or next(iter(styled), None)) is not None:
            yield other


def _operands(names: Sequence[str], samples: Sequence[SampleInput]) -> set[str]:
    """Return the parameters for which some samples have a tensor and some a number."""
    kinds: dict[str, set[bool]] = {}
    for sample in samples:
        for name, value in _named(names, sample).items():
            if isinstance(value, Tensor) or type(value) in NUMBER:
                kinds.setdefault(name, set()).add(isinstance(value, Tensor))
    return {name for name, seen in kinds.items() if len(seen) == 2}


def _base(samples: Sequence[SampleInput]) -> SampleInput | None:
    """Return the sample with a first tensor of three dimensions, or of the most."""
    candidates = [sample for sample in samples if sample.args and isinstance(sample.args[0], Tensor) and sample.args[0].numel() > 1]
    return min(candidates, key=lambda sample: (abs(sample.args[0].ndim - PLAIN), -sample.args[0].numel()), default=None)


def _values(name: str, named: dict[str, Any], words: dict[str, list[str]], operands: set[str], several: set[str], window: int) -> Sequence[Any]:
    """Return other values of an argument."""
    now = named[name]
    if name in NO_VALUES:
        return []
    if name in operands:
        return OPERANDS if type(now) in NUMBER else []
    if type(now) is bool:
        return [not now]
    if _is_dim(name) and (now is None or type(now) is int or _is_dims(name, now)):
        rank = next((x.ndim for x in tensors_of(list(named.values()))), 0)
        return [*(d for d in range(-rank, rank) if d != now), *(DIMS if name in several and rank > 1 else ())]
    if name in WINDOW and (now is None or type(now) in (int, tuple, list)):
        return _unequal(now, window)
    if name in TOLERANCES:
        return [0.5] if type(now) is float else []
    if type(now) in NUMBER:
        return [n for n in (WHOLE if type(now) is int else REAL) if n != now]
    return [word for word in words.get(name, ()) if word != now]


def _unequal(now: Any, rank: int) -> list[tuple[int, ...]]:
    """Return sizes of a window of `rank` dimensions that differ: larger in the first, and in the last."""
    each = list(now) if type(now) in (tuple, list) else [1 if now is None else now] * rank
    if len(each) < 2 or not all(type(n) is int for n in each):
        return []
    return [(each[0] + 1, *each[1:]), (*each[:-1], each[-1] + 1)]


def _words(names: Sequence[str], samples: Sequence[SampleInput]) -> dict[str, list[str]]:
    """Return the strings that samples pass for each parameter."""
    words: dict[str, list[str]] = {}
    for sample in samples:
        for name, value in _named(names, sample).items():
            if type(value) is str and value not in words.setdefault(name, []):
                words[name].append(value)
    return words
