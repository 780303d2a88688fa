"""Reductions: what PyTorch's own samples leave out."""

from __future__ import annotations

import math

import harness
import pytest
import torch
from eager_versions import later
from harness import agrees, raises_as_eager

import dovetail

X = torch.tensor([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]])
BYTES = torch.tensor([[1, 0, 2], [0, 0, 3]], dtype=torch.uint8)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.sum(axis=0, keepdims=True),
        lambda x: torch.sum(x, (), dtype=torch.float64),
        lambda x: (x > 0).sum(),
        lambda x: (x > 0).sum(0, dtype=torch.bool),
        lambda x: x.prod(1, dtype=torch.float64),
        lambda x: torch.mean(x, (0, 1), True),
        lambda x: x.any(dim=()),
        lambda x: x.t().all(dim=()),
        lambda x: x.argmax(keepdim=True),
        lambda x: torch.logsumexp(x, (0, 1)),
        lambda x: torch.count_nonzero(x, dim=(0, 1)),
        lambda x: x.trace(),
    ],
)
def test_dims_dtypes_and_names_are_eagers(fn):
    agrees(fn, X)


@pytest.mark.parametrize("fn", [torch.any, torch.all, lambda x: x.any(0, True)])
def test_any_and_all_of_bytes_are_bytes(fn):
    agrees(fn, BYTES)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.max(),
        lambda x: x.max(1),
        lambda x: x.max(dim=1, keepdim=True),
        lambda x: torch.max(x, x.t().reshape(2, 3)),
        lambda x: torch.max(x, other=-x),
    ],
)
def test_max_means_three_things(fn):
    agrees(fn, X)


def test_max_along_a_dim_returns_a_named_pair():
    got = dovetail.jit(lambda x: x.min(0))(X)
    assert isinstance(got, torch.return_types.min)
    assert got.indices.tolist() == [0, 0, 1]


def test_the_maximum_of_nan_is_nan_at_its_first_place():
    agrees(lambda x: x.max(1), torch.tensor([[1.0, math.nan, 3.0, math.nan]]))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.var(False),
        lambda x: x.std(0, False, True),
        lambda x: torch.var(x, correction=0.5),
        lambda x: torch.var_mean(x, 1, keepdim=True),
        lambda x: torch.std_mean(x, (0, 1), unbiased=False),
        lambda x: torch.corrcoef(x),
    ],
)
def test_variances_take_unbiased_or_correction(fn):
    agrees(fn, X)


@pytest.mark.parametrize("correction", [6, 9])
@pytest.mark.parametrize("fn", [torch.var, torch.std, torch.var_mean, torch.std_mean])
def test_variances_without_freedom_have_eagers_gradient(fn, correction):
    """It is infinite, or NaN for the mean itself, but along dimensions that are named."""

    def total(*args):
        out = fn(*args, correction=correction)
        return out[0] + out[1] if isinstance(out, tuple) else out

    for x in (torch.tensor([-2.0, -1.0, 0.0, 0.0, 1.0, 2.0]), X.flatten()[:6], torch.tensor(3.0)):
        harness.gradients_agree(total, x, equal_nan=True)
    harness.gradients_agree(lambda x: total(x, (0, 1)), X[:2, :3], equal_nan=True)


def test_half_precision_sums_are_collected_in_float32():
    x = torch.full((4096,), 1.0, dtype=torch.bfloat16)
    for way in harness.ways().values():
        assert harness.ours(lambda x: (x.sum(), x.mean()), (x,), {}, way).leaves[:2] == [4096.0, 1.0]


def test_logsumexp_of_nothing_but_minus_infinity():
    agrees(lambda x: torch.logsumexp(x, 0), torch.full((3,), -math.inf))
    agrees(lambda x: torch.logsumexp(x, 0), torch.zeros(0, 2))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.sum(2),
        lambda x: x.sum((0, 0)),
        lambda x: x[:0].amax(),
        lambda x: x[:0].amax(0),
        lambda x: x[:0].max(),
        lambda x: x[:0].argmax(),
        lambda x: torch.max(x, keepdim=True),
        lambda x: (x > 0).argmax(),
        lambda x: x.long().mean(),
        lambda x: x.long().std(),
        lambda x: torch.var(x, 0, unbiased=True, correction=1, keepdim=3),
        lambda x: torch.prod(x, (0, 1)),
        pytest.param(lambda x: torch.logsumexp(x, None), marks=later("looks for the name of a dimension")),
        lambda x: torch.nansum(x * 1j),
        lambda x: x[0].trace(),
    ],
)
def test_bad_calls_raise_as_in_eager(fn):
    raises_as_eager(fn, X)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: torch.linalg.norm(x),
        lambda x: torch.linalg.norm(x, 1),
        lambda x: torch.linalg.norm(x, -math.inf, dim=(1, 0), keepdim=True),
        lambda x: x.norm(p=3, dim=1),
        lambda x: torch.norm(x, "fro", dim=(0, 1)),
        lambda x: torch.linalg.vector_norm(x * 0, 0.5, dtype=torch.float64),
        lambda x: torch.dist(x, x[0], math.inf),
        lambda x: torch.nn.functional.cosine_similarity(x, x[:1] * 0),
    ],
)
def test_norms_are_eagers(fn):
    agrees(fn, X)


def test_singular_values_stay_torchs_own():
    f = lambda x: (torch.linalg.norm(x, "nuc"), torch.linalg.matrix_norm(x, 2))  # noqa: E731
    torch.testing.assert_close(dovetail.jit(f)(X), f(X))


@pytest.mark.parametrize(
    "fn",
    [lambda x: torch.linalg.norm(x, "fro", dim=1), lambda x: torch.linalg.matrix_norm(x, 3), lambda x: torch.linalg.vector_norm(x[:0], math.inf)],
)
def test_norms_that_are_none_raise_as_in_eager(fn):
    raises_as_eager(fn, X)


@pytest.mark.parametrize("fn", [torch.max, lambda x: torch.amin(x, 0), lambda x: torch.linalg.vector_norm(x, math.inf)])
def test_more_equal_elements_than_float16_counts_share_a_gradient(fn):
    ours, eagers = (torch.full((70_000,), 2.0, dtype=torch.float16, requires_grad=True) for _ in range(2))
    dovetail.jit(fn)(ours).backward(torch.tensor(8.0, dtype=torch.float16))
    fn(eagers).backward(torch.tensor(8.0, dtype=torch.float16))
    torch.testing.assert_close(ours.grad, eagers.grad)


ACCUMULATED = {  # what eager mode adds up, or multiplies, in the dtype of out=
    "sum": lambda x, out: torch.sum(x, 1, out=out),
    "nansum": lambda x, out: torch.nansum(x, 1, out=out),
    "mean": lambda x, out: torch.mean(x, 1, out=out),
    "nanmean": lambda x, out: torch.nanmean(x, 1, out=out),
    "prod": lambda x, out: torch.prod(x, 1, out=out),
    "var": lambda x, out: torch.var(x, 1, out=out),
    "std": lambda x, out: torch.std(x, 1, correction=0, out=out),
    "cumsum": lambda x, out: torch.cumsum(x, 1, out=out),
    "cumprod": lambda x, out: torch.cumprod(x, 1, out=out),
    "logsumexp": lambda x, out: torch.logsumexp(x, 1, out=out),
}


@pytest.mark.parametrize("name", ACCUMULATED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int8], ids=str)
@pytest.mark.parametrize("into", [torch.float64, torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_results_are_accumulated_in_the_dtype_of_out(name, dtype, into):
    x = (torch.randn(3, 70) * 3).to(dtype)
    mine, theirs = (torch.zeros((3, 70) if name.startswith("cum") else 3, dtype=into) for _ in range(2))
    compiled = dovetail.jit(ACCUMULATED[name])
    try:
        ACCUMULATED[name](x, theirs)
    except RuntimeError:
        with pytest.raises(RuntimeError):
            compiled(x, mine)
        return
    for _ in range(2):
        assert compiled(x, mine) is mine
        rtol = None if into is not torch.float64 else 1e-5 if name == "logsumexp" else 1e-12  # the terms of logsumexp have the dtype of x
        torch.testing.assert_close(mine, theirs, rtol=rtol, atol=rtol and 0)


@pytest.mark.parametrize("into", [torch.float64, torch.float32, torch.bfloat16, torch.complex64], ids=str)
@pytest.mark.parametrize("fn", [lambda x, out: torch.normal(x, 2.0, out=out), lambda x, out: torch.normal(1.0, x.abs(), out=out), torch.normal])
def test_normal_numbers_with_tensors_of_means_are_drawn_in_the_dtype_of_out(fn, into):
    x, results = torch.linspace(-1, 30, 20), []
    for each in (fn, dovetail.jit(fn)):
        torch.manual_seed(0)
        results.append(each(x, out=torch.empty(20, dtype=into)))
    torch.testing.assert_close(*results, rtol=0, atol=0)
