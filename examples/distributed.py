"""A small language model trained by two processes on one machine: copied, then sharded, each beside one process with the same batch.

torchrun --standalone --local-addr 127.0.0.1 --nproc-per-node 2 examples/distributed.py [--steps 10]
"""

from __future__ import annotations

import argparse
import sysconfig
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn import functional

import dovetail

CONTEXT, ROWS = 32, 8  # bytes that the model looks back over, and how many such rows a step has on all ranks together


class Block(nn.Module):
    """One layer of a transformer."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.before, self.into, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.into(self.before(x)).chunk(3, dim=-1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(x)


class Model(nn.Module):
    """Predicts the next byte of a text; a call returns the loss."""

    def __init__(self, width: int = 64, layers: int = 3):
        super().__init__()
        self.bytes, self.positions = nn.Embedding(256, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(layers))
        self.head = nn.Linear(width, 256)

    def forward(self, rows: Tensor) -> Tensor:
        x = self.bytes(rows[:, :-1]) + self.positions.weight
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(x).flatten(0, 1), rows[:, 1:].flatten())


def batches(steps: int) -> list[Tensor]:
    """Cut Python's own source into the rows of each step."""
    text = Path(sysconfig.get_paths()["stdlib"], "argparse.py").read_bytes()[: steps * ROWS * (CONTEXT + 1)]
    return list(torch.frombuffer(bytearray(text), dtype=torch.uint8).long().view(steps, ROWS, CONTEXT + 1))


def train(wrap: Callable[[nn.Module], nn.Module], steps: int, rank: int, ranks: int) -> list[float]:
    """Return the loss of each step over the rows of all ranks."""
    torch.manual_seed(0)
    model = wrap(Model())
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-3), []
    for rows in batches(steps):
        optimizer.zero_grad()
        loss = model(rows.chunk(ranks)[rank])
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        if ranks > 1:
            distributed.all_reduce(mean, distributed.ReduceOp.AVG)
        losses.append(mean.item())
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10)
    steps = parser.parse_args().steps
    distributed.init_process_group("gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=("dp",))
    if rank == 0:
        print(dovetail.distributed.plan(Model(), mesh, batches(1)[0].chunk(ranks)[0]), end="\n\n")
    alone = train(dovetail.jit, steps, 0, 1)
    for name, wrap in (("data_parallel", dovetail.distributed.data_parallel), ("fully_sharded", dovetail.distributed.fully_sharded)):
        with dovetail.distributed.traffic() as moved:
            losses = train(lambda model, wrap=wrap: wrap(model, mesh), steps, rank, ranks)
        difference = max([abs(a - b) for a, b in zip(losses, alone, strict=True)])
        if rank == 0:
            print(f"{name} on {ranks} ranks: loss {losses[0]:.4f} -> {losses[-1]:.4f}, at most {difference:.1e} from one process;", end=" ")
            print(f"{moved.bytes / steps:,.0f} bytes sent in each step by {len(moved.calls) // steps} collectives")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
