"""Arguments besides tensors: every style in which samples pass them, every value of flags, dimensions and keywords, and every two together."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from torch import Tensor

from dovetail import devices
from dovetail_conformance.axes.sizes import tensors_of
from dovetail_conformance.opinfo import OpInfo, SampleInput
from dovetail_conformance.program import fresh, program_of

NO_VALUES = ("requires_grad", "sparse_grad", "pin_memory", "sorted")  # flags that affect storage or order, not values
ALONE = (*NO_VALUES, "size_average", "reduce")  # arguments that are not combined; these two stand for another one
NUMBER = (int, float)
OPERANDS: list[Any] = [1, 1.0, True, 0.1, 0.5, -0.0, -2, 2, 3, 2**53 + 1]  # the last is no double
BEYOND = 101  # more than sizes of samples
WHOLE, REAL = (0, 2, 3, -1, BEYOND, 0.25), (0.0, 2.5, -1.5, 0.25)  # what a number may be besides
WINDOW = ("kernel_size", "stride", "padding", "dilation", "output_padding", "output_size")
TOLERANCES = ("eps", "atol", "rtol", "tol")  # numbers that are small and positive
DIMS = ((1, 0), (-1, 0), (0, -2))  # two dimensions in any order
Claimed = Callable[[SampleInput], bool]  # whether the executor under test runs the operation on a sample's tensors
PLAIN = 3  # dimensions of the tensor with which a dimension's values are tried
OFFERED, GROUPS, COMBINED = 4, 6, 20  # values of an argument that are combined; samples that this starts from; calls that it gives


def parameters_of(info: OpInfo) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of an operation by their names; none where it has no signature."""
    try:
        return inspect.signature(info.symbol.meta).parameters
    except (TypeError, ValueError):
        return {}


def with_other_values(info: OpInfo, samples: Sequence[SampleInput], claimed: Claimed = lambda sample: True) -> Iterator[SampleInput]:
    """Yield calls with one argument changed: each dimension from both ends, each flag turned, each word that some sample has, other numbers.

    A number that stands where other samples have a tensor is an operand: it is 1, 1.0 and True by turns, which are equal and no more.
    Eager decides which of the calls the operation accepts.  Where the executor does not claim the sample whose arguments are changed, those
    of one that it claims are changed as well.
    """
    if not (parameters := parameters_of(info)):
        return
    names = [name for name, p in parameters.items() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    words, operands = _words(names, samples), _operands(names, samples)
    window = int(digits[-1]) if (digits := re.findall(r"(\d)d", info.name)) else 0
    numbers = {name: value for sample in samples for name, value in named_arguments(names, sample).items() if type(value) in NUMBER}
    several = {name for sample in samples for name, value in named_arguments(names, sample).items() if _is_dims(name, value)}
    line = next((s for s in samples if s.args and isinstance(s.args[0], Tensor) and s.args[0].ndim == 1 and s.args[0].numel() > 1), None)
    if line is not None:  # where a number may be larger than the only size
        for name, value in named_arguments(names, line).items():
            if type(value) is int and not _is_dim(name) and name not in (*operands, *WINDOW):
                yield from (with_arguments(names, line, {name: n}) for n in (BEYOND, -BEYOND))
    for base, whole in _bases(names, samples, operands, claimed):
        named = {name: p.default for name, p in parameters.items() if p.default is not inspect.Parameter.empty} | named_arguments(names, base)
        named |= {name: numbers[name] for name, value in named.items() if value is None and name in numbers and not _is_dim(name)}
        turned = {name: not value for name, value in named.items() if type(value) is bool and name not in NO_VALUES}
        for name in named:
            if not whole and name not in operands:
                continue  # another sample has these
            for value in _values(name, named, words, operands, several, window):
                yield with_arguments(names, base, {name: value})
                if name in WINDOW and "stride" in named and name != "stride":  # eager takes an output padding below the stride alone
                    yield with_arguments(names, base, {name: value, "stride": max(value) + 1})
                if turned and _is_dim(name):
                    yield with_arguments(names, base, {**turned, name: value})


def combined(info: OpInfo, samples: Sequence[SampleInput], claimed: Claimed = lambda sample: True) -> list[SampleInput]:
    """Return calls in which optional arguments meet: each is left out or has one of a few values, and every two of these meet in a call.

    The other arguments are those of samples, claimed ones and those with the most optional arguments first; dimensions among them are
    counted from both ends. Eager decides which of the calls the operation accepts.
    """
    if not (parameters := parameters_of(info)):
        return []
    names = [name for name, p in parameters.items() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    optional = {name: p.default for name, p in parameters.items() if p.default is not inspect.Parameter.empty and name not in ALONE}
    alike: dict[str, list[SampleInput]] = {}
    for sample in samples:
        first = next(tensors_of((sample.args, sample.kwargs)), None)
        if first is not None and first.numel() > 1:
            required = [_shaped(value) for name, value in named_arguments(names, sample).items() if name not in optional and not _is_dim(name)]
            alike.setdefault(repr(required), []).append(sample)

    def names_in(some: Sequence[SampleInput]) -> set[str]:
        return {name for sample in some for name in named_arguments(names, sample) if name in optional}

    groups = sorted(alike.values(), key=lambda some: (not any(map(claimed, some)), -len(names_in(some)), -len(some)))[:GROUPS]
    return [
        sample
        for i, group in enumerate(groups)
        for sample in islice(_pairs(info, names, optional, group, samples), COMBINED if i == 0 else COMBINED // 4)
    ]


def _pairs(
    info: OpInfo, names: Sequence[str], optional: dict[str, Any], group: Sequence[SampleInput], samples: Sequence[SampleInput]
) -> Iterator[SampleInput]:
    """Yield a sample of a group with other optional arguments: any two of their values meet in one."""
    base = next((s for s in group if not any(isinstance(v, Tensor) for name, v in named_arguments(names, s).items() if name in optional)), group[0])

    def fits(name: str, value: Tensor) -> bool:
        program = program_of(info.symbol, with_arguments(names, base, {name: value}))
        try:
            program.on(fresh(program.inputs))
        except Exception:
            return False
        return True

    offered = {name: _offered(name, default, names, (*group, *samples), fits) for name, default in optional.items()}
    rank = next(tensors_of((base.args, base.kwargs))).ndim
    offered |= {
        name: [d, d - rank if d >= 0 else d + rank]
        for name, d in named_arguments(names, base).items()
        if name not in optional and _is_dim(name) and type(d) is int
    }
    offered = {name: values for name, values in offered.items() if len(values) > 1}
    if not offered:
        return
    from allpairspy import AllPairs  # lazily: the levels below core do not need it

    fixed = tuple({id(x): x for s in group for x in s.fixed}.values())
    indices, apart = [list(range(len(values))) for values in offered.values()], _exclusive(info, optional)
    for row in AllPairs(indices) if len(indices) > 1 else zip(indices[0]):
        sample = _sample(names, base, {name: values[i] for (name, values), i in zip(offered.items(), row)}, optional, fixed)
        present = {name for name, value in named_arguments(names, sample).items() if name in optional and value is not optional[name]}
        if not any([some <= present for some in apart]):
            yield sample


def _exclusive(info: OpInfo, optional: dict[str, Any]) -> list[set[str]]:
    """Return which optional arguments exclude each other: the text of a refusal names them together, though some of eager's kernels take both."""
    named = [{name for name in optional if re.search(rf"\b{name}\b", sample.match)} for sample in info.error_samples(devices.device("cpu"))]
    return [some for some in named if len(some) > 1]


def _shaped(value: Any) -> Any:
    """Return the shapes and dtypes of tensors in an argument, and what else it holds."""
    if isinstance(value, Tensor):
        return tuple(value.shape), value.dtype
    return [_shaped(x) for x in value] if isinstance(value, (tuple, list)) else value


def _offered(name: str, default: Any, names: Sequence[str], samples: Sequence[SampleInput], fits: Callable[[str, Tensor], bool]) -> list[Any]:
    """Return a few values of an optional argument, its default first: those of samples, a tensor that fits, and the other one of a flag."""
    values, refused = [default], set()
    for sample in samples:
        value = named_arguments(names, sample).get(name, default)
        if isinstance(value, Tensor):
            new = not any(isinstance(other, Tensor) for other in values) and value.shape not in refused
            if new and not fits(name, value):
                refused.add(value.shape)
                continue
        else:
            new = not any(type(value) is type(other) and (value is other or value == other) for other in values)
        if new and len(values) < OFFERED:
            values.append(value)
    return [*values, not default] if type(default) is bool and len(values) == 1 else values


def _sample(names: Sequence[str], base: SampleInput, new: dict[str, Any], optional: dict[str, Any], fixed: tuple) -> SampleInput:
    """Return a sample with these optional arguments, and without those that have their defaults where they need not stand."""
    values = {**named_arguments(names, base), **new}
    chosen = {name: value for name, value in values.items() if name not in optional or not (value is optional[name] or _equal(value, optional[name]))}
    args = list(base.args)
    args = [chosen.get(name, optional.get(name)) for name in names[: len(args)]] if len(names) >= len(args) else args
    return SampleInput(tuple(args), {name: value for name, value in chosen.items() if name not in names[: len(args)]}, fixed)


def with_large_numbers(info: OpInfo, sample: SampleInput, number: int) -> Iterator[SampleInput]:
    """Yield the sample with `number` in place of each count, end or index among its arguments, and its negative where there is one."""
    names = [name for name, p in parameters_of(info).items() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    for name, value in named_arguments(names, sample).items():
        if type(value) is int and not _is_dim(name) and name not in WINDOW:
            yield with_arguments(names, sample, {name: -number if value < 0 else number})


def changed_arguments(info: OpInfo, sample: SampleInput) -> set[str]:
    """Return the optional arguments of a sample that are not their defaults."""
    parameters = parameters_of(info)
    names = [name for name, p in parameters.items() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    empty = inspect.Parameter.empty
    return {
        name
        for name, value in named_arguments(names, sample).items()
        if name in parameters and (default := parameters[name].default) is not empty and value is not default and not _equal(value, default)
    }


def _equal(a: Any, b: Any) -> bool:
    return type(a) is type(b) and not isinstance(a, Tensor) and a == b


def named_arguments(names: Sequence[str], sample: SampleInput) -> dict[str, Any]:
    """Return the arguments of a sample by name."""
    return {**dict(zip(names, sample.args)), **sample.kwargs}


def with_arguments(names: Sequence[str], base: SampleInput, new: dict[str, Any]) -> SampleInput:
    """Return a sample with other values of some arguments."""
    args = [new.get(names[i], value) if i < len(names) else value for i, value in enumerate(base.args)]
    return SampleInput(tuple(args), {**base.kwargs, **{name: value for name, value in new.items() if name not in names[: len(args)]}}, base.fixed)


def _is_dim(name: str) -> bool:
    return "dim" in name or "axis" in name


def _is_dims(name: str, value: Any) -> bool:
    """Return whether an argument is several dimensions."""
    return _is_dim(name) and type(value) in (tuple, list) and all(type(d) is int for d in value)


def _bases(names: Sequence[str], samples: Sequence[SampleInput], operands: set[str], claimed: Claimed) -> Iterator[tuple[SampleInput, bool]]:
    """Yield the samples whose arguments are changed, and one with a number for each operand that may be one, of which only that is."""
    base = _base(samples)
    if base is not None:
        yield base, True
        if not claimed(base) and (ours := _base(list(filter(claimed, samples)))) is not None:
            yield ours, True
    for operand in sorted(operands):
        styled = [sample for sample in samples if type(named_arguments(names, sample).get(operand)) in NUMBER]
        if (other := _base(styled) or next(iter(styled), None)) is not None:
            yield other, False


def _operands(names: Sequence[str], samples: Sequence[SampleInput]) -> set[str]:
    """Return the parameters for which some samples have a tensor and some a number."""
    kinds: dict[str, set[bool]] = {}
    for sample in samples:
        for name, value in named_arguments(names, sample).items():
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
    if name in NO_VALUES or name == "dropout_p":  # eager looks at a probability in some modes alone
        return []
    if name in operands:
        return OPERANDS if type(now) in NUMBER else []
    if type(now) is bool:
        return [not now]
    if _is_dim(name) and (now is None or type(now) is int or _is_dims(name, now)):
        rank = next((x.ndim for x in tensors_of(list(named.values()))), 0)
        return [*(d for d in range(-rank, rank) if d != now), *(_several(rank) if name in several else ())]
    if name in WINDOW and (now is None or type(now) in (int, tuple, list)):
        return _unequal(now, window)
    if name in TOLERANCES:
        return [0.5] if type(now) is float else []
    if type(now) in NUMBER:
        return [n for n in (WHOLE if type(now) is int else REAL) if n != now]
    return [word for word in words.get(name, ()) if word != now]


def _several(rank: int) -> list[tuple[int, ...]]:
    """Return dimensions of a tensor: two in any order, and all of them, from the first and from the last."""
    return [*(DIMS if rank > 1 else ()), *([tuple(range(rank)), tuple(range(-1, -rank - 1, -1))] if rank > 2 else [])]


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
        for name, value in named_arguments(names, sample).items():
            if type(value) is str and value not in words.setdefault(name, []):
                words[name].append(value)
    return words
