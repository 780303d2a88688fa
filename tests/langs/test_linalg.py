"""Products: ranks, strides and spellings that PyTorch's own samples leave out."""

from __future__ import annotations

import pytest
import torch
from test_reduction import agrees, raises_as_eager

torch.manual_seed(0)


@pytest.mark.parametrize("left", ["b", "ab", "eab", "fEab"])
@pytest.mark.parametrize("right", ["b", "bc", "ebc"])
def test_matmul_of_every_two_ranks(left, right):
    sizes = {"a": 2, "b": 3, "c": 4, "e": 5, "E": 1, "f": 6}
    x, y = [torch.randn([sizes[c] for c in name]) for name in (left, right)]
    agrees(lambda x, y: x @ y, x, y, rtol=1e-4, atol=1e-5)


def test_matmul_of_a_batch_that_does_not_fold():
    agrees(lambda x, w: x.transpose(0, 1) @ w, torch.randn(2, 3, 4), torch.randn(4, 5), rtol=1e-4, atol=1e-5)


EINSUMS = {
    "ij,jk->ki": ("ab", "bc"),
    "ij,jk,kl->li": ("ab", "bc", "cd"),
    "bij,bjk->kib": ("eab", "ebc"),
    "ab,bcd->cad": ("ab", "bcd"),
    "bhqd,bkhd->bhqk": ("abcd", "aebd"),
    "...ij,...jk->...ik": ("eab", "bc"),
    "a,b,c->cab": ("a", "b", "c"),
    "iij,jk->ik": ("aab", "bc"),
    "ij->": ("ab",),
    "ij,ij->ji": ("ab", "ab"),
    "b i, b j -> i j": ("ea", "eb"),
}


@pytest.mark.parametrize("equation", EINSUMS)
def test_einsum_has_eagers_values_and_strides(equation):
    operands = [torch.randn([ord(c) - ord("a") + 2 for c in shape]) for shape in EINSUMS[equation]]
    agrees(lambda *xs: torch.einsum(equation, *xs), *operands, rtol=1e-4, atol=1e-5)


def test_einsum_of_sizes_one_broadcasts():
    agrees(lambda a, b: torch.einsum("ij,jk->ik", a, b), torch.randn(2, 1), torch.randn(3, 4), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.bool, torch.bfloat16])
@pytest.mark.parametrize("equation, sizes", [("ij->", (1, 1)), ("ij->i", (3, 1)), ("ii->", (1, 1)), ("ij->ji", (1, 3)), ("...i->...", (1, 1))])
def test_einsum_that_sums_sizes_of_one_is_a_sum_and_no_view(equation, sizes, dtype):
    def f(x):
        y = torch.einsum(equation, x)
        return y * 1, y.fill_(0)

    agrees(f, torch.ones(sizes, dtype=dtype))


def test_einsum_with_lists_of_subscripts():
    agrees(lambda a, b: torch.einsum(a, [..., 0, 1], b, [1, 2], [..., 2, 0]), torch.randn(5, 2, 3), torch.randn(3, 4), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("equation", ["ii->i", "ij->ji", "ij"])
def test_einsum_of_one_operand_is_a_view(equation):
    def f(x):
        x = x.clone()
        torch.einsum(equation, x).mul_(2)
        return x

    agrees(f, torch.randn(3, 3))


@pytest.mark.parametrize("equation", ["ij->k", "ij,jk", "i", "ij->ii", "iij", "i.j", "1j"])
def test_bad_equations_raise_as_in_eager(equation):
    raises_as_eager(lambda x: torch.einsum(equation, x), torch.randn(2, 3))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: torch.addmm(x[0, :2], x, x.t(), alpha=0.5, beta=3),
        lambda x: torch.addmm(x[0, :2] * torch.nan, x, x.t(), beta=0),
        lambda x: torch.addmv(x.sum(), x, x[0]),
        lambda x: torch.inner(x, x),
        lambda x: torch.outer(x[0], x[1] > 0),
        lambda x: torch.kron(x.t(), x.t()),
        lambda x: torch.linalg.multi_dot([x[0], x.t(), x, x.t(), x[:, 0]]),
        lambda x: torch.tensordot(x, x, ([1], [1])),
        lambda x: torch.matrix_power(x[:, :2], 5),
        lambda x: torch.linalg.cross(x, x[:1]),
        lambda x: torch.nn.functional.linear(x, x, x[0, :2]),
        lambda x: torch.nn.functional.linear(x, x[0]),
        lambda x: torch.nn.functional.bilinear(x, x, torch.stack([x.t() @ x] * 2)),
    ],
)
def test_products_are_eagers(fn):
    agrees(fn, torch.randn(2, 3), rtol=1e-4, atol=1e-5)


def test_addmm_in_place():
    def f(x, y):
        x = x.clone()
        x.addmm_(y, y, alpha=2)
        return x

    agrees(f, torch.randn(3, 3), torch.randn(3, 3), rtol=1e-4, atol=1e-5)


def test_half_precision_addmm_rounds_the_sum_once():
    x = torch.randn(8, 8, dtype=torch.bfloat16)
    agrees(lambda x: torch.addmm(x, x, x), x, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x @ x,
        lambda x: x.sum() @ x,
        lambda x: x @ x.t().double(),
        lambda x: torch.mm(x[0], x),
        lambda x: torch.bmm(x, x),
        lambda x: torch.dot(x[0], x[0, :2]),
        lambda x: (x > 0) @ (x > 0).t(),
        lambda x: torch.addmm(x, x, x.t()),
        lambda x: torch.nn.functional.linear(x, x[:, :2]),
        lambda x: torch.matrix_power(x, 2),
        lambda x: torch.linalg.multi_dot([x]),
        lambda x: torch.tensordot(x, x, ([0], [0, 1])),
        lambda x: torch.linalg.vecdot(x.long(), x.long()),
        lambda x: torch.linalg.cross(x, x[:, :2]),
    ],
)
def test_bad_calls_raise_as_in_eager(fn):
    raises_as_eager(fn, torch.randn(2, 3))
