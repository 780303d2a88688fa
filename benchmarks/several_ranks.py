"""What a training step on two processes takes: Dovetail beside DistributedDataParallel, torch.compile and FSDP2."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from costs import Costs, progress, script
from machine import span
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import dovetail
from dovetail_conformance.ranks import Ranks

RANKS, ROUNDS, STEPS, WARM = 2, 21, 3, 4
TRIALS = 64  # steps behind which trials beside the reference are rare: they are no part of a step
WIDTH, LAYERS, HEADS, LENGTH, ROWS = 128, 4, 4, 64, 4


class Block(nn.Module):
    """One layer of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.into, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.view(*x.shape[:2], HEADS, -1).transpose(1, 2) for part in self.into(self.before(x)).chunk(3, dim=-1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.mlp(x)


class Model(nn.Module):
    """Predicts the next byte; a call returns the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.positions = nn.Embedding(256, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, 256)

    def forward(self, rows: Tensor) -> Tensor:
        x = self.bytes(rows[:, :-1]) + self.positions.weight
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(x).flatten(0, 1), rows[:, 1:].flatten())


def fsdp2(model: nn.Module) -> nn.Module:
    for block in model.blocks:
        fully_shard(block, mesh=mesh())
    return fully_shard(model, mesh=mesh())


@cache
def mesh() -> Any:
    return init_device_mesh("cpu", (distributed.get_world_size(),), mesh_dim_names=("dp",))


COPIED, COMPILED, SHARDED = "DistributedDataParallel(model)", "DistributedDataParallel(torch.compile(model))", "FSDP2's fully_shard(model)"
SUBJECTS: dict[str, tuple[Callable[[nn.Module], Any], tuple[str, ...]]] = {  # (what wraps the model, what it is compared with)
    COPIED: (DistributedDataParallel, ()),
    COMPILED: (lambda model: DistributedDataParallel(torch.compile(model)), ()),
    "DistributedDataParallel(dovetail.jit(model))": (lambda model: DistributedDataParallel(dovetail.jit(model)), (COPIED, COMPILED)),
    "dovetail.jit(DistributedDataParallel(model))": (lambda model: dovetail.jit(DistributedDataParallel(model)), (COPIED, COMPILED)),
    "dovetail.distributed.data_parallel(model, mesh)": (lambda model: dovetail.distributed.data_parallel(model, mesh()), (COPIED, COMPILED)),
    SHARDED: (fsdp2, ()),
    "dovetail.distributed.fully_sharded(model, mesh)": (lambda model: dovetail.distributed.fully_sharded(model, mesh()), (SHARDED,)),
}


@cache
def step_of(name: str) -> Callable[[], Tensor]:
    """Build a subject in this rank; return a function that trains one step."""
    torch.manual_seed(0)
    wrapped = SUBJECTS[name][0](Model())
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01)
    rows = torch.randint(256, (ROWS, LENGTH + 1), generator=torch.Generator().manual_seed(distributed.get_rank()))

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = wrapped(rows)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def trained(name: str, steps: int) -> tuple[float, float, float]:
    """Train some steps in this rank; return the seconds of one, those of the processor in all threads, and the last loss over all ranks."""
    step = step_of(name)
    distributed.barrier()
    began, spent = time.perf_counter(), time.process_time()
    for _ in range(steps):
        loss = step()
    took = (time.perf_counter() - began) / steps, (time.process_time() - spent) / steps
    distributed.all_reduce(loss)
    return *took, loss.item() / distributed.get_world_size()


def ratios(rounds: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Return for each subject and each that it is compared with the median over the rounds of the ratio of their times in one round."""
    return {
        name: {other: statistics.median([a / b for a, b in zip(rounds[name], rounds[other], strict=True)]) for other in others}
        for name, (_, others) in SUBJECTS.items()
    }


@script
def main() -> Iterator[Costs]:
    """Time a training step of a small transformer on two processes of this machine, all ways in turn."""
    ranks, walls, spent = Ranks(RANKS, timeout=600), dict[str, list[float]](), dict[str, list[float]]()
    losses = {name: {round(loss, 4) for *_, loss in ranks.run(trained, name, WARM)} for name in progress(SUBJECTS, "first steps")}
    if len(set().union(*losses.values())) != 1:
        raise SystemExit(f"the ways do not train alike: {losses}")
    for name in progress(SUBJECTS, "steps with trials"):
        ranks.run(trained, name, TRIALS)
    for i in progress(range(ROUNDS), "rounds"):
        names = list(SUBJECTS)
        for name in names[i % len(names) :] + names[: i % len(names)]:
            results = ranks.run(trained, name, STEPS)
            walls.setdefault(name, []).append(max([wall for wall, *_ in results]))
            spent.setdefault(name, []).append(statistics.mean([cpu for _, cpu, _ in results]))
    ranks.close()
    figures = {"wall": ratios(walls), "processor": ratios(spent)}
    rows = [(name, span(statistics.median(walls[name])), span(statistics.median(spent[name])), "", "") for name in SUBJECTS]
    rows += [
        (f"{name} / {other}", "", "", f"{figures['wall'][name][other]:.2f}", f"{figures['processor'][name][other]:.2f}")
        for name, (_, others) in SUBJECTS.items()
        for other in others
    ]
    how = (
        f"A transformer of {LAYERS} layers of width {WIDTH}, {ROWS} rows of {LENGTH} bytes on each of {RANKS} processes, gloo, one thread each. "
        f"Medians over {ROUNDS} rounds behind {WARM + TRIALS} steps, in each of which every way trains {STEPS} steps; a ratio is the median of the "
        "ratios of the rounds. Other work on the machine stretches times more than it does those of the processor, in which waiting for other ranks "
        "does not count."
    )
    medians = {name: {"wall": statistics.median(walls[name]), "processor": statistics.median(spent[name])} for name in SUBJECTS}
    headings = ("", "a step", "of the processor", "ratio", "of the processor")
    yield Costs("several_ranks", "A training step on two processes", how, headings, rows, {"median": medians, "ratio": figures})


if __name__ == "__main__":
    main()
