"""Functions that need values: a graph of decisions beside eager mode and graph breaks of torch.compile, one after the other in the same rounds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from costs import Costs, progress, script
from machine import span
from torch import nn

import dovetail

ROUNDS = 15
PLAIN = "without selects"
PEERS = {"breaks, eager kernels": "eager", "breaks, compiled": "inductor"}  # backends of torch.compile


def branch(x):
    """Run one branch."""
    if x.sum() > 0:
        return x * 2
    return x - 1


def branches(x, y):
    """Run eight branches in a row."""
    for value in x:
        y = y + 1 if value > 0 else y * 0.5
    return y


def newton(a):
    """Compute a square root to a tolerance."""
    x, error = torch.ones_like(a), torch.tensor(1.0)
    while error > 1e-5:
        new = 0.5 * (x + a / x)
        error, x = (new - x).abs().max(), new
    return x


class Experts(nn.Module):
    """Four experts, two for each token."""

    def __init__(self, count: int = 4, width: int = 16):
        super().__init__()
        self.gate = nn.Linear(width, count)
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width)) for _ in range(count)])

    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).topk(2, dim=-1)
        mask = F.one_hot(chosen, len(self.experts)).permute(2, 1, 0)
        out = torch.zeros_like(x)
        for e in mask.sum(dim=(-1, -2)).nonzero():
            k, rows = torch.where(mask[e].squeeze(0))
            out = out.index_add(0, rows, self.experts[int(e)](x[rows]) * weights[rows, k, None])
        return out


class Decoder(nn.Module):
    """Greedy decoding with a GRU cell, until every sequence has ended."""

    def __init__(self, vocabulary: int = 32, width: int = 16):
        super().__init__()
        self.embed, self.rnn, self.head = nn.Embedding(vocabulary, width), nn.GRUCell(width, width), nn.Linear(width, vocabulary)

    def forward(self, token):
        h = torch.zeros(token.shape[0], 16)
        done, steps = torch.zeros_like(token, dtype=torch.bool), torch.zeros((), dtype=torch.int64)
        while not done.all() and steps < 30:
            h = self.rnn(self.embed(token), h)
            token = self.head(h).argmax(-1)
            done, steps = done | (token < 3), steps + 1
        return token, steps


def workloads() -> dict[str, tuple[Callable, list[tuple]]]:
    """Return the functions and the arguments of their calls, by title."""
    torch.manual_seed(0)
    signs = [torch.randn(8) for _ in range(6)]
    return {
        "one branch, 64 elements": (branch, [(torch.ones(64),), (-torch.ones(64),)]),
        "8 branches, 64 elements": (branches, [(x, torch.ones(64)) for x in signs]),
        "Newton, 64 elements": (newton, [(torch.full((64,), value),) for value in (2.0, 3.0, 50.0)]),
        "greedy decoding, a GRU cell": (Decoder(), [(torch.randint(0, 32, (3,)),) for _ in range(3)]),
        "4 experts, 24 tokens": (Experts(), [(torch.randn(24, 16),) for _ in range(2)]),
    }


def spent(fn: Callable, calls: Sequence[tuple], times: int) -> float:
    """Return the processor time of one call, over `times` passes through the arguments: other processes do not count."""
    began = time.process_time()
    for _ in range(times):
        for args in calls:
            fn(*args)
    return (time.process_time() - began) / (times * len(calls))


def compared(title: str, fn: Callable, calls: Sequence[tuple]) -> tuple[dict[str, float], dict[str, float]]:
    """Return the seconds of each subject, and its share of eager mode's: the median of the ratios within a round."""
    torch.compiler.reset()
    subjects = {"eager": fn, "dovetail": dovetail.jit(fn, decisions="graph")}
    subjects[PLAIN] = dovetail.jit(fn, decisions="graph")
    subjects |= {name: torch.compile(fn, backend=backend) for name, backend in PEERS.items()}
    for subject in subjects.values():
        with dovetail.use(selects="never" if subject is subjects[PLAIN] else "measured"):
            for _ in range(3):
                for args in calls:
                    torch.testing.assert_close(subject(*args), fn(*args))
    times = max(1, int(0.01 / spent(fn, calls, 3)))
    rounds: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in progress(range(ROUNDS), title):
        for name, subject in subjects.items():
            rounds[name].append(spent(subject, calls, times))
    ratios = {name: statistics.median(a / b for a, b in zip(rounds[name], rounds["eager"], strict=True)) for name in subjects}
    return {name: min(figures) for name, figures in rounds.items()}, ratios


@script
def main() -> Iterator[Costs]:
    """Measure functions that need values beside eager mode and torch.compile."""
    torch.set_num_threads(1)
    rows, figures = [], {}
    with torch.no_grad():
        for title, (fn, calls) in workloads().items():
            seconds, ratios = compared(title, fn, calls)
            figures[title] = {"seconds": seconds, "ratios": ratios}
            others = [f"{span(seconds[name])}, {ratios[name]:.2f}x" for name in seconds if name != "eager"]
            rows.append((title, span(seconds["eager"]), *others))
    how = f"Processor time of a warm call on one thread, the least of {ROUNDS} rounds; the factor is the median within a round, of eager mode's time."
    yield Costs("decision_cost", "Functions that need values", how, ("", "eager", "dovetail", PLAIN, *PEERS), rows, figures)


if __name__ == "__main__":
    main()
