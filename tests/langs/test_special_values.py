"""Special numbers: pointwise operations, scans and reductions give what eager gives, their gradients too, whatever the size."""

from __future__ import annotations

import inspect
import re
from itertools import product

import pytest
import torch
from eager_versions import later
from special_values import ALL, BINARY, DTYPES, LARGE, REDUCTIONS, REDUCTIONS_ALONG, SCANS, SHAPES, UNARY, check, spaced

from dovetail.langs.torch.binding.symbol import TABLE

EVERY = 12  # of the operations, those that were never wrong: so many are one test of `make test`
ONCE_WRONG = (
    *(
        "F.elu(x)",
        "F.selu(x)",
        "F.celu(x, 0.5)",
        "F.silu(x)",
        "F.mish(x)",
        "F.glu(",
        "torch.hypot",
        "torch.ldexp",
        "rounding_mode='trunc'",
        "logaddexp2",
    ),
    *("mvlgamma", "F.binary_cross_entropy_with_logits", "F.poisson_nll_loss(x, y, log", "torch.lerp(x, y, 0.75)", "cumprod", "torch.var(x, {d})"),
    *("torch.prod(x, {d})", "torch.prod(x)", "vector_norm(x, 2,", "vector_norm(x, 0.5,", "vector_norm(x, -1,", "gaussian_nll", "torch.logit(x)"),
)
SHARE = [text for i, text in enumerate(ALL) if i % EVERY == 0 or any(part in text for part in ONCE_WRONG)]
LATER = later("computes the gradient of ldexp by multiplications that overflow elsewhere")
FAMILIES = ("elementwise", "activation", "comparison", "special", "loss", "binary_cross_entropy", "reduction", "statistics", "vector_norm", "scan")
WITHOUT = {
    *("bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor"),  # of integers
    *("real", "imag", "conj", "conj_physical", "complex", "polar"),  # of complex numbers
    *("cov", "corrcoef", "matrix_norm", "trace", "cosine_similarity", "pairwise_distance"),  # of rows that are multiplied or subtracted first
    *("triplet_margin_loss", "cosine_embedding_loss"),  # the same
    *("argsort", "msort"),  # sort
}


@pytest.mark.parametrize("text", [pytest.param(text, marks=LATER if "ldexp" in text else ()) for text in SHARE])
def test_special_numbers_give_what_eager_gives(text):
    shape = (100, 63) if text in (*SCANS, *REDUCTIONS, *REDUCTIONS_ALONG) else (64,)
    assert not list(check(text, shape, torch.float32, gradient=True))


@pytest.mark.parametrize("i", range(0, len(ALL), 40))
def test_special_numbers_of_strided_arguments_give_what_eager_gives(i):
    assert not list(check(ALL[i], (100, 63), DTYPES[i // 40 % len(DTYPES)], gradient=True, layout=spaced))


@pytest.mark.slow
@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("i", range(len(ALL)))
def test_special_numbers_of_large_and_of_strided_arguments_give_what_eager_gives(i, gradient):
    text, dtype = ALL[i], DTYPES[i % len(DTYPES)]
    differences = [*check(text, (100, 63), dtype, gradient, layout=spaced), *check(text, (65,), dtype, gradient, layout=spaced)]
    assert not [*differences, *(check(text, (LARGE,), dtype, gradient) if i % 5 == 0 else ())]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("text", ALL)
def test_special_numbers_of_every_dtype_and_size_give_what_eager_gives(text, dtype):
    shapes = SHAPES if dtype in (torch.float32, torch.float64) else SHAPES[2:]
    assert not [message for shape, gradient in product(shapes, (False, True)) for message in check(text, shape, dtype, gradient)]


def test_every_operation_of_these_families_has_special_numbers():
    words = set(re.findall(r"\w+", " ".join(ALL)))
    names = {}
    for fn, symbol in TABLE.items():
        module = inspect.getmodule(getattr(symbol, "meta", None))
        if module is not None and module.__name__.rpartition(".")[2] in FAMILIES and not symbol.id.endswith("_"):
            names.setdefault(symbol.id, {symbol.id.rpartition(".")[2]}).add(getattr(fn, "__name__", ""))
    missing = sorted(id for id, known in names.items() if not known & (words | WITHOUT))
    assert not missing, missing
    assert len(UNARY) + len(BINARY) > 200
