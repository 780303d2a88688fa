"""A sample as a program of its tensors: to be compiled, run eagerly, run on other values, and printed as a script."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

import torch
from torch import Tensor

from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.langs.torch import TorchSymbol
from dovetail.prims import Symbol
from dovetail_conformance.draws import generator, start
from dovetail_conformance.layout import overlaps as overlaps
from dovetail_conformance.opinfo import SampleInput
from dovetail_conformance.script import Name, spelled_call

ALIGNED = 64  # elements after which an address is as aligned as at first
OF_DTYPE: dict[str, Callable[[torch.dtype], dict[str, float]]] = {  # defaults that depend on a dtype; 16 bits are computed with in float32
    "rms_norm": lambda dtype: {"eps": torch.finfo(dtype if dtype.itemsize > 2 else torch.float32).eps},
    "nan_to_num": lambda dtype: {"posinf": torch.finfo(dtype).max, "neginf": torch.finfo(dtype).min},
}
WIDE = {torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64, torch.complex64: torch.complex128}


@dataclass
class Program:
    """`fn` of `inputs`; `text` is its source as a script has it, with x0, x1, ... for the inputs."""

    fn: Callable[..., Any]
    inputs: list[Tensor]
    text: str
    symbolic: Callable[..., Any] | None = field(default=None, repr=False)  # the same with the symbol itself, which takes proxies of any language
    arguments: Callable[..., Any] | None = field(default=None, repr=False)  # (args, kwargs) of the operation, from its tensors
    template: Any = field(default=None, repr=False)  # equal for programs that differ in their tensors alone
    eager: bool = True  # whether it runs without Dovetail
    wide: Callable[..., Any] | None = field(default=None, repr=False)  # `fn` of inputs in twice the precision, to results in it

    def on(self, inputs: Iterable[Tensor]) -> Any:
        """Run the program on other inputs, eagerly."""
        with calm():
            return self.fn(*inputs)


def program_of(symbol: Symbol, sample: SampleInput) -> Program:
    """Make a program that calls `symbol` as the sample does."""
    inputs: list[Tensor] = []
    args, kwargs = _lifted((sample.args, sample.kwargs), inputs)
    operation = _spelled(symbol)

    def fn(*tensors: Any) -> Any:
        words, names = _placed((args, kwargs), tensors)
        return operation(*words, **names)

    def symbolic(*tensors: Any) -> Any:
        words, names = _placed((args, kwargs), tensors)
        return symbol(*words, **names)

    def wide(*tensors: Any) -> Any:
        words, names = _placed((args, kwargs) if symbol.name == "view" else _widened_dtypes((args, kwargs), inputs), tensors)
        return operation(*words, **names, **_narrow_defaults(symbol, words, names, inputs))

    named_args, named_kwargs = _placed((args, kwargs), [Name(f"x{i}") for i in range(len(inputs))])
    text = spelled_call(symbol, named_args, named_kwargs)
    return Program(
        fn,
        inputs,
        text,
        symbolic,
        lambda tensors: _placed((args, kwargs), tensors),
        (symbol.id, repr((args, kwargs))),
        isinstance(symbol, TorchSymbol) and symbol.callable is not None,
        wide,
    )


@dataclass(frozen=True)
class _Place:
    """Where a tensor stands among the arguments."""

    index: int


def _lifted(nest: Any, inputs: list[Tensor]) -> Any:
    """Replace the tensors of `nest` by places, and append them to `inputs`; one that appears twice has one place."""
    if isinstance(nest, Tensor):
        for i, x in enumerate(inputs):
            if x is nest:
                return _Place(i)
        inputs.append(nest)
        return _Place(len(inputs) - 1)
    if type(nest) in (tuple, list):
        return type(nest)(_lifted(x, inputs) for x in nest)
    if isinstance(nest, slice):
        return slice(*(_lifted(x, inputs) for x in (nest.start, nest.stop, nest.step)))
    return {key: _lifted(x, inputs) for key, x in nest.items()} if type(nest) is dict else nest


def _widened_dtypes(nest: Any, inputs: Sequence[Tensor]) -> Any:
    """Replace each dtype among arguments to which the inputs are converted exactly by the one of twice the precision."""
    if type(nest) is torch.dtype:
        rounds = nest not in WIDE or any(torch.finfo(x.dtype).bits > torch.finfo(nest).bits for x in inputs if inexact(x))
        return nest if rounds else WIDE[nest]
    if type(nest) in (tuple, list):
        return type(nest)(_widened_dtypes(x, inputs) for x in nest)
    return {key: _widened_dtypes(x, inputs) for key, x in nest.items()} if type(nest) is dict else nest


def _narrow_defaults(symbol: Symbol, args: Sequence[Any], kwargs: dict[str, Any], inputs: Sequence[Tensor]) -> dict[str, Any]:
    """Return the defaults that a call leaves out and that depend on a dtype, for the dtype of its first input."""
    values = OF_DTYPE.get(symbol.name)
    if values is None or not inputs or not inexact(inputs[0]):
        return {}
    passed = {**dict(zip(inspect.signature(symbol.meta).parameters, args)), **kwargs}
    return {name: value for name, value in values(inputs[0].dtype).items() if name not in passed}


def _placed(nest: Any, tensors: Any) -> Any:
    if type(nest) is _Place:
        return tensors[nest.index]
    if type(nest) in (tuple, list):
        return type(nest)(_placed(x, tensors) for x in nest)
    if isinstance(nest, slice):
        return slice(*(_placed(x, tensors) for x in (nest.start, nest.stop, nest.step)))
    return {key: _placed(x, tensors) for key, x in nest.items()} if type(nest) is dict else nest


def _spelled(symbol: Symbol) -> Callable[..., Any]:
    """Return `symbol` as a program calls it, traced or not."""
    if not isinstance(symbol, TorchSymbol) or symbol.callable is None:
        return symbol
    if type(symbol.callable).__name__ in ("method_descriptor", "wrapper_descriptor"):
        name = symbol.callable.__name__
        return lambda x, *args, **kwargs: getattr(x, name)(*args, **kwargs)
    return symbol.callable


def seed_generators(number: int) -> None:
    """Seed torch's generators, also by the seed of the run, without the three formatted tracebacks that torch.manual_seed has for missing devices."""
    if torch.cuda.is_available():
        torch.manual_seed(start(number))
    else:
        torch.default_generator.manual_seed(start(number))


def inexact(x: Any) -> bool:
    return isinstance(x, Tensor) and (x.is_floating_point() or x.is_complex())


def fresh(inputs: Iterable[Tensor], *, grad: bool = False) -> list[Tensor]:
    """Copy tensors with their memory layout: strides, offset from an aligned address, conjugate and negative bit; with gradients where `grad`.

    Parts of one tensor become parts of one copy.
    """
    inputs = list(inputs)
    places = [_place(x) for x in inputs]
    storages = {place: x.untyped_storage().clone() for x, place in zip(inputs, places) if place is not None and places.count(place) > 1}
    copies = [_alike(x) if place not in storages else _within(storages[place], x) for x, place in zip(inputs, places)]
    return [x.requires_grad_(grad and inexact(x)) for x in copies]


def _place(x: Tensor) -> int | None:
    """Return where the memory of a tensor begins; None where it has no elements, or a sign that is pending."""
    return None if x.is_conj() or x.is_neg() or not x.numel() else x.untyped_storage().data_ptr()


def _within(storage: torch.UntypedStorage, x: Tensor) -> Tensor:
    return x.detach().new_empty(0).set_(storage, x.storage_offset(), x.size(), x.stride())


def _alike(x: Tensor) -> Tensor:
    x = x.detach()
    if x.is_conj():
        return _alike(x.conj()).conj()
    if x.is_neg():  # the imaginary part of a conjugate: torch has no other public way to such a tensor
        return torch.complex(torch.zeros_like(x, memory_format=torch.contiguous_format), -x.contiguous()).conj().imag
    if overlaps(x):
        new = x.new_empty(0)
        return new.set_(x.untyped_storage().clone(), x.storage_offset(), x.size(), x.stride())
    offset = x.storage_offset() % ALIGNED
    if not offset:
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).copy_(x)
    span = 1 + sum(step * (size - 1) for step, size in zip(x.stride(), x.shape)) if x.numel() else 0
    return x.new_empty(offset + span).as_strided(x.shape, x.stride(), offset).copy_(x)


def rolled(inputs: Iterable[Tensor]) -> list[Tensor]:
    """Return inputs in the same layout with other values: each tensor's own, rolled by one element."""
    copies = fresh(inputs)
    for x in copies:
        if x.numel() > 1 and not overlaps(x):
            x.copy_(x.clone(memory_format=torch.contiguous_format).flatten().roll(1).view(x.shape))
        elif x.numel() and x.dtype is not torch.bool and inexact(x):
            base = x if not overlaps(x) else x.as_strided((1,), (1,), x.storage_offset())
            base.copy_(base.to(torch.complex128 if x.is_complex() else torch.float64) * 0.75)  # eight bits have no product of their own
    return copies


def widened(inputs: Sequence[Tensor], moved: int | None = None, most: float | None = None) -> list[Tensor]:
    """Convert the inputs to twice the precision, each element `moved` by about a rounding of its own where a number seeds them.

    A rounding is no larger than `most`, where results have a wider dtype. Every other seed leaves the last of several as it is: a tensor of signs
    or classes means something else where it moves.
    """
    wide = [x.to(WIDE.get(x.dtype, x.dtype)) for x in inputs]
    if moved is None:
        return wide
    noise = generator(moved)
    rounded = [i for i, x in enumerate(inputs) if inexact(x)]
    still = rounded[-1] if moved % 2 and len(rounded) > 1 else None
    for i, (x, new) in enumerate(zip(inputs, wide)):
        if inexact(x) and i != still:
            eps = torch.finfo(x.dtype).eps
            wide[i] = nudged(new, eps if most is None else min(eps, most), noise)
    return wide


def perturbed(inputs: Sequence[Tensor], seed: int) -> list[Tensor]:
    """Return inputs of the same dtypes whose elements are off by about a rounding of their own."""
    return [new.to(x.dtype) for x, new in zip(inputs, widened(fresh(inputs), seed))]


def nudged(x: Tensor, eps: float, generator: torch.Generator) -> Tensor:
    """Multiply each number by 1 plus about `eps`; both parts of a complex number are off by its size, so that its direction changes as well."""
    if x.is_complex():
        steps = torch.randn((2, *x.shape), generator=generator, dtype=torch.float64).to(x.device) * eps * x.abs()
        return torch.where(torch.isfinite(steps).all(0), x + torch.complex(*steps), x)
    return x * (1 + eps * torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x.device))


def extreme(inputs: Iterable[Tensor], kind: str) -> list[Tensor] | None:
    """Put large values, infinities or NaN into the inputs; None where none fit."""
    copies, put = fresh(inputs), False
    for x in copies:
        if not inexact(x) or overlaps(x) or x.numel() < 4 or x.dtype.itemsize == 1:
            continue
        flat = x.clone(memory_format=torch.contiguous_format).flatten()
        values = {"large": (1e4, -1e4, -0.0, 3e4), "inf": (float("inf"), float("-inf")), "nan": (float("nan"),)}[kind]
        for i, value in enumerate(values):
            flat[i * (len(flat) - 1) // max(1, len(values) - 1) if len(values) > 1 else len(flat) // 2] = value
        x.copy_(flat.view(x.shape))
        put = True
    return copies if put else None


@contextmanager
def calm() -> Iterator[None]:
    """Suppress warnings and printed output while open."""
    with warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        yield


def message(sample: SampleInput | Program) -> str:
    """Format the arguments of a sample in one line: tensors by dtype, shape and strides."""
    if isinstance(sample, Program):
        return sample.text
    words = [*map(_word, sample.args), *(f"{key}={_word(value)}" for key, value in sample.kwargs.items())]
    return f"({', '.join(words)})"


def _word(value: Any) -> str:
    if isinstance(value, Tensor):
        laid = "" if value.is_contiguous() else f" strides {list(value.stride())}"
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}{laid}"
    if type(value) in (list, tuple):
        inner = ", ".join(map(_word, value))
        return f"[{inner}]" if type(value) is list else f"({inner})"
    return value.name if isinstance(value, DType) else str(value) if isinstance(value, Device) else repr(value)
