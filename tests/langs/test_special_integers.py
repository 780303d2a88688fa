"""Special integers: pointwise operations, scans and reductions give exactly what eager gives, whatever the dtype, size and layout."""

from __future__ import annotations

import pytest
from special_integers import ALL, DTYPES, LARGE, LAYOUTS, SHAPES, check

EVERY = 20  # of the operations, those that were never wrong: so many are one test of `make test`
ONCE_WRONG = ("ldexp",)
SHARE = [(i, text) for i, text in enumerate(ALL) if i % EVERY == 0 or any(part in text for part in ONCE_WRONG)]


@pytest.mark.parametrize(("i", "text"), SHARE)
def test_special_integers_give_what_eager_gives(i, text):
    dtypes = DTYPES if any(part in text for part in ONCE_WRONG) else (DTYPES[i // EVERY % len(DTYPES)],)
    assert not [message for dtype in dtypes for message in check(text, (9, 63), dtype, LAYOUTS[i // EVERY % len(LAYOUTS)])]


def test_special_integers_of_large_tensors_give_what_eager_gives():
    assert not list(check("x * y + (x >> 3)", (LARGE,), DTYPES[1]))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("text", ALL)
def test_special_integers_of_every_dtype_size_and_layout_give_what_eager_gives(text, dtype):
    shapes = [shape for shape in SHAPES if shape != (LARGE,)]
    differences = [message for shape in shapes for layout in LAYOUTS for message in check(text, shape, dtype, layout)]
    assert not [*differences, *check(text, (LARGE,), dtype)]
