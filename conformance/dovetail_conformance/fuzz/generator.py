"""The program of a seed and a number: its theme, its inputs, its steps."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from dovetail_conformance.fuzz import structure as structure  # registers its families
from dovetail_conformance.fuzz.draft import Draft
from dovetail_conformance.fuzz.drawing import DTYPES, SHAPES, SIZES, STEPS, Drawing, Impossible
from dovetail_conformance.fuzz.judge import Reference
from dovetail_conformance.fuzz.operations import FAMILIES
from dovetail_conformance.program import calm

COMMON = {
    "smooth": 10,
    "binary": 10,
    "kinked": 3,
    "reduce": 8,
    "view": 6,
    "cast": 1,
    "move": 2,
    "select": 2,
    "rows": 3,
    "join": 2,
    "norm": 1,
    "constant": 1,
}
COMMON |= {"gather": 2, "scatter": 1, "write": 2, "loss": 1, "jump": 1, "integer": 1, "matmul": 1, "window": 1}
THEMES: dict[str, dict[str, float]] = {  # families that a program has more of
    "mixed": {},
    "reductions": {"reduce": 40, "binary": 20, "smooth": 15, "rows": 6},
    "norms": {"norm": 15, "rows": 15, "reduce": 10, "loss": 6, "matmul": 3},
    "views": {"view": 40, "move": 10, "join": 8, "reduce": 10},
    "writes": {"write": 40, "view": 30, "move": 6},
    "lookups": {"gather": 40, "view": 10, "rows": 10, "reduce": 8, "scatter": 10},
    "scatters": {"scatter": 30, "gather": 15, "join": 8},
    "integers": {"integer": 30, "jump": 15, "gather": 8, "cast": 8, "select": 10},
    "losses": {"loss": 15, "matmul": 8, "rows": 8, "kinked": 8, "window": 4},
}
ATTEMPTS = 6  # steps that are tried for each that is kept, before a program ends


def draft_of(seed: int, number: int, dtypes: Sequence[str] = ()) -> Draft:
    """Return program `number` of a seed; the same each time."""
    for attempt in range(20):
        with calm():
            draft = _draw(random.Random(f"{seed}:{number}:{attempt}"), dtypes)
        if draft.steps and draft.results:
            return _differentiable(draft)
    raise AssertionError(f"no program came of seed {seed}, number {number}")


def _differentiable(draft: Draft) -> Draft:
    """Return the draft without gradients if eager has none, since a value that they need is written to."""
    if draft.grad and any(step.writes for step in draft.steps):
        try:
            _ = Reference(draft, 0).eager
        except RuntimeError:
            return replace(draft, grad=False)
    return draft


def _draw(rng: random.Random, dtypes: Sequence[str]) -> Draft:
    theme = rng.choice([*THEMES])
    odds = {name: weight for name, weight in DTYPES.items() if not dtypes or name in dtypes}
    dtype = rng.choices([*odds], [*odds.values()])[0] if odds else rng.choice(list(dtypes))
    size = rng.choices([*SIZES], [*SIZES.values()])[0]
    special = rng.random() < 0.06
    floating = dtype.startswith(("float", "bfloat"))
    grad = floating and not special and rng.random() < 0.55
    d = Drawing(rng, dtype, grad, rng.choice(SHAPES[size]), special)
    d.writes_inputs = rng.random() < 0.3
    d.new_input(d.shape, dtype)
    if not floating and rng.random() < 0.5:
        d.new_input(d.shape, "float32")
    for name in _families(d, {**COMMON, **THEMES[theme]}):
        try:
            d.add(FAMILIES[name](d))
        except (Impossible, RuntimeError, IndexError, ValueError, TypeError, ArithmeticError):
            continue  # eager has no such view or lookup of these values
    return d.draft()


def _families(d: Drawing, weights: dict[str, float]) -> Iterator[str]:
    """Yield names of families until the program is long enough; each program leaves some out."""
    left = {name: weight for name, weight in weights.items() if d.maybe(0.7)} or weights
    steps = d.rng.choice(STEPS)
    for _ in range(steps * ATTEMPTS):
        if len(d.steps) >= steps:
            return
        yield d.rng.choices([*left], [*left.values()])[0]
