"""Training steps of a small network, where the time between kernels counts: the forward compiled alone, and the whole step."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import models
import numpy as np
import torch
import torch.nn.functional as F
from costs import Costs, script
from turns import Compared, in_turns, table

import dovetail

ROUNDS, A_ROUND, WARM = 200, 20, 150  # rounds, steps in each, steps before the first one
FORWARD, WHOLE, PEER, JAX = "dovetail, the forward", "dovetail, the whole step", "torch.compile, the forward", "jax.jit, the whole step"
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"  # XLA's, read once
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.01),
    "Adam": torch.optim.Adam,
    "Adam, fused": lambda parameters: torch.optim.Adam(parameters, fused=True),
}


Step = Callable[[], None]
Parameters = Callable[[], Iterable[torch.Tensor]]


def subjects(optimizer: str) -> dict[str, tuple[Parameters, Step]]:
    """Return how the same network is trained in different ways: its parameters now, and a step."""
    torch.manual_seed(0)
    x, labels = torch.randn(32, 784), torch.randint(10, (32,))

    def build(compile: Callable = lambda model: model) -> tuple[Parameters, Step]:
        torch.manual_seed(0)
        model = models.digits()
        forward, updates = compile(model), OPTIMIZERS[optimizer](model.parameters())

        def step() -> None:
            updates.zero_grad()
            F.cross_entropy(forward(x), labels).backward()
            updates.step()

        return model.parameters, step

    parameters, step = build()
    steps = {"eager": build(), FORWARD: build(dovetail.jit), WHOLE: (parameters, dovetail.jit(step)), PEER: build(torch.compile)}
    if find_spec("jax") and find_spec("optax"):
        steps[JAX] = in_jax(build()[0](), optimizer, x, labels)
    return steps


def in_jax(parameters: Iterable[torch.Tensor], optimizer: str, x: torch.Tensor, labels: torch.Tensor) -> tuple[Parameters, Step]:
    """Return the same for JAX with optax, which reuses the buffers from step to step."""
    os.environ.setdefault("XLA_FLAGS", ONE_THREAD)
    import jax
    import jax.numpy as jnp
    import optax

    updates = optax.sgd(0.01) if optimizer == "SGD" else optax.adam(0.001)
    inputs, targets = jnp.asarray(x.numpy()), jnp.asarray(labels.numpy())

    def loss(weights: Any) -> Any:
        first, first_bias, second, second_bias = weights
        logits = jax.nn.relu(inputs @ first.T + first_bias) @ second.T + second_bias
        return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()

    @partial(jax.jit, donate_argnums=(0, 1))
    def train(weights: Any, state: Any) -> Any:
        changes, state = updates.update(jax.grad(loss)(weights), state)
        return optax.apply_updates(weights, changes), state

    weights = [jnp.array(p.detach().numpy()) for p in parameters]
    now = [weights, updates.init(weights)]

    def step() -> None:
        now[:] = train(*now)
        jax.block_until_ready(now)

    return lambda: [torch.from_numpy(np.array(weight)) for weight in now[0]], step


def compared(optimizer: str) -> Compared:
    """Time a step of each subject; their parameters agree."""
    steps = subjects(optimizer)
    for _, step in steps.values():
        for _ in range(WARM):
            step()
    for name, (parameters, _) in steps.items():
        for mine, theirs in zip(parameters(), steps["eager"][0](), strict=True):
            torch.testing.assert_close(mine.detach(), theirs.detach(), rtol=1e-2, atol=1e-3, msg=lambda text, name=name: f"{name}: {text}")
    return in_turns({name: partial(spent, step) for name, (_, step) in steps.items()}, ROUNDS, optimizer)


def spent(step: Callable[[], None]) -> float:
    """Return the processor time of one step: other processes do not count."""
    began = time.process_time()
    for _ in range(A_ROUND):
        step()
    return (time.process_time() - began) / A_ROUND


@script
def main() -> Iterator[Costs]:
    """Measure training steps of a small network beside eager mode, torch.compile and, where it is installed with optax, jax.jit."""
    torch.set_num_threads(1)
    rows, figures = table({optimizer: compared(optimizer) for optimizer in OPTIMIZERS})
    how = (
        "An MLP 784-128-10 at batch 32, zero_grad() to step(): processor time on one thread, "
        f"the least of {ROUNDS} rounds of {A_ROUND} steps, in turns; "
        "the factor is the speed as a multiple of eager mode's, the median within a round."
    )
    if JAX in figures["SGD"]["speeds"]:
        how += f" JAX is {version('jax')}."
    yield Costs("small_training", "Training steps of a small network", how, ("", *figures["SGD"]["speeds"]), rows, figures)


if __name__ == "__main__":
    main()
