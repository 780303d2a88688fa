"""Ints of the arguments that outgrow the 64 bits in which kernels and prologues compute sizes."""

from __future__ import annotations

import pytest
import torch

import dovetail
from dovetail.prims.sizes import Relations, magnitude

X = torch.ones(2, dtype=torch.float64)
PROGRAMS = {
    "sum": lambda x, n: x * ((n + n) % 1009),
    "product": lambda x, n: x * (n * 1000003 % 65537),
    "generator of random numbers": lambda x, n: x * ((n * 6364136223846793005 + 1) % 65536),
    "hash": lambda x, n: x * ((n * 2654435761) % 2**32 >> 16),
    "power": lambda x, n: x * (n**3 % 1000),
    "shift": lambda x, n: x * ((n << 33) % 1000),
    "quotient": lambda x, n: x * ((n * 1000003) // 7 * 1000003 % 11),
    "branch": lambda x, n: x * 2 if n * n > 100 else x * 3,
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore:.*is compiled for each value")
def test_no_number_wraps_around(name):
    program = PROGRAMS[name]
    compiled = dovetail.jit(program)
    for n in (3, 4, 5, 2**20, 2**31 - 1, 2**31, 2**32 + 1, 2**62, 2**63, 2**70 + 1, 4, 6):
        torch.testing.assert_close(compiled(X, n), program(X, n))


def test_sizes_of_tensors_are_taken_to_fit():
    relations = Relations()
    b, t, c = (relations.symbol(8, origin=name) for name in "btc")
    n = relations.symbol(8, high=(1 << 31) - 1)

    assert magnitude(b * t * c * 12) < 1 << 63
    assert magnitude(b * t * t) < 1 << 63
    assert magnitude(n * n) < 1 << 63
    assert magnitude(n * n * n) > 1 << 63
    assert magnitude(b * b * b) > 1 << 63
    assert magnitude(n * (1 << 20) // 65537 * 65537) < 1 << 63


def test_a_loop_that_halves_a_number_again_and_again():
    def steps(x, n):
        count = 0
        while n > 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            count += 1
            x = x + n
        return x, count

    compiled = dovetail.jit(steps)
    for n in (6, 7, 1, 6, 12, 27, 97, 27, 703):
        assert compiled(X, n)[1] == steps(X, n)[1]
        torch.testing.assert_close(compiled(X, n), steps(X, n))


def test_quotients_of_quotients_have_bounds():
    n = Relations().symbol(1 << 40, high=1 << 41)
    for _ in range(40):
        n = n + (n + 1) // 3
        assert n > 1 and (n + 1) // 2 < 1 << 62
