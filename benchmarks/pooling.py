"""Poolings of what was computed before them, and gradients of windows, beside eager mode and torch.compile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from costs import Costs, script
from torch import Tensor
from turns import Compared, in_turns, table

import dovetail

ROUNDS, WARM = 30, 12  # rounds of one call each, and calls before the first
SHAPE = 2, 64, 112, 112
STATISTICS = torch.linspace(0.5, 1.5, 4 * SHAPE[1]).view(4, SHAPE[1])  # of a batch_norm, and its weight and bias
BEFORE: dict[str, Callable[[Tensor], Tensor]] = {
    "": lambda x: x,
    "gelu, ": F.gelu,
    "batch_norm, relu, ": lambda x: F.relu(F.batch_norm(x, *STATISTICS)),
}
POOLS: dict[str, Callable[[Tensor], Tensor]] = {
    "average of 3 by 3, stride 1": lambda x: F.avg_pool2d(x, 3, 1, 1),
    "average of 5 by 5, stride 1": lambda x: F.avg_pool2d(x, 5, 1, 2),
    "average of 2 by 2, stride 2": lambda x: F.avg_pool2d(x, 2, 2),
    "largest of 3 by 3, stride 1": lambda x: F.max_pool2d(x, 3, 1, 1),
    "largest of 3 by 3, stride 2": lambda x: F.max_pool2d(x, 3, 2, 1),
}
TRAINED: dict[str, Callable[[Tensor], Tensor]] = {
    **{pool: fn for pool, fn in POOLS.items() if "average" in pool},
    "average of 3 by 3, stride 2": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "unfold of 3 by 3": lambda x: F.unfold(x[:, :16], 3, padding=1),
    "unfold of 3 by 3, dilation 2": lambda x: F.unfold(x[:, :16], 3, dilation=2, padding=2),
    "fold of 3 by 3": lambda x: F.fold(x.flatten(1)[:, : 144 * 54**2].view(2, 144, -1), (56, 56), 3),
    "fold of 8 by 8, stride 8": lambda x: F.fold(x.reshape(2, 4096, -1), (112, 112), 8, stride=8),
}
WAYS: dict[str, Callable[[Callable], Callable]] = {"eager": lambda fn: fn, "dovetail": dovetail.jit, "torch.compile": torch.compile}


def compared(name: str, of: Callable[[Tensor], Tensor], *, training: bool = False) -> Compared:
    """Time a call, or a call and its backward, by each way; their results agree."""
    torch.compiler.reset()  # it compiles one function a few times only
    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(0)).requires_grad_(training)
    functions = {way: make(lambda x: of(x)) for way, make in WAYS.items()}
    cotangent = torch.randn(of(x).shape, generator=torch.Generator().manual_seed(1))

    def result(function: Callable) -> Tensor:
        out = function(x)
        return torch.autograd.grad(out, x, cotangent)[0] if training else out

    def spent(function: Callable) -> float:
        began = time.process_time()
        result(function)
        return time.process_time() - began

    for function in functions.values():
        for _ in range(WARM):
            result(function)
        torch.testing.assert_close(result(function), result(functions["eager"]), rtol=1e-4, atol=1e-5)
    return in_turns({way: partial(spent, function) for way, function in functions.items()}, ROUNDS, name)


@script
def main() -> Iterator[Costs]:
    """Measure poolings of what was computed before them, and gradients of windows, beside eager mode and torch.compile."""
    torch.set_num_threads(1)
    cases = {b + pool: compared(b + pool, lambda x, b=b, pool=pool: POOLS[pool](BEFORE[b](x))) for b in BEFORE for pool in POOLS}
    cases |= {f"{name}, and its gradient": compared(name, of, training=True) for name, of in TRAINED.items()}
    rows, figures = table(cases)
    how = (
        f"float32, {' by '.join(map(str, SHAPE))}: processor time on one thread, the least of {ROUNDS} rounds, in turns; "
        "the factor is the speed as a multiple of eager mode's, the median within a round."
    )
    yield Costs("pooling", "Pooling", how, ("", *WAYS), rows, figures)


if __name__ == "__main__":
    main()
