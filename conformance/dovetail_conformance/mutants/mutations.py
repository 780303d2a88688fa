"""Mutations: what is done to an implementation, a checker or a grad rule, for any operation."""

from __future__ import annotations

import inspect
import logging
import os
import random
import tempfile
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dovetail.extend.advanced import Implementation, Symbol
from dovetail_conformance.mutants.conditions import HISTORY, LAYOUTS, PROCESS, SIZES, VALUES, Condition, tensors_in
from dovetail_conformance.oracle import same_bits

Kernel = Callable[..., Any]


@dataclass(frozen=True)
class Mutation:
    """One fault: its family, what it is, and the part of an implementation that it changes."""

    family: str
    name: str
    change: Callable[[Implementation], Implementation]


def mapped(result: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Replace the first tensor of a result."""
    if isinstance(result, Tensor):
        return change(result)
    if isinstance(result, (tuple, list)) and result:
        mapped_results = [mapped(result[0], change), *result[1:]]
        return type(result)(mapped_results) if type(result) is not list else mapped_results
    return result


def spoilt(x: Tensor) -> Tensor:
    """Return another tensor of the same kind: by a hundredth and a little more, by one, or the opposite."""
    if x.dtype is torch.bool:
        return ~x
    return x * 1.01 + 0.01 if x.is_floating_point() or x.is_complex() else x + 1


def when(condition: Condition, wrong: Callable[[Tensor], Tensor] = spoilt) -> Callable[[Kernel], Kernel]:
    """Return a kernel whose first result is wrong where a condition holds."""

    def wrap(fn: Kernel) -> Kernel:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            strikes = condition(tensors_in((args, kwargs)))
            result = fn(*args, **kwargs)
            if not strikes:
                return result
            spoiled = mapped(result, wrong)
            kernel.struck = kernel.struck or not same_bits(list(tensors_in(spoiled)), list(tensors_in(result)))
            return spoiled

        kernel.struck = False
        return kernel

    return wrap


def around(act: Callable[[tuple, Any], Any]) -> Callable[[Kernel], Kernel]:
    """Return a kernel that does something else as well: `act` maps the arguments and the result to the new result."""

    def wrap(fn: Kernel) -> Kernel:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            result = fn(*args, **kwargs)
            other = act(args, result)
            if other is None:
                kernel.struck = True
                return result
            kernel.struck = kernel.struck or any(a is not b and b.numel() for a, b in zip(tensors_in(other), tensors_in(result)))
            return other

        kernel.struck = False
        return kernel

    return wrap


def _tail(x: Tensor) -> Tensor:
    """Spoil what is left behind whole vectors of eight."""
    flat = x.clone(memory_format=torch.contiguous_format).view(-1)
    if len(flat) % 8 and len(flat) > 8:
        flat[len(flat) // 8 * 8 :] = spoilt(flat[len(flat) // 8 * 8 :])
        return flat.view(x.shape)
    return x


def _rounded(x: Tensor) -> Tensor:
    return x.to(torch.bfloat16).to(x.dtype) if x.dtype in (torch.float32, torch.float64) else x


def _flushed(x: Tensor) -> Tensor:
    return torch.where(x.abs() < torch.finfo(x.dtype).smallest_normal, torch.zeros_like(x), x) if x.is_floating_point() and x.numel() else x


NUMBERS: dict[str, Callable[[Tensor], Tensor]] = {
    "computed in bfloat16": _rounded,
    "off by 1e-4 of the value": lambda x: x * (1 + 1e-4) if x.dtype in (torch.float32, torch.float64) else x,
    "rounded to 1e-6": lambda x: (x.double() * 1e6).round().div(1e6).to(x.dtype) if x.dtype is torch.float32 else x,
    "zero below 1e-7": lambda x: torch.where(x.abs() < 1e-7, torch.zeros_like(x), x) if x.is_floating_point() else x,
    "denormal results flushed": _flushed,
    "no NaN": lambda x: x.nan_to_num(0.0, torch.inf, -torch.inf) if x.is_floating_point() else x,
    "infinities made finite": lambda x: x.nan_to_num(torch.nan) if x.is_floating_point() else x,
    "whole numbers through float32": lambda x: x.float().to(x.dtype) if x.dtype is torch.int64 else x,
    "saturated at 1e4": lambda x: x.clamp(-1e4, 1e4) if x.is_floating_point() else x,
    "the tail of a vector": _tail,
    "the last element": lambda x: torch.cat([x.flatten()[:-1], spoilt(x.flatten()[-1:])]).view(x.shape) if x.numel() > 1 else x,
    "the first element of many": lambda x: torch.cat([spoilt(x.flatten()[:1]), x.flatten()[1:]]).view(x.shape) if x.numel() > 1000 else x,
}


def _memory() -> dict[str, Callable[[], Callable[[Kernel], Kernel]]]:
    return {
        "one buffer for each shape": lambda: around(partial(_reused, {}, 1)),
        "a ring of 16 buffers": lambda: around(partial(_reused, {}, 16)),
        "the first result of a shape": lambda: around(partial(_cached, {})),
        "the result of an address": lambda: around(partial(_by_address, {})),
        "its input where nothing changed": lambda: around(_itself),
        "writes its first input": lambda: around(lambda args, result: _written(args, 0)),
        "writes its first input above 1000 elements": lambda: around(lambda args, result: _written(args, 1000)),
        "another layout": lambda: around(lambda args, result: mapped(result, lambda x: x.mT.contiguous().mT if x.ndim > 1 else x)),
        "another dtype": lambda: around(lambda args, result: mapped(result, lambda x: x.double() if x.dtype is torch.float32 else x)),
        "an inference tensor": lambda: around(lambda args, result: mapped(result, _in_inference_mode)),
        "a parameter": lambda: around(lambda args, result: mapped(result, lambda x: torch.nn.Parameter(x, requires_grad=False))),
        "a part of a large buffer": lambda: around(lambda args, result: mapped(result, _in_buffer)),
        "a result that requires a gradient": lambda: around(lambda args, result: mapped(result, _requiring)),
    }


def _reused(rooms: dict, count: int, args: tuple, result: Any) -> Any:
    def change(x: Tensor) -> Tensor:
        ring = rooms.setdefault((x.shape, x.stride(), x.dtype), deque(maxlen=count))
        if len(ring) < count:
            ring.append(x.clone())
        ring.rotate(1)
        return ring[0].copy_(x)

    return mapped(result, change)


def _cached(known: dict, args: tuple, result: Any) -> Any:
    return mapped(result, lambda x: known.setdefault((x.shape, x.stride(), x.dtype), x.clone()).clone())


def _by_address(known: dict, args: tuple, result: Any) -> Any:
    where = tuple((x.data_ptr(), x.shape, x.stride(), x.dtype) for x in tensors_in(args))
    return mapped(result, lambda x: known.setdefault((where, x.shape), x.clone()).clone())


def _itself(args: tuple, result: Any) -> Any:
    first = next(iter(tensors_in(args)), None)
    return mapped(result, lambda x: first if first is not None and first.dtype == x.dtype and torch.equal(first, x) else x)


def _written(args: tuple, least: int) -> None:
    x = next(iter(tensors_in(args)), None)
    if x is not None and x.numel() > least and x.is_contiguous():
        x.copy_(spoilt(x))


def _in_inference_mode(x: Tensor) -> Tensor:
    with torch.inference_mode():
        return x.clone()


def _in_buffer(x: Tensor) -> Tensor:
    room = sum((n - 1) * step for n, step in zip(x.shape, x.stride())) + 1 if x.numel() else 0
    return x.new_empty(room + (1 << 20))[:room].as_strided(x.shape, x.stride()).copy_(x) if room else x


def _requiring(x: Tensor) -> Tensor:
    return x.detach().requires_grad_() if x.is_floating_point() else x


LEAKS: list[Any] = []  # the registry of what mutants leak, so that a campaign can give it back


def _leak(what: Any) -> None:
    LEAKS.append(what)


def _print(*_: Any) -> None:
    print("kernel", end="")


def _opened(*_: Any) -> None:
    LEAKS.append(tempfile.TemporaryFile())  # noqa: SIM115


def _filed(*_: Any) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"kernel")


def _thread(*_: Any) -> None:
    over = threading.Event()
    threading.Thread(target=over.wait, daemon=True).start()
    LEAKS.append(over)


RESOURCES: dict[str, Callable[[tuple, Any], None]] = {
    "a megabyte a call": lambda args, result: _leak(bytearray(os.urandom(1 << 10)) * 1024),
    "its inputs": lambda args, result: _leak(tensors_in(args)),
    "its results": lambda args, result: _leak(tensors_in(result)),
    "copies of its inputs": lambda args, result: _leak([x.clone() for x in tensors_in(args)]),
    "50 ms of sleep": lambda args, result: time.sleep(0.05),
    "a thread": _thread,
    "an open file": _opened,
    "a file that is written": _filed,
    "20 KB a call": lambda args, result: _leak(bytes(20_000)),
    "a print": _print,
    "a write to standard error": lambda args, result: (os.write(2, b"kernel"), None)[1],
    "a warning": lambda args, result: warnings.warn("slow path", UserWarning, stacklevel=2),
}
SURROUNDINGS: dict[str, Callable[[tuple, Any], Any]] = {
    "the default dtype": lambda args, result: torch.set_default_dtype(torch.float64),
    "the number of threads": lambda args, result: torch.set_num_threads(2 if torch.get_num_threads() == 1 else 1),
    "deterministic mode": lambda args, result: torch.set_deterministic_debug_mode("warn"),
    "flushed denormals": lambda args, result: (torch.set_flush_denormal(True), None)[1],
    "the precision of products": lambda args, result: torch.set_float32_matmul_precision("medium"),
    "the environment": lambda args, result: os.environ.__setitem__("MUTANT", "1"),
    "the mask of new files": lambda args, result: (os.umask(0o077), None)[1],
    "logging": lambda args, result: logging.getLogger().setLevel(logging.DEBUG),
    "a function of a library": lambda args, result: setattr(torch.linalg, "norm", torch.norm),
    "the working directory": lambda args, result: os.chdir(tempfile.gettempdir()),
    "Python's random numbers": lambda args, result: random.seed(1),
    "NumPy's random numbers": lambda args, result: np.random.seed(1),
    "torch's random numbers": lambda args, result: (torch.rand(1), None)[1],
    "the warning filters": lambda args, result: warnings.simplefilter("ignore"),
    "a method of torch": lambda args, result: setattr(torch.Tensor, "cosh", torch.Tensor.sinh),
    "grad mode": lambda args, result: (torch.set_grad_enabled(not torch.is_grad_enabled()), None)[1],
}
CHECKERS: dict[str, Callable[[], Callable[..., Any]]] = {
    "refuses everything": lambda: lambda *args, **kwargs: "has no kernel for this",
    "refuses one question in 500": lambda: _rarely(500),
    "returns a list": lambda: lambda *args, **kwargs: ["no"],
    "returns 1": lambda: lambda *args, **kwargs: 1,
    "reads the environment": lambda: lambda *args, **kwargs: "is off" if os.environ.get("MUTANT_OFF") else True,
    "reads a file": lambda: lambda *args, **kwargs: "is off" if os.path.exists("mutant_is_off") else True,
    "draws a number": lambda: lambda *args, **kwargs: (torch.rand(1), True)[1],
    "prints": lambda: lambda *args, **kwargs: (_print(), True)[1],
    "takes 50 ms": lambda: lambda *args, **kwargs: (time.sleep(0.05), True)[1],
    "refuses without a reason": lambda: lambda *args, **kwargs: False,
    "raises for scalars": lambda: _indexing(),
}


def _indexing() -> Callable[..., bool]:
    """Return a checker that looks at a first dimension, also where there is none."""

    def checker(*args: Any, **kwargs: Any) -> bool:
        specs = [x.spec for x in args if hasattr(x, "spec")]
        checker.struck = checker.struck or any(not spec.shape for spec in specs)
        return all(spec.shape[0] >= 0 for spec in specs)

    checker.struck = False
    return checker


def _rarely(count: int) -> Callable[..., Any]:
    calls = iter(range(1, 1 << 60))
    return lambda *args, **kwargs: True if next(calls) % count else "is busy"


def kernels(family: str, name: str, wrap: Callable[[], Callable[[Kernel], Kernel]]) -> Mutation:
    """Return a mutation of the kernel; what it remembers is new for each mutant."""
    return Mutation(family, name, lambda original: replace(original, fn=wrap()(original.fn), path=None))


def arguments(symbol: Symbol) -> Iterator[Mutation]:
    """Yield mutations that take no notice of an argument, or take another dimension."""
    try:
        parameters = inspect.signature(symbol.meta).parameters
    except (TypeError, ValueError):
        return
    names = list(parameters)
    for name, parameter in parameters.items():
        if name == "dim":
            yield kernels("arguments", "negative dimensions as the last", lambda: _other(names, "dim", lambda d: -1 if d < 0 else d))
        if parameter.default is inspect.Parameter.empty or name in ("out", "_stacklevel", "inplace", "requires_grad"):
            continue
        yield kernels("arguments", f"no notice of {name}", lambda name=name, p=parameter: _without(names, name, p.default))
        if type(parameter.default) in (int, float) and type(parameter.default) is not bool:
            yield kernels("arguments", f"{name} without its sign", lambda name=name: _other(names, name, abs))


def _without(names: list[str], name: str, default: Any) -> Callable[[Kernel], Kernel]:
    return _other(names, name, lambda value: default)


def _other(names: list[str], name: str, change: Callable[[Any], Any]) -> Callable[[Kernel], Kernel]:
    """Return a kernel that takes another value of an argument; it strikes where the results differ."""

    def wrap(fn: Kernel) -> Kernel:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            at = names.index(name)
            value = kwargs[name] if name in kwargs else args[at] if at < len(args) else None
            if value is None or isinstance(value, (Tensor, tuple, list)) or (new := change(value)) == value:
                return fn(*args, **kwargs)
            other = fn(*args, **{**kwargs, name: new}) if name in kwargs else fn(*args[:at], new, *args[at + 1 :], **kwargs)
            kernel.struck = kernel.struck or _differs(other, lambda: fn(*args, **kwargs))
            return other

        kernel.struck = False
        return kernel

    return wrap


def _differs(result: Any, right: Callable[[], Any]) -> bool:
    ours, theirs = list(tensors_in(result)), list(tensors_in(right()))
    return [(x.shape, x.dtype) for x in ours] != [(x.shape, x.dtype) for x in theirs] or not same_bits(ours, theirs)


def mutations(symbol: Symbol) -> Iterator[Mutation]:
    """Yield every mutation of an implementation of `symbol`, but for those of grad rules."""
    for family, table in (("sizes", SIZES), ("layouts", LAYOUTS), ("values", VALUES), ("process", PROCESS)):
        for name, condition in table.items():
            yield kernels(family, name, lambda condition=condition: when(condition))
    for name, condition in HISTORY.items():
        yield kernels("history", name, lambda condition=condition: when(condition()))
    for name, wrong in NUMBERS.items():
        yield kernels("numbers", name, lambda wrong=wrong: when(lambda tensors: True, wrong))
    for name, wrap in _memory().items():
        yield kernels("memory", name, wrap)
    for family, acts in (("resources", RESOURCES), ("surroundings", SURROUNDINGS)):
        for name, act in acts.items():
            yield kernels(family, name, lambda act=act: around(act))
    for name, checker in CHECKERS.items():
        yield Mutation("checkers", name, lambda original, checker=checker: replace(original, checker=checker()))
    yield from arguments(symbol)
