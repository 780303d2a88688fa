"""Compiles every operation with every dtype that kernels take, for an H100; prints how many kernels there are.  Not run in the interpreter."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from triton_helpers import planned

from dovetail import prims
from dovetail.dtypes import DType
from dovetail.langs.torch import TO_TORCH, spec_of
from dovetail_triton_exec import compiling
from dovetail_triton_exec.claims import STORED
from dovetail_triton_exec.ops import KINDS

TOGETHER = 12  # operations in one program
POWERS = {"float": (0, 0.5, 1, 2, 2.5, 3, -0.5, -1, -2), "int": (0, 1, 3)}


def elementwise(name: str, dtype: DType, x: Any, y: Any) -> list:
    """What an operation gives for tensors of a dtype, in each of its forms."""
    op = getattr(prims, name)
    if name == "pow":
        return [*(op(x, n) for n in POWERS[dtype.kind]), *([op(x, y), op(2.0, y)] if dtype.kind == "float" else [])]
    if name == "where":
        return [op(prims.ne(x, y), x, y)]
    if name == "convert_element_type":
        return [op(x, dtype=each) for each in STORED]
    tensors = [p for p in inspect.signature(op.meta).parameters.values() if p.kind is not p.KEYWORD_ONLY]
    return [op(*(x, y)[: len(tensors)])]


def reductions(x: torch.Tensor) -> list[torch.Tensor]:
    """Reductions along rows and down columns."""
    names = ("sum", "prod", "amax", "amin", "any", "all", *(() if x.dtype is torch.bool else ("argmax", "argmin")))
    return [getattr(x, name)(dim) for dim in (1, 0) for name in names]


def moves(x: torch.Tensor, i: torch.Tensor) -> list[torch.Tensor]:
    """Elements picked, put, padded, joined and turned around."""
    picked = [x.gather(1, i), x.index_select(0, i[0]), x[i[:, 0], i[:, 1]], x.scatter(1, i[:, :1], x[:, :1])]
    turned = [x.flip(0), x.t().clone(), x.tril(), x.diagonal().clone(), x.unfold(0, 4, 2).clone()]
    counted = torch.arange(3, 200, 7, device=x.device).to(x.dtype)
    return [*picked, *turned, F.pad(x, (1, 2), value=1), torch.cat([x, x], 1), torch.where(x == x, x, 0), counted]


def draws(seed: torch.Tensor, offset: torch.Tensor) -> list:
    """Numbers by counters."""
    floats = [each for each in STORED if each.kind == "float"]
    how = [{"shape": (7, 5), "dtype": each, "device": spec_of(seed).device} for each in floats]
    uniform = [prims.uniform_philox(seed, offset, low=0.0, high=1.0, **each) for each in how]
    return uniform + [prims.normal_philox(seed, offset, mean=1.0, std=2.0, **each) for each in how]


def programs() -> Iterator[tuple[str, Callable, tuple[torch.Tensor, ...]]]:
    """Names, functions and what they are called with."""
    for dtype in STORED:
        x, y = (torch.ones(64, 48, dtype=TO_TORCH[dtype]) for _ in range(2))
        known = [name for name, kinds in KINDS.items() if dtype.kind in kinds]
        for start in range(0, len(known), TOGETHER):
            names = known[start : start + TOGETHER]
            yield f"{dtype.short} {' '.join(names)}", lambda x, y, n=names, d=dtype: [elementwise(name, d, x, y) for name in n], (x, y)
        yield f"{dtype.short} reductions", reductions, (x,)
        yield f"{dtype.short} long reductions", reductions, (torch.ones(4, 70000, dtype=TO_TORCH[dtype]),)
        yield f"{dtype.short} moves", moves, (x, torch.zeros(64, 3, dtype=torch.int64))
    yield "draws", draws, (torch.tensor(3), torch.tensor(5))


def main() -> None:
    """The number of kernels for each program."""
    report = {}
    for name, fn, args in programs():
        report[name] = 0
        for region in planned(fn, *args):
            region.folder = sys.argv[1]
            report[name] += len(compiling.resources(region, 90))
    print(json.dumps(report))


if __name__ == "__main__":
    main()
