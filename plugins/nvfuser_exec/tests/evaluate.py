"""Programs in nvFuser's own evaluator, on the CPU: what definitions mean to nvFuser, in numbers, without a device.

`nvfuser_direct.validate_with_auto_inferred_outputs` computes the outputs of a definition with ATen and compares them with those it is given.
It takes tensors of CUDA devices, and numbers in 0-dimensional tensors of the CPU.  So here each element of an input is such a number, and
the definition puts them together first; and each element of a result is an output of its own.  `no_device.c` stands in for the driver.

Run as a program, it checks every example, and every sample of the conformance suite that is small, and prints a list of
[prim, dtype, arguments, what differs] as JSON; nothing differs where that is null.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import nvfuser_direct as nv
import torch
from samples import samples
from translated import CASES, eager, example

from dovetail.extend import Trace
from dovetail_nvfuser_exec.definitions import Definitions
from dovetail_nvfuser_exec.program import Program
from dovetail_nvfuser_exec.translators import RULES

ON_DEVICE = ("full", "iota")  # made from nothing: the evaluator makes them on a CUDA device


class Scattered:
    """A definition whose tensors come as numbers, and whose results go as such; otherwise nvFuser's own."""

    def __init__(self, inputs: list[Any], outputs: list[torch.Tensor]):
        self.whole, self.inputs, self.outputs = nv.FusionDefinition(), iter(inputs), iter(outputs)
        self.ops = self.whole.ops

    def __enter__(self) -> Scattered:
        self.whole.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.whole.__exit__(*error)

    def define_tensor(self, *, dtype: Any, **layout: Any) -> Any:
        shape = list(next(self.inputs).shape)
        numbers = [self.whole.define_tensor(shape=[], contiguity=[], dtype=dtype, is_cpu=True) for _ in range(math.prod(shape))]
        if not shape:
            return self.ops.set(numbers[0])
        rows = [self.ops.broadcast(x, [True]) for x in numbers]
        return self.ops.reshape(self.ops.cat(rows, 0) if len(rows) > 1 else rows[0], shape)

    def define_scalar(self, *args: Any, **kwargs: Any) -> Any:
        return self.whole.define_scalar(*args, **kwargs)

    def add_output(self, x: Any) -> None:
        n = next(self.outputs).numel()
        row = self.ops.reshape(x, [n]) if x.ndim else None
        for i in range(n):
            self.whole.add_output(self.ops.set(x) if row is None else self.ops.squeeze(self.ops.slice(row, [i], [i + 1]), [0]))

    def validate_definition(self) -> tuple:
        return self.whole.validate_definition()


def differs(trace: Trace, inputs: tuple) -> str | None:
    """What nvFuser computes otherwise than PyTorch does, for a program and its inputs; None for nothing."""
    wanted, program = eager(trace, inputs), Program(trace)
    places = [next(i for i, p in enumerate(trace.outputs) if p is stored.proxy) for stored in program.stored]
    definition = Scattered([inputs[i] for i in program.inputs], [wanted[i] for i in places])

    class Module:
        DataType, compute_tensor_descriptor = nv.DataType, staticmethod(nv.compute_tensor_descriptor)
        FusionDefinition = staticmethod(lambda: definition)

    try:
        region = Definitions().region(Module, trace)
        numbers = [n for i in program.inputs for n in inputs[i].flatten()]
        nv.validate_with_auto_inferred_outputs(region.definition.fd.whole.fusion, [n for i in places for n in wanted[i].flatten()], numbers)
    except Exception as error:
        return " ".join(str(error).split("Exception raised")[0].split())
    return None


def main() -> list[list]:
    torch.manual_seed(0)
    rows = [[name, dtype.short, "example", differs(*example(name, dtype))] for name, dtype in CASES if name not in ON_DEVICE]
    for name, dtype, trace, inputs in samples():
        if name not in ON_DEVICE:
            rows.append([name, dtype.short, ", ".join(map(str, trace.lines[:1])), differs(trace, inputs)])
    return rows


if __name__ == "__main__":
    if sys.argv[1:]:  # "sin=cos" translates the one as the other, and looks at its examples alone
        mine, other = sys.argv[1].split("=")
        RULES[mine] = RULES[other]
        json.dump([[name, dtype.short, "example", differs(*example(name, dtype))] for name, dtype in CASES if name == mine], sys.stdout)
    else:
        json.dump(main(), sys.stdout)
