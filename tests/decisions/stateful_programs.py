"""Random programs that count in ints and floats of an outside object, and branch on them and on values of tensors.

python tests/decisions/stateful_programs.py 17      shows the program of a seed
"""

from __future__ import annotations

import random
import sys
from typing import Any

import torch

LINES = (
    *("y = y * o.a", "y = y + o.b", "o.a += 0.5", "o.b = o.b * 1.5 + y.mean().item()", "o.n += 1", "o.n = o.n * 2 % 11", "z = o.n", "y = y + z"),
    *("z = z + k", "y = y - w", "y = y / (1 + abs(o.a))", "o.l.append(o.n)", "o.d['s'] = o.d.get('s', 0.0) + w", "y = y * o.d.get('s', 1.0)"),
    *("o.a = y.sum().item()", "z = min(z, k)", "w = w * 0.5", "y = y[: 1 + o.n % 2]", "y = torch.cat([y, y])", "y = y * len(o.l)"),
    *("y = torch.full_like(y, o.a) + y", "o.l[-1:] = [o.n]", "y = y.clamp(max=o.b + 5)"),
)
CONDITIONS = (
    *("y.sum() > 0", "o.n % 3 == 1", "o.a > 1", "y.max() > w", "k > 2", "z > 5", "len(o.l) > 3", "y.mean().item() > o.b", "o.b > 0 and y.sum() < 3"),
)
RANGES = ("k % 3", "2", "o.n % 3")
LARGEST = 1e6  # of elements: what is larger is rounded to other counts
CALLS = 12


def block(drawn: random.Random, depth: int = 0) -> list[str]:
    """Return the lines of a block."""
    lines: list[str] = []
    for _ in range(drawn.randint(2, 4)):
        kind = drawn.random() if depth < 2 else 1.0
        if kind < 0.3:
            lines += [f"if {drawn.choice(CONDITIONS)}:", *indented(block(drawn, depth + 1))]
            if drawn.random() < 0.5:
                lines += ["else:", *indented(block(drawn, depth + 1))]
        elif kind < 0.4:
            lines += [f"for i in range({drawn.choice(RANGES)}):", *indented(block(drawn, depth + 1))]
        else:
            lines.append(drawn.choice(LINES))
    return lines


def indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def program(seed: int) -> str:
    """Return a module with an object `o` and a function `f` of a tensor, a float and an int."""
    head = ["class O:", "    pass", "o = O()", "o.a, o.b, o.n, o.l, o.d = 1.0, 0.5, 1, [1], {}", "def f(x, w, k):"]
    return "\n".join([*head, *indented(["y, z = x * 1, 0", *block(random.Random(seed)), "return y, z, w, o.a, o.b, o.n, list(o.l), dict(o.d)"])])


def loaded(seed: int) -> Any:
    """Return the function of a program, with an object of its own."""
    namespace: dict[str, Any] = {"torch": torch}
    exec(compile(program(seed), f"<program {seed}>", "exec"), namespace)
    return namespace["f"]


def arguments(seed: int) -> list[tuple[torch.Tensor, float, int]]:
    """Return the arguments of each call."""
    drawn, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    return [
        (torch.randn(3, generator=generator, dtype=torch.float64), drawn.choice((0.1, 0.1, 0.2, 1.5, -2.0)), drawn.choice((1, 1, 2, 3, 7)))
        for _ in range(CALLS)
    ]


if __name__ == "__main__":
    print(program(int(sys.argv[1])))
