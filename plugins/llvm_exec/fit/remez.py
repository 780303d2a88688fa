"""Polynomials of least greatest error: Remez' exchange in high precision, with coefficients rounded one after another.

A fit looks for c such that weight(x) * (sum c[p] x**p - f(x)) is as small as can be on [low, high].  Each coefficient is then rounded to the
format it will be used in, the lowest power first, and the others are fitted again around it, so they take back what the rounding cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mpmath as mp
import numpy as np

mp.mp.dps = 50
POINTS_PER_COEFFICIENT = 40
ROUNDS = 25

Function = Callable[[mp.mpf], mp.mpf]


def rounded(value: mp.mpf, element: str) -> mp.mpf:
    """Return the nearest number of the format."""
    return mp.mpf(float(np.float32(float(value)))) if element == "float" else mp.mpf(float(value))


def grid(low: mp.mpf, high: mp.mpf, count: int) -> list[mp.mpf]:
    """Points that are dense at both ends."""
    middle, half = (low + high) / 2, (high - low) / 2
    return [middle - half * mp.cos(mp.pi * i / (count - 1)) for i in range(count)]


def extrema(errors: Sequence[mp.mpf], wanted: int) -> list[int] | None:
    """Return where the error is largest in each run of one sign; `wanted` of them, or None where there are fewer."""
    runs: list[int] = []
    for i, error in enumerate(errors):
        if error == 0:
            continue
        if runs and (errors[runs[-1]] > 0) == (error > 0):
            if abs(error) > abs(errors[runs[-1]]):
                runs[-1] = i
        else:
            runs.append(i)
    while len(runs) > wanted:
        runs = runs[1:] if abs(errors[runs[0]]) < abs(errors[runs[-1]]) else runs[:-1]
    return runs if len(runs) == wanted else None


def minimax(xs: Sequence[mp.mpf], targets: Sequence[mp.mpf], weights: Sequence[mp.mpf], powers: Sequence[int]) -> tuple[list[mp.mpf], mp.mpf]:
    """Return the coefficients of `powers`, and the greatest weighted error on the points."""
    wanted = len(powers) + 1
    usable = [i for i, weight in enumerate(weights) if weight > 0]
    chosen = [usable[round((1 - mp.cos(mp.pi * k / (wanted - 1))) / 2 * (len(usable) - 1))] for k in range(wanted)]
    rows = [[x**p for p in powers] for x in xs]
    best: tuple[list[mp.mpf], mp.mpf] | None = None
    for _ in range(ROUNDS):
        system = mp.matrix([[*rows[i], (-1) ** k / weights[i]] for k, i in enumerate(chosen)])
        solved = list(mp.lu_solve(system, mp.matrix([targets[i] for i in chosen])))
        coefficients = solved[:-1]
        errors = [w * (mp.fdot(row, coefficients) - t) for row, t, w in zip(rows, targets, weights)]
        worst = max(map(abs, errors))
        if best is None or worst < best[1]:
            best = (coefficients, worst)
        if worst <= abs(solved[-1]) * mp.mpf("1.001") or (following := extrema(errors, wanted)) is None or following == chosen:
            break
        chosen = following
    return best


def fit(f: Function, weight: Function, degree: int, low: float, high: float, element: str) -> tuple[list[float], float]:
    """Coefficients from the constant up, in the format, and the greatest weighted error.

    On an interval with zero inside, powers above the first need not have a best fit of their own (all of them vanish there), so rounding
    the coefficients at once may do better and is tried, too.
    """
    low, high = mp.mpf(low), mp.mpf(high)
    xs = [x for x in grid(low, high, POINTS_PER_COEFFICIENT * (degree + 2)) if abs(x) > mp.mpf(10) ** -12]
    weights, targets = [weight(x) for x in xs], [f(x) for x in xs]
    at_once = [rounded(c, element) for c in minimax(xs, targets, weights, range(degree + 1))[0]]
    in_turn, rest = [], targets
    for power in range(degree + 1):
        in_turn.append(rounded(minimax(xs, rest, weights, range(power, degree + 1))[0][0], element))
        rest = [t - in_turn[-1] * x**power for t, x in zip(rest, xs)]

    def error(coefficients: list[mp.mpf]) -> float:
        return float(max(abs(w * (mp.polyval(coefficients[::-1], x) - t)) for x, t, w in zip(xs, targets, weights)))

    best = min(in_turn, at_once, key=error)
    return [float(c) for c in best], error(best)
