"""Failures as scripts: programs, tensors and calls as Python that runs without the suite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.langs.torch import TorchSymbol
from dovetail.prims import Symbol

MOST = 400  # elements of a tensor that are printed


class Name(str):
    """A name in a script."""

    def __repr__(self) -> str:
        return str(self)


def spelled_call(symbol: Symbol, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    """Write the call of an operation for a script; tensors stand there as Names."""
    words = [spelled(x) for x in args]
    names = [f"{key}={spelled(x)}" for key, x in kwargs.items()]
    path = symbol.path if isinstance(symbol, TorchSymbol) else symbol.id
    if path.startswith(".") and words:
        return f"{words[0]}{path}({', '.join(words[1:] + names)})"
    return f"{path}({', '.join(words + names)})"


def spelled(value: Any) -> str:
    """Format an argument as Python."""
    if isinstance(value, DType):
        return f"dtypes.{value.name}"
    if isinstance(value, Device):
        return f'devices.device("{value}")'
    if isinstance(value, torch.device):
        return f'torch.device("{value}")'
    if isinstance(value, Tensor):
        return literal(value)
    if isinstance(value, torch.Generator):
        return f'torch.Generator("{value.device}").manual_seed({value.initial_seed()})'
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f'float("{value}")'
    if type(value) is list:
        return f"[{', '.join(map(spelled, value))}]"
    if type(value) is tuple:
        return f"({', '.join(map(spelled, value))}{',' * (len(value) == 1)})"
    if isinstance(value, torch.Size):
        return spelled(tuple(value))
    if isinstance(value, slice):
        return f"slice({spelled(value.start)}, {spelled(value.stop)}, {spelled(value.step)})"
    return repr(value)


def literal(x: Tensor) -> str:
    """Format a tensor as Python that creates it with its values and strides."""
    x = x.detach().cpu()
    dtype = str(x.dtype)
    if (x.is_contiguous() and x.storage_offset() == 0) or x.numel() == 0:
        text = _values(x, dtype) if x.numel() else f"torch.empty({tuple(x.shape)}, dtype={dtype})"
        return text if x.is_contiguous() else f"{text}.as_strided({tuple(x.shape)}, {x.stride()})"
    size = 1 + sum((n - 1) * step for n, step in zip(x.shape, x.stride()))
    base = x.as_strided((size,), (1,), x.storage_offset())
    return f"{_values(base, dtype)}.as_strided({tuple(x.shape)}, {x.stride()})"


def _values(x: Tensor, dtype: str) -> str:
    if x.numel() > MOST:
        return f"torch.testing.make_tensor({tuple(x.shape)}, dtype={dtype}, device='cpu')"
    wide = x.to(torch.float64) if x.is_floating_point() else x.to(torch.complex128) if x.is_complex() else x
    text = repr(wide.tolist()).replace("nan", 'float("nan")').replace("inf", 'float("inf")')
    return f"torch.tensor({text}, dtype={dtype})"


def script(title: str, body: str, inputs: Sequence[Tensor], executor: str, *, grad: bool = False, eager: bool = True, mutates: bool = False) -> str:
    """Write a script that runs a program eagerly and compiled, and compares.  `body` is its expression, or its lines with a return.

    Where the program is not `eager`, the expected results come from prims without the executor under test.
    """
    names = [f"x{i}" for i in range(len(inputs))]
    lines = ["    " + line for line in (body.splitlines() if "return" in body else [f"return {body}"])]
    rows = [f"# {line}" for line in title.splitlines()]
    rows += ["import torch", "import dovetail"]
    rows += ["from dovetail import devices, dtypes, prims"] if any("prims." in line for line in lines) else []
    rows += ["", "", f"def program({', '.join(names)}):", *lines, "", "", "def inputs():"]
    rows += ["    torch.manual_seed(0)  # there were other values, too many to print"] if any("make_tensor(" in literal(x) for x in inputs) else []
    rows += [
        f"    {name} = {literal(x)}{'.requires_grad_()' if grad and (x.is_floating_point() or x.is_complex()) else ''}"
        for name, x in zip(names, inputs)
    ]
    rows += [f"    return [{', '.join(names)}]", "", ""]
    rows += ["expected = program(*inputs())" if eager else "expected = dovetail.jit(program, executors=[])(*inputs())"]
    rows += [f'got = dovetail.jit(program, executors=["{executor}"])(*inputs())']
    rows += ['print("expected", expected, "got", got, sep="\\n")', "torch.testing.assert_close(got, expected, equal_nan=True)"]
    return "\n".join(rows) + "\n"
