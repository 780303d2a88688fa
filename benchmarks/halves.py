"""Products of 16-bit floats on this processor, forward and in training, beside eager mode and torch.compile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from costs import Costs, script
from torch import Tensor, nn
from turns import Compared, in_turns, table

import dovetail

ROUNDS, WARM = 5, 8  # rounds of one call each, and calls before the first
WIDTH = 256
WAYS: dict[str, Callable[[Callable], Callable]] = {"eager": lambda fn: fn, "dovetail": dovetail.jit, "torch.compile": torch.compile}


class Projection(nn.Module):
    """x @ weight + bias, the weight stored as GPT-2 has it, [inputs, outputs]."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(inputs, outputs) / inputs**0.5), nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x, self.weight)


class Block(nn.Module):
    """A block of a transformer, with four heads."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.heads, self.joined = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = [part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.heads(self.before(x)).chunk(3, -1)]
        x = x + self.joined(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.narrow(F.gelu(self.wide(self.between(x))))


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear, 768 to 3072, 1 row": (lambda: nn.Linear(768, 3072), (1, 768)),
    "linear, 768 to 3072, 32 rows": (lambda: nn.Linear(768, 3072), (32, 768)),
    "the same by addmm, 1 row": (lambda: Projection(768, 3072), (1, 768)),
    "the same by addmm, 32 rows": (lambda: Projection(768, 3072), (32, 768)),
    "convolution, 3 by 3, 32 to 64 channels": (lambda: nn.Conv2d(32, 64, 3, padding=1), (4, 32, 28, 28)),
    "two blocks of a transformer, 4 by 64 tokens": (lambda: nn.Sequential(Block(), Block()), (4, 64, WIDTH)),
}
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "autocast to bfloat16": torch.float32}


def compared(case: str, dtype: str, training: bool) -> Compared:
    """Time a forward, or a forward and a backward, by each way; the results agree."""
    torch.compiler.reset()
    torch.manual_seed(0)
    build, shape = CASES[case]
    module, x = build().to(DTYPES[dtype]), torch.randn(shape).to(DTYPES[dtype])
    functions = {way: make(module) for way, make in WAYS.items()}

    def result(function: Callable) -> Tensor:
        with torch.set_grad_enabled(training), torch.autocast("cpu", torch.bfloat16, enabled="autocast" in dtype):
            out = function(x)
        if not training:
            return out
        module.zero_grad()
        out.float().square().mean().backward()
        return torch.cat([p.grad.flatten() for p in module.parameters()])

    def spent(function: Callable) -> float:
        began = time.process_time()
        result(function)
        return time.process_time() - began

    expected = result(module).float()
    for function in functions.values():
        for _ in range(WARM if function is not module else 0):
            result(function)
        assert (result(function).float() - expected).norm() <= 0.02 * expected.norm()
    return in_turns({way: partial(spent, function) for way, function in functions.items()}, ROUNDS, case)


@script
def main() -> Iterator[Costs]:
    """Measure products of 16-bit floats, forward and in training, beside eager mode and torch.compile."""
    torch.set_num_threads(1)
    modes = {"": False, ", training": True}
    rows, figures = table({f"{c}, {d}{suffix}": compared(c, d, mode) for c in CASES for d in DTYPES for suffix, mode in modes.items()})
    how = (
        f"Processor time on one thread, the least of {ROUNDS} rounds, in turns; the factor is the speed as a multiple of eager mode's, the median "
        "within a round. The torch executor multiplies in float32 where the processor has no instructions for the dtype, or takes longer with them."
    )
    yield Costs("halves", "Products of 16-bit floats", how, ("", *WAYS), rows, figures)


if __name__ == "__main__":
    main()
