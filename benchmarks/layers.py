"""Training through single layers of image networks, in both memory formats, beside eager mode and torch.compile."""

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

ROUNDS, WARM = 20, 8  # rounds of one call each, and calls before the first
SHAPE = 4, 32, 56, 56
WEIGHT, BIAS = torch.linspace(0.5, 1.5, SHAPE[1]), torch.linspace(-1, 1, SHAPE[1])
LAYERS: dict[str, Callable[[Tensor], Tensor]] = {
    "interpolate, bilinear, to twice the size": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "interpolate, nearest, to twice the size": lambda x: F.interpolate(x, scale_factor=2, mode="nearest"),
    "interpolate, bilinear, to half the size": lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear"),
    "pad by what is mirrored": lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
    "batch_norm, relu": lambda x: F.relu(F.batch_norm(x, torch.zeros(SHAPE[1]), torch.ones(SHAPE[1]), WEIGHT, BIAS, training=True)),
    "group_norm": lambda x: F.group_norm(x, 8, WEIGHT, BIAS),
    "largest over channels": lambda x: x.amax(1),
    "rot90": lambda x: torch.rot90(x, 1, (2, 3)),
}
FORMATS = {"": torch.contiguous_format, ", channels last": torch.channels_last}
WAYS: dict[str, Callable[[Callable], Callable]] = {"eager": lambda fn: fn, "dovetail": dovetail.jit, "torch.compile": torch.compile}


def compared(layer: str, memory_format: torch.memory_format) -> Compared:
    """Time a forward and a backward by each way; the gradients agree."""
    torch.compiler.reset()  # it compiles one function a few times only
    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(0)).contiguous(memory_format=memory_format).requires_grad_()
    cotangent = torch.randn_like(LAYERS[layer](x))
    functions = {way: make(lambda x: LAYERS[layer](x)) for way, make in WAYS.items()}

    def gradient(function: Callable) -> Tensor:
        return torch.autograd.grad(function(x), x, cotangent)[0]

    def spent(function: Callable) -> float:
        began = time.process_time()
        gradient(function)
        return time.process_time() - began

    for function in functions.values():
        for _ in range(WARM):
            gradient(function)
        torch.testing.assert_close(gradient(function), gradient(functions["eager"]), rtol=1e-3, atol=1e-4)
    return in_turns({way: partial(spent, function) for way, function in functions.items()}, ROUNDS, layer)


@script
def main() -> Iterator[Costs]:
    """Measure training through single layers, in both memory formats, beside eager mode and torch.compile."""
    torch.set_num_threads(1)
    rows, figures = table({layer + suffix: compared(layer, memory_format) for layer in LAYERS for suffix, memory_format in FORMATS.items()})
    how = (
        f"float32, {' by '.join(map(str, SHAPE))}, forward and backward: processor time on one thread, the least of {ROUNDS} rounds, in turns; "
        "the factor is the speed as a multiple of eager mode's, the median within a round."
    )
    yield Costs("layers", "Layers in training", how, ("", *WAYS), rows, figures)


if __name__ == "__main__":
    main()
