"""What a warm call costs where the work is next to nothing: x + y on 4 elements, and a small network on one row."""

from __future__ import annotations

import torch
from harness import Report, interleaved, span
from subjects import split, subjects
from torch import Tensor, nn


def add(x: Tensor, y: Tensor) -> Tensor:
    return x + y


def cases() -> dict[str, tuple]:
    """The name of each case, and the function with its arguments."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)).eval().requires_grad_(False)
    return {"x + y": (add, torch.randn(4), torch.randn(4)), "MLP": (network, torch.randn(1, 64))}


def main() -> None:
    torch.set_num_threads(1)  # so little work is not worth a second one
    rows: list[tuple] = []
    figures: dict[str, dict] = {}
    for case, (fn, *args) in cases().items():
        there, absent = split(subjects(fn, *args), *args)
        for t in interleaved(there, rounds=40, what=case):
            rows.append((case, t.name, span(t.median), span(t.minimum), f"{t.ratio:.2f}x"))
            figures.setdefault(case, {})[t.name] = {"median": t.median, "minimum": t.minimum, "ratio": t.ratio}
        rows += [(case, name, said, "", "") for name, said in absent.items()]
    how = (
        "x + y on 4 elements; a network of widths 64, 256, 64 on one row; one thread. "
        "Subjects take turns of 20 ms, 40 rounds; the ratio is the median of the ratios to eager in the same round."
    )
    Report("call_overhead", "A warm call of little work", how, ("case", "", "median", "minimum", "beside eager"), rows, figures).write()


if __name__ == "__main__":
    main()
