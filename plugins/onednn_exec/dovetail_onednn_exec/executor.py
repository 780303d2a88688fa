"""The executor: it checks the structure of a line first, then measured times decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dovetail.extend import BoundSymbol, FusionExecutor, OperatorExecutor, Trace, Verdict, options_of
from dovetail.extend.advanced import Executor, is_claim
from dovetail_onednn_exec import __version__, cases, choices, library
from dovetail_onednn_exec.claims import CASES
from dovetail_onednn_exec.matching import fuse_epilogues
from dovetail_onednn_exec.states import Conv2d, Convolution2d, Linear, records

STATES: dict[str, type] = {
    "prims.linear": Linear,
    "prims.convolution": Convolution2d,
    "torch.nn.functional.linear": Linear,
    "torch.nn.functional.conv2d": Conv2d,
    "onednn.linear_epilogue": Linear,
}
INFERENCE = ("prims.convolution", "torch.nn.functional.conv2d")  # their backward would be slower by more than the forward gains


def matmul(input: Tensor, other: Tensor) -> Tensor:
    """Multiply rows by a matrix."""
    return torch.matmul(input, other) if records(input, other) else cases.linear(input, other.t(), None)


def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """Compute torch.mm."""
    return matmul(input, mat2)


def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Compute torch.addmm with beta and alpha 1."""
    if records(input, mat1, mat2):
        return torch.addmm(input, mat1, mat2)
    if input.ndim == 1:
        return cases.linear(mat1, mat2.t(), input)
    return cases.linear(mat1, mat2.t(), None, input, epilogue="add")


FUNCTIONS: dict[str, Callable[..., Tensor]] = {"prims.matmul": matmul, "torch.matmul": matmul, "torch.mm": mm, "torch.addmm": addmm}


class OneDNN(OperatorExecutor):
    """Run products and convolutions with oneDNN where measurements on this machine show that it is faster."""

    def __init__(self, **options: Any) -> None:
        super().__init__(choices.NAME, version=__version__, dtypes=library.dtypes(), devices=["cpu"], available=library.available, symbolic=True)
        self.after = ("llvm",)  # which fuses what surrounds a product, and refuses the product itself
        self.options = choices.OPTIONS | options
        for symbol, case_of in CASES.items():
            how = {"stateful": Stateful(STATES[symbol.id], self)} if symbol.id in STATES else {"fn": FUNCTIONS[symbol.id]}
            self.implements(symbol, checker=checker(case_of), grad=symbol.id not in INFERENCE, **how)

    def verdict(self, line: BoundSymbol) -> Verdict:
        """Claim `line` where oneDNN can compute it and is faster; the verdict names both times."""
        verdict = super().verdict(line)
        if verdict is not True:
            return verdict
        if not torch.backends.mkldnn.enabled:
            return "torch.backends.mkldnn.enabled is off"
        case = CASES[line.symbol](*line.args, **line.kwargs)
        trains = any([p.spec.requires_grad for p in line.writes])
        packs = line.symbol.id in STATES and not trains  # a weight that is trained changes with each step
        return choices.verdict(case, options_of(self), packs=packs)

    def prepare(self, trace: Trace, executors: Sequence[Executor]) -> Trace:
        """Fuse functions into the linear layers before them, where that is faster than PyTorch and than a fusion executor can be."""
        fuses = any([isinstance(ex, FusionExecutor) and (ex.devices is None or "cpu" in ex.devices) for ex in executors])

        def wanted(line: BoundSymbol) -> bool:
            if not is_claim(self.verdict(line)):
                return False
            return not fuses or choices.pays(CASES[line.symbol](*line.args, **line.kwargs), options_of(self))

        return fuse_epilogues(trace, wanted)


def checker(case_of: Callable[..., cases.Case | str]) -> Callable[..., Verdict]:
    """Return a checker that claims where `case_of` returns a case, and refuses with its sentence otherwise."""

    def check(*args: Any, **kwargs: Any) -> Verdict:
        case = case_of(*args, **kwargs)
        return case if isinstance(case, str) else True

    return check


class Stateful:
    """A factory of the state at one place of a program, with the options of that moment."""

    __slots__ = ("executor", "of")

    def __init__(self, of: type, executor: OneDNN):
        self.of, self.executor = of, executor

    def __call__(self) -> Any:
        return self.of(options_of(self.executor))

    def __reduce__(self) -> tuple:
        return partial, (self.of, options_of(self.executor))


def onednn_executor(**options: Any) -> OneDNN:
    """Return an executor called "onednn"; `options` are its defaults, which configuration overrides."""
    return OneDNN(**options)
