"""erf + 1 and tanh + 1, of which gelu is made, against references with more digits."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from vmath_accuracy import DTYPES, errors
from vmath_evaluate import Evaluator

from dovetail_llvm_exec.ir.target import host, named
from dovetail_llvm_exec.vmath import error, hyperbolic

X86 = host().triple.startswith("x86_64")
FORMS = [{}, {"lanes": 1}, *([{"target": named(host().triple, "x86-64")}] if X86 else [])]


def gelu(b, x):
    return b.mul(b.mul(x, 0.5), error.erf_plus_one(b, b.mul(x, math.sqrt(0.5))))


def gelu_at_once(b, x):
    return b.mul(x, error.normal_cdf(b, x))


def gelu_by_tanh(b, x):
    inner = b.mul(b.add(x, b.mul(b.mul(b.mul(x, x), x), 0.044715)), math.sqrt(2 / math.pi))
    return b.mul(b.mul(x, 0.5), hyperbolic.tanh_plus_one(b, inner))


def true_gelu(x: float) -> float:
    return float(x * mp.erfc(-mp.mpf(x) * mp.sqrt(mp.mpf(1) / 2)) / 2)


def true_gelu_by_tanh(x: float) -> float:
    x = mp.mpf(x)
    return float(x / (1 + mp.exp(-2 * mp.sqrt(2 / mp.pi) * (x + mp.mpf("0.044715") * x**3))))


@pytest.mark.parametrize("form", FORMS, ids=["vectors", "scalars", "baseline"][: len(FORMS)])
@pytest.mark.parametrize(("function", "true"), [(gelu, true_gelu), (gelu_at_once, true_gelu), (gelu_by_tanh, true_gelu_by_tanh)])
def test_gelu_is_within_three_units_of_the_last_place(function, true, form):
    x = np.concatenate([np.linspace(-1, 8, 3001), np.geomspace(1e-30, 1, 300), -np.geomspace(1e-30, 1, 300)]).astype(np.float32)
    computed = Evaluator(function, 1, "float", **form)(x)
    assert errors(computed, np.array([true(float(v)) for v in x], dtype=np.longdouble)).max() <= 3


@pytest.mark.parametrize("form", FORMS, ids=["vectors", "scalars", "baseline"][: len(FORMS)])
@pytest.mark.parametrize("gelu", [gelu, gelu_at_once])
def test_gelu_vanishes_as_it_should(gelu, form):
    x = np.linspace(-40, -1, 2001).astype(np.float32)
    computed = Evaluator(gelu, 1, "float", **form)(x)
    true = np.array([true_gelu(float(v)) for v in x])
    assert np.abs(computed - true).max() < 1e-7
    near = x > -4
    assert np.abs(computed[near] / true[near] - 1).max() < 2e-4  # erf(x) + 1 by itself has hardly a digit left there
    assert (computed <= 0).all()
    far = np.array([-40, -1e10, -1e30], dtype=np.float32)
    assert Evaluator(gelu, 1, "float", **form)(far).tolist() == [0, 0, 0]


@pytest.mark.parametrize("form", FORMS, ids=["vectors", "scalars", "baseline"][: len(FORMS)])
def test_what_is_rounded_to_16_bits_may_be_rough(form):
    x = np.linspace(-3, 9, 4001).astype(np.float32)
    computed = Evaluator(error.normal_cdf_roughly, 1, "float", **form)(x)
    true = np.array([float(mp.ncdf(mp.mpf(float(v)))) for v in x])
    assert np.abs(computed / true - 1)[x > -2].max() < 2.0**-15
    assert np.abs(computed - true).max() < 2.0**-16
    ends = Evaluator(error.normal_cdf_roughly, 1, "float", **form)(np.array([-np.inf, -30, 0, np.inf, np.nan], dtype=np.float32))
    assert ends[:4].tolist() == [0, 0, 0.5, 1]
    assert np.isnan(ends[4])


@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.parametrize("function", [error.erf_plus_one, hyperbolic.tanh_plus_one])
def test_ends_and_nan(function, element):
    x = np.array([-np.inf, -100, 0, -0.0, 100, np.inf, np.nan, -np.nan], dtype=DTYPES[element])
    computed = Evaluator(function, 1, element)(x)
    assert computed[:1].tolist() == [0]
    assert abs(computed[1]) < 1e-30
    assert computed[2:6].tolist() == [1, 1, 2, 2]
    assert np.isnan(computed[6:]).all()
    payloads = (np.uint32(0x7F800000) | np.uint32(2) ** np.arange(23, dtype=np.uint32)).view(np.float32)
    assert element != "float" or np.isnan(Evaluator(function, 1, element)(payloads)).all()
