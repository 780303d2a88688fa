"""How far functions are from the truth: references with more digits, errors in units of the last place, and points to try.

float32 is compared with NumPy in float64 (SciPy for erf and erfc), float64 with NumPy in long double where that has more digits, as on x86,
and with mpmath elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import mpmath as mp
import numpy as np
import scipy.special

DTYPES = {"float": np.float32, "double": np.float64}
WIDTHS = {"float": np.uint32, "double": np.uint64}
BINARY = frozenset({"pow", "atan2"})
WIDE = {name: getattr(np, name) for name in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh")}
WIDE |= {name: getattr(np, "arc" + name[1:]) for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")}
WIDE |= {"sqrt": np.sqrt, "reciprocal": np.reciprocal, "pow": np.power, "atan2": np.arctan2}
WIDE |= {"floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint}
WIDE["sigmoid"] = lambda x: np.where(x < 0, np.exp(x), 1) / (1 + np.exp(-np.abs(x)))
WIDE["rsqrt"] = lambda x: 1 / np.sqrt(x)
BY_MPMATH = {name: getattr(mp, name) for name in ("exp", "expm1", "log", "log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh", "erf", "erfc", "sqrt")}
BY_MPMATH |= {name: getattr(mp, name) for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh", "atan2", "log10", "floor", "ceil")}
BY_MPMATH |= {"exp2": lambda x: mp.mpf(2) ** x, "log2": lambda x: mp.log(x, 2), "pow": mp.power, "sigmoid": lambda x: 1 / (1 + mp.exp(-x))}
BY_MPMATH |= {"reciprocal": lambda x: 1 / x, "rsqrt": lambda x: 1 / mp.sqrt(x), "trunc": lambda x: mp.sign(x) * mp.floor(abs(x)), "round": mp.nint}


def true_values(name: str, *xs: np.ndarray) -> np.ndarray:
    """Return the function's values with many more digits than `xs` have."""
    single = xs[0].dtype == np.float32
    with np.errstate(all="ignore"):
        if name in ("erf", "erfc"):
            if single:
                return getattr(scipy.special, name)(xs[0].astype(np.float64))
            return np.array([by_mpmath(name, x) for x in np.clip(xs[0], -1e3, 1e3)], dtype=np.longdouble)  # constant from there on
        if single or np.finfo(np.longdouble).nmant > 60:
            return WIDE[name](*(x.astype(np.float64 if single else np.longdouble) for x in xs))
        plain = WIDE[name](*xs)  # special values; the others are replaced
        usual = np.isfinite(plain) & (plain != 0) & np.logical_and.reduce([np.isfinite(x) for x in xs])
        plain[usual] = [by_mpmath(name, *point) for point in zip(*(x[usual] for x in xs))]
        return plain


def by_mpmath(name: str, *xs: float) -> np.longdouble:
    """Return one value to the digits of a long double."""
    with mp.workdps(60):
        value = BY_MPMATH[name](*(mp.mpf(float(x)) for x in xs))
        if not isinstance(value, mp.mpf) or not mp.isfinite(value):
            return np.longdouble("nan" if not isinstance(value, mp.mpf) else float(value))
        if abs(value) < mp.mpf(2) ** -1100:
            return np.longdouble(math.copysign(0.0, xs[0] if name == "erf" else 1.0))
        scale = int(mp.floor(mp.log(abs(value), 2)))
        high = float(mp.ldexp(value, -scale))
        return np.ldexp(np.longdouble(high) + np.longdouble(float(mp.ldexp(value, -scale) - high)), scale)


def vanishing(name: str, xs: Sequence[np.ndarray], values: np.ndarray) -> np.ndarray:
    """Return the values of `name`, 0 for a sigmoid of x where exp(-x) overflows: PyTorch has 0 there, and so have we."""
    if name == "sigmoid":
        values[xs[0] < -np.log(np.longdouble(np.finfo(xs[0].dtype).max))] = 0
    return values


def errors(computed: np.ndarray, true: np.ndarray) -> np.ndarray:
    """abs(computed - true) in units of the last place of the true value; infinite for a NaN on one side only, and for a zero's wrong sign."""
    info, wide = np.finfo(computed.dtype), true.dtype.type
    top = np.ldexp(wide(1), info.maxexp)  # the first power of two that does not fit stands for infinity
    with np.errstate(all="ignore"):
        near, close = np.clip(computed.astype(wide), -top, top), np.clip(true, -top, top)
        exponent = np.clip(np.frexp(close)[1] - 1, info.minexp, info.maxexp - 1)
        result = np.abs(near - close) / np.ldexp(wide(1), exponent - info.nmant)
    result[np.isnan(computed) & np.isnan(true)] = 0
    result[np.isnan(computed) != np.isnan(true)] = np.inf
    result[(true == 0) & (computed == 0) & (np.signbit(true) != np.signbit(computed))] = np.inf
    return result


def worst(function: object, name: str, arrays: Iterable[tuple[np.ndarray, ...]]) -> tuple[float, tuple[float, ...]]:
    """Return the greatest error of `function`, which takes arrays, over all of `arrays`, and where it is."""
    most, where = 0.0, ()
    for xs in arrays:
        distances = errors(function(*xs), vanishing(name, xs, true_values(name, *xs)))
        at = int(np.argmax(distances))
        if distances[at] > most or not where:
            most, where = float(distances[at]), tuple(float(x[at]) for x in xs)
    return most, where


def patterns(step: int, chunk: int = 1 << 22) -> Iterator[tuple[np.ndarray]]:
    """Yield every `step`-th float32 by its bits, NaN of all kinds included."""
    for start in range(0, 1 << 32, chunk * step):
        yield (np.arange(start, min(start + chunk * step, 1 << 32), step, dtype=np.uint32).view(np.float32),)


def special(element: str) -> np.ndarray:
    """Return zeros, infinities, NaN with all sorts of bits, the ends of the normal and denormal numbers, and what lies around turns of functions."""
    dtype = DTYPES[element]
    info = np.finfo(dtype)
    numbers = [0, 1, 2, 3, 0.5, 0.25, 1.5, 0.6, 0.9, 10, np.pi, np.pi / 2, np.pi / 4, np.log(2), 1e9, 30000, 2.0**info.nmant, 2.0 ** (info.nmant + 1)]
    numbers += [info.max, info.max / 2, info.tiny, info.smallest_subnormal]
    numbers += [info.maxexp, info.minexp, info.maxexp * np.log(2), info.minexp * np.log(2)]
    around = np.array(numbers, dtype=dtype)
    with np.errstate(all="ignore"):
        around = np.concatenate([around, np.nextafter(around, dtype(np.inf)), np.nextafter(around, dtype(-np.inf))])
    quiet = 1 << (info.nmant - 1)
    nan_bits = [info.maxexp * 2 - 1 << info.nmant | payload for payload in (1, 2, 77, quiet - 1, quiet, quiet + 1, quiet + 77, 2 * quiet - 1)]
    nans = np.array(nan_bits, dtype=WIDTHS[element]).view(dtype)
    positive = np.concatenate([around, nans, np.array([np.inf], dtype=dtype)])
    return np.concatenate([positive, -positive])


def doubles(count: int, seed: int = 0) -> np.ndarray:
    """float64 of all exponents, more of them where functions do something, and the special ones."""
    random = np.random.default_rng(seed)
    quarter = count // 4
    anywhere = random.integers(0, 1 << 64, quarter, dtype=np.uint64).view(np.float64)
    usual = random.standard_normal(quarter) * 10.0 ** random.uniform(-3, 3, quarter)
    unit = random.uniform(-1, 1, quarter)
    near_one = 1 + random.standard_normal(quarter) * 10.0 ** random.uniform(-9, 0, quarter)
    turns = np.round(random.uniform(-1e6, 1e6, quarter // 4)) * (np.pi / 2)  # sin and cos are tiny there
    return np.concatenate([anywhere, usual, unit, near_one, turns, special("double")])


def points(name: str, element: str, count: int, seed: int = 0) -> Iterator[tuple[np.ndarray, ...]]:
    """Arguments for a function of one or two numbers: a spread of them, and the special ones."""
    if name in BINARY:
        yield from pairs(name, element, count, seed)
    elif element == "float":
        yield (special(element),)
        yield from patterns((1 << 32) // count | 1)
    else:
        yield (doubles(count, seed),)


def pairs(name: str, element: str, count: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield all pairs of special numbers, any bits at all, and pairs for which the result is neither 0 nor infinite."""
    dtype, random = DTYPES[element], np.random.default_rng(seed)
    first, second = np.meshgrid(special(element), special(element))
    yield first.ravel(), second.ravel()
    bits = random.integers(0, 1 << np.finfo(dtype).bits, (2, count // 4), dtype=WIDTHS[element]).view(dtype)
    yield bits[0], bits[1]
    largest = float(np.log(np.finfo(dtype).max))
    far = np.exp(random.uniform(-0.95, 0.95, count // 4) * largest)
    near = np.abs(1 + random.standard_normal(count // 4) * 10.0 ** random.uniform(-6, -1, count // 4))
    for x in (far, near):
        x = np.where(x == 1, 2, x)
        y = random.uniform(-1, 1, x.size) * largest / np.log(x) if name == "pow" else x * random.standard_normal(x.size)
        with np.errstate(over="ignore"):
            yield x.astype(dtype), y.astype(dtype)
    yield random.standard_normal(count // 4).astype(dtype) * 4, random.integers(-30, 30, count // 4).astype(dtype)
