"""Every function of vmath against references with more digits: dense sweeps, special values and hard points, in all forms it is compiled to."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from vmath_accuracy import BINARY, DTYPES, WIDTHS, by_mpmath, errors, points, special, worst
from vmath_evaluate import Evaluator

from dovetail_llvm_exec.ir.target import host, named
from dovetail_llvm_exec.vmath import FUNCTIONS, exponential

# the greatest error that is allowed, in units of the last place: (float32, float64); fit/sweep.py measures
BOUNDS = {
    **{"exp": (1.25, 1.25), "exp2": (1.25, 1.25), "expm1": (2.0, 2.0), "sigmoid": (2.5, 2.25)},
    **{"log": (1.0, 1.0), "log2": (1.25, 1.0), "log10": (1.25, 1.0), "log1p": (1.5, 1.5)},
    **{"sin": (1.75, 1.0), "cos": (1.75, 1.0), "tan": (4.0, 2.5)},
    **{"tanh": (1.5, 1.5), "sinh": (1.75, 1.75), "cosh": (1.75, 1.75), "asinh": (2.0, 2.0), "acosh": (2.0, 2.25), "atanh": (2.0, 2.0)},
    **{"erf": (1.25, 1.25), "erfc": (3.75, 4.0), "asin": (2.5, 2.5), "acos": (1.25, 1.25), "atan": (1.25, 1.5), "atan2": (1.75, 1.75)},
    **{"sqrt": (0.501, 0.501), "rsqrt": (1.501, 1.501), "reciprocal": (0.501, 0.501), "pow": (0.75, 1.5)},
    **{"floor": (0, 0), "ceil": (0, 0), "trunc": (0, 0), "round": (0, 0)},
}
COUNTS = {"float": 400_000, "double": 40_000}
BY_MPMATH_ONLY = ("erf", "erfc")  # slow in float64
ELEMENTS = tuple(DTYPES)
X86 = host().triple.startswith("x86_64")
FORMS = {
    "vectors": {},
    "scalars": {"lanes": 1},
    "baseline": {"target": named(host().triple, "x86-64")} if X86 else {},
    "avx2": {"target": named(host().triple, "x86-64-v3")} if X86 and host().fma else {},
}
HARD = {  # next to multiples of pi/2, which makes the reduction lose all the digits it can
    "float": [16367173 * 2.0**72, 13371564 * 2.0**-23, 10540507 * 2.0**-20, 2.0**127, 3.4028234663852886e38, 30000.0, 30001.0, 1e7, 1e22],
    "double": [6381956970095103 * 2.0**797, 2.0**1023, 1e22, 1e300, 1e9, 1000000001.0, 355.0, 103993.0, 411557987.0],
}


def arity(name: str) -> int:
    return 2 if name in BINARY else 1


def test_every_function_has_a_bound():
    assert BOUNDS.keys() == FUNCTIONS.keys()


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("name", BOUNDS)
def test_dense_sweep(name, element):
    count = COUNTS[element] // (20 if element == "double" and name in BY_MPMATH_ONLY else 1)
    function = Evaluator(FUNCTIONS[name], arity(name), element)
    error, where = worst(function, name, points(name, element, count))
    assert error <= BOUNDS[name][ELEMENTS.index(element)], f"{error} ulp at {where}"


@pytest.mark.one_in(3)
@pytest.mark.parametrize("form", [form for form in FORMS if form != "vectors"])
@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("name", BOUNDS)
def test_other_forms_are_as_precise(name, element, form):
    if not FORMS[form]:
        pytest.skip("this machine cannot run code for that x86-64")
    count = COUNTS[element] // (40 if element == "double" and name in BY_MPMATH_ONLY else 10)
    function = Evaluator(FUNCTIONS[name], arity(name), element, **FORMS[form])
    error, where = worst(function, name, points(name, element, count, seed=1))
    assert error <= BOUNDS[name][ELEMENTS.index(element)], f"{error} ulp at {where}"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_arguments_that_are_hard_to_reduce(name, element, form):
    if form != "vectors" and not FORMS[form]:
        pytest.skip("this machine cannot run code for that x86-64")
    hard = np.array(HARD[element], dtype=DTYPES[element])
    x = np.concatenate([hard, -hard, np.linspace(-3, 3, 23, dtype=hard.dtype)])  # large and small ones in one vector
    with mp.workdps(400):
        true = np.array([by_mpmath_wide(name, value) for value in x], dtype=np.longdouble)
    computed = Evaluator(FUNCTIONS[name], 1, element, **FORMS[form])(x)
    assert errors(computed, true).max() <= BOUNDS[name][ELEMENTS.index(element)]


def by_mpmath_wide(name: str, x: float) -> np.longdouble:
    """The value of a huge argument: as many digits as it has go into its reduction."""
    value = getattr(mp, name)(mp.mpf(float(x)))
    high = float(value)
    return np.longdouble(high) + np.longdouble(float(value - high))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in BINARY])
def test_nan_of_all_bits_stays_nan(name, element, form):
    if form != "vectors" and not FORMS[form]:
        pytest.skip("this machine cannot run code for that x86-64")
    info, width = np.finfo(DTYPES[element]), WIDTHS[element]
    payloads = np.unique(np.concatenate([2 ** np.arange(info.nmant), 2 ** np.arange(1, info.nmant + 1) - 1])).astype(width)
    nans = (payloads | width((2 * info.maxexp - 1) << info.nmant)).view(info.dtype)
    nans = np.concatenate([nans, -nans])
    assert np.isnan(nans).all()
    assert np.isnan(Evaluator(FUNCTIONS[name], 1, element, **FORMS[form])(nans)).all()


@pytest.mark.parametrize("element", ELEMENTS)
def test_a_lane_does_not_depend_on_its_neighbours(element):
    small = np.linspace(-100, 100, 64, dtype=DTYPES[element])
    mixed = small.copy()
    mixed[::4] = 1e30
    for name in ("sin", "cos", "tan"):
        function = Evaluator(FUNCTIONS[name], 1, element)
        kept = np.arange(64) % 4 != 0
        np.testing.assert_array_equal(function(small)[kept], function(mixed)[kept])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("element", ELEMENTS)
def test_exp_of_what_is_not_positive(element, form):
    if form != "vectors" and not FORMS[form]:
        pytest.skip("this machine cannot run code for that x86-64")
    smallest = exponential.SMALLEST[element]
    function = Evaluator(exponential.exp_nonpositive, 1, element, **FORMS[form])
    x = np.concatenate([np.linspace(smallest, 0, 50_000), [-0.0]]).astype(DTYPES[element])
    with np.errstate(all="ignore"):
        assert errors(function(x), np.exp(x.astype(np.longdouble))).max() < 1.25  # of the denormal numbers, too
    assert function(np.array([smallest * 1.01, -np.inf, -1e38], dtype=x.dtype)).tolist() == [0, 0, 0]
    assert np.isnan(function(special(element)[np.isnan(special(element))])).all()


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("name", ["exp", "exp2", "expm1", "sinh", "cosh", "sigmoid", "tanh", "erfc", "erf"])
def test_where_results_overflow_and_vanish(name, element):
    top = float(np.log(np.finfo(DTYPES[element]).max)) if name != "exp2" else np.finfo(DTYPES[element]).maxexp
    reach = {"erfc": top**0.5, "erf": top**0.5}.get(name, top)
    slow = element == "double" and name in BY_MPMATH_ONLY
    x = np.linspace(0.9 * reach, 1.25 * reach, 2_000 if slow else 100_000).astype(DTYPES[element])
    down = -x
    error, where = worst(Evaluator(FUNCTIONS[name], 1, element), name, [(x,), (down,)])
    assert error <= BOUNDS[name][ELEMENTS.index(element)], f"{error} ulp at {where}"


def test_exact_values():
    one = {name: Evaluator(FUNCTIONS[name], 1, "float") for name in ("exp", "exp2", "log2", "log", "cos", "sigmoid", "expm1")}
    powers = np.arange(-149, 128, dtype=np.float32)
    np.testing.assert_array_equal(one["exp2"](powers), np.ldexp(np.float32(1), powers.astype(int)))
    np.testing.assert_array_equal(one["log2"](np.ldexp(np.float32(1), powers.astype(int))), powers)
    zero = np.zeros(1, dtype=np.float32)
    assert [one[name](zero)[0] for name in ("exp", "cos", "sigmoid", "expm1")] == [1, 1, 0.5, 0]
    assert one["log"](zero + 1)[0] == 0


def test_the_reference_itself_agrees_with_mpmath():
    x = np.array([0.3, -1.7, 12.5, 1e-20, -30.0, 700.0])
    for name in ("exp", "sin", "tanh", "atan", "asinh", "erf", "erfc", "expm1", "sigmoid"):
        with np.errstate(all="ignore"):
            wide = np.array([by_mpmath(name, value) for value in x], dtype=np.longdouble)
        computed = Evaluator(FUNCTIONS[name], 1, "double")(x)
        assert errors(computed, wide).max() <= BOUNDS[name][1]
