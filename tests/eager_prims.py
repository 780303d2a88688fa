"""Rules of prims, run eagerly: every prim that a rule calls is executed at once, on real tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from dovetail.prims import OPERATORS, Symbol, recorder
from dovetail_conformance.opinfo import spec_of, specs_of
from dovetail_torch_exec.prims import PRIMS


class Value:
    """A real tensor that passes for a traced one: it has a spec, and operators that call prims."""

    def __init__(self, tensor: Tensor):
        self.tensor, self.spec = tensor, spec_of(tensor.detach())


def operator(name: str, swapped: bool) -> Callable:
    return lambda self, *others: OPERATORS[name](*others, self) if swapped else OPERATORS[name](self, *others)


for _name in OPERATORS:
    for _prefix in ("", "r"):
        setattr(Value, f"__{_prefix}{_name.strip('_')}__", operator(_name, _prefix == "r"))


class Eager:
    """A recorder that runs each prim on real tensors, after its meta."""

    language = OPERATORS

    def record(self, symbol: Symbol, args: tuple, kwargs: dict) -> Any:
        real = bare(args)
        expected = symbol.meta(*specs_of(tuple(swapped(real, lambda x: x.detach()))), **kwargs)
        out = PRIMS[symbol](*real, **kwargs)
        assert specs_of(swapped(out, lambda x: x.detach())) == expected, f"{symbol} of {specs_of(real)} {kwargs}"
        return swapped(out, Value)


def swapped(value: Any, new: Callable) -> Any:
    if isinstance(value, (list, tuple)):
        items = [swapped(x, new) for x in value]
        return items if isinstance(value, list) else tuple(items)
    return new(value) if isinstance(value, Tensor) else value


def bare(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        items = [bare(x) for x in value]
        return items if isinstance(value, list) else tuple(items)
    return value.tensor if isinstance(value, Value) else value


@contextmanager
def running() -> Iterator[None]:
    token = recorder.set(Eager())
    try:
        yield
    finally:
        recorder.reset(token)


def leaves(value: Any) -> list[Any]:
    return [x for item in value for x in leaves(item)] if isinstance(value, (tuple, list)) else [value]


def replaced(nest: Any, new: dict[int, Any], numbers: Iterator[int]) -> Any:
    """Return a nest of lists and tuples with new[i] in the place of leaf i, and tensors elsewhere as traced ones."""
    if isinstance(nest, (list, tuple)):
        return type(nest)([replaced(x, new, numbers) for x in nest])
    return new.get(next(numbers), nest)
