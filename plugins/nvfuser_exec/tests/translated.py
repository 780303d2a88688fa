"""One small program for each translator, for every dtype that it declares: what the goldens hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

import dovetail
from dovetail import devices, prims
from dovetail.dtypes import DType
from dovetail.extend import Trace
from dovetail.langs.torch import TO_TORCH
from dovetail_nvfuser_exec.translators import DTYPES, RULES

WINDOW = {"starts": (0, 1), "stops": (2, 3), "steps": (1, 1)}
Program = Callable[..., Any]  # (the prim, the dtype, x and y [2, 3], i [2] int64, c [2, 3] bool) -> results

SPECIAL: dict[str, Program] = {
    "where": lambda prim, dtype, x, y, i, c: (prim(c, x, y), prim(c, x, number(dtype))),
    "convert_element_type": lambda prim, dtype, x, y, i, c: tuple(prim(x, dtype=to) for to in DTYPES),
    "pow": lambda prim, dtype, x, y, i, c: (prim(x, 2), *((prim(x, y), prim(2.0, x)) if dtype.kind == "float" else ())),
    "bitwise_left_shift": lambda prim, dtype, x, y, i, c: prim(x, 3),
    "bitwise_right_shift": lambda prim, dtype, x, y, i, c: prim(x, 3),
    "var": lambda prim, dtype, x, y, i, c: prim(x, dims=(1,), correction=1.0),
    "var_mean": lambda prim, dtype, x, y, i, c: prim(x, dims=(0,), correction=0),
    "cumsum": lambda prim, dtype, x, y, i, c: prim(x, dim=1),
    "cumprod": lambda prim, dtype, x, y, i, c: prim(x, dim=0),
    "broadcast_in_dim": lambda prim, dtype, x, y, i, c: prims.clone(prim(x, shape=(2, 4, 3), dims=(0, 2))),
    "reshape": lambda prim, dtype, x, y, i, c: prims.clone(prim(x, shape=(3, 2))),
    "squeeze": lambda prim, dtype, x, y, i, c: prims.clone(prim(prims.reshape(x, shape=(2, 1, 3)), dims=(1,))),
    "transpose": lambda prim, dtype, x, y, i, c: prims.clone(prim(x, order=(1, 0))),
    "strided_slice": lambda prim, dtype, x, y, i, c: prims.clone(prim(x, **WINDOW)),
    "detach": lambda prim, dtype, x, y, i, c: prims.clone(prim(x)),
    "stride_order": lambda prim, dtype, x, y, i, c: prim(x, order=(1, 0)),
    "pad": lambda prim, dtype, x, y, i, c: tuple(prim(x, value=v, low=(1, 0), high=(2, -1), interior=(0, 0)) for v in (number(dtype), zero(dtype))),
    "cat": lambda prim, dtype, x, y, i, c: prim([x, y], dim=1),
    "full": lambda prim, dtype, x, y, i, c: prim(shape=(2, 3), value=number(dtype), dtype=dtype, device=devices.cpu),
    "iota": lambda prim, dtype, x, y, i, c: prim(length=5, start=1, step=2, dtype=dtype, device=devices.cpu),
    "matmul": lambda prim, dtype, x, y, i, c: prim(x, prims.transpose(y, order=(1, 0))),
    "linear": lambda prim, dtype, x, y, i, c: prim(x, y),
    "embedding": lambda prim, dtype, x, y, i, c: prim(x, i),
    "take": lambda prim, dtype, x, y, i, c: prim(x, i, dim=1),
    "take_along_axis": lambda prim, dtype, x, y, i, c: prim(x, pairs(i), dim=1),
}
REDUCTIONS = ("sum", "prod", "amax", "amin", "any", "all")
OF_TWO = "add sub mul div remainder fmod atan2 maximum minimum nextafter eq ne lt le gt ge bitwise_and bitwise_or bitwise_xor"


def number(dtype: DType) -> Any:
    """A number of the kind of a dtype, which float16 and bfloat16 round."""
    return {"float": 0.1, "int": 3, "bool": True}[dtype.kind]


def zero(dtype: DType) -> Any:
    return {"float": 0.0, "int": 0, "bool": False}[dtype.kind]


def pairs(i: Any) -> Any:
    """An index [2, 2] of one [2]."""
    return prims.clone(prims.broadcast_in_dim(i, shape=(2, 2), dims=(1,)))


def program_of(name: str) -> Program:
    """The program of a prim."""
    if name in SPECIAL:
        return SPECIAL[name]
    if name in REDUCTIONS:
        return lambda prim, dtype, x, y, i, c: (prim(x, dims=(1,)), prim(x, dims=(0, 1)))
    if name in OF_TWO.split():
        return lambda prim, dtype, x, y, i, c: (prim(x, y), prim(x, number(dtype)))
    return lambda prim, dtype, x, y, i, c: prim(x)


def declared(name: str) -> Iterator[DType]:
    """The dtypes that a translator declares."""
    for dtype in DTYPES:
        if dtype.kind in RULES[name].kinds and not (name == "nextafter" and dtype.bytes < 4):
            yield dtype


def inputs(dtype: DType) -> tuple[torch.Tensor, ...]:
    """x and y of a dtype, an index, a condition."""
    x, y = torch.tensor([[1, 0, 1], [1, 1, 0]]), torch.tensor([[1, 1, 2], [2, 1, 1]])
    if dtype.kind == "float":
        x, y = x * 0.75 - 0.25, y * 0.5
    return x.to(TO_TORCH[dtype]), y.to(TO_TORCH[dtype]), torch.tensor([1, 0]), torch.tensor([[True, False, True], [False, True, True]])


def example(name: str, dtype: DType) -> tuple[Trace, tuple[torch.Tensor, ...]]:
    """A program of one prim, as a region would be given, and inputs for it."""
    prim, program, arguments = getattr(prims, name), program_of(name), inputs(dtype)

    def fn(*args: Any) -> tuple:
        outs = program(prim, dtype, *args)
        return tuple(outs) if isinstance(outs, tuple) else (outs,)

    return dovetail.make_trace(fn)(*arguments), arguments


def eager(trace: Trace, inputs: tuple) -> list[torch.Tensor]:
    """What PyTorch gives for a program."""
    return list(dovetail.to_fx(trace)(*inputs))


CASES = [(name, dtype) for name in RULES for dtype in declared(name)]
