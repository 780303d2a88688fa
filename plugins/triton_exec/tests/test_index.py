import math

from hypothesis import given
from hypothesis import strategies as st

from dovetail_triton_exec.index import Digit, Form, Var, divmod_form, evaluate, linear, plus, regrouped, shifted, split, times, whole

SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=4)


def test_a_variable_taken_apart_and_put_together_is_itself():
    x = Var("x", 24)
    coords = split(whole(x), (2, 3, 4))
    assert linear(coords, (12, 4, 1)) == whole(x)
    assert coords[1] == Form(0, ((Digit(x, 4, 3), 1),))


def test_transposed_coordinates_stay_digits():
    x = Var("x", 12)
    i, j = split(whole(x), (3, 4))
    assert linear((j, i), (1, 4)) == Form(0, ((Digit(x, 1, 4), 1), (Digit(x, 4, 3), 4))) or evaluate(linear((j, i), (1, 4)), {x: 7}) == 7


def test_a_quotient_that_carries_is_a_digit_of_the_form():
    x = Var("x", 10)
    quotient, rest = divmod_form(shifted(whole(x), 3), 4)
    for n in range(10):
        assert (evaluate(quotient, {x: n}), evaluate(rest, {x: n})) == divmod(n + 3, 4)


def factored(n: int, draw) -> list[int]:
    """Some shape of n elements."""
    shape = []
    while n > 1:
        size = draw(st.sampled_from([d for d in range(2, n + 1) if n % d == 0]))
        shape.append(size)
        n //= size
    return shape or [1]


@given(st.data(), SHAPES)
def test_regrouped_coordinates_name_the_same_element(data, shape):
    total = math.prod(shape)
    new = factored(total, data.draw)
    x = Var("x", total)
    order = data.draw(st.permutations(range(len(shape))))
    digits = dict(zip(order, split(whole(x), [shape[d] for d in order]), strict=True))
    coords = tuple(digits[d] for d in range(len(shape)))
    moved = regrouped(coords, shape, new)
    for n in range(total):
        old_position = evaluate(linear(coords, row_major(shape)), {x: n})
        assert evaluate(linear(moved, row_major(new)), {x: n}) == old_position
        assert all(0 <= evaluate(c, {x: n}) < size for c, size in zip(moved, new, strict=True))


@given(st.integers(1, 40), st.integers(0, 9), st.integers(1, 7), st.integers(1, 12))
def test_division_of_a_shifted_multiple(size, shift, factor, k):
    x = Var("x", size)
    form = shifted(times(whole(x), factor), shift)
    quotient, rest = divmod_form(form, k)
    for n in range(size):
        value = n * factor + shift
        assert (evaluate(quotient, {x: n}), evaluate(rest, {x: n})) == divmod(value, k)
        assert form.low <= value <= form.high


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
def test_digits_of_digits(a, b, c, k):
    x = Var("x", a * b * c)
    _, middle, inner = split(whole(x), (a, b, c))
    form = plus(times(inner, b), middle)
    quotient, rest = divmod_form(form, k)
    for n in range(x.size):
        assert (evaluate(quotient, {x: n}), evaluate(rest, {x: n})) == divmod(n % c * b + n // c % b, k)


def row_major(shape):
    steps, step = [], 1
    for n in reversed(shape):
        steps.append(step)
        step *= n
    return steps[::-1]
