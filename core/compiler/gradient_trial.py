"""Trials of grad rules: one operation, differentiated by an executor's rule and by the reference's.

Each is compiled once, and run for several cotangents: random ones, the same number everywhere, laid out as the gradient of a sum is, random ones
with zeros among them, as behind a relu, and the first ones again, which show gradients that are kept from an earlier call and races.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dovetail.compiler.entry import compile_call
from dovetail.executors import Executor, resolve_executors, use
from dovetail.executors.discovery.plugin_errors import ContractError
from dovetail.executors.trials.reference import UNITS, widened
from dovetail.executors.trials.tolerance import agreement, differs
from dovetail.trace import BoundSymbol, Proxy, is_proxy, leaves, tree_map
from dovetail.trace.passes.grad import requires_grad

COTANGENTS = (0, None, 1, 0)  # seeds; None for one number everywhere
SPARSE = 1  # the seed of cotangents with zeros among them
SAMPLES = 4  # of gradients with other rounding, by which a difference is judged


def gradients_differ(line: BoundSymbol, inputs: Mapping[Proxy, Any], ex: Executor, reference: Iterable[Executor]) -> str | None:
    """Return how `line` differs, differentiated by `ex`, from the reference in results or gradients, for several cotangents; None where it agrees."""
    with use(check=True):  # the operations of a rule may return something else than they promise
        own = _Gradients(line, inputs, [ex])
    theirs = _Gradients(line, inputs, reference)
    for seed in COTANGENTS:
        try:
            got, expected = own(seed), theirs(seed)
        except ContractError as error:
            return f"in its gradients, {str(error).partition(chr(10))[0]}"
        if all(
            [
                agreement(a, b).difference is None
                for a, b in zip((*got.results, *got.gradients), (*expected.results, *expected.gradients), strict=True)
            ]
        ):
            continue
        wide = _Gradients(line, inputs, reference, wide=True)
        noise, exact = torch.Generator().manual_seed(0), wide(seed)
        samples: list[Step] = []
        while len(samples) < SAMPLES:  # a difference that some samples explain, more of them explain as well
            samples.append(wide(seed, noise))
            difference = got.difference(expected, exact, samples)
            if difference is None:
                break
        else:
            return difference
    return None


class Step(NamedTuple):
    """The differentiable results of a line, and the gradients for some cotangents of these."""

    results: list[Any]
    gradients: list[Any]

    def difference(self, expected: Step, exact: Step, samples: Sequence[Step]) -> str | None:
        """Return how this one differs beyond rounding, which `samples` show; None where it does not."""
        if (difference := differs(self.results, expected.results, exact.results, rounded=[each.results for each in samples])) is not None:
            return f"in its results, as its grad rule computes them, {difference}"
        difference = differs(self.gradients, expected.gradients, exact.gradients, rounded=[each.gradients for each in samples])
        return None if difference is None else f"in its gradients, {difference}"


class _Gradients:
    """The gradients of a line with respect to the floating inputs that require one, by some executors.

    `wide` computes them in twice the precision.
    """

    def __init__(self, line: BoundSymbol, inputs: Mapping[Proxy, Any], executors: Iterable[Executor], *, wide: bool = False):
        self.line, self.proxies, self.wide = line, list(inputs), wide
        wanted = {p for p in inputs if requires_grad(p)} or set(inputs)  # rules may compute something else where another argument needs none
        self.inputs = [_own(x, wide, p in wanted) if isinstance(x, Tensor) else x for p, x in inputs.items()]
        self.epsilons = [torch.finfo(x.dtype).eps if isinstance(x, Tensor) and x.is_floating_point() else 0.0 for x in inputs.values()]
        with torch.enable_grad():
            self.entry = compile_call(self._line, tuple(self.inputs), {}, resolve_executors(executors), interpretation="native")

    def _line(self, *values: Any) -> Any:
        env = dict(zip(self.proxies, values, strict=True))
        args, kwargs = tree_map(lambda leaf: env[leaf] if is_proxy(leaf) else leaf, (self.line.args, self.line.kwargs))
        return self.line.symbol(*args, **kwargs)

    def __call__(self, seed: int | None, noise: torch.Generator | None = None) -> Step:
        """Return the results, and the gradients for one choice of cotangents; with `noise`, of inputs and cotangents that are rounded otherwise."""
        values, epsilon = self.inputs, max(self.epsilons, default=0.0)
        if noise is not None:
            values = [_rounded(x, eps, noise) if eps else x for x, eps in zip(values, self.epsilons)]
        with torch.enable_grad():
            results = [x for x in leaves(self.entry.call(tuple(values), {})) if isinstance(x, Tensor) and x.requires_grad]
            cotangents = _cotangents(results, seed)
            if noise is not None:
                cotangents = [_rounded(g, epsilon, noise) for g in cotangents]
            differentiable = [x for x in values if isinstance(x, Tensor) and x.requires_grad]
            gradients = torch.autograd.grad(results, differentiable, cotangents, allow_unused=True)
        return Step([x.detach() for x in results], list(gradients))


def _cotangents(results: Iterable[Tensor], seed: int | None) -> list[Tensor]:
    if seed is None:
        return [torch.full((), 0.75).to(x).expand(x.shape) for x in results]
    generator = torch.Generator().manual_seed(seed)
    noise = [torch.randn(x.shape, generator=generator) for x in results]
    return [(g.relu() if seed == SPARSE else g).to(x) for g, x in zip(noise, results)]


def _own(x: Tensor, wide: bool, wanted: bool) -> Tensor:
    """Return a copy of `x` that requires grad if its gradient is wanted and it can."""
    copy = widened(x.detach()) if wide else x.detach()
    return copy.clone().requires_grad_(wanted and copy.is_floating_point())


def _rounded(x: Tensor, epsilon: float, noise: torch.Generator) -> Tensor:
    """Return `x` with an error of a few units in the last place, as an input of its own."""
    unit = (torch.rand(x.shape, generator=noise, dtype=torch.float64) * 2 - 1).to(x)
    return (x.detach() * (1 + UNITS * epsilon * unit)).requires_grad_(x.requires_grad)
