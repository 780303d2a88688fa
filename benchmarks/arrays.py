"""Compiled functions of NumPy arrays beside NumPy itself, one after the other in the same rounds."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator

import numpy as np
from costs import Costs, progress, script, seconds
from machine import span

import dovetail

ROUNDS = 15


def black_scholes(price, strike, years, rate=0.02, volatility=0.3):
    """Return prices of call options, with the tanh approximation of the normal distribution."""
    scale = volatility * np.sqrt(years)
    up = (np.log(price / strike) + (rate + volatility**2 / 2) * years) / scale
    down = up - scale

    def normal(x):
        return 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))

    return price * normal(up) - strike * np.exp(-rate * years) * normal(down)


def softmax(x):
    """Normalize each row to probabilities."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def standardized(x):
    """Return columns scaled to mean 0 and variance 1, clipped at 3 deviations."""
    return np.clip((x - x.mean(axis=0)) / x.std(axis=0), -3, 3)


def workloads() -> dict[str, tuple[Callable, list[np.ndarray]]]:
    """Return the functions and their arguments, by title."""
    random = np.random.default_rng(0)

    def prices(n: int, dtype: str) -> list[np.ndarray]:
        return [random.uniform(0.5, 2, n).astype(dtype) for _ in range(3)]

    return {
        "x + y, 4 elements": (lambda x, y: x + y, [np.ones(4), np.ones(4)]),
        "Black-Scholes, 1,000 options, float64": (black_scholes, prices(1_000, "f8")),
        "Black-Scholes, 1,000,000 options, float64": (black_scholes, prices(1_000_000, "f8")),
        "Black-Scholes, 1,000,000 options, float32": (black_scholes, prices(1_000_000, "f4")),
        "softmax, 1000 x 1024, float32": (softmax, [random.normal(size=(1000, 1024)).astype("f4")]),
        "standardized columns, 100,000 x 16, float64": (standardized, [random.normal(size=(100_000, 16))]),
    }


def compared(fn: Callable, args: list[np.ndarray]) -> tuple[float, float, float]:
    """Return the seconds of NumPy and of the compiled function, and the median of the ratios within a round."""
    compiled = dovetail.jit(fn)
    for _ in range(3):
        np.testing.assert_allclose(compiled(*args), fn(*args), rtol=1e-3, atol=1e-5)
    times = max(1, int(0.02 / seconds(lambda: fn(*args))))
    rounds = [(seconds(lambda: fn(*args), times), seconds(lambda: compiled(*args), times)) for _ in range(ROUNDS)]
    plain, fast = zip(*rounds, strict=True)
    return statistics.median(plain), statistics.median(fast), statistics.median(a / b for a, b in rounds)


@script
def main() -> Iterator[Costs]:
    """Measure functions of NumPy arrays, compiled and by NumPy."""
    rows, figures = [], {}
    for title, (fn, args) in progress(list(workloads().items()), "functions of arrays"):
        plain, fast, ratio = compared(fn, args)
        rows.append((title, span(plain), span(fast), f"{ratio:.2f}x"))
        figures[title] = {"numpy": plain, "dovetail": fast, "speed": ratio}
    how = (
        f"Medians of {ROUNDS} rounds, in each of which both had their turn; the speed is the median of the ratios within a round. "
        "NumPy computes with one thread but for products of matrices, Dovetail with all."
    )
    yield Costs("arrays", "Functions of NumPy arrays", how, ("", "NumPy", "dovetail.jit", "speed"), rows, figures)


if __name__ == "__main__":
    main()
