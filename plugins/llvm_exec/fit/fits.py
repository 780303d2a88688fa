"""Fits every polynomial that vmath uses and prints them as its coefficients.py: `python fits.py > ../dovetail_llvm_exec/vmath/coefficients.py`.

Names on the command line print those alone.  The comment at each table is the greatest error of the polynomial in units of the last place
of the function's value, before any rounding in its evaluation.
"""

from __future__ import annotations

import sys

import mpmath as mp
from remez import fit

half_ln2 = mp.log(2) / 2 * mp.mpf("1.0005")
root = mp.sqrt
quarter_turn = (mp.pi / 4 * mp.mpf("1.001")) ** 2
K = {"float": mp.mpf(2), "double": mp.mpf("3.75")}  # where the variable of erfc is zero


def odd(f):
    """T with f(x) = x + x z T(z), z = x**2, and the weight that makes its error one relative to f."""
    return lambda z: (f(root(z)) / root(z) - 1) / z, lambda z: z * root(z) / abs(f(root(z)))


def log1p_odd(w):
    """R with log(1 + f) = 2 s + s w R(w), where s = f / (2 + f) and w = s**2"""
    s = root(w)
    return (2 * mp.atanh(s) - 2 * s) / (s * w)


def erfc_scaled(element):
    """(1 + 2 a) exp(a**2) erfc(a) of t = (a - K) / (a + K)"""

    def f(t):
        a = K[element] * (1 + t) / (1 - t)
        return (1 + 2 * a) * mp.exp(a * a) * mp.erfc(a)

    return f


def end_of_erfc(element, last):
    return (last - K[element]) / (last + K[element])


def erf_tail(shift):
    """-log(erfc(a)) of a - shift: erf(a) = 1 - exp(-L)"""
    return lambda u: -mp.log(mp.erfc(u + shift)), lambda u: mp.erfc(u + shift) / mp.erf(u + shift)


def erfc_log2(a):
    """L(a) / a, where erfc(a) = 2**L(a)"""
    return mp.log(mp.erfc(a)) / mp.log(2) / a


def tail_log2(a):
    """L(a) / a, where 2 P(a standard normal variable is above a) = 2**L(a)"""
    return mp.log(mp.erfc(a / root(2))) / mp.log(2) / a


def tail_log2_weight(least):
    """Relative near 0, and less and less so where it vanishes"""
    return lambda a: a * mp.log(2) * max(mp.erfc(a / root(2)) ** mp.mpf("0.9"), mp.mpf(least))


def erfc_log2_weight(a):
    """Relative to erfc near 0, and less and less so where it vanishes"""
    return a * mp.log(2) * max(mp.erfc(a) ** mp.mpf("0.9"), mp.mpf("1e-4"))


def pow_rest(w):
    """Q with log(1 + f) = 2 s + s w (2/3 + w Q(w)), where s = f / (2 + f) and w = s**2"""
    s = root(w)
    return ((2 * mp.atanh(s) / s - 2) / w - mp.mpf(2) / 3) / w


def log2_odd(w):
    """R with log2(1 + f) = s R(w), where s = f / (2 + f) and w = s**2"""
    return 2 * mp.atanh(root(w)) / root(w) / mp.log(2)


EXP = (lambda r: (mp.exp(r) - 1 - r) / r**2, lambda r: r * r * mp.exp(-r), -half_ln2, half_ln2)
EXPM1 = (EXP[0], lambda r: r * r / abs(mp.expm1(r)), -half_ln2, half_ln2)
EXP2 = (lambda r: (mp.mpf(2) ** r - 1) / r, lambda r: abs(r) * mp.mpf(2) ** -r, mp.mpf("-0.5005"), mp.mpf("0.5005"))
LOG = (lambda f: (mp.log1p(f) - f + f * f / 2) / f**3, lambda f: abs(f**3 / mp.log1p(f)), root(mp.mpf("0.5")) - 1, root(2) - 1)
LOG2 = (lambda f: mp.log1p(f) / f / mp.log(2), lambda f: abs(f / mp.log1p(f)) * mp.log(2), *LOG[2:])
LOG10 = (lambda f: mp.log1p(f) / f / mp.log(10), lambda f: abs(f / mp.log1p(f)) * mp.log(10), *LOG[2:])
LOGS = (log1p_odd, lambda w: w / 2, mp.mpf("1e-9"), mp.mpf("0.02945"))
LOG2S = (log2_odd, lambda w: 1 / log2_odd(w), mp.mpf("1e-9"), mp.mpf("0.02945"))
POW = (pow_rest, lambda w: w * w / 2, mp.mpf("1e-6"), mp.mpf("0.02945"))
TANH = (*odd(mp.tanh), mp.mpf("1e-6"), mp.mpf("0.36"))
SINH = (*odd(mp.sinh), mp.mpf("1e-6"), mp.mpf("1.001"))
ERF = (lambda z: mp.erf(root(z)) / root(z) - 1, lambda z: root(z) / mp.erf(root(z)), mp.mpf("1e-8"), mp.mpf("0.811"))
SIN = (*odd(mp.sin), mp.mpf("1e-6"), quarter_turn)
COS = (lambda z: (mp.cos(root(z)) - 1 + z / 2) / z**2, lambda z: z**2 / mp.cos(root(z)), mp.mpf("1e-5"), quarter_turn)
ATAN = (*odd(mp.atan), mp.mpf("1e-6"), mp.mpf("1.0001"))
ASIN = (*odd(mp.asin), mp.mpf("1e-6"), mp.mpf("0.2501"))


def erfc_of(element, last):
    f = erfc_scaled(element)
    return f, lambda t: 1 / f(t), mp.mpf(-1) + mp.mpf("1e-12"), end_of_erfc(element, mp.mpf(last))


TABLES = {  # name: {element: (degree, function, weight, low, high)}
    "EXP": {"float": (4, *EXP), "double": (9, *EXP)},
    "EXPM1": {"float": (4, *EXPM1), "double": (10, *EXPM1)},
    "EXP2": {"float": (5, *EXP2), "double": (11, *EXP2)},
    "LOG": {"float": (7, *LOG)},
    "LOG2": {"float": (9, *LOG2)},
    "LOG10": {"float": (9, *LOG10)},
    "LOGS": {"float": (2, *LOGS), "double": (6, *LOGS)},
    "LOG2S": {"double": (4, *LOG2S)},
    "POW": {"double": (6, *POW)},  # to 2**-14 ulp: the logarithm is multiplied by up to 1075
    "TANH": {"float": (4, *TANH), "double": (10, *TANH)},
    "SINH": {"float": (3, *SINH), "double": (7, *SINH)},
    "ERF": {"float": (5, *ERF), "double": (11, *ERF)},
    "ERF_TAIL": {
        "float": (6, *erf_tail(mp.mpf(0)), mp.mpf("0.9"), mp.mpf("3.95")),
        "double": (18, *erf_tail(mp.mpf(1)), mp.mpf("-0.1"), mp.mpf("4.95")),
    },
    "ERFC": {"float": (9, *erfc_of("float", "10.1")), "double": (22, *erfc_of("double", "27.5"))},
    "ERFC_LOG2": {"float": (7, erfc_log2, erfc_log2_weight, mp.mpf("1e-6"), mp.mpf("3.3"))},
    "TAIL_LOG2": {"float": (7, tail_log2, tail_log2_weight("1e-4"), mp.mpf("1e-6"), mp.mpf("4.67"))},
    "TAIL_LOG2_ROUGH": {"float": (4, tail_log2, tail_log2_weight("1e-3"), mp.mpf("1e-6"), mp.mpf(4))},
    "EXP2_ROUGH": {"float": (3, *EXP2)},
    "SIN": {"float": (2, *SIN), "double": (5, *SIN)},
    "COS": {"float": (2, *COS), "double": (5, *COS)},
    "ATAN": {"float": (8, *ATAN), "double": (20, *ATAN)},
    "ASIN": {"float": (4, *ASIN), "double": (11, *ASIN)},
}
UNIT = {"float": 2.0**-23, "double": 2.0**-52}


def main(names: list[str]) -> None:
    print('"""Coefficients from the constant up, by format; fit/fits.py made this file."""\n\nfrom __future__ import annotations')
    for name in names or TABLES:
        print(f"\n{name}: dict[str, tuple[float, ...]] = {{")
        for element, (degree, *task) in TABLES[name].items():
            coefficients, error = fit(*task[:2], degree, *task[2:], element)
            print(f'    "{element}": (  # {error / UNIT[element]:.2g} ulp')
            print("".join(f"        {c!r},\n" for c in coefficients) + "    ),", flush=True)
        print("}")


if __name__ == "__main__":
    main(sys.argv[1:])
